//! Limits of an outbox, and invalid messages: the rules one by one. `channels.rs` has random
//! histories.

use base::limits::OUTBOX_MESSAGES_MAX;
use base::{LeaseGroupId, PartitionId, ShardId, TopicId};
use machine::catalog::feed::AdoptedTopic;
use machine::{
    Adoption, Append, AppendOutcome, BatchKind, Command, Entry, EntryEffects, GroupSettle,
    MessageCommand, MinimumCounters, NewTopic, Origin, Outcome, Preparation, Refusal, Role,
    SentBatch, State, Unit, decode_head, encode_head,
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

    fn apply(&mut self, appends: &[Append], commands: &[Command], units: &[Unit]) -> EntryEffects {
        let mut applied = EntryEffects::new();
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
        kind: BatchKind::Plain,
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
fn invalid_message_changes_nothing() {
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
    // No such shard; its own shard; a next number that does not follow.
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
    same.apply(&Entry { now_ms, ..Entry::default() }, &mut EntryEffects::new());
    assert_eq!(same.encode(), shard.state.encode());
}

#[test]
fn channel_resumes_after_either_end_lost_its_log_end() {
    let (mut shard, to, from) = (Shard::new(), ShardId(2), ShardId(3));
    let resume = |shard: &mut Shard, sent: &[(ShardId, u64)], taken: &[(ShardId, u64)]| {
        let command = Command::ResumeChannels { sent: sent.to_vec(), taken: taken.to_vec() };
        shard.apply(&[], &[command], &[]).commands.remove(0)
    };
    // The other shard has accepted more than this one knows to have sent.
    for number in 0..2 {
        assert_eq!(shard.send(to, number, 1), Ok(Outcome::Done));
    }
    assert_eq!(resume(&mut shard, &[(to, 9), (from, 4)], &[(from, 7)]), Ok(Outcome::Done));
    let outbox = |shard: &Shard, to| shard.state.rows.channels().outbox(to).cloned().expect("used");
    let kept: Vec<u64> = outbox(&shard, to).messages_from(0).map(|(number, _)| number).collect();
    assert_eq!(
        (kept, outbox(&shard, to).acknowledged(), outbox(&shard, to).end()),
        (vec![0, 1], 0, 9)
    );
    assert_eq!((outbox(&shard, from).acknowledged(), outbox(&shard, from).end()), (4, 4));
    assert_eq!(shard.state.rows.channels().expected(from), 7);
    // It may now acknowledge all that it accepted before; the next message follows.
    let acknowledged = Command::Acknowledged { to, below: 9 };
    assert_eq!(shard.apply(&[], &[acknowledged], &[]).commands.remove(0), Ok(Outcome::Done));
    assert_eq!(shard.send(to, 9, 1), Ok(Outcome::Done));
    assert!(State::decode(&shard.state.encode()).is_ok());
    // Numbers never go back.
    assert_eq!(resume(&mut shard, &[(to, 3)], &[(from, 2)]), Ok(Outcome::Done));
    assert_eq!(outbox(&shard, to).end(), 10);
    assert_eq!(shard.state.rows.channels().expected(from), 7);
    let refused = resume(&mut shard, &[(ShardId::CATALOG, 1)], &[]);
    assert_eq!(refused, Err(Refusal::NotAMessage));
}

#[test]
fn catalog_that_lost_its_log_end_assigns_no_number_twice() {
    let mut catalog = State::of(Role::Catalog);
    let mut apply = |command: Command| {
        let mut applied = EntryEffects::new();
        let commands = &[command][..];
        catalog.apply(
            &Entry { now_ms: 5, leader_epoch: Some(EPOCH), appends: &[], commands, units: &[] },
            &mut applied,
        );
        (applied.commands.remove(0).expect("it is done"), catalog.clone())
    };
    let topic = |name: &str, uuid| NewTopic {
        name: name.to_owned(),
        uuid: uuid::Uuid::from_u128(uuid),
        partitions: 1,
        config: Default::default(),
    };
    apply(Command::SetShards { count: 1 });
    apply(Command::CreateTopics { topics: vec![topic("known", 1)] });
    let skipped =
        MinimumCounters { version: 40, next_topic: 8, next_lease_group: 6, next_producer_id: 1000 };
    let (_, after) = apply(Command::SkipNumbers(skipped));
    assert_eq!(after.catalog.version(), 40);
    // A shard that is ahead of the catalog's former version, and has topics unknown to it.
    let all = after.catalog.adoption(ShardId(1), 39, 10).expect("it has an earlier version");
    assert!(all.all && all.topics.len() == 1 && all.to == 40, "{all:?}");
    assert_eq!(after.catalog.adoption(ShardId(1), 40, 10), None);
    let (made, _) = apply(Command::CreateTopics { topics: vec![topic("new", 2)] });
    assert_eq!(made, Outcome::Topics(vec![Ok(TopicId(8))]));
    let (given, after) = apply(Command::AllocateProducerId);
    assert_eq!(given, Outcome::ProducerId { id: 1000, epoch: 0 });
    assert_eq!(State::decode(&after.encode()).as_ref(), Ok(&after));
    let lower = MinimumCounters { version: 3, ..MinimumCounters::default() };
    assert_eq!(apply(Command::SkipNumbers(lower)).1, after);
}

fn settle_command() -> MessageCommand {
    let (settled, attempts) = (vec![(7, 3)], vec![(9, 300)]);
    let settle = GroupSettle { group: LeaseGroupId(4), partition: 2, settled, attempts };
    MessageCommand::Settle { settles: vec![settle] }
}

#[test]
fn persisted_form_of_a_message_with_commands_does_not_change() {
    let target = PartitionId::new(TopicId(5), 2);
    let batches = vec![SentBatch { bytes: 300, targets: vec![target] }];
    let commands = vec![settle_command()];
    let settle = [1, 4, 2, 1, 7, 3, 1, 9, 0xac, 2];
    let preparation = Preparation { term: 300, number: 7 };
    let persisted = [
        (
            Command::SendWith { to: ShardId(2), batches, commands, preparation },
            [&[37, 2, 1, 0xac, 2, 1, 5, 2, 1, 0][..], &settle, &[0xac, 2, 7]].concat(),
        ),
        (Command::FromMessage(settle_command()), [&[38, 0][..], &settle].concat()),
        (Command::Fence { shard: ShardId(2), before: preparation }, vec![39, 2, 0xac, 2, 7]),
    ];
    for (command, bytes) in persisted {
        let head = encode_head(3, std::slice::from_ref(&command), &[]);
        // The head has the level that commands in messages require.
        assert_eq!(head[..], [&[3, 9, 0, 2, 6, 0, 1][..], &bytes].concat());
        assert_eq!(decode_head(&head).map(|head| head.commands), Ok(vec![command]));
    }
}

#[test]
fn message_with_commands_needs_a_batch_and_survives_a_snapshot() {
    let (mut shard, to) = (Shard::new(), ShardId(2));
    let send = |batches: Vec<SentBatch>| Command::SendWith {
        to,
        batches,
        commands: vec![settle_command()],
        preparation: Preparation::default(),
    };
    let unit = Unit { commands: 1, ..Unit::default() };
    let refused = shard.apply(&[], &[send(vec![])], &[unit]).commands;
    assert_eq!(refused, [Err(Refusal::NotAMessage)], "it would have no number");
    let batches = vec![SentBatch { bytes: 78, targets: vec![] }];
    let unit = Unit { appends: 1, commands: 1, ..Unit::default() };
    let channel = PartitionId::channel_to(to);
    let sent = shard.apply(&[append(channel, 0, 1)], &[send(batches.clone())], &[unit]);
    assert_eq!(sent.commands, [Ok(Outcome::Done)]);
    let restored = State::decode(&shard.state.encode()).expect("it was encoded by us");
    assert!(restored == shard.state);
    let outbox = restored.rows.channels().outbox(to).expect("a message was sent");
    let (_, message) = outbox.messages_from(0).next().expect("it is not acknowledged");
    assert_eq!((&message.batches, &message.commands), (&batches, &vec![settle_command()]));
    assert_eq!(outbox.bytes(), message.bytes());

    // Without commands the same batch is no message.
    let plain = Command::Send { to, batches };
    let refused = shard.apply(&[append(channel, 1, 1)], &[plain], &[unit]).commands;
    assert_eq!(refused, [Err(Refusal::NotAMessage)]);
    shard.apply(&[], &[Command::Acknowledged { to, below: 1 }], &[]);
    assert_eq!(shard.state.encode()[4..6], [5, 0], "the format before commands");
}

#[test]
fn command_of_a_message_is_refused_outside_of_a_message() {
    let mut shard = Shard::new();
    let command = Command::FromMessage(settle_command());
    let alone = shard.apply(&[], std::slice::from_ref(&command), &[]).commands;
    assert_eq!(alone, [Err(Refusal::NotAMessage)]);
    let unit = Unit { commands: 1, ..Unit::default() };
    let in_unit = shard.apply(&[], std::slice::from_ref(&command), &[unit]).commands;
    assert_eq!(in_unit, [Err(Refusal::NotInUnit)]);
    // A message does not settle by the command that clients' settles have.
    let MessageCommand::Settle { settles } = settle_command() else { panic!("it settles") };
    let origin = Some(Origin { shard: ShardId(2), number: 0, next: 1 });
    let unit = Unit { commands: 1, origin, ..Unit::default() };
    let plain = shard.apply(&[], &[Command::Settle { settles }], &[unit]).commands;
    assert_eq!(plain, [Err(Refusal::UnitRefused)]);
    let taken = shard.apply(&[], &[command], &[unit]).commands;
    assert_eq!(taken, [Ok(Outcome::Done)]);
}

#[test]
fn shard_gets_no_command_for_which_it_gave_up_its_preparation() {
    let (mut shard, to) = (Shard::new(), ShardId(2));
    let channel = PartitionId::channel_to(to);
    let send = |shard: &mut Shard, number: u64, preparation| {
        let batches = vec![SentBatch { bytes: 78, targets: vec![] }];
        let commands = vec![settle_command()];
        let send = Command::SendWith { to, batches, commands, preparation };
        let unit = Unit { appends: 1, commands: 1, ..Unit::default() };
        shard.apply(&[append(channel, number, 1)], &[send], &[unit]).commands.remove(0)
    };
    let fence = |shard: &mut Shard, before| {
        shard.apply(&[], &[Command::Fence { shard: to, before }], &[]).commands.remove(0)
    };
    let prepared = |term, number| Preparation { term, number };
    assert_eq!(send(&mut shard, 0, prepared(4, 9)), Ok(Outcome::Done));
    // All that was sent before has a lower number.
    assert_eq!(fence(&mut shard, prepared(5, 0)), Ok(Outcome::Fenced { end: 1 }));
    assert_eq!(send(&mut shard, 1, prepared(4, 9)), Err(Refusal::PreparedEarlier { to }));
    assert_eq!(send(&mut shard, 1, prepared(5, 1)), Ok(Outcome::Done));
    assert_eq!(fence(&mut shard, prepared(5, 4)), Ok(Outcome::Fenced { end: 2 }));
    // Fences only rise, also over a snapshot.
    assert_eq!(fence(&mut shard, prepared(5, 2)), Ok(Outcome::Fenced { end: 2 }));
    shard.state = State::decode(&shard.state.encode()).expect("it was encoded by us");
    assert_eq!(send(&mut shard, 2, prepared(5, 3)), Err(Refusal::PreparedEarlier { to }));
    assert_eq!(send(&mut shard, 2, prepared(5, 4)), Ok(Outcome::Done));
    // A plain message needs no preparation.
    assert_eq!(shard.send(to, 3, 1), Ok(Outcome::Done));
    // After a recovery terms may go on below the fence.
    let recovered = Command::ResumeChannels { sent: vec![], taken: vec![] };
    assert_eq!(shard.apply(&[], &[recovered], &[]).commands.remove(0), Ok(Outcome::Done));
    assert_eq!(send(&mut shard, 4, prepared(3, 1)), Ok(Outcome::Done));
}
