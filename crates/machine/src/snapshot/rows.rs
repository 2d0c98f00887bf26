//! The rows of a shard (version 4; with channels version 5; with members of groups version 6; with
//! moved partitions version 7; with rows brought by other nodes version 8; with ids of records
//! version 9; with commands in messages version 10; with transactions version 11).
//!
//! ```text
//! RowsV4, topics x (TopicRowsV4, its PartitionV1s) by id,
//! groups x (GroupV1, its CommittedOffsetV1s) by name,
//! lease groups x (GroupRowsV4, its ProgressV2s) by id, TimeV3,
//! in version 6 MembershipsV6, its MembershipV6s by name,
//! in version 5, and in version 6 if flagged there, the format of `channels`
//! in version 7 in place of both: PartsV7, members and channels as above if flagged, then the format of `moves`
//! in version 8 PartsV8 in its place, and at the end the format of `requests`
//! in version 9 PartsV9 in its place, and at the end the format of `record_ids`
//! in version 10 the same, with another form of messages in `channels`
//! in version 11 the same, and at the end the format of `transactions`
//! ```

use std::sync::Arc;

use base::limits::PARTITIONS_PER_TOPIC_MAX;
use base::{LeaseGroupId, PartitionId, ShardId, SharedMap, Stripe, TopicId};

use super::{
    APART_SINCE, BROUGHT_SINCE, CHANNELS_SINCE, MEMBERSHIPS_SINCE, MESSAGE_COMMANDS_SINCE,
    MOVES_SINCE, RECORD_IDS_SINCE, TRANSACTIONS_SINCE, channels, inconsistent, moves, put,
    record_ids, requests, take, transactions, with_room_for,
};
use crate::entry::DecodeError;
use crate::group_name::validate_group_name;
use crate::rows::Rows;
use crate::rows::channels::Channels;
use crate::rows::group::{CommittedOffset, Group};
use crate::rows::lease_group::GroupRows;
use crate::rows::memberships::{self, Memberships};
use crate::rows::partition::Partition;
use crate::rows::progress::Progress;
use crate::rows::requests::Requests;
use crate::rows::topic::TopicRows;
use crate::rows::transactions::Transactions;
use crate::state::{Role, State};
use crate::stored::{
    CommittedOffsetV1, GroupRowsV4, GroupV1, MembershipV6, MembershipsV6, PartitionV1, PartsV7,
    PartsV8, PartsV9, ProgressV2, RowsV4, TimeV3, TopicRowsV4,
};
use record_ids::RecordIdsImage;

#[derive(Clone, Debug)]
pub(super) struct RowsImage {
    shard: ShardId,
    adopted: u64,
    topics: SharedMap<TopicId, Arc<TopicRows>>,
    groups: SharedMap<Arc<str>, Arc<Group>>,
    lease_groups: SharedMap<LeaseGroupId, Arc<GroupRows>>,
    last_ms: i64,
    channels: Channels,
    memberships: Memberships,
    requests: Requests,
    record_ids: RecordIdsImage,
    transactions: Transactions,
}

impl RowsImage {
    pub(super) fn of(shard: ShardId, rows: &Rows, last_ms: i64) -> Self {
        Self {
            shard,
            adopted: rows.adopted,
            topics: rows.topics.clone(),
            groups: rows.offsets.groups.clone(),
            lease_groups: rows.lease_groups.clone(),
            last_ms,
            channels: rows.channels.clone(),
            memberships: rows.memberships.clone(),
            requests: rows.requests.clone(),
            record_ids: RecordIdsImage::of(&rows.record_ids),
            transactions: rows.transactions.clone(),
        }
    }

    /// Number of topics with moves.
    fn moves(&self) -> u64 {
        self.topics.values().filter(|topic| topic.moves().is_some()).count() as u64
    }

    fn has_channels(&self) -> bool {
        !self.channels.are_unused()
    }

    /// The oldest version that can represent all of it.
    pub(super) fn version(&self) -> u16 {
        match (self.memberships.is_empty(), self.has_channels()) {
            _ if !self.transactions.are_unused() => TRANSACTIONS_SINCE,
            _ if self.channels.have_commands() => MESSAGE_COMMANDS_SINCE,
            _ if !self.record_ids.is_unused => RECORD_IDS_SINCE,
            _ if !self.requests.is_empty() => BROUGHT_SINCE,
            _ if self.moves() > 0 => MOVES_SINCE,
            (false, _) => MEMBERSHIPS_SINCE,
            (true, true) => CHANNELS_SINCE,
            (true, false) => APART_SINCE,
        }
    }

    pub(super) fn shard(&self) -> u32 {
        self.shard.0
    }

