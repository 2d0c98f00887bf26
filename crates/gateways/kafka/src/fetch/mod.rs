//! Fetch: waiting for data, and the response.
//!
//! * `context`: the fetch session of a request; the sessions are in [`crate::state::fetch_sessions`]
//! * `collector`: reads the partitions; `near`: follower fetching by rack
//! * `response`: a codec that copies no record

pub(crate) mod collector;
mod context;
mod near;
pub(crate) mod response;

use std::pin::pin;
use std::time::Duration;

use crate::limits::FETCH_WAIT_WITHOUT_ROOM;
use base::limits::{FETCH_BYTES_MAX, FETCH_WAIT_MAX};
use broker::{Permit, Watch, YieldBudget};
use bytes::Bytes;
use kafka_protocol::messages::FetchRequest;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::authorization::{Caller, topic_refused};
use crate::catalog::currency::ensure_known;
use crate::fetch::collector::Collector;
use crate::fetch::context::{Context, begin};
use crate::fetch::near::ClientRack;
use crate::fetch::response::{FetchReply, FetchedPartition, FetchedTopic};
use crate::leaders::ReachableNode;
use crate::messages::{RequestError, Response};
use crate::quotas;
use crate::request::Request;
use crate::state::fetch_sessions::{FetchState, PARTITIONS_AT_ONCE};
use crate::state::leader_watch::Changes;
use crate::state::{Gateway, Session};
use crate::topic_ref::{RequestedTopic, TopicRef};

/// First version that names topics by id.
const TOPIC_IDS_SINCE: i16 = 13;
/// A decoded request is several times as large as its bytes. Requests above this size are decoded only in a
/// scheduling slot, which bounds how many are decoded at a time.
const LARGE_BYTES: usize = 4 << 10;
/// A fetch without a session that has more partitions than this is kept in its encoded form while it waits.
const WAITING_DECODED_MAX: usize = PARTITIONS_AT_ONCE as usize;
/// Approximate bytes that a watch holds for each partition.
const WATCH_BYTES_PER_PARTITION: usize = 48;
/// A large fetch is decoded again before each read. Between reads it pauses for this multiple of the last
/// read's duration, up to [`PAUSE_MAX`].
const PAUSES_PER_LOOK: u32 = 8;
const PAUSE_MAX: Duration = Duration::from_millis(50);

pub(crate) async fn handle(
    gateway: &Gateway,
    session: &Session,
    mut request: Request,
) -> Result<Response, RequestError> {
    // Kept encoded: the smallest form in which a fetch can wait.
    let body = std::mem::take(&mut request.body).freeze();
    // Subscribed before the first read, so that no change of leaders is missed.
    let changes = gateway.leader_changes();
    let permit = request.permit.take();
    let mut asked = FetchCaller { gateway, session, permit, watch: None, changes };
    let mut pace = YieldBudget::new(gateway.broker.turns(), PARTITIONS_AT_ONCE);
    let mut deadline = None;
    let mut room = None;
    loop {
        if body.len() > LARGE_BYTES {
            pace.begin().await;
        }
        let begun = Instant::now();
        let fetch: FetchRequest = request.decode_from(body.clone())?;
        let near = ClientRack::of(gateway, &fetch.rack_id, session.is_encrypted());
        let wait = FetchLimits::of(&fetch).wait.min(near.wait_max());
        if deadline.is_none() {
            let named = fetch.topics.iter().map(|topic| match topic.topic_id.is_nil() {
                true => RequestedTopic::Name(&topic.topic),
                false => RequestedTopic::Id(topic.topic_id),
            });
            ensure_known(gateway, named).await;
        }
        let until = *deadline.get_or_insert_with(|| begun + wait);
        if let Some(response) = asked.answer_by(&request, fetch, near, until, &mut pace).await {
            return Ok(response);
        }
        pace.rest();
        if room.is_none() {
            let watched = asked.watch.as_ref().map_or(0, Watch::partitions);
            let bytes = body.len() + watched * WATCH_BYTES_PER_PARTITION;
            room = gateway.waiting_budget.try_admit(bytes);
        }
        let mut draining = pin!(gateway.draining());
        match &asked.watch {
            Some(watch) if room.is_some() => {
                drop(asked.permit.take());
                let pause = (begun.elapsed() * PAUSES_PER_LOOK).min(PAUSE_MAX);
                let again = until.min(Instant::now() + pause);
                tokio::select! {
                    biased;
                    _ = timeout_at(until, watch.ready()) => {}
                    () = asked.changes.next() => {}
                    () = &mut draining => deadline = Some(Instant::now()),
                }
                sleep_until(again).await;
            }
            // No waiting room: it pauses, then reads for the last time.
            _ => {
                asked.watch = None;
                tokio::select! {
                    biased;
                    () = sleep_until(until.min(Instant::now() + FETCH_WAIT_WITHOUT_ROOM)) => {}
                    () = &mut draining => {}
                }
                deadline = Some(Instant::now());
            }
        }
    }
}

