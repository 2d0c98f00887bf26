//! States and commands that cover everything.

use std::collections::BTreeMap;

use base::{LeaseGroupId, PartitionId, ShardId, TopicId};
use machine::catalog::feed::{AdoptedGroup, AdoptedTopic};
use machine::{
    Adoption, Append, AppendOutcome, BatchKind, Command, CommitOffset, EndCause, EndedPart, Entry,
    EntryEffects, GroupSettle, MessageCommand, NewTopic, Origin, Preparation, ProducerKey,
    RowSequence, SentBatch, State, TransactionCommand, Unit,
};
use uuid::Uuid;

/// Commands that create some of everything.
pub(super) fn commands() -> Vec<Command> {
    let values = |name: &str| BTreeMap::from([(name.to_owned(), "77".to_owned())]);
    let topic = TopicId(0);
    vec![
        Command::CreateTopics {
            topics: vec![NewTopic {
                name: "a.b".to_owned(),
                uuid: Uuid::from_u128(3),
                partitions: 3,
                config: values("retention.ms"),
            }],
        },
        Command::SetNodeConfig { config: values("log.retention.ms") },
        Command::SetGroupConfig {
            group: "g".to_owned(),
            config: values("consumer.session.timeout.ms"),
        },
        Command::CommitOffsets {
            group: "g".to_owned(),
            offsets: vec![CommitOffset {
                partition: PartitionId::new(topic, 1),
                offset: 300,
                leader_epoch: 2,
                metadata: "m".to_owned(),
                expire_ms: Some(9),
            }],
        },
        Command::AdvanceStart { starts: vec![(PartitionId::new(topic, 0), 2)] },
        Command::AllocateProducerId,
        Command::CreateLeaseGroup {
            topic,
            name: "main".to_owned(),
            starts: vec![2],
            config: values("lease.ms"),
        },
        Command::Settle {
            settles: vec![GroupSettle {
                group: LeaseGroupId(0),
                partition: 0,
                settled: vec![(3, 1), (6, 1)],
                attempts: vec![(2, 4), (5, 1)],
            }],
        },
        Command::PutDocument {
            space: "s".to_owned(),
            name: "d".to_owned(),
            body: vec![1, 2, 3],
            expect: None,
        },
        Command::Adopt(Adoption {
            from: 2,
            to: 9,
            all: false,
            topics: vec![AdoptedTopic {
                topic: TopicId(1),
                first: 1,
                step: 2,
                partitions: 6,
                deletes_settled: true,
            }],
            groups: vec![AdoptedGroup {
                group: LeaseGroupId(1),
                topic: TopicId(1),
                starts: vec![1],
            }],
            topics_gone: vec![TopicId(7)],
            groups_gone: vec![LeaseGroupId(7)],
        }),
    ]
}

pub(super) fn state() -> State {
    let mut state = State::new();
    let mut applied = EntryEffects::new();
    let create = &commands()[..1];
    state.apply(
        &Entry { now_ms: 5, appends: &[], commands: create, ..Entry::default() },
        &mut applied,
    );
    let appends: Vec<_> = (0..7)
        .map(|n| Append {
            partition: PartitionId::new(TopicId(0), 0),
            base_offset: n,
            span: 1,
            leader_epoch: n as i32 / 3,
            max_timestamp: 1000,
            producer_id: n as i64 % 2,
            producer_epoch: 0,
            base_sequence: n as i32 / 2,
            kind: BatchKind::Plain,
        })
        .collect();
    // The last is only for a shard with rows.
    let all = commands();
    let rest = &all[1..all.len() - 1];
    state.apply(
        &Entry { now_ms: 6, appends: &appends, commands: rest, ..Entry::default() },
        &mut applied,
    );
    assert!(applied.commands.iter().all(Result::is_ok), "{applied:?}");
    assert_eq!(state.rows.partition(PartitionId::new(TopicId(0), 0)).unwrap().next_offset(), 7);
    state
}

