//! Messages of another node are read or rejected, and messages through a relay arrive unchanged.

use std::sync::Arc;
use std::time::Duration;

use crate::limits::{RELAY_BATCH_ITEMS_MAX, RELAY_HEAD_BYTES_MAX};
use base::{LeaseGroupId, PartitionId, ShardId, TopicId};
use bytes::{Bytes, BytesMut};
use dispatch::{Claim, Selection, SessionId, Settlement};
use links::{Message, ReceivedMessage};
use machine::{GroupSettle, Preparation};
use proptest::collection::vec;
use proptest::prelude::*;
use record::{BatchBuilder, BatchHeader, BatchOptions, Compression, SharedBatch};
use shard::append::AppendBatch;
use shard::delivery::borrowed_credit::BorrowedCredit;
use shard::delivery::divided_credit::{Change, CreditKind};
use shard::delivery::error::{RemoveError, SettleError, TakeError};
use shard::delivery::event::{Delivery, GoneReason};
use shard::delivery::handle::{SettlesElsewhere, WithheldSettles};
use shard::delivery::options::{ConsumeOptions, Credit, Settle, TakeOptions};
use shard::error::Unavailable;
use shard_peers::wire::relay_head;

use super::delivery_runs::DeliveryRuns;
use super::frame::{self, BeginRelay, MalformedFrame, RelayId, Reply, Request};
use super::items::{
    DriverReply, OperatorRequest, RelayCommand, RelayNotification, TransferRefusal, WithheldItems,
    take_options,
};
use super::leased_records::LeasedRecords;

const GROUP: LeaseGroupId = LeaseGroupId(7);
const SESSION: SessionId = 3;
const RELAY: RelayId = RelayId { boot: 3, number: 9 };
const PREPARATION: Preparation = Preparation { term: 4, number: 2 };

fn received(message: Message) -> ReceivedMessage {
    ReceivedMessage { head: message.head, body: message.body.concat().into() }
}

fn shared(count: usize, compression: Compression) -> Arc<SharedBatch> {
    let options = BatchOptions { compression, base_offset: 50, ..BatchOptions::default() };
    let mut builder = BatchBuilder::new(options);
    for number in 0..count {
        let value = "v".repeat(number % 40);
        builder.push(number as i64, None, Some(value.as_bytes()), &[]).expect("it fits");
    }
    Arc::new(SharedBatch::decode(&Bytes::from(builder.finish())).expect("a batch"))
}

/// Deliveries of these records of each batch, one batch after the other.
fn deliveries(batches: &[(Arc<SharedBatch>, Vec<u64>)]) -> Vec<Delivery> {
    let mut all = Vec::new();
    for (batch, offsets) in batches {
        for offset in offsets {
            let record = batch.record(50 + offset).expect("it is there");
            let (token, attempt) = (1 << 40 | all.len() as u64, 1);
            let consumer = 5;
            let delivery = Delivery {
                group: GROUP,
                consumer,
                token,
                partition: 2,
                offset: 50 + offset,
                attempt,
                terms: None,
                record,
            };
            all.push(delivery);
        }
    }
    all
}

fn commands() -> Vec<RelayCommand> {
    let (session, consumer, group) = (1 << 40 | 1, 1 << 40 | 2, GROUP);
    let kind = CreditKind::Records(consumer);
    let what = Selection::Lease { partition: 1, token: 77 };
    let settles = vec![Settle { group, what, settlement: Settlement::Accept }; 3];
    vec![
        RelayCommand::Open { session },
        RelayCommand::Limit { session, records: Some(4) },
        RelayCommand::Consume {
            id: 1,
            session,
            consumer,
            group,
            options: ConsumeOptions::default(),
        },
        RelayCommand::Lend { session, kind, loan: BorrowedCredit::new(3, 1).loan() },
        RelayCommand::Grant { session, consumer, credit: Credit::UNLIMITED },
        RelayCommand::SetCredit { session, consumer, credit: Credit::records(7) },
        RelayCommand::Share { session, kind, change: Change::Return { in_all: 3 } },
        RelayCommand::Take {
            id: 2,
            session,
            group,
            options: take_options(&TakeOptions::default(), Duration::ZERO),
        },
        RelayCommand::CancelTake { id: 2 },
        RelayCommand::Settle { id: None, session, settles: settles.clone() },
        RelayCommand::Transfer { id: 3, session, settles: settles.clone(), batches: Vec::new() },
        RelayCommand::Withhold { id: 6, session, settles: settles.clone() },
        RelayCommand::Restore { session, preparation: PREPARATION, is_refused: true },
        RelayCommand::TransferWith {
            id: 7,
            session,
            settles,
            batches: Vec::new(),
            elsewhere: [(ShardId(2), withheld_settles())].into(),
        },
        RelayCommand::Read { session, bytes: 1_000 },
        RelayCommand::Query {
            id: 4,
            query: OperatorRequest::Free { group, partition: 1, offsets: vec![1, 2] },
        },
        RelayCommand::Cancel { id: 5, session, consumer },
        RelayCommand::Close { session },
    ]
}

