//! Escapes text for a terminal.
//!
//! Clients choose the names of groups, queues and clusters. Some characters in them would move the cursor, change other
//! parts of the screen, or reverse a line; they are shown as their numbers. The result is plain text.

use std::fmt::{self, Write as _};

/// Whether a terminal may interpret the character instead of showing it: control characters, also those above 127; line
/// separators; and characters that reverse, join or hide text.
fn is_obeyed(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// For people: `\u{1b}` in place of an escape character.
pub fn text(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for character in text.chars() {
        match is_obeyed(character) {
            true => printable.extend(character.escape_unicode()),
            false => printable.push(character),
        }
    }
    printable
}

/// Lines for people: line ends and tabs stay.
pub fn lines(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for character in text.chars() {
        match is_obeyed(character) && !matches!(character, '\n' | '\t') {
            true => printable.extend(character.escape_unicode()),
            false => printable.push(character),
        }
    }
    printable
}

/// Writes text escaped as by [`text`].
#[derive(Debug)]
pub struct Escaping<W>(pub W);

impl<W: fmt::Write> fmt::Write for Escaping<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((place, character)) = rest.char_indices().find(|(_, it)| is_obeyed(*it)) {
            self.0.write_str(&rest[..place])?;
            write!(self.0, "{}", character.escape_unicode())?;
            rest = &rest[place + character.len_utf8()..];
        }
        self.0.write_str(rest)
    }
}

/// The same document: JSON has such characters only within strings, where an escape stands for the character.
pub fn json(document: &str) -> String {
    json_lines_but(document, |_| false)
}

/// The same for a document of several lines.
pub fn json_lines(document: &str) -> String {
    json_lines_but(document, |character| character == '\n')
}

fn json_lines_but(document: &str, stays: impl Fn(char) -> bool) -> String {
    let mut printable = String::with_capacity(document.len());
    for character in document.chars() {
        if !is_obeyed(character) || stays(character) {
            printable.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            let _ = write!(printable, "\\u{unit:04x}");
        }
    }
    printable
}

#[cfg(test)]
mod tests {
    use super::*;

    const NASTY: &str = "a\u{1b}[2J\u{9b}31m\r\n\u{7}\u{202e}b\u{200b}\u{e0041}ü日";

    #[test]
    fn control_characters_are_escaped() {
        let shown = text(NASTY);
        assert_eq!(
            shown,
            "a\\u{1b}[2J\\u{9b}31m\\u{d}\\u{a}\\u{7}\\u{202e}b\\u{200b}\\u{e0041}ü日"
        );
        assert!(!shown.chars().any(is_obeyed));
    }

    #[test]
    fn lines_keep_line_ends_and_tabs_and_escape_other_control_characters() {
        assert_eq!(lines("a\tb\nc\u{1b}[2J\r\n"), "a\tb\nc\\u{1b}[2J\\u{d}\n");
        let mut written = String::new();
        write!(Escaping(&mut written), "{NASTY}").expect("is written");
        assert_eq!(written, text(NASTY));
    }

    #[test]
    fn escaped_json_parses_to_the_same_value() {
        let written = serde_json::to_string(NASTY).expect("JSON");
        let shown = json(&written);
        assert!(!shown.chars().any(is_obeyed), "{shown}");
        assert_eq!(serde_json::from_str::<String>(&shown).expect("JSON"), NASTY);
    }
}
