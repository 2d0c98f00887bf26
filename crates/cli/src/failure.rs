//! Messages of the command line for errors of the client, with the next step for the user.
//!
//! The client's errors describe the failure to any user of that crate. This module adds the meaning for a person at a
//! terminal, and whether the user or the broker is at fault.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use base::topics::{TRACE, is_written_by_nodes};
use client::error::{describe, reason};
use client::{BrokerRejection, ClientError};
use kafka_protocol::ResponseError;

use operations::time::human_duration;

/// The operator token cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the operators' token in {}: {source}; name its file with --token-file", path.display())]
pub(crate) struct TokenFile {
    pub(crate) path: PathBuf,
    pub(crate) source: io::Error,
}

/// An error of the client, in the command line's words.
#[derive(Debug)]
pub(crate) struct ClientErrorText(pub(crate) ClientError);

impl Error for ClientErrorText {}

impl fmt::Display for ClientErrorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ClientError::Unreachable { address, source }
            | ClientError::AdvertisedUnreachable { address, source, .. }
                if is_unknown_issuer(source) =>
            {
                write!(
                    f,
                    "{address} shows a certificate whose issuer is not trusted; name the file with the \
                     certificate of the issuer, or of the server itself, with --tls-ca"
                )
            }
            ClientError::Unreachable { address, source } => write!(
                f,
                "cannot reach {address}: {}; is the broker running? start it with 'postroad \
                 serve' or name another with --bootstrap",
                describe(source)
            ),
            ClientError::AdvertisedUnreachable { bootstrap, address, source } => write!(
                f,
                "{bootstrap} answers, but says to go to {address}, which cannot be reached: {}; \
                 start the broker with an address that clients can reach (--advertise-kafka)",
                describe(source)
            ),
            ClientError::TimedOut { address, api, waited } => {
                write!(f, "{address} did not answer {api:?} within {}", human_duration(*waited))
            }
            ClientError::Closed { address, api } => write!(
                f,
                "{address} closed the connection before it answered {api:?}; its log says why, \
                 unless it was stopped. If it requires a log-in: --login and --password-file, or \
                 --token-file with a copy of operator.token from its data directory"
            ),
            ClientError::Unreadable { address, api, reason } => write!(
                f,
                "the answer of {address} to {api:?} cannot be read ({reason}); does it speak Kafka? \
                 A TLS port needs --tls-ca"
            ),
            ClientError::Unsupported { address, api, ours, theirs } => write!(
                f,
                "{address} does not offer {api:?} in a version that this command speaks ({ours}; \
                 it has {theirs})"
            ),
            ClientError::NoSuchTopic(topic) if is_written_by_nodes(topic) => write!(
                f,
                "there is no topic {topic} yet: the broker creates it with the first event{}",
                if topic == TRACE {
                    " of a topic with trace=on ('postroad topic alter TOPIC --config trace=on')"
                } else {
                    ""
                }
            ),
            ClientError::NoSuchTopic(topic) => write!(
                f,
                "there is no topic {topic}; 'postroad topic list' names those there are, \
                 'postroad topic create {topic}' makes it"
            ),
            ClientError::NotOperated { address } => write!(
                f,
                "{address} lets this command look at nothing. If it is a Postroad that has users, log in: \
                 with '--token-file FILE', a copy of operator.token in its data directory, or '--login NAME'. \
                 Else it is an older Postroad, or another broker"
            ),
            ClientError::Refused(BrokerRejection { what, code, message }) => match remedy(*code) {
                Some(remedy) => write!(f, "{what}: {remedy}"),
                None => write!(f, "{what}: {}", reason(*code, message.as_deref())),
            },
            ClientError::BadAddress(_)
            | ClientError::Unsendable { .. }
            | ClientError::NoSuchPartition { .. }
            | ClientError::Operation { .. } => self.0.fmt(f),
        }
    }
}

fn is_unknown_issuer(error: &io::Error) -> bool {
    error.to_string().contains("UnknownIssuer")
}

/// Remedy of a rejection, if known.
fn remedy(code: ResponseError) -> Option<&'static str> {
    use ResponseError::*;
    match code {
        UnknownTopicOrPartition => Some("there is no such topic; 'postroad topic list' names them"),
        GroupIdNotFound => Some("there is no such group; 'postroad group list' names them"),
        TopicAuthorizationFailed => Some(
            "this user may not do that to the topic; an administrator grants the right with 'postroad acl add'",
        ),
        GroupAuthorizationFailed => Some(
            "this user may not do that to the group; an administrator grants the right with 'postroad acl add'",
        ),
        NonEmptyGroup => Some("the group has members; stop its consumers first"),
        MessageTooLarge | RecordListTooLarge => {
            Some("it is larger than the topic takes; raise its max.message.bytes")
        }
        _ => None,
    }
}

/// Whether the user can fix it, rather than the broker's operator.
pub(crate) fn is_the_users(error: &ClientError) -> bool {
    match error {
        ClientError::BadAddress(_)
        | ClientError::NoSuchTopic(_)
        | ClientError::NoSuchPartition { .. }
        | ClientError::NotOperated { .. } => true,
        ClientError::Refused(refused) => is_a_users(refused.code),
        ClientError::Operation { code, .. } => is_a_users(*code),
        _ => false,
    }
}

fn is_a_users(code: ResponseError) -> bool {
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
            | TopicAuthorizationFailed
            | GroupAuthorizationFailed
            | SaslAuthenticationFailed
            | UnsupportedSaslMechanism
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

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: ResponseError, message: Option<&str>) -> String {
        let what = "cannot append to orders/0".to_owned();
        ClientErrorText(BrokerRejection { what, code, message: message.map(str::to_owned) }.into())
            .to_string()
    }

    #[test]
    fn remedy_precedes_the_brokers_message_and_that_precedes_the_error_code() {
        let large = refused(ResponseError::MessageTooLarge, Some("no"));
        assert!(large.ends_with("raise its max.message.bytes"), "{large}");
        let said = refused(ResponseError::PolicyViolation, Some("the disk is full."));
        assert_eq!(said, "cannot append to orders/0: the disk is full");
        let silent = refused(ResponseError::NotCoordinator, None);
        assert_eq!(silent, "cannot append to orders/0: NotCoordinator (16)");
    }
}
