//! Three shards and the leaders of their logs: they propose as the sequencer does.

use base::{Offset, PartitionId, ShardId, TopicId};
use machine::catalog::feed::AdoptedTopic;
use machine::{
    Adoption, Append, AppendOutcome, BatchKind, Command, CommitOffset, EndCause, EndedPart, Entry,
    EntryEffects, MessageCommand, Origin, Outcome, Preparation, ProducerKey, Refusal, Role,
    SentBatch, State, TransactionCommand, TransactionRefusal, Unit,
};

pub(crate) const SHARDS: u32 = 3;
pub(crate) const PARTITIONS: u32 = 6;
const EPOCH: i32 = 4;

pub(crate) fn partition(index: u32) -> PartitionId {
    PartitionId::new(TopicId(0), index)
}

/// Shard of a partition.
pub(crate) fn shard_of(index: u32) -> ShardId {
    ShardId(index % SHARDS + 1)
}

pub(crate) struct Shards {
    states: Vec<State>,
    pub(crate) now_ms: i64,
}

impl Shards {
    pub(crate) fn new() -> Self {
        let mut shards = Self {
            states: (1..=SHARDS).map(|shard| State::of(Role::Rows(ShardId(shard)))).collect(),
            now_ms: 1_000,
        };
        for shard in 1..=SHARDS {
            let topic = AdoptedTopic {
                topic: TopicId(0),
                first: shard - 1,
                step: SHARDS,
                partitions: PARTITIONS,
                deletes_settled: false,
            };
            let adoption = Adoption { to: 1, topics: vec![topic], ..Adoption::default() };
            shards.command(ShardId(shard), Command::Adopt(adoption)).expect("it is the first");
        }
        shards
    }

    pub(crate) fn state(&self, shard: ShardId) -> &State {
        &self.states[shard.0 as usize - 1]
    }

    pub(crate) fn all(&self) -> &[State] {
        &self.states
    }

    pub(crate) fn replace(&mut self, shard: ShardId, state: State) {
        self.states[shard.0 as usize - 1] = state;
    }

    pub(crate) fn apply(
        &mut self,
        shard: ShardId,
        appends: &[Append],
        commands: &[Command],
        units: &[Unit],
    ) -> EntryEffects {
        self.now_ms += 1;
        let mut applied = EntryEffects::new();
        let (now_ms, leader_epoch) = (self.now_ms, Some(EPOCH));
        let entry = Entry { now_ms, leader_epoch, appends, commands, units };
        self.states[shard.0 as usize - 1].apply(&entry, &mut applied);
        applied
    }

    pub(crate) fn command(&mut self, shard: ShardId, command: Command) -> Result<Outcome, Refusal> {
        self.apply(shard, &[], &[command], &[]).commands.remove(0)
    }

    pub(crate) fn transaction(
        &mut self,
        shard: ShardId,
        command: TransactionCommand,
    ) -> Result<Outcome, TransactionRefusal> {
        match self.command(shard, Command::Transaction(command)) {
            Ok(outcome) => Ok(outcome),
            Err(Refusal::Transaction(refusal)) => Err(refusal),
            Err(other) => panic!("{other}"),
        }
    }

    pub(crate) fn initialize(
        &mut self,
        home: ShardId,
        id: &str,
        expect: Option<ProducerKey>,
        fresh: i64,
    ) -> Result<ProducerKey, TransactionRefusal> {
        let (id, timeout_ms) = (id.to_owned(), 60_000);
        let command = TransactionCommand::Initialize { id, expect, fresh, timeout_ms };
        self.transaction(home, command).map(producer_of)
    }

