//! ShareFetch: a member acquires records of its partitions, and waits if there are none.
//!
//! Each topic of the session is a lease group, taken from in turn, so that none is starved. A waiting member
//! waits for the first record of any of them. A record is leased to the member from the moment it is taken.
//! If it then cannot be sent, it is released, and does not count as an attempt.

use std::time::Duration;

use base::{LeaseGroupId, PartitionId, TopicId};
use broker::delivery::TakeError;
use broker::{Delivery, Settle, SettleTarget, Settlement, TakeOptions};
use bytes::Bytes;
use consumer_groups::lease_groups;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use kafka_protocol::error::ResponseError;
use kafka_protocol::protocol::StrBytes;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit};
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use crate::authorization::Caller;
use crate::catalog::currency::ensure_known;
use crate::errors::Fault;
use crate::leaders::not_leader;
use crate::messages::frames::DECODED_FACTOR;
use crate::messages::{RequestError, Response};
use crate::quotas;
use crate::request::Request;
use crate::share::acquired::{AcquiredRecord, BatchExtent, Plan};
use crate::share::answers::PartitionReplies;
use crate::share::limits::Limits;
use crate::share::request::{ShareFetchRequest, SharePartition};
use crate::share::response::{AcquiredRange, ShareFetched, encode_fetched};
use crate::share::{acknowledge, batches, key_of};
use crate::state::share_sessions::{
    FINAL_EPOCH, INITIAL_EPOCH, ShareKey, ShareSession, session_user,
};
use crate::state::{FETCH_BUDGET_UNIT, Gateway, Session};
use crate::topic_ref::RequestedTopic;

/// Byte limit of a fetch while the node's budget for fetched bytes is used up: consumers that do not drain
/// their responses must not block the others.
const WITHOUT_ROOM_BYTES_MAX: usize = 64 << 10;

pub(crate) async fn handle(
    gateway: &Gateway,
    session: &Session,
    mut request: Request,
) -> Result<Response, RequestError> {
    let frame_bytes = request.body.len();
    let message = ShareFetchRequest::parse(&mut request)?;
    ensure_known(gateway, message.partitions.iter().map(|it| RequestedTopic::Id(it.topic))).await;
    // It may wait for records while it holds its acknowledgements.
    let _room = request.permit.take().map(|permit| {
        gateway.waiting_budget.try_admit(frame_bytes * DECODED_FACTOR).unwrap_or(permit)
    });
    let (fetched, room) = match fetch(gateway, session, &request.caller, message).await {
        Ok(done) => done,
        Err(fault) => (ShareFetched { fault: Some(fault), ..ShareFetched::default() }, None),
    };
    // Always answered, because it may have settled records. A client over its quota is throttled afterwards.
    let throttle_ms = quotas::charge_fetched(session, &request.head, || {
        let partitions = fetched.topics.iter().flat_map(|(_, partitions)| partitions);
        partitions.flat_map(|partition| &partition.batches).map(Bytes::len).sum()
    });
    let fetched = ShareFetched { throttle_ms, ..fetched };
    let mut response = encode_fetched(&request.head, fetched);
    response.room = room;
    Ok(response)
}

async fn fetch(
    gateway: &Gateway,
    session: &Session,
    caller: &Caller,
    message: ShareFetchRequest,
) -> Result<(ShareFetched, Option<OwnedSemaphorePermit>), Fault> {
    let key = key_of(&message.head)?;
    caller.group(&key.group).map_err(Fault::plain)?;
    let limits = Limits::of(&message)?;
    let mut share = begin(gateway, session, &key, &message, &limits).await?;
    let is_final = message.head.epoch == FINAL_EPOCH;
    // The settles are ordered before anything is taken, so that released records may be taken at once.
    let acknowledged: Vec<SharePartition> =
        message.partitions.into_iter().filter(SharePartition::acknowledges).collect();
    let (broker, leases) = (&gateway.broker, &share.leases);
    let settled = acknowledge::settle(broker, caller, leases, &key.group, &acknowledged);
    let (lock_ms, locks_max) = {
        let (catalog, group) = (gateway.broker.catalog(), &key.group);
        (lease_groups::lock_ms(&catalog, group), lease_groups::locks_max(&catalog, group))
    };
    let mut fetching =
        ShareFetch { gateway, caller, group: &key.group, lock_ms, locks_max, limits };
    let (faults, (mut answers, room)) = if is_final || limits.fetches_nothing() {
        (settled.await, Default::default())
    } else {
        tokio::join!(settled, fetching.run(&mut share))
    };
    drop(share);
    if is_final {
        session.end_share_session(gateway, &key);
    }
    for (partition, fault) in acknowledged.iter().zip(faults) {
        answers.partition(partition.topic, partition.index).acknowledge_fault = fault;
    }
    let leaders = answers.refer(gateway, session.is_encrypted());
    let topics = answers.into_topics();
    Ok((ShareFetched { throttle_ms: 0, fault: None, lock_ms, topics, leaders }, room))
}

