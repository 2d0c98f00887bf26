use thiserror::Error;

/// Why something could not be done. One line each, for a user who has only this line.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Failure {
    #[error("{endpoint} cannot be reached: {why}")]
    Unreachable { endpoint: String, why: String },
    #[error("{endpoint} does not let {user:?} in: {why}")]
    NotAllowed { endpoint: String, user: String, why: String },
    /// The system does not offer what the test needs.
    #[error("{system} has no {what}")]
    Unsupported { system: &'static str, what: String },
    /// A setting that the driver does not know, or that makes no sense.
    #[error("setting {name}: {why}")]
    Setting { name: String, why: String },
    /// The server said no.
    #[error("refused: {0}")]
    Refused(String),
    /// It may or may not have happened: a connection broke, a time ran out.
    #[error("unknown outcome: {0}")]
    Unknown(String),
    /// It may or may not have happened: no answer came in time. The connection is as it was, and the
    /// client looks after it.
    #[error("no answer: {0}")]
    Unanswered(String),
}

impl Failure {
    /// For errors of clients that say no more than that something went wrong on the way.
    pub fn unknown(why: impl std::fmt::Display) -> Self {
        Self::Unknown(why.to_string())
    }

    pub fn refused(why: impl std::fmt::Display) -> Self {
        Self::Refused(why.to_string())
    }
}
