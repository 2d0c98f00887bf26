//! The partitions that one fetch reads: the state of its session, or one for this fetch only.

use broker::YieldBudget;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::FetchRequest;
use kafka_protocol::messages::fetch_request::FetchTopic;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use crate::errors::Fault;
use crate::state::fetch_sessions::{FetchParameters, FetchSession, FetchState, next_epoch};
use crate::state::{Gateway, Session};
use crate::topic_ref::TopicRef;

/// `session_epoch` of a fetch without a session.
const FINAL_EPOCH: i32 = -1;
/// `session_epoch` of a fetch that requests a new session.
const INITIAL_EPOCH: i32 = 0;

/// The state that one fetch reads from: its session's, or one for this fetch only.
pub(crate) enum Context {
    Once(Box<FetchState>),
    Cached { id: i32, session: OwnedMutexGuard<FetchSession>, is_new: bool },
}

impl Context {
    pub(crate) fn state(&mut self) -> &mut FetchState {
        match self {
            Self::Once(state) => state,
            Self::Cached { session, .. } => &mut session.state,
        }
    }

    /// Whether the response has every partition, or only those that changed.
    pub(crate) fn is_full(&self) -> bool {
        !matches!(self, Self::Cached { is_new: false, .. })
    }

    pub(crate) fn session_id(&self) -> i32 {
        match self {
            Self::Once(_) => 0,
            Self::Cached { id, .. } => *id,
        }
    }
}

/// Finds or creates the fetch's session, and applies the request's changes to it.
pub(crate) async fn begin(
    gateway: &Gateway,
    session: &Session,
    by_id: bool,
    fetch: FetchRequest,
    pace: &mut YieldBudget,
) -> Result<Context, Fault> {
    let (id, epoch) = (fetch.session_id, fetch.session_epoch);
    if epoch == FINAL_EPOCH || epoch == INITIAL_EPOCH {
        if id != 0 {
            // The client has closed its former session.
            gateway.fetch_sessions.remove(id);
            session.fetch_sessions.remove(id);
        }
        let wants = wants(fetch.topics, by_id);
        let keep = epoch == INITIAL_EPOCH && !wants.is_empty();
        return Ok(begin_full(gateway, session, by_id, wants, keep, pace).await);
    }
    let cached = gateway
        .fetch_sessions
        .find(id, Instant::now())
        .ok_or_else(|| Fault::plain(ResponseError::FetchSessionIdNotFound))?;
    // A request in flight, on a connection that the client abandoned, still holds it.
    let Ok(mut cached) = cached.try_lock_owned() else {
        return Err(Fault::plain(ResponseError::InvalidFetchSessionEpoch));
    };
    if cached.epoch != epoch {
        return Err(Fault::plain(ResponseError::InvalidFetchSessionEpoch));
    }
    if cached.by_id != by_id {
        return Err(Fault::plain(ResponseError::FetchSessionTopicIdError));
    }
    cached.epoch = next_epoch(epoch);
    for topic in &fetch.forgotten_topics_data {
        let name = topic_name(by_id, &topic.topic, topic.topic_id);
        for index in &topic.partitions {
            cached.state.forget(&name, *index);
        }
    }
    cached.state.find_missing(&gateway.broker, pace).await;
    cached.state.want(&gateway.broker, wants(fetch.topics, by_id), pace).await;
    Ok(Context::Cached { id, session: cached, is_new: false })
}

async fn begin_full(
    gateway: &Gateway,
    session: &Session,
    by_id: bool,
    wants: Vec<(TopicRef, i32, FetchParameters)>,
    keep: bool,
    pace: &mut YieldBudget,
) -> Context {
    let named: Vec<_> = wants.iter().map(|(topic, index, _)| (topic.clone(), *index)).collect();
    let mut state = Box::new(FetchState::new(keep.then(|| gateway.broker.watch())));
    state.want(&gateway.broker, wants, pace).await;
    state.named = named;
    if !keep {
        return Context::Once(state);
    }
    let made = FetchSession { epoch: INITIAL_EPOCH + 1, by_id, state };
    match gateway.fetch_sessions.insert(made, Instant::now()) {
        Ok((id, made)) => {
            session.fetch_sessions.add(id);
            match made.try_lock_owned() {
                Ok(made) => Context::Cached { id, session: made, is_new: true },
                // No other request can know its id yet.
                Err(_) => unreachable!("a session that was just made is not in use"),
            }
        }
        // No room: the client receives session id 0, and sends full requests again.
        Err(made) => Context::Once(made.state),
    }
}

fn wants(topics: Vec<FetchTopic>, by_id: bool) -> Vec<(TopicRef, i32, FetchParameters)> {
    let mut wants = Vec::with_capacity(topics.iter().map(|topic| topic.partitions.len()).sum());
    for topic in topics {
        let name = topic_name(by_id, &topic.topic, topic.topic_id);
        for partition in topic.partitions {
            let want = FetchParameters {
                offset: partition.fetch_offset,
                bytes_max: partition.partition_max_bytes,
                leader_epoch: partition.current_leader_epoch,
                last_epoch: partition.last_fetched_epoch,
            };
            wants.push((name.clone(), partition.partition, want));
        }
    }
    wants
}

fn topic_name(by_id: bool, name: &str, id: uuid::Uuid) -> TopicRef {
    if by_id { TopicRef::Id(id) } else { TopicRef::Name(name.into()) }
}
