//! Programs that a chore runs to completion.

use std::process::{Command, Stdio};

use crate::failure::{Context, Failure, Outcome};

/// Number of trailing output lines that an error shows.
const LAST_LINES: usize = 15;

/// Runs a program to completion. Returns its output, or an error with the end of its messages.
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