/// The requesting session, and the state that it keeps between two reads.
struct FetchCaller<'a> {
    gateway: &'a Gateway,
    session: &'a Session,
    /// Its part of the budget of requests, until it waits.
    permit: Option<Permit>,
    /// Watches all wanted partitions, while the request waits in its encoded form.
    watch: Option<Watch>,
    changes: Changes,
}

impl FetchCaller<'_> {
    /// Answers at the deadline, or earlier if there is enough data. Returns `None` before the deadline if it
    /// must not wait here: there is no waiting room, or it holds too much.
    async fn answer_by(
        &mut self,
        request: &Request,
        fetch: FetchRequest,
        near: ClientRack,
        deadline: Instant,
        pace: &mut YieldBudget,
    ) -> Option<Response> {
        let (gateway, session) = (self.gateway, self.session);
        let by_id = request.head.version >= TOPIC_IDS_SINCE;
        let committed_only = fetch.isolation_level == 1;
        let limits = FetchLimits::of(&fetch);
        if let Some(watch) = &self.watch {
            // Everything is read below; later changes make the watch ready again.
            watch.take_ready();
        }
        let throttle_ms = quotas::throttle_owed(session, &request.head);
        if throttle_ms > 0 && !is_incremental(&fetch) {
            // No session was set up for it yet, so the response names none.
            let fetched = FetchReply { throttle_ms, committed_only, ..FetchReply::default() };
            return Some(response::encode(&request.head, fetched));
        }
        let mut context = match begin(gateway, session, by_id, fetch, pace).await {
            Ok(context) => context,
            Err(fault) => {
                let fetched =
                    FetchReply { error: fault.code(), committed_only, ..FetchReply::default() };
                return Some(response::encode(&request.head, fetched));
            }
        };
        let (is_full, session_id) = (context.is_full(), context.session_id());
        if throttle_ms > 0 {
            // An earlier request over another connection exceeded the quota: an empty response, as Kafka
            // sends.
            let fetched =
                FetchReply { throttle_ms, session_id, committed_only, ..FetchReply::default() };
            return Some(response::encode(&request.head, fetched));
        }
        // A session's state is bounded by the cache of sessions.
        let is_once = matches!(context, Context::Once(_));
        let state = context.state();
        let mut collector = Collector::new(
            gateway,
            session.is_encrypted(),
            near,
            &request.caller,
            limits.bytes_max,
            (is_full, committed_only),
        );
        let mut room = None;
        if !collect(&mut collector, state, limits, pace).await && Instant::now() < deadline {
            if is_once && state.partitions() > WAITING_DECODED_MAX {
                if self.watch.is_some() {
                    return None;
                }
                self.watch = Some(watch_all(&mut collector, state, pace).await);
                if !is_enough(&collector, state, limits) {
                    return None;
                }
            } else {
                if is_once {
                    state.compact();
                    room = Some(gateway.waiting_budget.try_admit(state.waiting_bytes())?);
                }
                drop(self.permit.take());
                let until = WaitEvents { deadline, changes: &mut self.changes };
                wait(&mut collector, state, limits, until, pace).await;
            }
        }
        collector.fail_lagging_copies(Instant::now() >= deadline);
        let (topics, (fetched_room, leaders)) = answer(state, collector, is_full, pace).await;
        if let Context::Cached { id, session, .. } = &context {
            gateway.fetch_sessions.resized(*id, session.state.partitions());
        }
        drop((context, room));
        let throttle_ms = quotas::charge_fetched(session, &request.head, || bytes_of(&topics));
        let fetched =
            FetchReply { throttle_ms, error: 0, session_id, committed_only, topics, leaders };
        let mut response = response::encode(&request.head, fetched);
        response.room = fetched_room;
        Some(response)
    }
}

#[derive(Clone, Copy, Debug)]
struct FetchLimits {
    bytes_min: usize,
    bytes_max: usize,
    wait: Duration,
}

impl FetchLimits {
    fn of(fetch: &FetchRequest) -> Self {
        let bytes_max = usize::try_from(fetch.max_bytes).unwrap_or(0).min(FETCH_BYTES_MAX);
        let bytes_min = usize::try_from(fetch.min_bytes).unwrap_or(0).min(bytes_max);
        let wait = Duration::from_millis(u64::try_from(fetch.max_wait_ms).unwrap_or(0));
        Self { bytes_min, bytes_max, wait: wait.min(FETCH_WAIT_MAX) }
    }
}

