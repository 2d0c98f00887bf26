//! Redaction of the bundle: every secret known to this process, wherever it occurs, and text that looks like one.

use std::path::Path;

use super::ClientOptions;
use crate::operator_token;

/// Replacement of a secret.
const MARK: &str = "(left out)";
/// Shorter secrets would match everywhere.
const SECRET_BYTES_MIN: usize = 4;
/// Names of a secret: the next word after one of them is removed.
const NAMES: [&str; 6] = ["password", "passwd", "passphrase", "secret", "token", "credential"];
/// The same, but up to the end of the line.
const HEADERS: [&str; 4] = ["authorization", "cookie", "sasl.jaas.config", "private key"];
/// Variables with secrets.
const VARIABLES: [&str; 2] = ["POSTROAD_PASSWORD", "POSTROAD_TOKEN"];

pub(super) struct Redaction(Vec<String>);

impl Redaction {
    pub(super) fn new() -> Self {
        let mut known = Self(Vec::new());
        VARIABLES.iter().filter_map(|name| std::env::var(name).ok()).for_each(|it| known.add(it));
        known
    }

    pub(super) fn add(&mut self, secret: String) {
        if secret.len() >= SECRET_BYTES_MIN && !self.0.contains(&secret) {
            self.0.push(secret);
            // A secret may contain another one.
            self.0.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        }
    }

    /// Adds the first line of a file, which is a secret.
    pub(super) fn add_file(&mut self, path: &Path) {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        self.add(text.lines().next().unwrap_or_default().trim().to_owned());
    }

    pub(super) fn add_secrets_of(&mut self, data: &Path, client: &ClientOptions) {
        self.add_file(&operator_token::path(data));
        for path in [&client.password_file, &client.token_file].into_iter().flatten() {
            self.add_file(path);
        }
        [&client.password, &client.token].into_iter().flatten().for_each(|it| self.add(it.clone()));
    }

    pub(super) fn without(&self, text: &str) -> String {
        let known = self.0.iter().fold(text.to_owned(), |text, it| text.replace(it, MARK));
        let mut clean = String::with_capacity(known.len());
        for line in known.split_inclusive('\n') {
            clean.push_str(&redacted_line(line));
        }
        clean
    }
}

fn redacted_line(line: &str) -> String {
    let lower = line.to_ascii_lowercase();
    let end = line.trim_end_matches(['\n', '\r']).len();
    for name in HEADERS {
        if let Some(at) = lower.find(name) {
            let from = at + name.len();
            let before = redacted_line(&line[..at]);
            return format!("{before}{}: {MARK}{}", &line[at..from], &line[end..]);
        }
    }
    let mut clean = String::new();
    let mut at = 0;
    while let Some((from, to)) = next_secret(line, &lower, at) {
        clean.push_str(&line[at..from]);
        clean.push_str(MARK);
        at = to;
    }
    clean.push_str(&line[at..]);
    without_userinfo(&clean)
}

/// The range of the next value that follows the name of a secret.
fn next_secret(line: &str, lower: &str, at: usize) -> Option<(usize, usize)> {
    let found = NAMES.iter().filter_map(|name| Some(lower[at..].find(name)? + at + name.len()));
    let mut ends: Vec<usize> = found.collect();
    ends.sort_unstable();
    let between = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '=' | ':');
    ends.into_iter().find_map(|end| {
        let rest = &line[end..];
        let gap = rest.len() - rest.trim_start_matches(between).len();
        let value = &rest[gap..];
        let length = value
            .find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ';' | '}' | ')'))
            .unwrap_or(value.len());
        let is_said = rest[..gap].contains(['=', ':']) && length > 0;
        (is_said && !value.starts_with(MARK)).then_some((end + gap, end + gap + length))
    })
}

/// Removes `//NAME:PASSWORD@` from an address.
fn without_userinfo(line: &str) -> String {
    let mut clean = String::new();
    let mut rest = line;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        clean.push_str(before);
        let host = after.find(|c: char| c.is_whitespace() || matches!(c, '/' | '"' | '\''));
        let authority = &after[..host.unwrap_or(after.len())];
        match authority.rfind('@') {
            Some(end) => {
                clean.push_str(MARK);
                rest = &after[end..];
            }
            None => rest = after,
        }
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_looks_like_a_secret_is_removed() {
        for (line, expected) in [
            ("nothing of it", "nothing of it"),
            ("the password of app is wrong", "the password of app is wrong"),
            ("password=hunter2 user=app", "password=(left out) user=app"),
            (r#"{"Password": "hunter2","a":1}"#, r#"{"Password": "(left out)","a":1}"#),
            ("client_secret: abc, token='def'", "client_secret: (left out), token='(left out)'"),
            ("Authorization: Basic aGVsbG8= x\n", "Authorization: (left out)\n"),
            ("amqp://app:hunter2@host:5672/v", "amqp://(left out)@host:5672/v"),
            ("see http://host/path@x", "see http://host/path@x"),
        ] {
            assert_eq!(Redaction(Vec::new()).without(line), expected);
        }
    }

    #[test]
    fn known_secrets_are_removed_everywhere() {
        let mut known = Redaction(Vec::new());
        ["canary", "canary-long", "abc"].into_iter().for_each(|it| known.add(it.to_owned()));
        let text = "a canary-long b canary\nabc";
        assert_eq!(known.without(text), "a (left out) b (left out)\nabc");
    }
}