fn withheld_settles() -> SettlesElsewhere {
    let (settled, attempts) = (vec![(5, 2)], vec![(9, 3)]);
    let settle = GroupSettle { group: GROUP, partition: 1, settled, attempts };
    SettlesElsewhere { settles: vec![settle], preparation: PREPARATION }
}

fn dead_letter() -> AppendBatch {
    let mut batch = BatchBuilder::new(BatchOptions::default());
    batch.push(1, None, Some(b"a dead letter"), &[]).expect("it fits");
    let bytes = BytesMut::from(&batch.finish()[..]);
    let header = BatchHeader::parse(&bytes).expect("a batch");
    AppendBatch::new(PartitionId::new(TopicId(3), 1), header, bytes)
}

#[test]
fn withheld_settles_and_their_dead_letters_arrive_unchanged() {
    let (settles, dead_letters) = (withheld_settles(), vec![dead_letter()]);
    let sent = WithheldSettles { settles, dead_letters };
    let encoded = postcard::to_stdvec(&WithheldItems::from(sent)).expect("it is encoded");
    let arrived: WithheldItems = postcard::from_bytes(&encoded).expect("it is decoded");
    let arrived = arrived.settles().expect("it is valid");
    assert_eq!(arrived.settles, withheld_settles());
    let [letter] = &arrived.dead_letters[..] else { panic!("one") };
    assert_eq!(letter.bytes, dead_letter().bytes);
    assert_eq!(letter.partition, dead_letter().partition);

    let mut broken = dead_letter();
    let last = broken.bytes.len() - 1;
    broken.bytes[last] ^= 1;
    let sent = WithheldSettles { settles: withheld_settles(), dead_letters: vec![broken] };
    assert!(WithheldItems::from(sent).settles().is_none(), "its checksum is wrong");
}

fn notifications(body: &mut Vec<Bytes>) -> Vec<RelayNotification> {
    let (session, consumer) = (1 << 40 | 1, 1 << 40 | 2);
    let runs =
        DeliveryRuns::new(&deliveries(&[(shared(9, Compression::None), vec![1, 2, 5])]), 0, body);
    let refused = TransferRefusal::Settle { item: 1, source: SettleError::NotLeased };
    let unanswered = RemoveError::Unavailable(Unavailable::Unanswered);
    let withheld =
        WithheldSettles { settles: withheld_settles(), dead_letters: vec![dead_letter()] };
    let answers = [
        DriverReply::Consumed(Ok(true)),
        DriverReply::Cancelled,
        DriverReply::Taken(Err(TakeError::UnknownGroup(GROUP))),
        DriverReply::Settled(vec![Ok(()), Err(SettleError::NotLeased)]),
        DriverReply::Transferred(Err(refused)),
        DriverReply::Counters(Some(Default::default())),
        DriverReply::Purged(Err(unanswered)),
        DriverReply::None,
        DriverReply::Withheld(Ok(withheld.into())),
    ];
    let mut all = vec![
        RelayNotification::Deliveries { session, weight: 9, runs },
        RelayNotification::Active { session, consumer, active: true },
        RelayNotification::Gone { session, consumer, reason: GoneReason::Deleted },
    ];
    all.extend((0..).zip(answers).map(|(id, answer)| RelayNotification::Answer { id, answer }));
    all
}

fn encoded_batch(items: &[RelayCommand], claimed: u32) -> Bytes {
    let encoded: Vec<Vec<u8>> = items.iter().map(frame::encoded).collect();
    let request = Request::Send { relay: RELAY, number: 4, catalog: 5, items: claimed };
    let head = frame::request_with_items(&request, &encoded, Vec::new()).head;
    head.slice(relay_head().len()..)
}

