use thiserror::Error;

/// Error of an operation. One line each, for a user who sees only this line.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Failure {
    #[error("{endpoint} cannot be reached: {why}")]
    Unreachable { endpoint: String, why: String },
    #[error("{endpoint} does not let {user:?} in: {why}")]
    NotAllowed { endpoint: String, user: String, why: String },
    /// The system lacks a capability that the test needs.
    #[error("{system} has no {what}")]
    Unsupported { system: &'static str, what: String },
    /// An unknown setting or an invalid value.
    #[error("setting {name}: {why}")]
    Setting { name: String, why: String },
    /// The server rejected the operation.
    #[error("refused: {0}")]
    Refused(String),
    /// The operation may or may not have taken effect: a connection broke or a time limit expired.
    #[error("unknown outcome: {0}")]
    Unknown(String),
    /// The operation may or may not have taken effect: no reply arrived in time. The connection
    /// still works, and the client keeps track of it.
    #[error("no answer: {0}")]
    Unanswered(String),
}

impl Failure {
    /// For client errors without any detail.
    pub fn unknown(why: impl std::fmt::Display) -> Self {
        Self::Unknown(why.to_string())
    }

    pub fn refused(why: impl std::fmt::Display) -> Self {
        Self::Refused(why.to_string())
    }
}
