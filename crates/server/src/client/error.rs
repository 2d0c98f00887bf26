//! What can go wrong between this client and a broker, said so that the reader knows what to do.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::ApiKey;

use crate::time::human_duration;

/// A request, by the protocol's name for it or by ours.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    Kafka(ApiKey),
    /// Postroad's own.
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

#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("{0:?} is not an address: write HOST:PORT, such as 127.0.0.1:9092")]
    BadAddress(String),
    #[error(
        "cannot reach {address}: {}; is the broker running? start it with 'postroad serve' or \
         name another with --bootstrap",
        in_words(source)
    )]
    Unreachable { address: String, source: io::Error },
    #[error(
        "{bootstrap} answers, but says to go to {address}, which cannot be reached: {}; start the \
         broker with an address that clients can reach (--advertise-kafka)",
        in_words(source)
    )]
    AdvertisedUnreachable { bootstrap: String, address: String, source: io::Error },
    #[error("{address} did not answer {api:?} within {}", human_duration(*waited))]
    TimedOut { address: String, api: Api, waited: Duration },
    #[error(
        "{address} closed the connection before it answered {api:?}; its log says why, unless it \
         was stopped"
    )]
    Closed { address: String, api: Api },
    #[error("the answer of {address} to {api:?} cannot be read ({reason}); does it speak Kafka?")]
    Unreadable { address: String, api: Api, reason: String },
    #[error("{api:?} cannot be asked for: {reason}")]
    Unsendable { api: Api, reason: String },
    #[error(
        "{address} does not offer {api:?} in a version that this command speaks ({ours}; it has \
         {theirs})"
    )]
    Unsupported { address: String, api: Api, ours: String, theirs: String },
    #[error(
        "there is no topic {0}; 'postroad topic list' names those there are, 'postroad topic \
         create {0}' makes it"
    )]
    NoSuchTopic(String),
    #[error("topic {topic} has no partition {partition}; it has {partitions}, counted from 0")]
    NoSuchPartition { topic: String, partition: i32, partitions: usize },
    #[error(
        "{address} has no queues that this command could look at: it is an older Postroad, or \
         another broker"
    )]
    NotOperated { address: String },
    #[error("the operators' token in {}: {source}; name its file with --token-file", path.display())]
    TokenFile { path: PathBuf, source: io::Error },
    /// The broker's own words say what to do.
    #[error("{message}")]
    Operation { code: ResponseError, message: String },
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// The broker said no.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {}", reason(*code, message.as_deref()))]
pub(crate) struct Refused {
    /// What was asked for: `cannot create topic orders`.
    pub(crate) what: String,
    pub(crate) code: ResponseError,
    /// The broker's own words, if it had any.
    pub(crate) message: Option<String>,
}

impl ClientError {
    /// Whether the one who typed the command can put it right, rather than the one who runs the
    /// broker.
    pub(crate) fn is_the_users(&self) -> bool {
        match self {
            ClientError::BadAddress(_)
            | ClientError::NoSuchTopic(_)
            | ClientError::NoSuchPartition { .. } => true,
            ClientError::Refused(refused) => is_the_users(refused.code),
            ClientError::Operation { code, .. } => is_the_users(*code),
            ClientError::NotOperated { .. } | ClientError::TokenFile { .. } => true,
            _ => false,
        }
    }

    /// Whether the same request may succeed a moment later.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            ClientError::Unreachable { .. }
            | ClientError::AdvertisedUnreachable { .. }
            | ClientError::TimedOut { .. }
            | ClientError::Closed { .. } => true,
            ClientError::Refused(refused) => refused.code.is_retriable(),
            _ => false,
        }
    }

    pub(crate) fn code(&self) -> Option<ResponseError> {
        match self {
            ClientError::Refused(refused) => Some(refused.code),
            ClientError::Operation { code, .. } => Some(*code),
            _ => None,
        }
    }
}

/// `Ok` for code 0, else what the broker refused.
pub(crate) fn accepted(
    code: i16,
    message: Option<&str>,
    what: impl FnOnce() -> String,
) -> Result<(), Refused> {
    match ResponseError::try_from_code(code) {
        None => Ok(()),
        Some(code) => Err(Refused { what: what(), code, message: message.map(str::to_owned) }),
    }
}

fn is_the_users(code: ResponseError) -> bool {
    use ResponseError::*;
    matches!(
        code,
        UnknownTopicOrPartition
            | TopicAlreadyExists
            | InvalidTopicException
            | InvalidPartitions
            | InvalidReplicationFactor
            | InvalidConfig
            | InvalidRequest
            | InvalidGroupId
            | InvalidRecord
            | InvalidTimestamp
            | PolicyViolation
            | ClusterAuthorizationFailed
            | GroupIdNotFound
            | NonEmptyGroup
            | GroupSubscribedToTopic
            | OffsetOutOfRange
            | MessageTooLarge
            | RecordListTooLarge
            | UnknownMemberId
            | ResourceNotFound
    )
}

/// The most telling words for a refusal: what can be done where that is known, else the broker's
/// own words, else the protocol's.
fn reason(code: ResponseError, message: Option<&str>) -> String {
    use ResponseError::*;
    let known = match code {
        UnknownTopicOrPartition => Some("there is no such topic; 'postroad topic list' names them"),
        GroupIdNotFound => Some("there is no such group; 'postroad group list' names them"),
        NonEmptyGroup => Some("the group has members; stop its consumers first"),
        MessageTooLarge | RecordListTooLarge => {
            Some("it is larger than the topic takes; raise its max.message.bytes")
        }
        _ => None,
    };
    match (known, message.filter(|message| !message.is_empty())) {
        (Some(known), _) => known.to_owned(),
        (None, Some(message)) => message.trim_end_matches('.').to_owned(),
        (None, None) => format!("{code:?} ({})", code.code()),
    }
}

/// An I/O error without its number: `connection refused`.
pub(crate) fn in_words(error: &io::Error) -> String {
    // The kind says it in lower case; where there is none (names that do not resolve), the text.
    match error.raw_os_error() {
        Some(_) => error.kind().to_string(),
        None => error.to_string(),
    }
}
