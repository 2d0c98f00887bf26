use std::collections::BTreeMap;
use std::fmt::{Display, Write};

/// The lines of a server's configuration. Locations (addresses, folders, names) are separate from
/// settings that change its behaviour, because the latter go into every result.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Config {
    lines: Vec<(String, String)>,
    settings: BTreeMap<String, String>,
}

impl Config {
    /// Adds a location, which is omitted from results.
    pub(crate) fn place(mut self, name: &str, value: impl Display) -> Self {
        self.lines.push((name.to_owned(), value.to_string()));
        self
    }

    /// Adds a setting that differs from its default.
    pub(crate) fn set(mut self, name: &str, value: impl Display) -> Self {
        self.settings.insert(name.to_owned(), value.to_string());
        self.place(name, value)
    }

    pub(crate) fn set_if(self, condition: bool, name: &str, value: impl Display) -> Self {
        if condition { self.set(name, value) } else { self }
    }

    /// Renders the lines, with `between` between name and value.
    pub(crate) fn render(&self, between: &str) -> String {
        let mut text = String::new();
        for (name, value) in &self.lines {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name}{between}{value}");
        }
        text
    }

    pub(crate) fn settings(&self) -> BTreeMap<String, String> {
        self.settings.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_written_and_only_settings_are_reported() {
        let config = Config::default()
            .place("log.dirs", "/data")
            .set("log.flush.interval.messages", 1)
            .set_if(false, "min.insync.replicas", 2);
        assert_eq!(config.render("="), "log.dirs=/data\nlog.flush.interval.messages=1\n");
        let settings = config.settings();
        assert_eq!(settings.len(), 1);
        assert_eq!(settings["log.flush.interval.messages"], "1");
    }
}
