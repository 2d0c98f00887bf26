//! Java tools: run with a fixed heap, and their output captured.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::failure::{Failure, Outcome, last_lines};

/// Enough for every tool that generates load here; all contenders get the same.
const HEAP: &str = "512m";

/// `java` with this class path.
pub(crate) fn java(class_path: &[PathBuf]) -> Command {
    let class_path: Vec<String> =
        class_path.iter().map(|path| path.display().to_string()).collect();
    let mut command = Command::new(peers::java());
    command.arg(format!("-Xms{HEAP}")).arg(format!("-Xmx{HEAP}"));
    command.arg("-cp").arg(class_path.join(":"));
    command
}

/// Runs a tool to its end. Returns its output, or its error messages.
pub(crate) fn output_of(mut command: Command, program: &'static str) -> Outcome<String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|why| Failure::NotRun { program, why })?;
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        let said = last_lines(out.lines().chain(err.lines()));
        return Err(Failure::Tool { program, how: format!("ended with {}", output.status), said });
    }
    Ok(out.into_owned())
}