    pub(super) fn encode(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        bytes = put(
            bytes,
            &RowsV4 {
                adopted: self.adopted,
                topics: self.topics.len() as u64,
                groups: self.groups.len() as u64,
                lease_groups: self.lease_groups.len() as u64,
            },
        );
        for (id, topic) in &self.topics {
            let stored = TopicRowsV4 {
                id: id.0,
                first: topic.stripe().first(),
                step: topic.stripe().step(),
                deletes_settled: topic.deletes_settled(),
                rows: topic.row_count() as u64,
            };
            bytes = put(bytes, &stored);
            bytes = put_partitions(bytes, topic);
        }
        bytes = put_groups(bytes, &self.groups);
        for (id, group) in &self.lease_groups {
            bytes = put(bytes, &GroupRowsV4 { id: id.0, topic: group.topic.0 });
            bytes = put_progress(bytes, group);
        }
        bytes = put(bytes, &TimeV3 { last_ms: self.last_ms });
        let channels = self.has_channels();
        let topics = self.moves();
        let nodes = self.requests.nodes.len() as u64;
        let (ids, version) = (&self.record_ids, self.version());
        if version >= MOVES_SINCE {
            let members = !self.memberships.is_empty();
            bytes = match version {
                RECORD_IDS_SINCE.. => {
                    let (with_ids, ids_complete) = (ids.topics.len() as u64, ids.complete);
                    let ids_forgotten_early = ids.forgotten_early;
                    put(
                        bytes,
                        &PartsV9 {
                            members,
                            channels,
                            topics,
                            nodes,
                            with_ids,
                            ids_complete,
                            ids_forgotten_early,
                        },
                    )
                }
                BROUGHT_SINCE => put(bytes, &PartsV8 { members, channels, topics, nodes }),
                _ => put(bytes, &PartsV7 { members, channels, topics }),
            };
            if members {
                bytes = put_memberships(bytes, &self.memberships, channels);
            }
            if channels {
                bytes = channels::encode(&self.channels, version, bytes);
            }
            bytes = moves::encode(self.topics.values().map(|topic| &**topic), bytes);
            bytes = requests::encode(&self.requests, bytes);
            bytes = record_ids::encode(ids, bytes);
            return match version {
                TRANSACTIONS_SINCE.. => transactions::encode(&self.transactions, bytes),
                _ => bytes,
            };
        }
        if !self.memberships.is_empty() {
            bytes = put_memberships(bytes, &self.memberships, channels);
        }
        if channels { channels::encode(&self.channels, version, bytes) } else { bytes }
    }
}

pub(super) fn decode(shard: u32, version: u16, body: &mut &[u8]) -> Result<State, DecodeError> {
    let mut state = State::of(Role::Rows(ShardId(shard)));
    if ShardId(shard) < ShardId::FIRST {
        return Err(inconsistent("shard", shard));
    }
    let stored: RowsV4 = take(body, "rows")?;
    let rows = &mut state.rows;
    rows.adopted = stored.adopted;
    for _ in 0..stored.topics {
        let TopicRowsV4 { id, first, step, deletes_settled, rows: count } =
            take(body, "a topic's rows")?;
        let partitions = take_partitions(count, body)?;
        let stripe = Stripe::new(first, step);
        let is_new = rows.topic(TopicId(id)).is_none();
        let stripe = stripe.filter(|stripe| {
            is_new
                && stripe.has_room_for(partitions.len())
                && partitions.iter().all(Partition::is_sound)
        });
        let Some(stripe) = stripe else {
            return Err(inconsistent("rows of topic", id));
        };
        rows.insert_topic(TopicId(id), stripe, partitions.into(), deletes_settled);
    }
    for _ in 0..stored.groups {
        take_group(rows, body, |_| true)?;
    }
    for _ in 0..stored.lease_groups {
        let GroupRowsV4 { id, topic } = take(body, "rows of a lease group")?;
        let (id, topic) = (LeaseGroupId(id), TopicId(topic));
        let count = rows.topic(topic).map_or(0, TopicRows::row_count);
        let progress = take_progress(count as u64, body)?;
        if rows.lease_group(id).is_some() || !is_sound(rows, topic, &progress) {
            return Err(inconsistent("rows of lease group", id));
        }
        rows.insert_lease_group(id, topic, progress.into());
    }
    state.last_ms = take::<TimeV3>(body, "the time")?.last_ms;
    if version >= MOVES_SINCE {
        let parts: PartsV9 = match version {
            MOVES_SINCE => PartsV8::from(take::<PartsV7>(body, "parts")?).into(),
            BROUGHT_SINCE => take::<PartsV8>(body, "parts")?.into(),
            _ => take(body, "parts")?,
        };
        let PartsV9 { members, channels, topics, nodes, .. } = parts;
        if members {
            (rows.memberships, _) = take_memberships(body)?;
        }
        if channels {
            rows.channels = channels::decode(ShardId(shard), version, body)?;
        }
        if topics > 0 || version == MOVES_SINCE {
            moves::decode(rows, topics, body)?;
        }
        if nodes > 0 || version == BROUGHT_SINCE {
            rows.requests = requests::decode(nodes, body)?;
        }
        if version >= RECORD_IDS_SINCE {
            record_ids::decode(rows, version, &parts, body)?;
        }
        if version >= TRANSACTIONS_SINCE {
            transactions::decode(rows, body)?;
        }
        return Ok(state);
    }
    let mut with_channels = version == CHANNELS_SINCE;
    if version >= MEMBERSHIPS_SINCE {
        (rows.memberships, with_channels) = take_memberships(body)?;
    }
    if with_channels {
        rows.channels = channels::decode(ShardId(shard), version, body)?;
    }
    Ok(state)
}

