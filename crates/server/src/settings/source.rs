//! Source of a setting: the command line, the environment or the file. Errors name the source, and unknown variables
//! are reported.

use std::path::Path;

use clap::{Args, Command};
use cli::KnownSetting;

use super::{ServeFlags, SettingsError};

/// Variables that commands other than `serve`, and tests, read.
const OTHERS: [&str; 9] = [
    "POSTROAD_BOOTSTRAP",
    "POSTROAD_TOKEN",
    "POSTROAD_TOKEN_FILE",
    "POSTROAD_LOGIN",
    "POSTROAD_PASSWORD",
    "POSTROAD_PASSWORD_FILE",
    "POSTROAD_SASL",
    "POSTROAD_TLS_CA",
    "POSTROAD_PANIC_IN",
];
/// Variables that Kubernetes sets in each container for a service called `postroad`.
const OF_KUBERNETES: [&str; 2] = ["POSTROAD_PORT", "POSTROAD_SERVICE_"];
const PREFIX: &str = "POSTROAD_";

/// Adds its source to a wrong setting.
pub(super) fn sourced(error: SettingsError, file: Option<&Path>) -> SettingsError {
    let SettingsError::Invalid { setting, value, problem } = error else { return error };
    let arguments: Vec<String> = std::env::args().collect();
    let is_set = |variable: &str| std::env::var_os(variable).is_some();
    let source = source_of(setting, &arguments, is_set, file);
    SettingsError::Sourced { place: source, value, problem }
}

fn source_of(
    setting: &str,
    arguments: &[String],
    is_set: impl Fn(&str) -> bool,
    file: Option<&Path>,
) -> String {
    let flag = format!("--{setting}");
    let is_flag = |it: &String| {
        it.strip_prefix(&*flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    let variable = variable_of(setting);
    match file {
        _ if arguments.iter().any(is_flag) => flag,
        _ if is_set(&variable) => format!("the variable {variable}"),
        Some(file) => format!("{setting} in {}", file.display()),
        None => flag,
    }
}

fn variable_of(setting: &str) -> String {
    format!("{PREFIX}{}", setting.replace('-', "_").to_ascii_uppercase())
}

/// The variable that caused clap's error of an invalid value.
pub(crate) fn variable_of_wrong_flag(argument: &str) -> Option<String> {
    let setting = argument.strip_prefix("--")?.split([' ', '=']).next()?;
    let variable = variable_of(setting);
    let flag = format!("--{setting}");
    let is_flag = |it: String| it == flag || it.starts_with(&format!("{flag}="));
    let is_from_variable = std::env::var_os(&variable).is_some() && !std::env::args().any(is_flag);
    is_from_variable.then_some(variable)
}

/// All settings.
pub(crate) fn known_settings() -> Vec<KnownSetting> {
    let flags = ServeFlags::augment_args(Command::new("serve"));
    let known = flags.get_arguments().filter_map(|argument| {
        let variable = argument.get_env()?.to_str()?.to_owned();
        Some(KnownSetting { name: argument.get_long()?.to_owned(), variable })
    });
    known.collect()
}

/// Variables that look like settings but are unknown, each with the most similar setting.
pub(crate) fn unknown_variables() -> Vec<(String, Option<String>)> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    unknown_of(names)
}

fn unknown_of(names: impl Iterator<Item = String>) -> Vec<(String, Option<String>)> {
    let mut known: Vec<String> = known_settings().into_iter().map(|it| it.variable).collect();
    known.extend(OTHERS.map(str::to_owned));
    let is_unknown = |name: &String| {
        name.starts_with(PREFIX)
            && !known.contains(name)
            && !OF_KUBERNETES.iter().any(|it| name.starts_with(it))
            && !name.starts_with("POSTROAD_TEST_")
    };
    let meant = |name: &str| {
        let near = known.iter().map(|it| (distance(name, it), it));
        near.filter(|(distance, _)| *distance <= 3).min().map(|(_, it)| it.clone())
    };
    names.filter(is_unknown).map(|name| (name.clone(), meant(&name))).collect()
}

/// Letters to insert, delete or replace (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (at, letter) in a.bytes().enumerate() {
        let mut former = row[0];
        row[0] = at + 1;
        for (to, other) in b.bytes().enumerate() {
            let replaced = former + usize::from(letter != other);
            former = row[to + 1];
            row[to + 1] = replaced.min(former + 1).min(row[to] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_setting_is_blamed_on_its_source() {
        let args = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let (none, file) = (|_: &str| false, Some(Path::new("b.toml")));
        let env = |name: &str| name == "POSTROAD_HTTP_TLS";
        assert_eq!(source_of("kafka", &args(&["--kafka", "x"]), none, file), "--kafka");
        assert_eq!(source_of("kafka", &args(&["--kafka=x"]), none, file), "--kafka");
        assert_eq!(source_of("kafka", &args(&["--kafka-tls=x"]), none, file), "kafka in b.toml");
        let of_variable = source_of("http-tls", &args(&[]), env, file);
        assert_eq!(of_variable, "the variable POSTROAD_HTTP_TLS");
        assert_eq!(source_of("kafka", &args(&[]), none, None), "--kafka");
    }

    #[test]
    fn unknown_variable_is_reported_with_the_most_similar_setting() {
        let names = ["POSTROAD_KAFAK", "POSTROAD_KAFKA", "POSTROAD_TOKEN", "PATH"];
        let names = names.into_iter().chain(["POSTROAD_PORT_9092_TCP", "POSTROAD_QQQQQQQQ"]);
        let found = unknown_of(names.map(str::to_owned));
        let expected = [("POSTROAD_KAFAK", Some("POSTROAD_KAFKA")), ("POSTROAD_QQQQQQQQ", None)];
        let expected = expected.map(|(name, meant)| (name.to_owned(), meant.map(str::to_owned)));
        assert_eq!(found, expected);
    }
}
