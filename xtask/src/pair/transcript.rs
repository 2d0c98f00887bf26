//! Sent and received lines of one scenario, as text. Values that differ in every run (names, times) are replaced by
//! placeholders, so that two runs of the same script have equal transcripts.

use std::fmt::Write;

/// Prefixes of names that servers generate.
const MADE_UP: [&str; 3] = ["amq.gen-", "amq.ctag-", "amq.rabbitmq.reply-to."];

#[derive(Debug, Default)]
pub(super) struct Transcript {
    pub(super) lines: Vec<String>,
    /// Generated names, in order of their first appearance.
    names: Vec<String>,
}

impl Transcript {
    pub(super) fn send(&mut self, line: &str) {
        self.lines.push(format!("> {line}"));
    }

    pub(super) fn receive(&mut self, from: &str, what: &str) {
        let what = self.without_names(&without_values(what));
        self.lines.push(format!("< {from} {what}"));
    }

    /// Replaces generated names by `<amq.gen-1>` and so on.
    fn without_names(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((at, start)) =
            MADE_UP.iter().filter_map(|start| Some((rest.find(start)?, *start))).min()
        {
            let name = &rest[at..];
            let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.+/=".contains(c);
            let end = name.find(|c| !is_part(c)).unwrap_or(name.len());
            let name = name[..end].trim_end_matches('.');
            out.push_str(&rest[..at]);
            let number = match self.names.iter().position(|known| known == name) {
                Some(place) => place,
                None => {
                    self.names.push(name.to_owned());
                    self.names.len() - 1
                }
            };
            let _ = write!(out, "<{start}{}>", number + 1);
            rest = &rest[at + name.len()..];
        }
        out + rest
    }

    /// Replaces placeholders in a script's line by the generated names.
    pub(super) fn with_names(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (place, name) in self.names.iter().enumerate() {
            for start in MADE_UP {
                text = text.replace(&format!("<{start}{}>", place + 1), name);
            }
        }
        text
    }
}

/// Replaces times in dead letters' headers, and the name of the server.
fn without_values(text: &str) -> String {
    let text = without_value(text, "time: time(", ')', "time: <time>");
    without_value(&text, "cluster_name: \"", '"', "cluster_name: <name>")
}

/// Replaces each text from `begin` to `end` by `instead`.
fn without_value(text: &str, begin: &str, end: char, instead: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(begin) {
        out.push_str(&rest[..at]);
        out.push_str(instead);
        rest = &rest[at + begin.len()..];
        rest = rest.find(end).map_or("", |end| &rest[end + 1..]);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_are_replaced_and_can_be_put_back() {
        let mut transcript = Transcript::default();
        transcript.receive("A.1", "queue.declare_ok queue=\"amq.gen-Xy_1\" message_count=0");
        transcript.receive("A.1", "basic.consume_ok consumer_tag=\"amq.ctag-ab==\"");
        transcript.receive("A.1", "no queue 'amq.gen-Xy_1' {time: time(17), x: 1}");
        transcript.receive("A.0", "connection.start {cluster_name: \"rabbit@a\", x: 1}");
        assert_eq!(
            transcript.lines,
            [
                "< A.1 queue.declare_ok queue=\"<amq.gen-1>\" message_count=0",
                "< A.1 basic.consume_ok consumer_tag=\"<amq.ctag-2>\"",
                "< A.1 no queue '<amq.gen-1>' {time: <time>, x: 1}",
                "< A.0 connection.start {cluster_name: <name>, x: 1}",
            ]
        );
        assert_eq!(transcript.with_names("queue=\"<amq.gen-1>\""), "queue=\"amq.gen-Xy_1\"");
    }
}