/// Reads the available data. Returns whether it suffices for a response.
async fn collect(
    collector: &mut Collector<'_>,
    state: &mut FetchState,
    limits: FetchLimits,
    pace: &mut YieldBudget,
) -> bool {
    state.queue_ready();
    collector.collect(state, pace).await;
    is_enough(collector, state, limits)
}

fn is_enough(collector: &Collector<'_>, state: &FetchState, limits: FetchLimits) -> bool {
    collector.bytes() >= limits.bytes_min
        || collector.has_no_room()
        || collector.is_urgent()
        || state.wanted.is_empty()
        || state.missing.values().any(|missing| !missing.told)
}

/// Watches all wanted partitions, and reads once more, so that no change is missed.
async fn watch_all(
    collector: &mut Collector<'_>,
    state: &mut FetchState,
    pace: &mut YieldBudget,
) -> Watch {
    let watch = state.watch_all(&collector.gateway().broker, pace).await;
    state.queue_all();
    collector.collect(state, pace).await;
    watch
}

/// Events that end the wait of a fetch, or make it read all partitions again.
struct WaitEvents<'a> {
    deadline: Instant,
    changes: &'a mut Changes,
}

/// Waits until there is enough data, or until the deadline.
async fn wait(
    collector: &mut Collector<'_>,
    state: &mut FetchState,
    limits: FetchLimits,
    until: WaitEvents<'_>,
    pace: &mut YieldBudget,
) {
    let gateway = collector.gateway();
    if state.watch.is_none() {
        state.watch = Some(watch_all(collector, state, pace).await);
        state.compact();
    }
    let mut draining = pin!(gateway.draining());
    while !is_enough(collector, state, limits) {
        let Some(watch) = &state.watch else { break };
        pace.rest();
        tokio::select! {
            biased;
            woken = timeout_at(until.deadline, watch.ready()) => if woken.is_err() { break },
            () = until.changes.next() => state.queue_all(),
            () = &mut draining => break,
        }
        state.queue_ready();
        collector.collect(state, pace).await;
    }
}

/// Builds the response's topics, and records the state that the client receives.
async fn answer(
    state: &mut FetchState,
    mut collector: Collector<'_>,
    is_full: bool,
    pace: &mut YieldBudget,
) -> (Vec<FetchedTopic>, (Option<OwnedSemaphorePermit>, Vec<ReachableNode>)) {
    let mut topics = Topics::default();
    if is_full {
        for (topic, index) in std::mem::take(&mut state.named) {
            pace.step(1).await;
            let partition = match state.resolved(&topic, index) {
                Some(partition) if state.wanted.contains_key(&partition) => {
                    collector.take(state, partition).unwrap_or_default()
                }
                _ => missing_partition(state, collector.caller(), &topic, index),
            };
            topics.push(&topic, FetchedPartition { index, ..partition });
        }
    } else {
        for (id, partition) in collector.take_news(state) {
            if let Some(topic) = state.name(id.topic) {
                topics.push(topic, partition);
            }
        }
        let missing: Vec<_> = state.missing.keys().cloned().collect();
        for (topic, index) in missing {
            let partition = missing_partition(state, collector.caller(), &topic, index);
            topics.push(&topic, partition);
        }
    }
    (topics.0, collector.finish())
}

/// Whether the fetch belongs to an existing session, and names only changes (KIP-227).
fn is_incremental(fetch: &FetchRequest) -> bool {
    fetch.session_epoch > 0
}

fn bytes_of(topics: &[FetchedTopic]) -> usize {
    let partitions = topics.iter().flat_map(|topic| &topic.partitions);
    partitions.flat_map(|partition| &partition.records).map(Bytes::len).sum()
}

fn missing_partition(
    state: &mut FetchState,
    caller: &Caller,
    topic: &TopicRef,
    index: i32,
) -> FetchedPartition {
    if let Some(missing) = state.missing.get_mut(&(topic.clone(), index)) {
        missing.told = true;
    }
    let code = match topic {
        TopicRef::Name(name) if !caller.may_topic(name) => topic_refused().code(),
        topic => topic.unknown().code(),
    };
    FetchedPartition::failed(index, code)
}

/// Groups consecutive partitions of one topic.
#[derive(Default)]
struct Topics(Vec<FetchedTopic>);

