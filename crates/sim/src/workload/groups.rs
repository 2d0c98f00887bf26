//! Groups that read the log of Kafka's producers, with both protocols: the classic one, where one of the members
//! divides the partitions, and KIP-848's, where the group does. Members join, are silent for too long, and leave
//! with or without a request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base::PartitionId;
use client::consumer::ConsumerMember;
use client::fetcher::{FetchPosition, fetch};
use client::member::{Membership, MembershipStatus};
use client::requests::FetchLimits;
use client::{ClientError, TopicPartition, records};
use tokio::time::timeout;

use super::kafka::{PARTITIONS, TOPIC};
use super::settings::{REBALANCE, SESSION};
use super::{Client, LifeEnded, settings};
use crate::checkers::ObservedState;
use crate::checkers::groups::{Group, MemberId};
use crate::network;

pub const MEMBERS: u64 = 2;
const LIMITS: FetchLimits =
    FetchLimits { wait_ms: 50, bytes_min: 1, bytes_max: 64 << 10, partition_bytes_max: 16 << 10 };

/// The group protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    Classic,
    Consumer,
}

impl Protocol {
    pub const ALL: [Self; 2] = [Self::Classic, Self::Consumer];

    fn group(self) -> &'static str {
        match self {
            Self::Classic => "classic-readers",
            Self::Consumer => "new-readers",
        }
    }

    fn of(self, known: &mut ObservedState) -> &mut Group {
        &mut known.groups[usize::from(self == Self::Consumer)]
    }
}

/// Consumes, as one member after another.
pub async fn consume(mut client: Client, protocol: Protocol) -> LifeEnded {
    if open(&mut client).await.is_err() {
        return LifeEnded;
    }
    loop {
        let lasts = Duration::from_millis(client.random.between(500, 8_000));
        let (member, work) = (client.random.number(), client.fork());
        let mut reader = Reader { client: work, protocol, member, until: None };
        let ended = timeout(lasts, reader.run()).await;
        client.trace.note(format_args!("{protocol:?} reader {member:x} goes: {ended:?}"));
        reader.leave();
        client.think(500).await;
    }
}

async fn open(client: &mut Client) -> Result<(), LifeEnded> {
    settings::allow(client).await?;
    client.topic(TOPIC, PARTITIONS, &[]).await.map(drop)
}

/// Reads the remaining records, and stops at the ends of all partitions. There are no writers meanwhile.
pub async fn drain(mut client: Client, protocol: Protocol) -> Result<(), String> {
    open(&mut client).await.map_err(|error| format!("{error:?}"))?;
    let ends = ends(&client)?;
    let member = client.random.number();
    let until = Some(ends.clone());
    let mut reader = Reader { client: client.fork(), protocol, member, until };
    reader.run().await.map_err(|error| error.to_string())?;
    let ends: Vec<(u32, u64)> = ends.into_iter().collect();
    protocol.of(&mut client.knowledge.lock()).check(&ends, &client.verdict);
    Ok(())
}

fn ends(client: &Client) -> Result<BTreeMap<u32, u64>, String> {
    let topic = client.broker.catalog().topic_id(TOPIC).ok_or("the log is gone")?;
    let end = |index| {
        let bounds = client.broker.bounds(PartitionId::new(topic, index));
        Ok((index, bounds.ok_or("a partition is gone")?.end))
    };
    (0..PARTITIONS).map(end).collect()
}

/// A membership with either protocol.
enum Member {
    Classic(Membership),
    Consumer(ConsumerMember),
}

struct Reader {
    client: Client,
    protocol: Protocol,
    member: MemberId,
    /// The ends at which it stops.
    until: Option<BTreeMap<u32, u64>>,
}

/// The next offset of each partition that a reader has.
type Positions = BTreeMap<TopicPartition, u64>;

impl Reader {
    fn note(&self, what: std::fmt::Arguments<'_>) {
        let Self { client, protocol, member, .. } = self;
        client.trace.note(format_args!("{protocol:?} reader {member:x} {what}"));
    }

    fn with<T>(&self, part: impl FnOnce(&mut Group) -> T) -> T {
        part(self.protocol.of(&mut self.client.knowledge.lock()))
    }

    fn leave(&self) {
        self.with(|group| group.leave(self.member));
    }

    /// Until when a member that sends its report now may rely on its membership.
    fn session_ends_ms(&self) -> u64 {
        self.client.trace.now_ms() + SESSION.as_millis() as u64
    }

    async fn run(&mut self) -> Result<(), ClientError> {
        let connected = Arc::new(network::kafka_client().await?);
        let (group, topics) = (self.protocol.group(), [TOPIC.to_owned()]);
        let id = self.client.broker.entropy().uuid();
        let mut member = match self.protocol {
            Protocol::Classic => {
                let member = Membership::new(Arc::clone(&connected), group, &topics);
                Member::Classic(member.with_timeouts(SESSION, REBALANCE))
            }
            Protocol::Consumer => {
                let connected = Arc::clone(&connected);
                Member::Consumer(ConsumerMember::new(connected, group, &topics, id, REBALANCE))
            }
        };
        let mut positions = Positions::new();
        let mut is_member = false;
        loop {
            is_member = self.report(&mut member, is_member, &mut positions, &connected).await?;
            for _ in 0..self.client.random.between(1, 4) {
                self.read(&connected, &mut positions).await?;
            }
            if self.until.is_none() && self.client.random.once_in(40) {
                // Longer than its session timeout: other members take over without its knowledge.
                tokio::time::sleep(SESSION + REBALANCE).await;
            }
            if is_member && (self.until.is_some() || self.client.random.once_in(3)) {
                is_member = self.commit(&member, &positions).await?;
            }
            if self.is_done(&positions) || self.until.is_none() && self.client.random.once_in(60) {
                self.leave();
                return match member {
                    Member::Classic(member) => member.leave().await,
                    Member::Consumer(member) => member.leave().await,
                };
            }
        }
    }

