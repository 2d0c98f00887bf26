//! The one error type of the chores: the failure and its remedy. It is text for a person, which no code matches on;
//! a failure should have a remedy.

use std::fmt::Display;
use std::io;

use client::CallError;
use client_amqp::AmqpError;
use host::probe::ProbeError;
use host::process::Unreadable;

#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    remedy: Option<String>,
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(what: impl Into<String>) -> Failure {
        Failure { what: what.into(), remedy: None }
    }

    /// Adds an instruction for the reader.
    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Failure {
        self.remedy = Some(remedy.into());
        self
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.what)?;
        match &self.remedy {
            Some(remedy) => write!(f, "\n  what to do: {remedy}"),
            None => Ok(()),
        }
    }
}

/// `file.open().context(|| format!("cannot open {path}"))?`
pub(crate) trait Context<T> {
    fn context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Outcome<T>;
}

impl<T, E: Display> Context<T> for Result<T, E> {
    fn context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Outcome<T> {
        self.map_err(|error| Failure::new(format!("{}: {error}", what().into())))
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Failure {
        Failure::new(error.to_string())
    }
}

impl From<AmqpError> for Failure {
    fn from(error: AmqpError) -> Failure {
        Failure::new(error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::new(error.to_string())
    }
}

impl From<Unreadable> for Failure {
    fn from(error: Unreadable) -> Failure {
        Failure::new(error.to_string())
    }
}

impl From<ProbeError> for Failure {
    fn from(error: ProbeError) -> Failure {
        Failure::new(error.to_string())
    }
}
