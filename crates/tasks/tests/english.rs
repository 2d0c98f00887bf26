//! Rules for the English of the source: a comment and a function name begin with the thing that they are about, and use
//! the terms of the field (CONTRIBUTING.md, "Plain English"). A failure names the offending place.

mod common;

use std::path::Path;

use common::sources;

/// A comment line that begins with one of these leaves its subject open.
const OPENINGS: [&str; 13] = [
    "What",
    "Whatever",
    "Who",
    "Whoever",
    "Whom",
    "Whose",
    "Of",
    "Nor",
    "Nobody",
    "Somebody",
    "Anybody",
    "He",
    "Whichever",
];

/// Words that stand for a component of the system, whose name belongs there.
const VAGUE: [&str; 6] = ["whoever", "whom", "nobody", "somebody", "anybody", "anew"];

/// All lines of the project's own source, with the place of each.
fn lines() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in ["crates", "xtask", "bench/crates", "fuzz"] {
        sources(&root.join(folder), &mut files);
    }
    assert!(files.len() > 1_000, "only {} files were found", files.len());
    let mut lines = Vec::new();
    for file in files {
        let name = file.strip_prefix(&root).expect("below it").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).expect("text");
        let numbered = text.lines().enumerate();
        lines.extend(numbered.map(|(at, line)| (format!("{name}:{}", at + 1), line.to_owned())));
    }
    lines
}

/// The text of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim_start().trim_start_matches("* "))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '\'')
}

#[test]
fn comment_is_the_text_behind_its_slashes() {
    assert_eq!(comment("    /// * Who asks."), Some("Who asks."));
    assert_eq!(comment("//! Of a shard."), Some("Of a shard."));
    assert_eq!(comment("let a = 1; // one"), None);
}

#[test]
fn comments_name_their_subject() {
    let mut found = Vec::new();
    for (place, line) in lines() {
        let Some(text) = comment(&line) else { continue };
        let opening = words(text).next().unwrap_or_default();
        let is_vague = |word: &str| VAGUE.contains(&word.to_lowercase().as_str());
        let breaks = OPENINGS.contains(&opening) || words(text).any(is_vague);
        if breaks {
            found.push(format!("{place}: {}", line.trim()));
        }
    }
    assert!(found.is_empty(), "name the component or the thing:\n{}", found.join("\n"));
}

#[test]
fn function_names_begin_with_their_subject() {
    let mut found = Vec::new();
    for (place, line) in lines() {
        let code = line.split("//").next().unwrap_or_default();
        let Some((_, after)) = code.split_once("fn ") else { continue };
        let name = words(after).next().unwrap_or_default();
        let Some((first, _)) = name.split_once('_') else { continue };
        if OPENINGS.iter().any(|opening| opening.to_lowercase() == first) {
            found.push(format!("{place}: {name}"));
        }
    }
    assert!(
        found.is_empty(),
        "say what the function does, or the rule it checks:\n{}",
        found.join("\n")
    );
}
