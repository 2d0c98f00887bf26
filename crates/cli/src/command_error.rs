//! The failure of a command, its message and its exit code.

use std::error::Error;
use std::io;
use std::process::ExitCode;

use client::ClientError;

use crate::failure::{ClientErrorText, is_the_users};
use crate::printable;

/// Failure of a command, which determines its exit code.
#[derive(Debug)]
pub enum CommandError {
    /// The user can fix it.
    User(Box<dyn Error + Send + Sync>),
    /// The server, the disk or the network.
    Server(Box<dyn Error + Send + Sync>),
    /// The output is closed: ends without a message.
    OutputClosed,
}

impl CommandError {
    pub fn user(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        CommandError::User(error.into())
    }

    pub fn server(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        CommandError::Server(error.into())
    }

    /// The error message, for people.
    pub fn text(&self) -> String {
        match self {
            CommandError::User(error) | CommandError::Server(error) => error.to_string(),
            CommandError::OutputClosed => String::new(),
        }
    }

    /// Prints the error and returns the exit code.
    pub fn report(self) -> ExitCode {
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
        match is_the_users(&error) {
            true => CommandError::user(ClientErrorText(error)),
            false => CommandError::server(ClientErrorText(error)),
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
