use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Failure;

/// Address of a system, and its settings.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Target {
    /// Name on the command line: `rabbitmq-quorum`.
    pub system: String,
    /// `host:port`, or a URL where the system uses URLs; several nodes of one cluster. Empty: the
    /// system's default address.
    pub endpoints: Vec<String>,
    pub user: Option<String>,
    pub password: Option<String>,
    pub settings: BTreeMap<String, String>,
}

impl Target {
    pub fn of(system: &str) -> Self {
        Self { system: system.to_owned(), ..Self::default() }
    }

    /// The first endpoint, or the system's default address.
    pub fn endpoint<'a>(&'a self, default: &'a str) -> &'a str {
        self.endpoints.first().map_or(default, String::as_str)
    }

    /// The settings, to be taken one by one. Settings that remain at the end are an error.
    pub fn settings(&self) -> Settings {
        Settings { left: self.settings.clone() }
    }
}

#[derive(Debug)]
pub struct Settings {
    left: BTreeMap<String, String>,
}

impl Settings {
    pub fn take<T: FromStr<Err: Display>>(&mut self, name: &str, default: T) -> Result<T, Failure> {
        let Some(text) = self.left.remove(name) else { return Ok(default) };
        text.parse().map_err(|why: T::Err| Failure::Setting {
            name: name.to_owned(),
            why: format!("{text:?}: {why}"),
        })
    }

    /// Fails if settings remain. An unknown setting would be mistaken for one with an effect.
    pub fn done(self) -> Result<(), Failure> {
        match self.left.into_keys().next() {
            None => Ok(()),
            Some(name) => {
                Err(Failure::Setting { name, why: "this system's driver does not know it".into() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_defaults_and_unknown_ones_are_refused() {
        let mut target = Target::of("any");
        target.settings.insert("prefetch".into(), "10".into());
        target.settings.insert("prefetsch".into(), "10".into());
        let mut settings = target.settings();
        assert_eq!(settings.take("prefetch", 100), Ok(10));
        assert_eq!(settings.take("window", 200), Ok(200));
        let refused = settings.done().expect_err("one is left");
        assert!(refused.to_string().contains("prefetsch"), "{refused}");
    }

    #[test]
    fn unparsable_setting_is_named() {
        let mut target = Target::of("any");
        target.settings.insert("prefetch".into(), "many".into());
        let refused = target.settings().take("prefetch", 100).expect_err("is no number");
        assert_eq!(
            refused.to_string(),
            r#"setting prefetch: "many": invalid digit found in string"#
        );
    }
}