/// Rows of a shard that sent messages to another one and accepted some from it.
fn with_channels(mut rows: State) -> State {
    let to = ShardId(2);
    let append = |partition: PartitionId, base_offset| Append {
        partition,
        base_offset,
        span: 2,
        leader_epoch: 9,
        max_timestamp: 5,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        kind: BatchKind::Plain,
    };
    let target = PartitionId::new(TopicId(0), 1);
    let send = |number: u32| Command::Send {
        to,
        batches: vec![SentBatch { bytes: 70 + number, targets: vec![target, target] }],
    };
    let channel = PartitionId::channel_to(to);
    let appends = [append(channel, 0), append(channel, 2), append(target, 0)];
    let origin = Some(Origin { shard: to, number: 0, next: 5 });
    let units = [
        Unit { first_append: 0, appends: 1, commands: 1, origin: None, brought: None },
        Unit { first_append: 1, appends: 1, commands: 1, origin: None, brought: None },
        Unit { first_append: 2, appends: 1, commands: 0, origin, brought: None },
    ];
    let commands = [send(0), send(1), Command::Acknowledged { to, below: 2 }];
    let mut applied = EntryEffects::new();
    let entry = Entry {
        now_ms: 8,
        leader_epoch: Some(9),
        appends: &appends,
        commands: &commands,
        units: &units,
    };
    rows.apply(&entry, &mut applied);
    assert!(applied.commands.iter().all(Result::is_ok), "{applied:?}");
    assert_eq!(rows.rows.channels().outbox(to).map(|outbox| outbox.len()), Some(1));
    assert_eq!(rows.rows.channels().expected(to), 5);
    rows
}

/// A shard that stores members of groups.
fn with_members(mut rows: State) -> State {
    let groups = [("g", &[1, 2][..]), ("none", &[]), ("h", &[0; 40])];
    let groups = groups.map(|(group, members)| (group.to_owned(), members.to_vec())).into();
    let commands = [Command::KeepMembers { groups }];
    let entry = Entry { now_ms: 9, appends: &[], commands: &commands, ..Entry::default() };
    rows.apply(&entry, &mut EntryEffects::new());
    assert_eq!(rows.rows.memberships().map(|(group, _)| &**group).collect::<Vec<_>>(), ["g", "h"]);
    rows
}

/// With a message that has a command and no target.
fn with_message_command(mut rows: State) -> State {
    let to = ShardId(2);
    let channel = PartitionId::channel_to(to);
    let append = Append {
        partition: channel,
        base_offset: rows.rows.partition(channel).expect("a channel").next_offset(),
        span: 1,
        leader_epoch: 9,
        max_timestamp: 5,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        kind: BatchKind::Plain,
    };
    let (settled, attempts) = (vec![(1, 2)], vec![(3, 4)]);
    let settle = GroupSettle { group: LeaseGroupId(1), partition: 1, settled, attempts };
    let commands = vec![MessageCommand::Settle { settles: vec![settle] }];
    let batches = vec![SentBatch { bytes: 78, targets: vec![] }];
    let entry = Entry {
        now_ms: 9,
        leader_epoch: Some(9),
        appends: &[append],
        commands: &[
            Command::SendWith {
                to,
                batches,
                commands,
                preparation: Preparation { term: 7, number: 8 },
            },
            Command::Fence { shard: to, before: Preparation { term: 300, number: 1 } },
        ],
        units: &[Unit { appends: 1, commands: 1, ..Unit::default() }],
    };
    let mut applied = EntryEffects::new();
    rows.apply(&entry, &mut applied);
    assert!(applied.commands.iter().all(Result::is_ok), "{applied:?}");
    rows
}

