//! What an outbox takes, and what is no message: the rules one by one. Histories are in `channels.rs`.

use base::limits::OUTBOX_MESSAGES_MAX;
use base::{PartitionId, ShardId, TopicId};
use machine::catalog::feed::AdoptedTopic;
use machine::{
    Adoption, Append, AppendOutcome, Applied, Command, Entry, Origin, Outcome, Refusal, Role,
    SentBatch, State, Unit,
};

const EPOCH: i32 = 3;

/// The first shard, with a partition of one topic.
struct Shard {
    state: State,
}

impl Shard {
    fn new() -> Self {
        let mut shard = Self { state: State::of(Role::Rows(ShardId(1))) };
        let topic = AdoptedTopic {
            topic: TopicId(0),
            first: 0,
            step: 2,
            partitions: 2,
            deletes_settled: false,
        };
        let adoption = Adoption { to: 1, topics: vec![topic], ..Adoption::default() };
        shard.apply(&[], &[Command::Adopt(adoption)], &[]);
        shard
    }

    fn apply(&mut self, appends: &[Append], commands: &[Command], units: &[Unit]) -> Applied {
        let mut applied = Applied::new();
        let entry = Entry { now_ms: 5, leader_epoch: Some(EPOCH), appends, commands, units };
        self.state.apply(&entry, &mut applied);
        applied
    }

    /// A message of one batch of one record.
    fn send(&mut self, to: ShardId, number: u64, bytes: u32) -> Result<Outcome, Refusal> {
        let batches = vec![SentBatch { bytes, targets: vec![PartitionId::new(TopicId(0), 1)] }];
        let append = append(PartitionId::channel_to(to), number, 1);
        let unit = Unit { appends: 1, commands: 1, ..Unit::default() };
        self.apply(&[append], &[Command::Send { to, batches }], &[unit]).commands.remove(0)
    }
}

fn append(partition: PartitionId, base_offset: u64, span: u32) -> Append {
    Append {
        partition,
        base_offset,
        span,
        leader_epoch: EPOCH,
        max_timestamp: 0,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
    }
}

#[test]
fn an_outbox_is_bounded_and_takes_a_large_message_when_it_is_empty() {
    let (mut shard, to) = (Shard::new(), ShardId(2));
    assert_eq!(shard.send(to, 0, 60 << 20), Ok(Outcome::Done));
    let full = Err(Refusal::OutboxFull { to, messages: 1, bytes: (60 << 20) + 8 });
    assert_eq!(shard.send(to, 1, 1), full);
    assert_eq!(shard.send(ShardId(3), 0, 1), Ok(Outcome::Done), "the other one has room");
    shard.apply(&[], &[Command::Acknowledged { to, below: 1 }], &[]);
    let most = OUTBOX_MESSAGES_MAX as u64;
    assert!((1..=most).all(|number| shard.send(to, number, 1) == Ok(Outcome::Done)));
    let full = Err(Refusal::OutboxFull { to, messages: OUTBOX_MESSAGES_MAX, bytes: most * 9 });
    assert_eq!(shard.send(to, most + 1, 1), full);
}

#[test]
fn only_whole_messages_that_were_sent_are_acknowledged() {
    let (mut shard, to) = (Shard::new(), ShardId(2));
    let acknowledge = |shard: &mut Shard, to, below| {
        shard.apply(&[], &[Command::Acknowledged { to, below }], &[]).commands.remove(0)
    };
    let partition = PartitionId::channel_to(to);
    assert_eq!(acknowledge(&mut shard, to, 0), Err(Refusal::UnknownPartition { partition }));
    let batches = vec![SentBatch { bytes: 9, targets: vec![PartitionId::new(TopicId(0), 1)] }];
    let unit = Unit { appends: 1, commands: 1, ..Unit::default() };
    shard.apply(&[append(partition, 0, 3)], &[Command::Send { to, batches }], &[unit]);
    for below in [1, 2, 4] {
        let range = Refusal::OffsetOutOfRange { partition, offset: below, start: 0, end: 3 };
        assert_eq!(acknowledge(&mut shard, to, below), Err(range));
    }
    for below in [3, 3, 0] {
        assert_eq!(acknowledge(&mut shard, to, below), Ok(Outcome::Done));
    }
    assert!(shard.state.rows.channels().outbox(to).is_some_and(|outbox| outbox.is_empty()));
}

#[test]
fn what_is_no_message_changes_nothing() {
    let mut shard = Shard::new();
    let before = shard.state.encode();
    let channel = PartitionId::channel_to(ShardId(2));
    let alone = shard.apply(&[append(channel, 0, 1)], &[], &[]);
    assert_eq!(alone.appends, [AppendOutcome::UnknownPartition]);
    let send = Command::Send { to: ShardId(2), batches: vec![] };
    let alone = shard.apply(&[], std::slice::from_ref(&send), &[]);
    assert_eq!(alone.commands, [Err(Refusal::NotAMessage)]);
    let unit = Unit { commands: 1, ..Unit::default() };
    assert_eq!(shard.apply(&[], &[send], &[unit]).commands, [Err(Refusal::NotAMessage)]);
    // There is no such shard; it cannot be from here; the next one is not behind it.
    for (from, number, next) in [(0, 0, 1), (1, 0, 1), (2, 0, 0), (2, 1, 1), (9_999, 0, 1)] {
        let origin = Some(Origin { shard: ShardId(from), number, next });
        let unit = Unit { appends: 1, origin, ..Unit::default() };
        let refused = shard.apply(&[append(PartitionId::new(TopicId(0), 0), 0, 1)], &[], &[unit]);
        assert_eq!(refused.appends, [AppendOutcome::UnitRefused], "{origin:?}");
    }
    let channels = shard.state.rows.channels();
    assert!(channels.are_unused());
    let mut same = State::decode(&before).expect("it was encoded by us");
    let now_ms = shard.state.last_ms();
    same.apply(&Entry { now_ms, ..Entry::default() }, &mut Applied::new());
    assert_eq!(same.encode(), shard.state.encode());
}
