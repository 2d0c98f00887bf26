//! The rules one by one: producers and their epochs, markers, limits of a unit, bytes in logs.

use base::{Level, Levelled, PartitionId, ShardId};
use machine::{
    AppendOutcome, BatchKind, Command, EndCause, EndedPart, MessageCommand, MoveStep, MovedRow,
    Outcome, ProducerKey, Refusal, Step, TransactionCommand, TransactionRefusal,
};

use crate::shards::{Shards, marker, partition, shard_of};

const HOME: ShardId = ShardId(1);
const BUMPS: EndCause = EndCause::ClientWithNextEpoch;

fn key(id: i64, epoch: i16) -> ProducerKey {
    ProducerKey { id, epoch }
}

/// A producer with an open transaction, which has two records in partition 0 at home and one in partition 1.
fn with_records() -> (Shards, ProducerKey) {
    let mut shards = Shards::new();
    let producer = shards.initialize(HOME, "a", None, 70).expect("it is new");
    let number = shards.join(HOME, "a", producer, HOME).expect("the producer is current");
    let other = shard_of(1);
    assert_eq!(shards.join(HOME, "a", producer, other), Ok(number));
    shards.open(other, producer, number, HOME).expect("it is open at home");
    for (index, span) in [(0, 2), (1, 1)] {
        let taken = shards.append(shards.batch(index, span, producer));
        assert_eq!(taken, AppendOutcome::Taken { base_offset: 0 });
    }
    (shards, producer)
}

fn stable_end(shards: &Shards, index: u32) -> u64 {
    let rows = &shards.state(shard_of(index)).rows;
    let next = rows.partition(partition(index)).expect("it exists").next_offset();
    rows.transactions().stable_end(partition(index), next)
}

#[test]
fn end_takes_effect_at_home_with_its_entry_and_elsewhere_with_its_message() {
    let (mut shards, producer) = with_records();
    assert_eq!((stable_end(&shards, 0), stable_end(&shards, 1)), (0, 0));
    assert_eq!(shards.end(HOME, "a", producer, true, BUMPS, -1), Ok(key(70, 1)));
    assert_eq!((stable_end(&shards, 0), stable_end(&shards, 1)), (3, 0));
    assert!(shards.deliver(HOME, shard_of(1)));
    assert_eq!(stable_end(&shards, 1), 2);
    // A repetition learns the result, with the producer that it then has.
    let ended = TransactionRefusal::Ended { commit: true, producer: key(70, 1) };
    assert_eq!(shards.end(HOME, "a", producer, true, BUMPS, -1), Err(ended));
}

#[test]
fn late_batch_after_the_end_is_fenced_in_every_shard() {
    let (mut shards, producer) = with_records();
    shards.end(HOME, "a", producer, false, BUMPS, -1).expect("it is open");
    shards.deliver_all();
    for index in [0, 1] {
        let late = shards.append(shards.batch(index, 1, producer));
        let fenced = TransactionRefusal::Fenced { current: 1 };
        assert_eq!(late, AppendOutcome::Transaction(fenced));
    }
    let aborted = shards.state(HOME).rows.transactions().partition(partition(0)).cloned();
    assert!(aborted.is_some_and(|it| it.is_aborted(70, 1) && !it.is_aborted(70, 3)));
    // Without the change of the epoch the transaction is not open, and the home refuses it.
    let (mut shards, producer) = with_records();
    shards.end(HOME, "a", producer, true, EndCause::Client, -1).expect("it is open");
    let late = shards.append(shards.batch(0, 1, producer));
    assert_eq!(late, AppendOutcome::Transaction(TransactionRefusal::NotOpen));
    let required = TransactionCommand::Join {
        id: "a".into(),
        producer,
        shard: Some(HOME),
        added: vec![],
        requires: Some(partition(0)),
    };
    assert_eq!(shards.transaction(HOME, required), Err(TransactionRefusal::InvalidState));
}

#[test]
fn initialization_over_an_open_transaction_leaves_one_epoch_for_its_markers() {
    let (mut shards, producer) = with_records();
    let refused = shards.initialize(HOME, "a", None, -1);
    assert_eq!(refused, Err(TransactionRefusal::Concurrent));
    let cause = EndCause::Initialized { expect: None, timeout_ms: 9 };
    assert_eq!(shards.end(HOME, "a", producer, false, cause, -1), Ok(key(70, 2)));
    // Neither its own end nor that of the epoch in between is a repetition.
    let fenced = Err(TransactionRefusal::Fenced { current: 2 });
    assert_eq!(shards.end(HOME, "a", producer, false, BUMPS, -1), fenced);
    assert_eq!(shards.end(HOME, "a", key(70, 1), false, BUMPS, -1), fenced);
}