    /// Whether it has come to the ends of all partitions.
    fn is_done(&self, positions: &Positions) -> bool {
        let Some(until) = &self.until else { return false };
        let position = |index: u32| positions.get(&TopicPartition::new(TOPIC, index as i32));
        until.iter().all(|(index, end)| position(*index).is_some_and(|position| position >= end))
    }

    /// Reports, or joins. Returns whether it is a member from here on.
    async fn report(
        &mut self,
        member: &mut Member,
        is_member: bool,
        positions: &mut Positions,
        connected: &client::Client,
    ) -> Result<bool, ClientError> {
        let until_ms = self.session_ends_ms();
        let owned: BTreeSet<TopicPartition> = match member {
            Member::Classic(member) if is_member => match member.heartbeat().await? {
                MembershipStatus::Member => {
                    self.with(|group| group.stays(self.member, until_ms));
                    return Ok(true);
                }
                MembershipStatus::Rebalancing => {
                    self.leave();
                    positions.clear();
                    return Ok(false);
                }
            },
            Member::Classic(member) => member.join().await?.into_iter().collect(),
            Member::Consumer(member) => match member.report().await? {
                MembershipStatus::Member if member.epoch() > 0 => member.owned().clone(),
                MembershipStatus::Member | MembershipStatus::Rebalancing => {
                    self.leave();
                    positions.clear();
                    return Ok(false);
                }
            },
        };
        let now_ms = self.client.trace.now_ms();
        let indexes = owned.iter().map(|it| it.partition as u32).collect();
        let verdict = &self.client.verdict;
        self.with(|group| group.assigned(self.member, &indexes, (now_ms, until_ms), verdict));
        positions.retain(|partition, _| owned.contains(partition));
        if owned.iter().any(|partition| !positions.contains_key(partition)) {
            self.note(format_args!("has {indexes:?}"));
            self.begin(connected, &owned, positions).await?;
        }
        Ok(true)
    }

    /// Starts from the group's committed offsets, in newly assigned partitions.
    async fn begin(
        &self,
        connected: &client::Client,
        owned: &BTreeSet<TopicPartition>,
        positions: &mut Positions,
    ) -> Result<(), ClientError> {
        let floors: Vec<u64> =
            owned.iter().map(|it| self.with(|group| group.floor(it.partition as u32))).collect();
        let asked = connected.committed(self.protocol.group());
        let committed = self.client.due("the offsets of a group", asked).await?;
        for (partition, floor) in owned.iter().zip(floors) {
            let found = committed.get(partition).copied();
            let verdict = &self.client.verdict;
            self.with(|group| group.found(partition.partition as u32, found, floor, verdict));
            positions.entry(partition.clone()).or_insert(found.unwrap_or(0));
        }
        self.note(format_args!("begins at {:?}", positions.values()));
        Ok(())
    }

    async fn read(
        &mut self,
        connected: &client::Client,
        positions: &mut Positions,
    ) -> Result<(), ClientError> {
        if positions.is_empty() {
            self.client.think(100).await;
            return Ok(());
        }
        let from = |(partition, offset): (&TopicPartition, &u64)| FetchPosition {
            partition: partition.clone(),
            offset: *offset,
        };
        let asked: Vec<FetchPosition> = positions.iter().map(from).collect();
        let broker = connected.any().await;
        let fetched = self.client.due("a fetch", fetch(&broker, &asked, LIMITS)).await?;
        for fetched in fetched {
            let index = fetched.partition.partition as u32;
            let Ok(bytes) = fetched.records else { continue };
            let Some(position) = positions.get_mut(&fetched.partition) else { continue };
            let Ok(records) = records::records_of(bytes) else { continue };
            for record in records.iter().filter(|record| record.offset as u64 >= *position) {
                self.with(|group| group.consume(index, record.offset as u64));
            }
            if let Some(last) = records.last() {
                *position = (*position).max(last.offset as u64 + 1);
            }
        }
        Ok(())
    }

    /// Commits its positions. Returns whether it is a member from here on.
    async fn commit(&self, member: &Member, positions: &Positions) -> Result<bool, ClientError> {
        if positions.is_empty() {
            return Ok(true);
        }
        let now_ms = self.client.trace.now_ms();
        let asked = positions.iter().map(|(partition, offset)| {
            let index = partition.partition as u32;
            self.with(|group| group.commits(self.member, index, *offset, now_ms))
        });
        let asked: Vec<_> = asked.collect();
        let committing = async {
            match member {
                Member::Classic(member) => member.commit(positions).await,
                Member::Consumer(member) => member.commit(positions).await,
            }
        };
        let status = self.client.due("a commit of a group", committing).await?;
        self.note(format_args!("commits {:?}: {status:?}", positions.values()));
        if status == MembershipStatus::Member {
            let verdict = &self.client.verdict;
            self.with(|group| asked.into_iter().for_each(|it| group.confirmed(it, verdict)));
        }
        // A member with an old generation learns the rest from its next report.
        Ok(true)
    }
}