/// Finds or creates the member's session, and applies the request's changes to it.
async fn begin(
    gateway: &Gateway,
    session: &Session,
    key: &ShareKey,
    message: &ShareFetchRequest,
    limits: &Limits,
) -> Result<OwnedMutexGuard<ShareSession>, Fault> {
    let mut share = if message.head.epoch == INITIAL_EPOCH {
        if message.partitions.iter().any(SharePartition::acknowledges) {
            return Err(Fault::new(
                ResponseError::InvalidRequest,
                "a share session begins with nothing to acknowledge",
            ));
        }
        let sessions_max = gateway.broker.catalog().node_config().own.share.sessions_max;
        let leases = || gateway.broker.lease_session_of(session_user(&session.connection));
        let begun = gateway.share_sessions.begin(
            key.clone(),
            session.connection.id(),
            sessions_max,
            leases,
        );
        let Some(begun) = begun else {
            // Delayed, because the client would retry at once.
            tokio::time::sleep(limits.wait).await;
            return Err(Fault::plain(ResponseError::ShareSessionLimitReached));
        };
        session.share_sessions.add(key.clone());
        begun
    } else {
        gateway.share_sessions.resume(key, message.head.epoch)?
    };
    if message.head.epoch != FINAL_EPOCH {
        for partition in &message.partitions {
            share.add(partition.topic, partition.index)?;
        }
        for &(topic, index) in &message.forgotten {
            share.forget(topic, index);
        }
    }
    Ok(share)
}

/// A lease group to take records from.
struct Source {
    uuid: Uuid,
    topic: TopicId,
    group: LeaseGroupId,
    /// The session's partitions that exist.
    partitions: Vec<u32>,
}

/// The records taken so far.
#[derive(Default)]
struct AcquiredRecords {
    /// With the index of their source.
    records: Vec<(usize, Delivery)>,
    bytes: usize,
}

struct ShareFetch<'a> {
    gateway: &'a Gateway,
    caller: &'a Caller,
    group: &'a StrBytes,
    lock_ms: i32,
    /// Records of one partition that the whole group may hold.
    locks_max: u32,
    limits: Limits,
}