#[test]
fn producer_id_changes_once_its_epochs_are_used_up() {
    let (mut shards, mut producer) = (Shards::new(), key(70, 0));
    assert_eq!(shards.initialize(HOME, "a", None, -1), Err(TransactionRefusal::NeedsProducerId));
    assert_eq!(shards.initialize(HOME, "a", None, 70), Ok(producer));
    for epoch in 1..i16::MAX {
        producer = shards.initialize(HOME, "a", None, -1).expect("it has epochs left");
        assert_eq!(producer, key(70, epoch));
    }
    assert_eq!(shards.initialize(HOME, "a", None, -1), Err(TransactionRefusal::NeedsProducerId));
    shards.join(HOME, "a", producer, HOME).expect("the producer is current");
    shards.append(shards.batch(0, 1, producer));
    // The markers have the last epoch.
    assert_eq!(shards.end(HOME, "a", producer, true, BUMPS, 71), Ok(key(71, 0)));
    let late = shards.append(shards.batch(0, 1, producer));
    let fenced = TransactionRefusal::Fenced { current: i16::MAX };
    assert_eq!(late, AppendOutcome::Transaction(fenced));
    let taken_up = shards.initialize(HOME, "a", Some(producer), -1);
    assert_eq!(taken_up, Ok(key(71, 0)), "the client did not receive the reply");
}

#[test]
fn only_the_current_or_the_former_producer_gets_the_next_one() {
    let mut shards = Shards::new();
    let unknown = shards.initialize(HOME, "a", Some(key(3, 0)), 70);
    assert_eq!(unknown, Err(TransactionRefusal::UnknownProducer));
    let first = shards.initialize(HOME, "a", None, 70).expect("it is new");
    assert_eq!(shards.initialize(HOME, "a", Some(first), -1), Ok(key(70, 1)));
    assert_eq!(shards.initialize(HOME, "a", Some(first), -1), Ok(key(70, 1)), "repeated");
    assert_eq!(shards.initialize(HOME, "a", None, -1), Ok(key(70, 2)), "another process");
    let fenced = Err(TransactionRefusal::Fenced { current: 2 });
    assert_eq!(shards.initialize(HOME, "a", Some(first), -1), fenced);
    assert_eq!(shards.join(HOME, "a", first, HOME).map(drop), fenced.map(drop));
}

#[test]
fn unit_of_an_end_has_exactly_its_markers_and_messages() {
    let (shards, producer) = with_records();
    let (appends, commands) =
        shards.end_unit(HOME, "a", producer, true, BUMPS, -1).expect("it is open");
    let refused = |appends: &[machine::Append], commands: &[Command]| {
        let (mut shards, _) = with_records();
        let before = shards.state(HOME).rows.transactions().clone();
        let applied = shards.apply_unit(HOME, appends, commands, None);
        assert!(applied.commands.iter().all(Result::is_err), "{applied:?}");
        assert!(shards.state(HOME).rows.transactions() == &before);
    };
    refused(&appends[1..], &commands);
    refused(&appends[..1], &commands[..1]);
    refused(&[appends[0], appends[0], appends[1]], &commands);
    let mut other = appends.clone();
    other[0].kind = BatchKind::Abort;
    refused(&other, &commands);
    other[0] = machine::Append { partition: partition(3), ..appends[0] };
    refused(&other, &commands);
    let mut both = commands.clone();
    both.push(Command::Settle { settles: vec![] });
    refused(&appends, &both);
    // A marker alone.
    let (mut shards, _) = with_records();
    let part = EndedPart { producer: key(70, 1), number: 0, commit: true };
    let alone = shards.append(marker(2, partition(0), &part));
    assert_eq!(alone, AppendOutcome::Transaction(TransactionRefusal::Markers));
    let alone = shards.command(HOME, commands[0].clone());
    assert_eq!(alone, Err(Refusal::Transaction(TransactionRefusal::Markers)));
}

#[test]
fn batches_outside_of_the_open_transaction_are_rejected() {
    let (mut shards, producer) = with_records();
    let plain = machine::Append { kind: BatchKind::Plain, ..shards.batch(0, 1, producer) };
    let refused = AppendOutcome::Transaction(TransactionRefusal::InvalidState);
    assert_eq!(shards.append(plain), refused);
    let nameless = machine::Append { producer_id: -1, ..shards.batch(0, 1, producer) };
    let refused = AppendOutcome::Transaction(TransactionRefusal::NotOpen);
    assert_eq!(shards.append(nameless), refused);
    // Another producer's plain batch is not concerned, and not stable.
    let other = machine::Append { kind: BatchKind::Plain, ..shards.batch(0, 1, key(5, 0)) };
    assert_eq!(shards.append(other), AppendOutcome::Taken { base_offset: 2 });
    assert_eq!(stable_end(&shards, 0), 0);
}

#[test]
fn next_transaction_waits_in_a_shard_for_the_end_of_the_former() {
    let (mut shards, producer) = with_records();
    let next = shards.end(HOME, "a", producer, true, BUMPS, -1).expect("it is open");
    let other = shard_of(1);
    let number = shards.join(HOME, "a", next, other).expect("the producer is current");
    let refused = shards.open(other, next, number, HOME);
    assert_eq!(refused, Err(TransactionRefusal::Concurrent));
    shards.deliver_all();
    assert_eq!(shards.open(other, next, number, HOME), Ok(()));
}