#[test]
fn messages_arrive_unchanged_in_both_directions() {
    let items = commands();
    let head = encoded_batch(&items, items.len() as u32);
    let (request, arrived, _) = frame::read_request(&head, Bytes::new()).expect("it is read");
    assert!(matches!(request, Request::Send { relay: RELAY, number: 4, catalog: 5, .. }));
    assert_eq!(format!("{arrived:?}"), format!("{items:?}"));
    assert!(arrived.iter().all(RelayCommand::is_valid));

    let mut body = Vec::new();
    let items = notifications(&mut body);
    let encoded: Vec<Vec<u8>> = items.iter().map(frame::encoded).collect();
    let message = received(frame::notifications(&encoded, body));
    let (_, arrived, _) = frame::read_reply(message).expect("it is read");
    assert_eq!(format!("{arrived:?}"), format!("{items:?}"));
    for reply in [Reply::Begun { relay: RELAY, term: 8 }, Reply::Accepted, Reply::Over] {
        let read = frame::read_reply(received(frame::reply(&reply)));
        assert_eq!(read.map(|(reply, ..)| reply), Ok(reply));
    }
}

#[test]
fn batch_with_a_wrong_or_excessive_item_count_is_rejected() {
    let read = |head: &[u8]| frame::read_request(head, Bytes::new()).map(|_| ()).unwrap_err();
    assert_eq!(read(&encoded_batch(&commands(), 14)), MalformedFrame::Head, "something is left");
    assert_eq!(read(&encoded_batch(&commands(), 16)), MalformedFrame::Head, "something is missing");
    assert_eq!(
        read(&encoded_batch(&commands(), RELAY_BATCH_ITEMS_MAX as u32 + 1)),
        MalformedFrame::TooMuch
    );
    assert_eq!(read(&vec![0; RELAY_HEAD_BYTES_MAX + 1]), MalformedFrame::TooMuch);
    let begin = Request::Begin(BeginRelay { boot: 1, attempt: 2, term: None });
    let head = frame::request(&begin).head.slice(relay_head().len()..);
    assert_eq!(read(&[&head[..], b"more"].concat()), MalformedFrame::Head);
    // A large count without items costs nothing.
    let settles = [8, 0, 1, 1, 255, 255, 255, 255, 127];
    assert_eq!(read(&[&encoded_batch(&[], 1)[..], &settles].concat()), MalformedFrame::Head);
}

#[test]
fn corrupt_records_are_rejected_before_they_are_used() {
    let mut body = Vec::new();
    let items: Vec<Vec<u8>> = notifications(&mut body).iter().map(frame::encoded).collect();
    let mut message = received(frame::notifications(&items, body));
    let mut bytes = message.body.to_vec();
    bytes[3] ^= 1;
    message.body = bytes.into();
    assert_eq!(frame::read_reply(message).unwrap_err(), MalformedFrame::Checksum);
}

#[test]
fn message_that_no_session_could_send_is_rejected() {
    let (session, group) = (1, GROUP);
    let take = |options| RelayCommand::Take { id: 1, session, group, options };
    let settle = |what| {
        let settles = vec![Settle { group, what, settlement: Settlement::Accept }];
        RelayCommand::Settle { id: None, session, settles }
    };
    let (partition, partitions) = (0, vec![2, 1]);
    for command in [
        take(TakeOptions { wait: Duration::MAX, ..TakeOptions::default() }),
        take(TakeOptions { records_max: 0, ..TakeOptions::default() }),
        take(TakeOptions { bytes_max: u64::MAX, ..TakeOptions::default() }),
        take(TakeOptions { bytes_max: 1, partitions, ..TakeOptions::default() }),
        settle(Selection::Range { partition, first: 0, last: u64::MAX }),
        settle(Selection::Range { partition, first: 5, last: 4 }),
        settle(Selection::UpTo { partition, last: u64::MAX }),
        RelayCommand::Query {
            id: 1,
            query: OperatorRequest::Remove { group, partition, offset: u64::MAX },
        },
        RelayCommand::Query {
            id: 1,
            query: OperatorRequest::Leases { group, after: None, leases_max: u32::MAX },
        },
    ] {
        assert!(!command.is_valid(), "{command:?}");
    }
}