impl ShareFetch<'_> {
    async fn run(
        &mut self,
        share: &mut ShareSession,
    ) -> (PartitionReplies, Option<OwnedSemaphorePermit>) {
        let mut answers = PartitionReplies::default();
        let deadline = Instant::now() + self.limits.wait;
        // Subscribed before the first take, so that no change of leaders is missed.
        let mut changes = self.gateway.leader_changes();
        let sources = self.sources(share, &mut answers);
        let mut taken = AcquiredRecords::default();
        let refused = self.take_available(share, &sources, &mut taken, &mut answers).await;
        // A fault that is new to the member is reported at once.
        let has_news = answers.has_faults() || refused;
        while !has_news && !self.is_enough(&taken) {
            let waiting = self.wait_for_more(share, &sources, deadline, &mut taken);
            tokio::select! {
                biased;
                more = waiting => if !more { break },
                () = changes.next() => {}
            }
            if self.refuse_led_elsewhere(&sources, &mut answers) {
                break;
            }
        }
        let room = self.answer(share, &sources, taken, &mut answers).await;
        (answers, room)
    }

    fn is_enough(&self, taken: &AcquiredRecords) -> bool {
        !taken.records.is_empty()
            && (taken.bytes >= self.limits.bytes_min || self.records_left(taken) == 0)
    }

    fn records_left(&self, taken: &AcquiredRecords) -> u32 {
        self.limits.records_max.saturating_sub(taken.records.len() as u32)
    }

    /// The lease groups of the session's topics, beginning with the one whose turn it is. A topic's fault is
    /// reported unless the member received it last time.
    fn sources(&self, share: &mut ShareSession, answers: &mut PartitionReplies) -> Vec<Source> {
        let mut sources = Vec::with_capacity(share.topics.len());
        let catalog = self.gateway.broker.catalog();
        for (uuid, known) in &mut share.topics {
            let topic = catalog.topic_with_uuid(uuid);
            let group = topic.and_then(|topic| catalog.lease_group_named(topic.id(), self.group));
            let refused = topic.and_then(|topic| self.caller.topic(topic.name()).err());
            let wrong = match (topic, group) {
                _ if refused.is_some() => refused,
                (Some(topic), Some(group)) => {
                    let found = |index: &i32| Some(topic.partition(*index)?.index);
                    sources.push(Source {
                        uuid: *uuid,
                        topic: topic.id(),
                        group: group.id(),
                        partitions: known.partitions.iter().filter_map(found).collect(),
                    });
                    None
                }
                (Some(_), None) => Some(Fault::unknown_partition()),
                (None, _) => Some(Fault::unknown_topic_id()),
            };
            let error = wrong.as_ref().map(|fault| fault.error);
            if let Some(fault) = wrong.filter(|fault| known.told != Some(fault.error)) {
                answers.fail(*uuid, &known.partitions, &fault);
            }
            known.told = error;
        }
        drop(catalog);
        if self.refuse_led_elsewhere(&sources, answers) {
            for source in &mut sources {
                let Source { uuid, partitions, .. } = source;
                partitions.retain(|index| answers.is_served(*uuid, *index as i32));
            }
        }
        sources.retain(|source| !source.partitions.is_empty());
        if !sources.is_empty() {
            let turn = share.turn % sources.len();
            sources.rotate_left(turn);
            share.turn = turn + 1;
        }
        sources
    }

    /// Refuses partitions that another node leads by now. Returns whether there are any.
    fn refuse_led_elsewhere(&self, sources: &[Source], answers: &mut PartitionReplies) -> bool {
        if self.gateway.broker.is_alone() {
            return false;
        }
        let partitions = |source: &Source| {
            let (uuid, topic) = (source.uuid, source.topic);
            let ids = source.partitions.iter().map(move |index| PartitionId::new(topic, *index));
            ids.map(move |id| (uuid, id)).collect::<Vec<_>>()
        };
        let all: Vec<(Uuid, PartitionId)> = sources.iter().flat_map(partitions).collect();
        let ids: Vec<PartitionId> = all.iter().map(|(_, id)| *id).collect();
        let led = self.gateway.broker.leads_each(&ids);
        for ((uuid, id), _) in all.iter().zip(&led).filter(|(_, led)| !**led) {
            answers.partition(*uuid, id.index as i32).fault = Some(not_leader());
        }
        led.contains(&false)
    }

    fn options(&self, source: &Source, taken: &AcquiredRecords, wait: Duration) -> TakeOptions {
        TakeOptions {
            records_max: self.records_left(taken),
            bytes_max: self.limits.bytes_max.saturating_sub(taken.bytes).max(1) as u64,
            wait,
            lease_ms: Some(i64::from(self.lock_ms)),
            partitions: source.partitions.clone(),
            leased_max: Some(self.locks_max),
            settle_on_send: false,
        }
    }

    /// Takes records that are available now. Returns true if there is a new fault for the member.
    async fn take_available(
        &self,
        share: &mut ShareSession,
        sources: &[Source],
        taken: &mut AcquiredRecords,
        answers: &mut PartitionReplies,
    ) -> bool {
        let mut refused = false;
        for (place, source) in sources.iter().enumerate() {
            if self.records_left(taken) == 0 || taken.bytes >= self.limits.bytes_max {
                break;
            }
            let options = self.options(source, taken, Duration::ZERO);
            match share.leases.take(source.group, options).await {
                Ok(deliveries) => taken.add(place, deliveries),
                Err(error) => {
                    let fault = fault_of(error);
                    let Some(known) = share.topics.get_mut(&source.uuid) else { continue };
                    if known.told != Some(fault.error) {
                        known.told = Some(fault.error);
                        answers.fail(source.uuid, &known.partitions, &fault);
                        refused = true;
                    }
                }
            }
        }
        refused
    }

    /// Waits until any source has records. Returns false at the deadline.
    async fn wait_for_more(
        &self,
        share: &ShareSession,
        sources: &[Source],
        deadline: Instant,
        taken: &mut AcquiredRecords,
    ) -> bool {
        let wait = deadline.saturating_duration_since(Instant::now());
        if wait.is_zero() {
            return false;
        }
        let mut waiting: FuturesUnordered<_> = sources
            .iter()
            .enumerate()
            .map(|(place, source)| {
                let options = self.options(source, taken, wait);
                async move { (place, share.leases.take(source.group, options).await) }
            })
            .collect();
        let mut draining = std::pin::pin!(self.gateway.draining());
        let mut up = std::pin::pin!(sleep_until(deadline));
        loop {
            // The other waits are cancelled once one source has records; records about to be delivered to
            // them become available again.
            tokio::select! {
                biased;
                Some((place, found)) = waiting.next() => match found {
                    Ok(deliveries) if !deliveries.is_empty() => {
                        taken.add(place, deliveries);
                        return true;
                    }
                    // No records, or a fault, which the next fetch reports.
                    Ok(_) | Err(_) => {}
                },
                () = &mut up => return false,
                () = &mut draining => return false,
            }
        }
    }

    /// Reads the batches of the taken records, and releases records that do not fit.
    async fn answer(
        &self,
        share: &ShareSession,
        sources: &[Source],
        taken: AcquiredRecords,
        answers: &mut PartitionReplies,
    ) -> Option<OwnedSemaphorePermit> {
        if taken.records.is_empty() {
            return None;
        }
        let mut by_source: Vec<Vec<AcquiredRecord>> = sources.iter().map(|_| Vec::new()).collect();
        for (place, delivery) in &taken.records {
            by_source[*place].push(leased(delivery));
        }
        let (bytes_max, mut room) = self.reserve();
        let mut bytes = 0;
        let mut surplus = Vec::new();
        for (source, leased) in sources.iter().zip(by_source) {
            if leased.is_empty() {
                continue;
            }
            let plan = Plan::of(leased, bytes_max.saturating_sub(bytes), bytes == 0);
            bytes += plan.bytes;
            surplus.extend(plan.surplus.iter().map(|&range| give_back(source.group, range)));
            for (index, planned) in plan.partitions {
                let partition = PartitionId::new(source.topic, index);
                let read = batches::read(&self.gateway.broker, partition, &planned.runs).await;
                if let Ok(batches) = &read {
                    self.gateway.traffic.delivered(batches.iter().map(|it| it.len() as u64).sum());
                }
                let given_back = answers
                    .partition(source.uuid, index as i32)
                    .give(read, planned.acquired)
                    .into_iter()
                    .map(|AcquiredRange { first, last, .. }| (index, first, last));
                surplus.extend(given_back.map(|range| give_back(source.group, range)));
            }
        }
        if !surplus.is_empty() {
            drop(share.leases.settle(surplus));
        }
        if let Some(room) = &mut room {
            let used = bytes.div_ceil(FETCH_BUDGET_UNIT);
            if let Some(unused) = room.num_permits().checked_sub(used) {
                drop(room.split(unused));
            }
        }
        room
    }

    /// Reserves room in the node's budget: for the byte limit, or for little.
    fn reserve(&self) -> (usize, Option<OwnedSemaphorePermit>) {
        let bytes = self.limits.bytes_max;
        let units = u32::try_from(bytes.div_ceil(FETCH_BUDGET_UNIT)).unwrap_or(u32::MAX);
        let budget = std::sync::Arc::clone(&self.gateway.fetch_budget);
        match budget.try_acquire_many_owned(units) {
            Ok(room) => (bytes, Some(room)),
            Err(_) => (bytes.min(WITHOUT_ROOM_BYTES_MAX), None),
        }
    }
}

fn leased(delivery: &Delivery) -> AcquiredRecord {
    let header = delivery.record.batch().header();
    AcquiredRecord {
        partition: delivery.partition,
        offset: delivery.offset,
        attempt: delivery.attempt,
        batch: BatchExtent {
            base: header.base_offset,
            next: header.next_offset(),
            bytes: header.total_len(),
        },
    }
}

/// Releases records that were never sent, as if they had not been taken.
fn give_back(group: LeaseGroupId, (partition, first, last): (u32, u64, u64)) -> Settle {
    let what = SettleTarget::Range { partition, first, last };
    Settle { group, what, settlement: Settlement::Release { delay_ms: Some(0), count: false } }
}

impl AcquiredRecords {
    fn add(&mut self, place: usize, deliveries: Vec<Delivery>) {
        for delivery in deliveries {
            self.bytes += delivery.view().encoded_len();
            self.records.push((place, delivery));
        }
    }
}

fn fault_of(error: TakeError) -> Fault {
    match error {
        TakeError::UnknownGroup(_) => Fault::unknown_partition(),
        TakeError::Unavailable(unavailable) => unavailable.into(),
    }
}
