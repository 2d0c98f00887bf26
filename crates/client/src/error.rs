//! Errors between this client and a broker.
//!
//! Errors carry their data and say what happened. Advice for the user is added by the program that shows them: it
//! knows whether the user typed a command or runs a simulation.
//!
//! * [`FrameError`]: malformed requests and replies
//! * [`CallError`]: one request on one connection owned by its caller
//! * [`ClientError`]: requests to a cluster

use std::fmt;
use std::io;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::ApiKey;

/// A request, by the protocol's name for it or by Postroad's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Api {
    Kafka(ApiKey),
    /// Postroad's own (the crate `operations`).
    Operate,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Api::Kafka(key) => write!(f, "{key:?}"),
            Api::Operate => f.write_str("Operate"),
        }
    }
}

impl From<ApiKey> for Api {
    fn from(key: ApiKey) -> Self {
        Api::Kafka(key)
    }
}

/// A malformed request or reply. After one of these, except [`FrameError::Unsendable`] and [`FrameError::NotDue`],
/// further bytes of the connection cannot be trusted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// The message crate cannot encode it in this version; nothing of it was sent.
    #[error("{api:?} cannot be asked for: {reason}")]
    Unsendable { api: Api, reason: String },
    #[error("an answer of {length} bytes is impossible")]
    ImpossibleLength { length: i32 },
    #[error("the answer to {api:?} cannot be read: {reason}")]
    Unreadable { api: Api, reason: String },
    #[error("answer {got} came where {due} was due, to {api:?}")]
    OutOfOrder { api: Api, got: i32, due: i32 },
    /// The reply was received already, or skipped for that to a later request.
    #[error("no answer {correlation} to {api:?} is due")]
    NotDue { api: Api, correlation: i32 },
}

/// Reason why a request on a connection owned by its caller has no reply.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The connection failed; [`io::ErrorKind::UnexpectedEof`] if the broker closed it.
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("no answer within {waited:?}")]
    TimedOut { waited: Duration },
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Refused(#[from] BrokerRejection),
    /// The reply can be decoded but does not match the request.
    #[error("the answer to {api:?} does not fit what was asked: {reason}")]
    Unfitting { api: Api, reason: String },
}

impl From<FrameError> for io::Error {
    fn from(error: FrameError) -> Self {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

/// Keeps the socket's error kind, for callers that match on a broken connection.
impl From<CallError> for io::Error {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Io(error) => error,
            CallError::TimedOut { .. } => io::Error::new(io::ErrorKind::TimedOut, error),
            CallError::Frame(error) => error.into(),
            CallError::Unfitting { .. } => io::Error::new(io::ErrorKind::InvalidData, error),
            CallError::Refused(error) => io::Error::other(error),
        }
    }
}

/// Reason why a request to a cluster failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{0:?} is not an address: write HOST:PORT without a scheme, such as 127.0.0.1:9092")]
    BadAddress(String),
    /// None of the bootstrap addresses could be reached; this is the last one.
    #[error("cannot reach {address}: {}", describe(source))]
    Unreachable { address: String, source: io::Error },
    /// A broker that a bootstrap address named.
    #[error(
        "{bootstrap} answers, but says to go to {address}, which cannot be reached: {}",
        describe(source)
    )]
    AdvertisedUnreachable { bootstrap: String, address: String, source: io::Error },
    #[error(
        "{address} did not answer {api:?} within {waited:?}: it is starting or stopping, or waits for a majority of its \
         cluster's nodes; its log and `/health/ready` on its HTTP port say which"
    )]
    TimedOut { address: String, api: Api, waited: Duration },
    #[error("{address} closed the connection before it answered {api:?}")]
    Closed { address: String, api: Api },
    #[error("the answer of {address} to {api:?} cannot be read: {reason}")]
    Unreadable { address: String, api: Api, reason: String },
    #[error("{api:?} cannot be asked for: {reason}")]
    Unsendable { api: Api, reason: String },
    /// `ours` and `theirs` are ranges of versions, as text.
    #[error(
        "{address} does not offer {api:?} in a version of this client ({ours}; it has {theirs})"
    )]
    Unsupported { address: String, api: Api, ours: String, theirs: String },
    #[error("there is no topic {0}")]
    NoSuchTopic(String),
    #[error("topic {topic} has no partition {partition}; it has {partitions}, counted from 0")]
    NoSuchPartition { topic: String, partition: i32, partitions: usize },
    /// The broker does not offer Postroad's own request.
    #[error("{address} takes no operations: it is an older Postroad, or another broker")]
    NotOperated { address: String },
    /// An operation was refused, with the broker's own text.
    #[error("{message}")]
    Operation { code: ResponseError, message: String },
    #[error(transparent)]
    Refused(#[from] BrokerRejection),
}

/// A refusal by the broker.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}: {}", reason(*code, message.as_deref()))]
pub struct BrokerRejection {
    /// The attempted request: `cannot create topic orders`.
    pub what: String,
    pub code: ResponseError,
    /// The broker's own text, if any.
    pub message: Option<String>,
}

impl ClientError {
    /// Whether the same request may succeed a moment later.
    pub fn is_passing(&self) -> bool {
        match self {
            ClientError::Unreachable { .. }
            | ClientError::AdvertisedUnreachable { .. }
            | ClientError::TimedOut { .. }
            | ClientError::Closed { .. } => true,
            ClientError::Refused(refused) => refused.code.is_retriable(),
            _ => false,
        }
    }

    /// The protocol's code, if the broker refused it.
    pub fn code(&self) -> Option<ResponseError> {
        match self {
            ClientError::Refused(refused) => Some(refused.code),
            ClientError::Operation { code, .. } => Some(*code),
            _ => None,
        }
    }
}

/// `Ok` for code 0, else the broker's refusal.
pub(crate) fn accepted(
    code: i16,
    message: Option<&str>,
    what: impl FnOnce() -> String,
) -> Result<(), BrokerRejection> {
    match ResponseError::try_from_code(code) {
        None => Ok(()),
        Some(code) => {
            Err(BrokerRejection { what: what(), code, message: message.map(str::to_owned) })
        }
    }
}

/// Reason of a refusal: the broker's own text if any, else the protocol's name and number.
pub fn reason(code: ResponseError, message: Option<&str>) -> String {
    match message.filter(|message| !message.is_empty()) {
        Some(message) => message.trim_end_matches('.').to_owned(),
        None => format!("{code:?} ({})", code.code()),
    }
}

/// An I/O error without its number: `connection refused`.
pub fn describe(error: &io::Error) -> String {
    // The kind's text is in lower case; errors without a number (names that do not resolve) have only their own text.
    match error.raw_os_error() {
        Some(_) => error.kind().to_string(),
        None => error.to_string(),
    }
}