#[test]
fn deleted_topic_takes_its_transactions_along() {
    let (mut shards, producer) = with_records();
    let adoption = machine::Adoption {
        from: 1,
        to: 2,
        topics_gone: vec![base::TopicId(0)],
        ..machine::Adoption::default()
    };
    shards.command(shard_of(1), Command::Adopt(adoption)).expect("it is next");
    shards.end(HOME, "a", producer, true, BUMPS, -1).expect("it is open");
    assert!(shards.deliver(HOME, shard_of(1)), "the message needs no marker");
    let transactions = shards.state(shard_of(1)).rows.transactions();
    assert_eq!(transactions.participations().open(), 0);
}

#[test]
fn partition_moves_with_its_aborted_ranges_and_never_with_an_open_transaction() {
    let (mut shards, producer) = with_records();
    let step = |what| Command::Move(MoveStep { partition: partition(0), id: 1, what });
    let freeze = step(Step::Freeze { to: ShardId(2) });
    let refused = shards.command(HOME, freeze.clone());
    assert_eq!(refused, Err(Refusal::Transaction(TransactionRefusal::OpenInPartition)));
    shards.end(HOME, "a", producer, false, BUMPS, -1).expect("it is open");
    assert_eq!(shards.command(HOME, freeze), Ok(Outcome::Done));
    let rows = &shards.state(HOME).rows;
    let aborted = rows.moved_aborted(partition(0));
    assert_eq!(aborted, [(70, 0, 2)]);
    let row: MovedRow = rows.moved_row(partition(0)).expect("it is here");
    let to = ShardId(2);
    let import = step(Step::Import { from: 0, to: 3 });
    assert_eq!(shards.command(to, import), Ok(Outcome::Imported { next: 3 }));
    let activate = step(Step::ActivateWith { row, epoch_base: 0, aborted });
    assert_eq!(activate.level(), Level::TRANSACTIONS);
    assert_eq!(shards.command(to, activate), Ok(Outcome::Activated { epoch_base: 0 }));
    let known = shards.state(to).rows.transactions().partition(partition(0)).cloned();
    assert!(known.is_some_and(|it| it.is_aborted(70, 0)));
    shards.command(HOME, step(Step::HandOver { end: 3 })).expect("it is frozen");
    shards.command(HOME, step(Step::Leave)).expect("it was handed over");
    assert!(shards.state(HOME).rows.transactions().partition(partition(0)).is_none());
}

#[test]
fn bytes_of_commands_stay_as_they_are() {
    let producer = key(300, 2);
    let part = EndedPart { producer, number: 5, commit: true };
    let cause = EndCause::Initialized { expect: Some(producer), timeout_ms: 7 };
    let (id, shard) = ("a".to_owned(), ShardId(2));
    let join = TransactionCommand::Join {
        id: id.clone(),
        producer,
        shard: Some(shard),
        added: vec![PartitionId::new(base::TopicId(1), 2)],
        requires: None,
    };
    let commands = [
        (
            TransactionCommand::Initialize {
                id: id.clone(),
                expect: Some(producer),
                fresh: -1,
                timeout_ms: 7,
            },
            vec![40, 0, 1, 97, 1, 216, 4, 4, 1, 7],
        ),
        (join, vec![40, 1, 1, 97, 216, 4, 4, 1, 2, 1, 1, 2, 0]),
        (
            TransactionCommand::Open { producer, number: 5, home: shard },
            vec![40, 2, 216, 4, 4, 5, 2],
        ),
        (
            TransactionCommand::Pending { producer, group: "g".into(), offsets: vec![] },
            vec![40, 3, 216, 4, 4, 1, 103, 0],
        ),
        (
            TransactionCommand::End { id, producer, commit: true, cause, fresh: -1 },
            vec![40, 4, 1, 97, 216, 4, 4, 1, 2, 1, 216, 4, 4, 7, 1],
        ),
        (
            TransactionCommand::Forget { ids: vec!["a".into()], before_ms: 1 },
            vec![40, 5, 1, 1, 97, 2],
        ),
    ];
    for (command, bytes) in commands {
        let command = Command::Transaction(command);
        assert_eq!(command.level(), Level::TRANSACTIONS);
        let head = machine::encode_head(0, std::slice::from_ref(&command), &[]);
        // Version with level, level, version, time, units, commands.
        assert_eq!(head[..7], [3, 10, 0, 2, 0, 0, 1], "{command:?}");
        assert_eq!(head[7..], bytes, "{command:?}");
        assert_eq!(machine::decode_head(&head).expect("it is read").commands, [command]);
    }
    let message = Command::FromMessage(MessageCommand::EndTransaction(part));
    let head = machine::encode_head(0, std::slice::from_ref(&message), &[]);
    assert_eq!(head[7..], [38, 1, 216, 4, 4, 5, 1]);
    assert_eq!(message.level(), Level::TRANSACTIONS);
}
