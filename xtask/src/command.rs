//! Programs that a chore runs to their end.

use std::process::{Command, Stdio};

use crate::failure::{Context, Failure, Outcome};

/// Lines of what a program said that are worth showing.
const LAST_LINES: usize = 15;

/// Runs a program to its end; its output, or what it complained of.
pub(crate) fn output_of(mut command: Command, name: &str) -> Outcome<String> {
    let output = command.stdin(Stdio::null()).output().context(|| format!("cannot run {name}"))?;
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        let last: Vec<&str> = out.lines().chain(err.lines()).collect();
        let last = last[last.len().saturating_sub(LAST_LINES)..].join("\n    | ");
        return Err(Failure::new(format!("{name} ended with {}\n    | {last}", output.status)));
    }
    Ok(out.into_owned())
}