/// A claim on record 50, by the lease of this token.
fn claim(token: u64) -> Claim {
    let zeros = postcard::from_bytes(&[0; 10]).expect("terms");
    let mut delivery = deliveries(&[(shared(1, Compression::None), vec![0])]).remove(0);
    (delivery.token, delivery.terms) = (token, Some(zeros));
    delivery.claim(SESSION).expect("it is leased")
}

#[test]
fn newest_lease_of_a_record_is_presented_in_any_insertion_order() {
    for tokens in [[1, 2], [2, 1]] {
        let mut held = LeasedRecords::default();
        tokens.into_iter().for_each(|token| held.insert(GROUP, claim(token), 0));
        let presented: Vec<_> = held.claims_of(SESSION).map(|(_, claim)| claim.token()).collect();
        assert_eq!(presented, [2], "{tokens:?}");
        // The reply to the settle of the older lease leaves the newer one.
        let settle = |token| Settle {
            group: GROUP,
            what: Selection::Lease { partition: 2, token },
            settlement: Settlement::Accept,
        };
        held.ended(SESSION, &[settle(1)]);
        assert_eq!(held.claims_of(SESSION).count(), 1);
        held.ended(SESSION, &[settle(2)]);
        assert_eq!(held.claims_of(SESSION).count(), 0);
    }
}

fn any_offsets() -> impl Strategy<Value = Vec<u64>> {
    vec(0..60_u64, 1..30)
}

proptest! {
    #[test]
    fn deliveries_of_any_records_arrive_in_order(
        of_batches in vec((any_offsets(), any::<bool>()), 1..4),
    ) {
        let batches: Vec<_> = of_batches
            .into_iter()
            .map(|(offsets, packed)| {
                let compression = if packed { Compression::Lz4 } else { Compression::None };
                (shared(60, compression), offsets)
            })
            .collect();
        let sent = deliveries(&batches);
        let mut body = Vec::new();
        let runs = DeliveryRuns::new(&sent, 0, &mut body);
        let mut body = Bytes::from(body.concat());
        let arrived = runs.read(0, &mut body).expect("it is whole");
        prop_assert!(body.is_empty());
        let parts = |delivery: &Delivery| {
            let Delivery { group, consumer, token, partition, offset, attempt, .. } = *delivery;
            let (timestamp, value) = (delivery.view().timestamp, delivery.value());
            (group, consumer, token, partition, offset, attempt, timestamp, value)
        };
        prop_assert!(sent.iter().map(parts).eq(arrived.iter().map(parts)));
    }

    #[test]
    fn arbitrary_bytes_are_read_or_rejected(head in vec(any::<u8>(), 0..400), body in vec(any::<u8>(), 0..200)) {
        let _ = frame::read_request(&head, body.clone().into());
        let _ = frame::read_reply(ReceivedMessage { head: head.into(), body: body.into() });
    }

    #[test]
    fn corrupt_batch_is_read_or_rejected(
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        body_changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let change = |bytes: &mut Vec<u8>, changes: &[(prop::sample::Index, u8)]| {
            for (place, byte) in changes {
                let place = place.index(bytes.len());
                bytes[place] = *byte;
            }
        };
        let mut head = encoded_batch(&commands(), 15).to_vec();
        change(&mut head, &changes);
        let _ = frame::read_request(&head, Bytes::new());
        let _ = frame::read_request(&head[..cut.index(head.len())], Bytes::new());

        let mut parts = Vec::new();
        let mut items: Vec<Vec<u8>> = notifications(&mut parts).iter().map(frame::encoded).collect();
        let first = changes[0].0.index(items.len());
        change(&mut items[first], &changes);
        let mut body = parts.concat();
        change(&mut body, &body_changes);
        // With a matching checksum: a malicious node, or one of another version.
        let message = received(frame::notifications(&items, vec![body.into()]));
        if let Ok((_, items, mut body)) = frame::read_reply(message) {
            for item in items {
                if let RelayNotification::Deliveries { runs, .. } = item
                    && let Ok(deliveries) = runs.read(0, &mut body)
                {
                    // All accepted records can be parsed.
                    deliveries.iter().for_each(|delivery| drop((delivery.view(), delivery.value())));
                }
            }
        }
    }
}
