//! Maps librdkafka's errors and calls to the suite's terms.

use std::sync::Arc;
use std::time::{Duration, Instant};

use driver::{Failure, RECEIVE_WAIT};
use futures_util::FutureExt;
use parking_lot::Mutex;
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, StreamConsumer};
use rdkafka::error::KafkaError;
use rdkafka::message::BorrowedMessage;
use rdkafka::types::RDKafkaErrorCode;
use tokio::time::timeout;

/// Time limit for the server's first reply.
const REACH_PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn refused(error: KafkaError) -> Failure {
    match &error {
        KafkaError::ClientConfig(_, why, name, value) => {
            Failure::Setting { name: name.clone(), why: format!("{value:?}: {why}") }
        }
        _ => match error.rdkafka_error_code() {
            Some(
                RDKafkaErrorCode::RequestTimedOut
                | RDKafkaErrorCode::OperationTimedOut
                | RDKafkaErrorCode::BrokerTransportFailure
                | RDKafkaErrorCode::AllBrokersDown
                | RDKafkaErrorCode::PurgeInflight,
            ) => Failure::unknown(error),
            // A producer recovers by itself. A new one for each such message would add load to
            // servers that are already slow.
            Some(RDKafkaErrorCode::MessageTimedOut) => Failure::Unanswered(error.to_string()),
            _ => Failure::refused(error),
        },
    }
}

/// Receives at most `max` messages that `read` accepts. Waits for the first one as long as
/// receivers do, and adds others only if they are available.
pub(crate) async fn receive_some<C: ConsumerContext + 'static, T>(
    client: &StreamConsumer<C>,
    max: usize,
    read: impl Fn(&BorrowedMessage<'_>) -> Option<T>,
) -> Result<Vec<T>, Failure> {
    let deadline = Instant::now() + RECEIVE_WAIT;
    let mut received = Vec::new();
    while received.len() < max {
        let next = if received.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            timeout(left, client.recv()).await.ok()
        } else {
            client.recv().now_or_never()
        };
        match next {
            None => break,
            Some(Ok(message)) => received.extend(read(&message)),
            Some(Err(error)) if is_passing(&error) => {
                tracing::debug!("receiving: {error}");
                if Instant::now() >= deadline {
                    break;
                }
            }
            Some(Err(error)) => return Err(refused(error)),
        }
    }
    Ok(received)
}

/// Transient errors are neither a message nor a failure.
pub(crate) fn is_passing(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::BrokerTransportFailure
                | RDKafkaErrorCode::AllBrokersDown
                | RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::OperationTimedOut
        )
    )
}

/// Keeps the last error: the calls themselves only report a timeout.
#[derive(Clone, Debug, Default)]
pub(super) struct Listening {
    last: Arc<Mutex<Option<(KafkaError, String)>>>,
}

impl ClientContext for Listening {
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!("librdkafka {facility}: {message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        *self.last.lock() = Some((error, reason.to_owned()));
    }
}

impl ConsumerContext for Listening {}

/// Returns when a broker has replied, or the reason that none can be reached.
pub(super) fn reached(base: &ClientConfig, endpoint: &str, user: &str) -> Result<(), Failure> {
    let listening = Listening::default();
    let client: BaseConsumer<Listening> =
        base.create_with_context(listening.clone()).map_err(refused)?;
    let deadline = Instant::now() + REACH_PATIENCE;
    loop {
        match client.fetch_metadata(None, Duration::from_millis(500)) {
            Ok(_) => return Ok(()),
            Err(error) => {
                // Polls, so that the error callback runs.
                drop(client.poll(Duration::ZERO));
                let last = listening.last.lock().clone();
                let code = last.as_ref().and_then(|(error, _)| error.rdkafka_error_code());
                let why = last.map_or_else(|| error.to_string(), |(_, reason)| reason);
                if matches!(
                    code,
                    Some(
                        RDKafkaErrorCode::Authentication
                            | RDKafkaErrorCode::SaslAuthenticationFailed
                    )
                ) {
                    let (endpoint, user) = (endpoint.to_owned(), user.to_owned());
                    return Err(Failure::NotAllowed { endpoint, user, why });
                }
                if Instant::now() > deadline || why.contains("refused") {
                    return Err(Failure::Unreachable { endpoint: endpoint.to_owned(), why });
                }
            }
        }
    }
}

/// Waits until every group is stable with this many members.
pub(super) fn wait_until_gathered(
    base: &ClientConfig,
    groups: &[String],
    members: usize,
    patience: Duration,
) -> Result<(), Failure> {
    let client: BaseConsumer<Listening> =
        base.create_with_context(Listening::default()).map_err(refused)?;
    let deadline = Instant::now() + patience;
    for group in groups {
        loop {
            let listed = client.fetch_group_list(Some(group), patience).map_err(refused)?;
            let found = listed.groups().iter().find(|found| found.name() == group);
            let (state, joined) =
                found.map_or(("unknown", 0), |found| (found.state(), found.members().len()));
            if state == "Stable" && joined >= members {
                break;
            }
            if Instant::now() > deadline {
                return Err(Failure::unknown(format!(
                    "group {group} is {state} with {joined} of {members} members"
                )));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    Ok(())
}

pub(super) fn wait_until_led(
    base: &ClientConfig,
    topics: &[String],
    partitions: usize,
    patience: Duration,
) -> Result<(), Failure> {
    let client: BaseConsumer<Listening> =
        base.create_with_context(Listening::default()).map_err(refused)?;
    let deadline = Instant::now() + patience;
    for topic in topics {
        loop {
            let metadata = client.fetch_metadata(Some(topic), patience).map_err(refused)?;
            let found = metadata.topics().iter().find(|found| found.name() == topic);
            let led = found.map_or(0, |found| {
                found.partitions().iter().filter(|partition| partition.leader() >= 0).count()
            });
            if led >= partitions {
                break;
            }
            if Instant::now() > deadline {
                return Err(Failure::unknown(format!(
                    "{led} of {partitions} partitions of {topic} have a leader"
                )));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}