    pub(crate) fn join(
        &mut self,
        home: ShardId,
        id: &str,
        producer: ProducerKey,
        shard: ShardId,
    ) -> Result<u64, TransactionRefusal> {
        let (id, shard, added, requires) = (id.to_owned(), Some(shard), vec![], None);
        let join = TransactionCommand::Join { id, producer, shard, added, requires };
        match self.transaction(home, join)? {
            Outcome::Joined { number } => Ok(number),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn open(
        &mut self,
        shard: ShardId,
        producer: ProducerKey,
        number: u64,
        home: ShardId,
    ) -> Result<(), TransactionRefusal> {
        let open = TransactionCommand::Open { producer, number, home };
        self.transaction(shard, open).map(drop)
    }

    /// The batch that comes next in a partition.
    pub(crate) fn batch(&self, index: u32, span: u32, producer: ProducerKey) -> Append {
        let partition = partition(index);
        let row = self.state(shard_of(index)).rows.partition(partition).expect("it exists");
        let known = row.producer(producer.id).filter(|known| known.epoch() == producer.epoch);
        Append {
            partition,
            base_offset: row.next_offset(),
            span,
            leader_epoch: EPOCH,
            max_timestamp: 0,
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            base_sequence: known.map_or(0, |known| known.next_sequence()),
            kind: BatchKind::Transactional,
        }
    }

    pub(crate) fn append(&mut self, append: Append) -> AppendOutcome {
        let shard = shard_of(append.partition.index);
        self.apply(shard, &[append], &[], &[]).appends.remove(0)
    }

    pub(crate) fn pending(
        &mut self,
        shard: ShardId,
        producer: ProducerKey,
        group: &str,
        offset: Offset,
    ) -> Result<(), TransactionRefusal> {
        let commit = CommitOffset {
            partition: partition(0),
            offset,
            leader_epoch: -1,
            metadata: "m".into(),
            expire_ms: None,
        };
        let (group, offsets) = (group.to_owned(), vec![commit]);
        let pending = TransactionCommand::Pending { producer, group, offsets };
        self.transaction(shard, pending).map(drop)
    }

    /// Markers that a shard needs for this end.
    pub(crate) fn markers(&self, shard: ShardId, part: &EndedPart) -> Vec<Append> {
        let rows = &self.state(shard).rows;
        let participations = rows.transactions().participations();
        let open = participations.partitions_ended_by(part).into_iter().flatten();
        open.map(|&partition| {
            marker(rows.partition(partition).expect("known").next_offset(), partition, part)
        })
        .collect()
    }

    /// The unit of a decision: markers, messages and commands.
    pub(crate) fn end_unit(
        &self,
        home: ShardId,
        id: &str,
        producer: ProducerKey,
        commit: bool,
        cause: EndCause,
        fresh: i64,
    ) -> Result<(Vec<Append>, Vec<Command>), TransactionRefusal> {
        let rows = &self.state(home).rows;
        let planned = rows.transactions().ids().plan_end(id, producer, commit, cause, fresh)?;
        let id = id.to_owned();
        let end = TransactionCommand::End { id, producer, commit, cause, fresh };
        let (mut appends, mut commands) = (vec![], vec![Command::Transaction(end)]);
        if let Some(part) = planned.part {
            appends = self.markers(home, &part);
            for &to in planned.shards.iter().filter(|to| **to != home) {
                let end = rows.channels().outbox(to).map_or(0, |outbox| outbox.end());
                appends.push(marker(end, PartitionId::channel_to(to), &part));
                commands.push(Command::SendWith {
                    to,
                    batches: vec![SentBatch { bytes: 78, targets: vec![] }],
                    commands: vec![MessageCommand::EndTransaction(part)],
                    preparation: Preparation::default(),
                });
            }
        }
        Ok((appends, commands))
    }

    pub(crate) fn end(
        &mut self,
        home: ShardId,
        id: &str,
        producer: ProducerKey,
        commit: bool,
        cause: EndCause,
        fresh: i64,
    ) -> Result<ProducerKey, TransactionRefusal> {
        let (appends, commands) = self.end_unit(home, id, producer, commit, cause, fresh)?;
        let applied = self.apply_unit(home, &appends, &commands, None);
        match applied.commands.into_iter().next() {
            Some(Ok(outcome)) => Ok(producer_of(outcome)),
            other => panic!("{other:?}, {:?}", applied.appends),
        }
    }

    pub(crate) fn apply_unit(
        &mut self,
        shard: ShardId,
        appends: &[Append],
        commands: &[Command],
        origin: Option<Origin>,
    ) -> EntryEffects {
        let (bound, with) = (appends.len() as u32, commands.len() as u32);
        let unit = Unit { appends: bound, commands: with, origin, ..Unit::default() };
        self.apply(shard, appends, commands, &[unit])
    }

    /// Delivers the next message from one shard to another, if there is one.
    pub(crate) fn deliver(&mut self, from: ShardId, to: ShardId) -> bool {
        let number = self.state(to).rows.channels().expected(from);
        let outbox = self.state(from).rows.channels().outbox(to);
        let message = outbox.and_then(|outbox| outbox.messages_from(number).next());
        let Some((number, message)) = message else { return false };
        let [MessageCommand::EndTransaction(part)] = message.commands[..] else {
            panic!("{message:?}")
        };
        let origin = Some(Origin { shard: from, number, next: number + 1 });
        let markers = self.markers(to, &part);
        let command = Command::FromMessage(MessageCommand::EndTransaction(part));
        let applied = self.apply_unit(to, &markers, &[command], origin);
        assert!(applied.commands[0].is_ok(), "{applied:?}");
        self.command(from, Command::Acknowledged { to, below: number + 1 }).expect("it is next");
        true
    }

    pub(crate) fn deliver_all(&mut self) {
        for (from, to) in pairs() {
            while self.deliver(from, to) {}
        }
    }
}

/// All pairs of different shards.
pub(crate) fn pairs() -> impl Iterator<Item = (ShardId, ShardId)> {
    let pairs = (1..=SHARDS).flat_map(|from| (1..=SHARDS).map(move |to| (from, to)));
    pairs.filter(|(from, to)| from != to).map(|(from, to)| (ShardId(from), ShardId(to)))
}

pub(crate) fn marker(base_offset: Offset, partition: PartitionId, part: &EndedPart) -> Append {
    Append {
        partition,
        base_offset,
        span: 1,
        leader_epoch: EPOCH,
        max_timestamp: 0,
        producer_id: part.producer.id,
        producer_epoch: part.producer.epoch,
        base_sequence: -1,
        kind: BatchKind::marker(part.commit),
    }
}

fn producer_of(outcome: Outcome) -> ProducerKey {
    match outcome {
        Outcome::Producer { producer } => producer,
        other => panic!("{other:?}"),
    }
}
