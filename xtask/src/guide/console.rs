//! A `console` block as commands with the output that the page shows for each.

use crate::failure::{Failure, Outcome};

const PROMPT: &str = "$ ";
/// Begins the first line of an error message of the command line.
const ERROR: &str = "postroad: ";
const PASSWORD_PROMPT: &str = "password of ";

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// As it is typed, with the lines that continue it.
    pub(super) command: String,
    pub(super) output: Vec<String>,
}

impl Step {
    /// The page shows an error, so the command has to fail.
    pub(super) fn shows_an_error(&self) -> bool {
        self.output.first().is_some_and(|line| line.starts_with(ERROR))
    }

    /// The page shows the prompt for a password, which terminals get and pipes do not.
    pub(super) fn shows_a_password_prompt(&self) -> bool {
        self.output.first().is_some_and(|line| line.starts_with(PASSWORD_PROMPT))
    }

    /// The output that a pipe gets.
    pub(super) fn piped_output(&self) -> &[String] {
        &self.output[usize::from(self.shows_a_password_prompt())..]
    }
}

/// Reads the lines of a block. A command continues after a backslash at its end, and up to the end of a here-document.
pub(super) fn steps(lines: &[String]) -> Outcome<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = lines.iter();
    while let Some(line) = lines.next() {
        let Some(command) = line.strip_prefix(PROMPT) else {
            match steps.last_mut() {
                Some(step) => step.output.push(line.clone()),
                None if line.is_empty() => {}
                None => return Err(Failure::new(format!("a block begins with output: '{line}'"))),
            }
            continue;
        };
        let mut command = command.to_owned();
        while command.ends_with('\\') {
            let next = lines.next().ok_or_else(|| unfinished(&command))?;
            command = format!("{command}\n{next}");
        }
        if let Some(end) = here_document(&command) {
            loop {
                let next = lines.next().ok_or_else(|| unfinished(&command))?;
                command = format!("{command}\n{next}");
                if *next == end {
                    break;
                }
            }
        }
        steps.push(Step { command, output: Vec::new() });
    }
    for step in &mut steps {
        while step.output.last().is_some_and(String::is_empty) {
            step.output.pop();
        }
    }
    Ok(steps)
}

/// The word that ends the here-document of a command.
fn here_document(command: &str) -> Option<String> {
    let (_, after) = command.split_once("<<")?;
    let quoted = after.split_whitespace().next()?;
    let word = quoted.trim_matches(|letter| letter == '\'' || letter == '"');
    let is_word = !word.is_empty() && word.chars().all(|letter| letter.is_ascii_alphanumeric());
    is_word.then(|| word.to_owned())
}

fn unfinished(command: &str) -> Failure {
    Failure::new(format!("a block ends within the command '{command}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Step> {
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        steps(&lines).expect("the block is well formed")
    }

    fn step(command: &str, output: &[&str]) -> Step {
        let output = output.iter().map(|&line| line.to_owned()).collect();
        Step { command: command.to_owned(), output }
    }

    #[test]
    fn lines_after_a_command_are_its_output() {
        assert_eq!(read("$ a\nb\n\nc\n\n$ d"), [step("a", &["b", "", "c"]), step("d", &[])]);
    }

    #[test]
    fn backslash_continues_a_command() {
        assert_eq!(
            read("$ a \\\n    --b \\\n    --c\nd"),
            [step("a \\\n    --b \\\n    --c", &["d"])]
        );
    }

    #[test]
    fn here_document_belongs_to_its_command() {
        assert_eq!(
            read("$ a <<'END' | b\n$ x\ny\nEND\nz"),
            [step("a <<'END' | b\n$ x\ny\nEND", &["z"])]
        );
    }

    #[test]
    fn output_before_the_first_command_is_refused() {
        assert!(steps(&["a".to_owned()]).is_err());
        assert!(steps(&["$ a \\".to_owned()]).is_err());
        assert!(steps(&["$ a <<END".to_owned(), "b".to_owned()]).is_err());
    }

    #[test]
    fn shown_error_and_password_prompt_are_recognized() {
        assert!(step("a", &["postroad: no"]).shows_an_error());
        assert!(!step("a", &["postroad 0.1.0: data x"]).shows_an_error());
        let asks = step("a", &["password of app:", "created"]);
        assert!(asks.shows_a_password_prompt());
        assert_eq!(asks.piped_output(), ["created"]);
        assert_eq!(step("a", &["created"]).piped_output(), ["created"]);
    }
}
