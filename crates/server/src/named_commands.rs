//! Every command and flag named in the console, the documentation, help and messages exists on the command line.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Arg, Command, CommandFactory};

use crate::arguments::Arguments;

/// Places of texts for people. `src` of crates has help, messages and advice.
const PLACES: [&str; 6] =
    ["README.md", "docs/user", "console/src", "crates", "deploy", "tests/compat"];
const KINDS: [&str; 7] = ["md", "rs", "ts", "tsx", "yml", "yaml", "service"];
/// Flags of other programs that texts name without a command: of kafka-configs, and of chores of the repository.
const OF_OTHERS: [&str; 3] = ["alter", "pictures", "write"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

fn files(at: &Path, found: &mut Vec<PathBuf>) {
    if at.is_file() {
        let kind = at.extension().and_then(|it| it.to_str()).unwrap_or_default();
        if KINDS.contains(&kind) {
            found.push(at.to_owned());
        }
        return;
    }
    let skipped = ["tests", "examples", "target", "node_modules", "dist", "secrets"];
    for entry in fs::read_dir(at).expect("a folder").flatten() {
        let name = entry.file_name();
        if !skipped.iter().any(|it| name == *it) && entry.path() != Path::new(file!()) {
            files(&entry.path(), found);
        }
    }
}

/// Arguments of each `postroad ` that begins a command in code: after a quotation mark, a prompt or a pipe.
fn commands(text: &str) -> Vec<&str> {
    const BEFORE: [&str; 7] = ["`", "'", "$ ", "| ", "sudo ", "<code>", "&& "];
    let mut found = Vec::new();
    for (at, named) in text.match_indices("postroad ") {
        let (before, after) = (&text[..at], &text[at + named.len()..]);
        if BEFORE.iter().any(|it| before.ends_with(it)) {
            let end = after.find(['`', '\'', '"', '\n', '<', '|', ';', '&', ')', '\\', '#', '>']);
            found.push(after[..end.unwrap_or(after.len())].trim());
        }
    }
    found
}

/// Texts such as `--auth on` that name a flag without its command.
fn lone_flags(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for begin in ["`--", "<code>--"] {
        for (at, _) in text.match_indices(begin) {
            let after = &text[at + begin.len() - 2..];
            let end = after.find(['`', '<', '\n']).unwrap_or(after.len());
            found.push(&after[..end]);
        }
    }
    found
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
}

fn flag_of<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let is_it = |arg: &&Arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        arg.get_long() == Some(name) || aliases.contains(&name)
    };
    command.get_arguments().find(is_it)
}

/// Returns the error of a value that is not in the flag's list.
fn wrong_value(arg: &Arg, value: Option<&str>) -> Option<String> {
    let known = arg.get_possible_values();
    let value = value.filter(|value| is_word(value))?;
    let takes_one = arg.get_action().takes_values() && !known.is_empty();
    let is_known = known.iter().any(|it| it.matches(value, false));
    (takes_one && !is_known).then(|| format!("{value} is no value of it"))
}

/// Returns the first error of a command.
fn wrong(root: &Command, text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (mut command, mut path) = (root, Vec::new());
    for (at, word) in words.iter().enumerate() {
        let word = word.trim_matches(['[', ']', ',', '.', '(', '`']);
        if let Some(flag) = word.strip_prefix("--").filter(|flag| !flag.is_empty()) {
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (flag, words.get(at + 1).copied()),
            };
            if ["help", "version", "..."].contains(&name) || !is_word(name) {
                continue;
            }
            let of_root = || path.is_empty().then(|| root.find_subcommand("serve")).flatten();
            let found = flag_of(command, name).or_else(|| flag_of(of_root()?, name));
            match found {
                None => return Some(format!("there is no flag --{name} of {path:?}")),
                Some(arg) => {
                    if let Some(wrong) = wrong_value(arg, value) {
                        return Some(format!("--{name}: {wrong}"));
                    }
                }
            }
        } else if command.has_subcommands() && is_word(word) && at == path.len() {
            match command.find_subcommand(word) {
                Some(found) => {
                    command = found;
                    path.push(word);
                }
                None if ["help"].contains(&word) => return None,
                None => return Some(format!("there is no command {word} of {path:?}")),
            }
        }
    }
    None
}

fn all_flags<'a>(command: &'a Command, found: &mut Vec<&'a Arg>) {
    found.extend(command.get_arguments());
    command.get_subcommands().for_each(|it| all_flags(it, found));
}

fn built() -> Command {
    let mut root = Arguments::command();
    root.build();
    root
}

#[test]
fn commands_named_in_texts_exist() {
    let command = built();
    let mut flags = Vec::new();
    all_flags(&command, &mut flags);
    let mut places = Vec::new();
    PLACES.iter().for_each(|place| files(&root().join(place), &mut places));
    let (mut mistakes, mut named) = (BTreeSet::new(), 0);
    for place in places.iter().filter(|place| !place.ends_with("named_commands.rs")) {
        let text = fs::read_to_string(place).expect("text");
        let of = place.strip_prefix(root()).unwrap_or(place).display().to_string();
        for it in commands(&text) {
            named += 1;
            if let Some(wrong) = wrong(&command, it) {
                mistakes.insert(format!("{of}: postroad {it}: {wrong}"));
            }
        }
        // Sources and notes of other programs name their own flags.
        if !of.starts_with("docs/user") && !of.starts_with("console") && of != "README.md" {
            continue;
        }
        for it in lone_flags(&text) {
            let mut words = it[2..].split([' ', '=']);
            let name = words.next().unwrap_or_default();
            let of_name: Vec<&&Arg> =
                flags.iter().filter(|arg| arg.get_long() == Some(name)).collect();
            let value = words.next();
            if OF_OTHERS.contains(&name) || !is_word(name) {
                continue;
            }
            if of_name.is_empty() {
                mistakes.insert(format!("{of}: `{it}`: no command has --{name}"));
            } else if of_name.iter().all(|arg| wrong_value(arg, value).is_some()) {
                mistakes.insert(format!("{of}: `{it}`: no such value"));
            }
        }
    }
    assert!(named > 300, "only {named} commands are found");
    assert!(mistakes.is_empty(), "{}", mistakes.into_iter().collect::<Vec<_>>().join("\n"));
}

#[test]
fn wrong_commands_flags_and_values_are_found() {
    let command = built();
    for right in [
        "serve --auth on",
        "user add NAME --no-scram",
        "topic create orders --partitions 16 --config retention.ms=1",
        "queue declare",
        "--help",
    ] {
        assert_eq!(wrong(&command, right), None, "{right}");
    }
    for mistaken in
        ["serve --auth required", "user create NAME", "topic list --all-of-it", "health"]
    {
        assert!(wrong(&command, mistaken).is_some(), "{mistaken}");
    }
}
