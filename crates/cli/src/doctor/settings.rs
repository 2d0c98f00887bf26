//! Settings of the node, from its configuration file and this environment, without secrets.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::redaction::Redaction;

/// Users with their passwords: only the names are shown.
const USERS: &str = "amqp-user";
/// Files whose first line is a secret.
const SECRET_FILES: [&str; 2] = ["admin-password-file", "peer-secret"];

/// A setting of `postroad serve`. The server declares them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownSetting {
    /// The long flag, which is the key in the file, too.
    pub name: String,
    /// The environment variable.
    pub variable: String,
}

#[derive(Serialize, Default)]
pub(super) struct Settings {
    /// Reason why the configuration file could not be read.
    pub(super) unreadable: Option<String>,
    /// Values of the configuration file.
    pub(super) file: BTreeMap<String, String>,
    /// Values of this command's environment, which may differ from the node's.
    pub(super) environment: BTreeMap<String, String>,
}

impl Settings {
    /// The value, as far as known here.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.environment.get(name).or_else(|| self.file.get(name)).map(String::as_str)
    }
}

pub(super) fn read(
    config: Option<&Path>,
    known: &[KnownSetting],
    left_out: &mut Redaction,
) -> Settings {
    let mut settings = Settings::default();
    for KnownSetting { name, variable } in known {
        if let Ok(value) = std::env::var(variable) {
            let values: Vec<String> = match *name == USERS {
                true => value.split(' ').map(str::to_owned).collect(),
                false => vec![value],
            };
            settings.environment.insert(name.clone(), shown(name, values, left_out));
        }
    }
    let Some(path) = config else { return settings };
    let read = std::fs::read_to_string(path).map_err(|error| error.to_string());
    // The parser's message may quote a secret.
    let parsed = read.and_then(|text| text.parse::<toml::Table>().map_err(|_| "no TOML".into()));
    match parsed {
        Ok(table) => {
            for (name, value) in table {
                let text = match known.iter().any(|known| known.name == name) {
                    true => shown(&name, values(value), left_out),
                    false => "(no setting, and left out)".to_owned(),
                };
                settings.file.insert(name, text);
            }
        }
        Err(why) => settings.unreadable = Some(format!("{}: {why}", path.display())),
    }
    settings
}

fn values(value: toml::Value) -> Vec<String> {
    match value {
        toml::Value::Array(all) => all.into_iter().flat_map(values).collect(),
        toml::Value::String(text) => vec![text],
        other => vec![other.to_string()],
    }
}

fn shown(name: &str, values: Vec<String>, left_out: &mut Redaction) -> String {
    if SECRET_FILES.contains(&name) {
        values.iter().for_each(|path| left_out.add_file(Path::new(path)));
    }
    let shown = values.into_iter().map(|value| match (name == USERS, value.split_once(':')) {
        (true, Some((user, password))) => {
            left_out.add(password.to_owned());
            format!("{user}:(left out)")
        }
        _ => value,
    });
    shown.collect::<Vec<_>>().join(" ")
}
