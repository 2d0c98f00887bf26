//! Errors between this client and a server.

use std::io;

/// The class and the number of a method.
pub(crate) type Method = (u16, u16);

/// Reason of a failed operation. After any of these the connection is unusable.
#[derive(Debug, thiserror::Error)]
pub enum AmqpError {
    /// The connection failed; [`io::ErrorKind::UnexpectedEof`] if the server closed it without a close method,
    /// [`io::ErrorKind::TimedOut`] or `WouldBlock` if no reply came in time.
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{0}")]
    Malformed(String),
    /// Closed by `connection.close` or `channel.close`.
    #[error("the server closes with {code}: {text}")]
    Closed { code: u16, text: String },
    /// Methods by class and number.
    #[error("method {method:?} where one of {wanted:?} was expected")]
    Unexpected { method: Method, wanted: Vec<Method> },
    /// `basic.nack` of a published message.
    #[error("message {tag} was refused")]
    Refused { tag: u64 },
}

impl AmqpError {
    pub(crate) fn malformed(what: impl Into<String>) -> Self {
        Self::Malformed(what.into())
    }
}

/// Keeps the socket's error kind, for callers that match on a broken connection.
impl From<AmqpError> for io::Error {
    fn from(error: AmqpError) -> Self {
        match error {
            AmqpError::Io(error) => error,
            AmqpError::Malformed(_) | AmqpError::Unexpected { .. } => {
                io::Error::new(io::ErrorKind::InvalidData, error)
            }
            AmqpError::Closed { .. } | AmqpError::Refused { .. } => io::Error::other(error),
        }
    }
}
