//! Commands of cargo for the steps of CI.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::paths;

/// The cargo that built this program, in the repository's root, without standard input. Incremental data would only
/// fill the disk, since each crate is compiled once. Debug symbols would fill more than half of it; a panic names
/// its line without them.
pub(crate) fn cargo_command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).current_dir(paths::root()).stdin(Stdio::null());
    command.env("CARGO_INCREMENTAL", "0");
    // Only for the dev profile: with debug symbols set for release, too, steps that start a server would build it
    // again.
    command.env("CARGO_PROFILE_DEV_DEBUG", "false");
    command
}

/// As [`cargo_command`], with the lints as errors while the workspace's crates are compiled: what `cargo clippy` does,
/// and the code is made in the same pass.
pub(crate) fn linting_cargo_command(arguments: &[&str]) -> Command {
    let mut command = cargo_command(arguments);
    command
        .env("RUSTC_WORKSPACE_WRAPPER", Path::new(env!("CARGO")).with_file_name("clippy-driver"));
    command.env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
    command
}