impl Topics {
    fn push(&mut self, topic: &TopicRef, partition: FetchedPartition) {
        match self.0.last_mut() {
            Some(last) if last.topic == *topic => last.partitions.push(partition),
            _ => {
                let partitions = vec![partition];
                self.0.push(FetchedTopic { topic: topic.clone(), partitions });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::future::{Future, poll_fn};
    use std::path::Path;
    use std::pin::pin;
    use std::sync::Arc;

    use broker::{Broker, BrokerOptions, NewTopic};
    use tokio::sync::watch;
    use uuid::Uuid;
    use world::World;

    use super::*;
    use crate::options::GatewayOptions;
    use crate::state::fetch_sessions::FetchParameters;

    const PARTITIONS: u32 = 5_000;
    const STEPS: u32 = PARTITIONS / PARTITIONS_AT_ONCE;

    /// Runs `work`, and counts how often it yields to other tasks.
    async fn counting_pauses<R>(work: impl Future<Output = R>) -> (R, u32) {
        let (mut work, mut pauses) = (pin!(work), 0);
        let done = poll_fn(|context| {
            let polled = work.as_mut().poll(context);
            pauses += u32::from(polled.is_pending());
            polled
        });
        (done.await, pauses)
    }

    async fn with_topic(name: &str, stopping: watch::Receiver<bool>) -> Gateway {
        let disk = Arc::new(world::SimulatedDisk::new());
        let broker = Broker::open(World::on(disk), Path::new("/data"), BrokerOptions::default());
        let broker = broker.await.expect("opens");
        let topic = NewTopic {
            name: name.to_owned(),
            uuid: Uuid::from_u128(1),
            partitions: PARTITIONS,
            config: BTreeMap::new(),
        };
        broker.create_topic(topic).await.expect("is created");
        let options = GatewayOptions::single_node(&broker);
        Gateway::new(broker, options, stopping)
    }

    fn wants_of(topic: &TopicRef, partitions: u32) -> Vec<(TopicRef, i32, FetchParameters)> {
        let want =
            FetchParameters { offset: 0, bytes_max: 1 << 20, leader_epoch: -1, last_epoch: -1 };
        (0..partitions).map(|index| (topic.clone(), index as i32, want)).collect()
    }

    #[tokio::test]
    async fn wide_fetch_yields_to_other_tasks_in_every_phase() {
        let (_stop, stopping) = watch::channel(false);
        let gateway = with_topic("wide", stopping).await;
        let topic = TopicRef::Name("wide".into());
        // The last ten do not exist.
        let wants = wants_of(&topic, PARTITIONS + 10);
        let mut state = FetchState::new(None);
        state.named = wants.iter().map(|(topic, index, _)| (topic.clone(), *index)).collect();

        let pace = &mut YieldBudget::new(gateway.broker.turns(), PARTITIONS_AT_ONCE);
        let ((), pauses) = counting_pauses(state.want(&gateway.broker, wants, pace)).await;
        assert!(pauses >= STEPS, "looking up: {pauses}");
        assert_eq!((state.wanted.len(), state.missing.len()), (PARTITIONS as usize, 10));

        let (watch, pauses) = counting_pauses(state.watch_all(&gateway.broker, pace)).await;
        assert_eq!(watch.partitions(), PARTITIONS as usize);
        assert!(pauses >= STEPS - 1, "watching: {pauses}");

        let caller = Caller::unrestricted(kafka_protocol::messages::ApiKey::Fetch);
        let mut collector =
            Collector::new(&gateway, false, ClientRack::Nowhere, &caller, 1 << 20, (true, false));
        let ((), pauses) = counting_pauses(collector.collect(&mut state, pace)).await;
        assert!(pauses >= STEPS - 1, "looking at them: {pauses}");

        let ((topics, _), pauses) =
            counting_pauses(answer(&mut state, collector, true, pace)).await;
        assert!(pauses >= STEPS - 1, "answering: {pauses}");
        assert_eq!(topics.len(), 1);
        let partitions = &topics[0].partitions;
        assert_eq!(partitions.len(), PARTITIONS as usize + 10);
        assert!(partitions.iter().enumerate().all(|(place, answered)| {
            let is_known = place < PARTITIONS as usize;
            answered.index as usize == place && (answered.error == 0) == is_known
        }));
    }

    #[tokio::test]
    async fn deleted_partition_does_not_hide_its_recreated_topic() {
        let (_stop, stopping) = watch::channel(false);
        let gateway = with_topic("again", stopping).await;
        let topic = TopicRef::Name("again".into());
        let mut state = FetchState::new(None);
        let pace = &mut YieldBudget::new(gateway.broker.turns(), PARTITIONS_AT_ONCE);
        state.want(&gateway.broker, wants_of(&topic, 2), pace).await;
        let former = state.resolved(&topic, 0).expect("is known");
        gateway.broker.delete_topic(former.topic).await.expect("is deleted");
        let anew = NewTopic {
            name: "again".to_owned(),
            uuid: Uuid::from_u128(2),
            partitions: 2,
            config: BTreeMap::new(),
        };
        gateway.broker.create_topic(anew).await.expect("is created");
        state.want(&gateway.broker, wants_of(&topic, 1), pace).await;
        let found = state.resolved(&topic, 0).expect("is known");
        assert_ne!(found, former);
        state.lose(former);
        assert_eq!(state.resolved(&topic, 0), Some(found));
        assert!(state.missing.is_empty());
    }
}
