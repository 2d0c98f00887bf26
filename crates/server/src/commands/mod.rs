//! The commands of the command line, one file each.
//!
//! A command prints its result on standard output and everything else on standard error. It ends with 0 on success,
//! with 1 for an error that the user can fix, and with 2 when the server cannot be reached or fails.

pub(crate) mod acl;
mod amqp;
pub(crate) mod backup;
mod broker;
pub(crate) mod cluster;
pub(crate) mod connection;
pub(crate) mod consume;
pub(crate) mod dead_letter;
pub(crate) mod demo;
pub(crate) mod doctor;
mod failure;
pub(crate) mod group;
pub(crate) mod journal;
pub(crate) mod node;
mod password;
pub(crate) mod policy;
pub(crate) mod produce;
pub(crate) mod queue;
pub(crate) mod quota;
mod records;
pub(crate) mod recover;
pub(crate) mod restore;
pub(crate) mod schedule;
pub(crate) mod shard;
mod shard_move;
pub(crate) mod tls;
pub(crate) mod top;
pub(crate) mod topic;
mod topic_move;
pub(crate) mod trace;
pub(crate) mod user;
pub(crate) mod vhost;

use std::error::Error;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use client::ClientError;

pub(crate) use self::broker::ClientOptions;
use self::failure::ClientErrorText;
use crate::output::OutputFormat;
use crate::printable;
use crate::serve::ServeError;
use crate::time::human_duration;

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct OutputOption {
    /// Form of what is printed
    #[arg(short, long, global = true, value_enum, value_name = "FORM", default_value = "table")]
    pub(crate) output: OutputFormat,
}

/// Failure of a command, which determines its exit code.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// The user can fix it.
    User(Box<dyn Error + Send + Sync>),
    /// The server, the disk or the network.
    Server(Box<dyn Error + Send + Sync>),
    /// The output is closed: ends without a message.
    OutputClosed,
}

impl CommandError {
    pub(crate) fn user(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        CommandError::User(error.into())
    }

    pub(crate) fn server(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        CommandError::Server(error.into())
    }

    /// The error message, for people.
    pub(crate) fn text(&self) -> String {
        match self {
            CommandError::User(error) | CommandError::Server(error) => error.to_string(),
            CommandError::OutputClosed => String::new(),
        }
    }

    /// Prints the error and returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let (error, code) = match self {
            CommandError::OutputClosed => return ExitCode::SUCCESS,
            CommandError::User(error) => (error, 1),
            CommandError::Server(error) => (error, 2),
        };
        match is_json_wanted() {
            true => {
                let document =
                    serde_json::json!({"error": {"message": error.to_string(), "code": code}});
                eprintln!("{document}");
            }
            // A server's message may contain names that clients chose.
            false => eprintln!("postroad: {}", printable::lines(&error.to_string())),
        }
        ExitCode::from(code)
    }
}

/// Whether the command line selects JSON. A script then reads errors as JSON, too.
fn is_json_wanted() -> bool {
    let arguments: Vec<String> = std::env::args().collect();
    let is_option = |it: &str| ["-o", "--output"].contains(&it);
    let is_joined = |it: &String| ["-ojson", "-o=json", "--output=json"].contains(&&**it);
    arguments.windows(2).any(|pair| is_option(&pair[0]) && pair[1] == "json")
        || arguments.iter().any(is_joined)
}

impl From<ClientError> for CommandError {
    fn from(error: ClientError) -> Self {
        match failure::is_the_users(&error) {
            true => CommandError::user(ClientErrorText(error)),
            false => CommandError::server(ClientErrorText(error)),
        }
    }
}

impl From<ServeError> for CommandError {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::Settings(_)
            | ServeError::Unprotected(_)
            | ServeError::Certificate(_)
            | ServeError::Logging(_) => CommandError::user(error),
            _ => CommandError::server(error),
        }
    }
}

/// Only writes to the output fail with plain I/O errors; all other errors name their subject.
impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => CommandError::OutputClosed,
            _ => CommandError::server(format!("cannot write the output: {error}")),
        }
    }
}

/// Lag of a consumer, for people: `-` if unknown.
fn behind(lag_seconds: Option<f64>) -> String {
    match lag_seconds {
        None => "-".into(),
        Some(0.0) => "0s".into(),
        Some(seconds) => human_duration(Duration::from_secs_f64(seconds)),
    }
}

/// Runs a command that talks to a broker.
pub(crate) fn run<F>(command: F) -> Result<(), CommandError>
where
    F: Future<Output = Result<(), CommandError>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| CommandError::server(format!("the runtime could not start: {error}")))?;
    let outcome = runtime.block_on(command);
    // A thread that still writes to a full pipe must not keep the process from ending.
    runtime.shutdown_background();
    outcome
}