/// With an aborted transaction, whose end is on its way to another shard, and an open one with pending offsets.
fn with_transactions(mut rows: State) -> State {
    let (own, other) = (ShardId(1), ShardId(2));
    let partition = PartitionId::new(TopicId(0), 1);
    let channel = PartitionId::channel_to(other);
    let of = |id, epoch| ProducerKey { id, epoch };
    let mut apply =
        |appends: &[Append], commands: Vec<TransactionCommand>, sent: Option<Command>| {
            let mut all: Vec<_> = commands.into_iter().map(Command::Transaction).collect();
            all.extend(sent);
            let unit = Unit { appends: 2, commands: 2, ..Unit::default() };
            let units = if appends.len() == 2 { &[unit][..] } else { &[] };
            let entry = Entry { now_ms: 10, leader_epoch: Some(9), appends, commands: &all, units };
            let mut applied = EntryEffects::new();
            rows.apply(&entry, &mut applied);
            assert!(applied.commands.iter().all(Result::is_ok), "{applied:?}");
            let taken = |outcome: &AppendOutcome| matches!(outcome, AppendOutcome::Taken { .. });
            assert!(applied.appends.iter().all(taken), "{applied:?}");
            let next = |id| rows.rows.partition(id).map_or(0, |it| it.next_offset());
            (next(partition), next(channel))
        };
    let initialize = |id: &str, fresh| TransactionCommand::Initialize {
        id: id.to_owned(),
        expect: None,
        fresh,
        timeout_ms: 9,
    };
    let join = |id: &str, producer, shard| TransactionCommand::Join {
        id: id.to_owned(),
        producer,
        shard: Some(shard),
        added: vec![partition],
        requires: None,
    };
    let batch = |partition, base_offset, producer: ProducerKey, kind| Append {
        partition,
        base_offset,
        span: 1,
        leader_epoch: 9,
        max_timestamp: 5,
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        base_sequence: 0,
        kind,
    };
    let begins = vec![
        initialize("a", 40),
        initialize("b", 41),
        join("a", of(40, 0), own),
        join("a", of(40, 0), other),
        join("b", of(41, 0), own),
    ];
    let (end, _) = apply(&[], begins, None);
    let first = batch(partition, end, of(40, 0), BatchKind::Transactional);
    let second = batch(partition, end + 1, of(41, 0), BatchKind::Transactional);
    apply(&[first], vec![], None);
    let offset = CommitOffset {
        partition,
        offset: 3,
        leader_epoch: 2,
        metadata: "m".to_owned(),
        expire_ms: Some(7),
    };
    let (producer, group) = (of(41, 0), "g".to_owned());
    let pending = TransactionCommand::Pending { producer, group, offsets: vec![offset] };
    let (end, number) = apply(&[second], vec![pending], None);
    let cause = EndCause::ClientWithNextEpoch;
    let decision = TransactionCommand::End {
        id: "a".to_owned(),
        producer: of(40, 0),
        commit: false,
        cause,
        fresh: -1,
    };
    let part = EndedPart { producer: of(40, 1), number: 0, commit: false };
    let send = Command::SendWith {
        to: other,
        batches: vec![SentBatch { bytes: 78, targets: vec![] }],
        commands: vec![MessageCommand::EndTransaction(part)],
        preparation: Preparation::default(),
    };
    let markers = [
        batch(partition, end, of(40, 1), BatchKind::Abort),
        batch(channel, number, of(-1, -1), BatchKind::Plain),
    ];
    apply(&markers, vec![decision], Some(send));
    rows
}

/// A state of each role, one with channels, one with members of groups, and one with both.
pub(super) fn states() -> [State; 9] {
    let (mut catalog, rows) = state().split();
    // A deleted topic is remembered, too.
    let entry = Entry { now_ms: 7, appends: &[], commands: &commands(), ..Entry::default() };
    catalog.apply(&entry, &mut EntryEffects::new());
    let channels = with_channels(rows.clone());
    let (members, all) = (with_members(rows.clone()), with_members(channels.clone()));
    let brought = with_brought(all.clone());
    let message_command = with_message_command(all.clone());
    let transactions = with_transactions(message_command.clone());
    [state(), catalog, rows, channels, members, all, brought, message_command, transactions]
}

/// With rows brought by two nodes, one of which was refused.
fn with_brought(mut rows: State) -> State {
    let unit = |first_append, node| Unit {
        first_append,
        appends: 1,
        brought: Some(RowSequence { node, incarnation: u64::MAX - u64::from(node), number: 300 }),
        ..Unit::default()
    };
    let append = |index| Append {
        partition: PartitionId::new(TopicId(0), index),
        base_offset: 7_000,
        span: 3,
        leader_epoch: 9,
        max_timestamp: 5,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        kind: BatchKind::Plain,
    };
    let entry = Entry {
        now_ms: 9,
        leader_epoch: Some(9),
        appends: &[append(0), append(77)],
        units: &[unit(0, 2), unit(1, 3)],
        ..Entry::default()
    };
    rows.apply(&entry, &mut EntryEffects::new());
    rows
}