impl From<PartsV7> for PartsV8 {
    fn from(PartsV7 { members, channels, topics }: PartsV7) -> Self {
        Self { members, channels, topics, nodes: 0 }
    }
}

impl From<PartsV8> for PartsV9 {
    fn from(PartsV8 { members, channels, topics, nodes }: PartsV8) -> Self {
        let (with_ids, ids_complete, ids_forgotten_early) = (0, false, 0);
        Self { members, channels, topics, nodes, with_ids, ids_complete, ids_forgotten_early }
    }
}

fn put_memberships(mut bytes: Vec<u8>, memberships: &Memberships, channels: bool) -> Vec<u8> {
    let groups = memberships.by_group.len() as u64;
    bytes = put(bytes, &MembershipsV6 { groups, channels });
    for (group, members) in &memberships.by_group {
        let stored = MembershipV6 { group: (&**group).into(), members: (&**members).into() };
        bytes = put(bytes, &stored);
    }
    bytes
}

/// Also returns whether channels follow.
fn take_memberships(body: &mut &[u8]) -> Result<(Memberships, bool), DecodeError> {
    let MembershipsV6 { groups, channels } = take(body, "members of groups")?;
    if groups == 0 {
        return Err(inconsistent("members of groups", "without any"));
    }
    let mut memberships = Memberships::default();
    for _ in 0..groups {
        let MembershipV6 { group, members } = take(body, "members of a group")?;
        let is_new = !memberships.by_group.contains_key(&*group);
        memberships.keep(&group, &members);
        // Invalid members would not have been stored.
        if !is_new || !memberships::is_sound(&group, &members) {
            return Err(inconsistent("members of group", group));
        }
    }
    Ok((memberships, channels))
}

// ------------------------------------------------------------------------ shared with whole states

pub(super) fn put_partitions(mut bytes: Vec<u8>, topic: &TopicRows) -> Vec<u8> {
    for (_, partition) in topic.stripe_rows() {
        bytes = put(bytes, &partition.stored());
    }
    bytes
}

pub(super) fn take_partitions(count: u64, body: &mut &[u8]) -> Result<Vec<Partition>, DecodeError> {
    if count > u64::from(PARTITIONS_PER_TOPIC_MAX) {
        return Err(inconsistent("a number of partitions", count));
    }
    let mut partitions = with_room_for(count, body);
    for _ in 0..count {
        partitions.push(Partition::from(take::<PartitionV1>(body, "a partition")?));
    }
    Ok(partitions)
}

pub(super) fn put_progress(mut bytes: Vec<u8>, group: &GroupRows) -> Vec<u8> {
    for progress in group.progress() {
        bytes = put(bytes, &progress.stored());
    }
    bytes
}

pub(super) fn take_progress(count: u64, body: &mut &[u8]) -> Result<Vec<Progress>, DecodeError> {
    let mut progress = with_room_for(count, body);
    for _ in 0..count {
        progress.push(Progress::from(take::<ProgressV2<'_>>(body, "progress")?));
    }
    Ok(progress)
}

/// Whether it is valid progress in each of the topic's partitions.
pub(super) fn is_sound(rows: &Rows, topic: TopicId, progress: &[Progress]) -> bool {
    rows.topic(topic).is_some_and(|topic| {
        progress.len() == topic.row_count()
            && progress
                .iter()
                .zip(topic.stripe_rows())
                .all(|(progress, (_, of))| progress.is_sound(of.log_start(), of.next_offset()))
    })
}

pub(super) fn put_groups(mut bytes: Vec<u8>, groups: &SharedMap<Arc<str>, Arc<Group>>) -> Vec<u8> {
    for (name, group) in groups {
        let offsets = group.offsets.len() as u64;
        bytes = put(bytes, &GroupV1 { name: (&**name).into(), offsets });
        for (&partition, committed) in &group.offsets {
            bytes = put(bytes, &committed.stored(partition));
        }
    }
    bytes
}

/// `exists` returns whether there can be an offset of a partition.
pub(super) fn take_group(
    rows: &mut Rows,
    body: &mut &[u8],
    exists: impl Fn(PartitionId) -> bool,
) -> Result<(), DecodeError> {
    let stored: GroupV1<'_> = take(body, "a group")?;
    let mut offsets = SharedMap::default();
    for _ in 0..stored.offsets {
        let committed: CommittedOffsetV1<'_> = take(body, "a committed offset")?;
        let partition = PartitionId::new(TopicId(committed.topic), committed.partition);
        offsets.insert(partition, CommittedOffset::from(committed));
    }
    let consistent = validate_group_name(&stored.name).is_ok()
        && rows.group(&stored.name).is_none()
        && !offsets.is_empty()
        && offsets.iter().all(|(&partition, committed)| exists(partition) && committed.is_sound());
    if !consistent {
        return Err(inconsistent("group", stored.name));
    }
    rows.offsets.insert(&stored.name, offsets);
    Ok(())
}
