//! `postroad doctor`: inspects a node and its machine, prints problems with remedies, and collects its input in a
//! directory that may be shared: it has no secrets and no records.
//!
//! It changes nothing. Missing input (a node that does not reply, a log without a known place) is a finding, not a
//! reason to stop.
//!
//! * `host`: the kernel, its limits, the disk; `node`: status reported by the node
//! * `settings`: the node's settings; `checks`: findings; `redaction`: removes secrets

mod checks;
mod host;
mod node;
mod redaction;
mod settings;

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use tokio::process::Command;

use crate::client_options::ClientOptions;
use crate::command_error::CommandError;
use crate::output::Table;
use checks::{Check, Verdict};
use redaction::Redaction;
pub use settings::KnownSetting;

/// Limit on the end of a log.
const LOG_BYTES_MAX: u64 = 1 << 20;
const LOG_LINES_MAX: &str = "5000";
/// Name of the unit that `deploy` installs.
const UNIT: &str = "postroad";

/// Look for what is wrong with a node and its machine, and collect what helps to find out more
#[derive(Args, Debug)]
pub struct DoctorArguments {
    #[command(flatten)]
    client: ClientOptions,
    /// Directory to make and to put all that was seen into, without secrets; nothing is kept where it is not named
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The node's data directory
    #[arg(long, value_name = "DIR", env = "POSTROAD_DATA", default_value = "postroad-data")]
    data: PathBuf,
    /// The node's configuration file
    #[arg(long, value_name = "FILE", env = "POSTROAD_CONFIG")]
    config: Option<PathBuf>,
    /// Where the node's HTTP is, for its metrics, or "off"
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:15672")]
    http: String,
    /// File with the node's log; else the end of what the system's journal has of the unit `postroad`
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

/// An inspected item, as a file of the bundle.
struct InspectedItem {
    name: &'static str,
    text: String,
}

#[derive(Serialize)]
struct Version {
    postroad: &'static str,
    system: &'static str,
    architecture: &'static str,
    kernel: Option<String>,
}

#[derive(Serialize)]
struct Report {
    checks: Vec<Check>,
    /// Directory of the bundle.
    bundle: Option<PathBuf>,
}

fn json<T: Serialize + ?Sized>(name: &'static str, value: &T) -> InspectedItem {
    // Documents of our own types always are JSON.
    InspectedItem { name, text: serde_json::to_string_pretty(value).unwrap_or_default() }
}

pub(crate) async fn run(
    arguments: DoctorArguments,
    known: Vec<KnownSetting>,
) -> Result<(), CommandError> {
    let mut left_out = Redaction::new();
    let settings = settings::read(arguments.config.as_deref(), &known, &mut left_out);
    left_out.add_secrets_of(&arguments.data, &arguments.client);
    let kernel = host::kernel();
    let disk = host::disk(&arguments.data);
    let node = node::ask(&arguments.client, &arguments.http, &arguments.data).await;
    let version = Version {
        postroad: env!("CARGO_PKG_VERSION"),
        system: std::env::consts::OS,
        architecture: std::env::consts::ARCH,
        kernel: kernel.version.clone(),
    };
    let checks = checks::all(&settings, &kernel, &disk, &node, &arguments.data);
    let mut seen = vec![
        json("version.json", &version),
        json("settings.json", &settings),
        json("kernel.json", &kernel),
        json("disk.json", &disk),
        json("findings.json", &checks),
    ];
    seen.extend(node.seen());
    if let Some(text) = log(arguments.log.as_deref()).await {
        seen.push(InspectedItem { name: "log.txt", text });
    }
    if let Some(out) = &arguments.out {
        keep(out, &seen, &left_out)?;
    }
    let failed = checks.iter().filter(|check| check.verdict == Verdict::Bad).count();
    let report = Report { checks, bundle: arguments.out };
    arguments.client.output().show(&report, describe)?;
    match failed {
        0 => Ok(()),
        failed => Err(CommandError::user(format!("{failed} of these need attention"))),
    }
}

fn describe(report: &Report) -> String {
    let mut table = Table::new(&["CHECK", "IS", "FINDING"]);
    for check in &report.checks {
        table.row([check.name.to_owned(), check.verdict.word().to_owned(), check.finding.clone()]);
    }
    let mut text = table.render();
    for check in report.checks.iter().filter(|check| !check.advice.is_empty()) {
        text.push_str(&format!("\n{}: {}\n", check.name, check.advice));
    }
    if let Some(bundle) = &report.bundle {
        text.push_str(&format!("\nwhat was seen is in {}\n", bundle.display()));
    }
    text
}

/// Writes the files readable only by their owner: they contain names of topics and addresses.
fn keep(out: &Path, seen: &[InspectedItem], left_out: &Redaction) -> Result<(), CommandError> {
    let failed = |path: &Path, error: std::io::Error| {
        CommandError::user(format!("{}: {error}", path.display()))
    };
    fs::DirBuilder::new().mode(0o700).create(out).map_err(|error| failed(out, error))?;
    for InspectedItem { name, text } in seen {
        let path = out.join(name);
        let write = || {
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            file.write_all(left_out.without(text).as_bytes())
        };
        write().map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

/// The end of the node's log. `None`: no log was found.
async fn log(path: Option<&Path>) -> Option<String> {
    let Some(path) = path else {
        let mut command = Command::new("journalctl");
        command.args(["-u", UNIT, "-n", LOG_LINES_MAX, "--no-pager", "-q"]);
        let output = command.output().await.ok().filter(|output| output.status.success())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        return (!text.trim().is_empty()).then_some(text);
    };
    let mut file = fs::File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_BYTES_MAX))).ok()?;
    let mut bytes = Vec::new();
    file.take(LOG_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
