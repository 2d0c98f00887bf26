//! `cargo xtask api`: schemathesis sends requests that the API's own description permits, and some that it does
//! not, to the real binary. A response that the description does not list, or that matches none of its schemas,
//! fails the chore.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;

use crate::command::output_of;
use crate::failure::{Failure, Outcome};
use crate::paths;
use crate::server::{Postroad, binary, free_port};

/// Pinned, so that a new finding comes from a change of ours.
const PACKAGE: &str = "schemathesis==4.32.5";
const READY_WITHIN: Duration = Duration::from_secs(60);
/// `positive_data_acceptance` is left out: a request of the right shape may name a setting that does not exist, or
/// hold an unreadable time. Both are documented as 400 and 422.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance,unsupported_method";
/// Event streams do not end.
const LEFT_OUT: &str = "/v1/topics/{topic}/stream";

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The server's binary [default: a release build of this checkout]
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Requests of each operation
    #[arg(long, default_value_t = 20)]
    examples: u32,
    /// Where the random choices begin
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(options: &Options) -> Outcome {
    let program = installed()?;
    let folder = paths::fresh("api")?;
    let http = format!("127.0.0.1:{}", free_port()?);
    let arguments = ["--http", &http].map(str::to_owned).to_vec();
    let postroad = Postroad {
        binary: binary(options.bin.as_deref())?,
        data: folder.join("data"),
        log: folder.join("server.log"),
        port: free_port()?,
        arguments,
    };
    let (server, _) = postroad.start(READY_WITHIN)?;
    let mut command = Command::new(&program);
    command.current_dir(&folder).arg("run").arg(format!("http://{http}/v1/openapi.json"));
    command.args(["--checks", CHECKS, "--exclude-path", LEFT_OUT, "--no-color"]);
    command.args(["--max-examples", &options.examples.to_string()]);
    command.args(["--seed", &options.seed.to_string(), "--request-timeout", "70"]);
    let said = output_of(command, "schemathesis").map_err(|failure| {
        failure.remedy(format!("the server's log is {}", postroad.log.display()))
    })?;
    drop(server);
    let summary = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    println!("{summary}");
    paths::fresh("api").map(drop)
}

/// CI uses the release build of an earlier step.
pub(crate) fn in_ci(server: PathBuf) -> Outcome {
    run(&Options { bin: Some(server), examples: 20, seed: 1 })
}

fn installed() -> Outcome<PathBuf> {
    let folder = paths::target().join("xtask").join("schemathesis");
    let program = folder.join("bin/schemathesis");
    if program.exists() {
        return Ok(program);
    }
    let python = |arguments: &[&Path]| {
        let mut command = Command::new("python3");
        command.args(arguments);
        output_of(command, "python3").map_err(|failure| {
            failure
                .remedy("Python 3.10 or newer with venv is needed (apt-get install python3-venv)")
        })
    };
    python(&[Path::new("-m"), Path::new("venv"), &folder])?;
    let mut pip = Command::new(folder.join("bin/pip"));
    pip.args(["install", "--quiet", PACKAGE]);
    output_of(pip, "pip install schemathesis")?;
    match program.exists() {
        true => Ok(program),
        false => Err(Failure::new("schemathesis was not installed")),
    }
}
