//! Documents of messages, and the operations on them.

use std::time::Duration;

use bytes::Bytes;
use driver::Failure;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document, doc};

use crate::tables::Taken;

const BODY: &str = "body";
const NEXT_DELIVERY: &str = "next_delivery";
const DELIVERIES: &str = "deliveries";

/// Unique id that grows with each message of a sender: send time in nanoseconds since 1970, and a
/// number of the sender.
pub(super) type Id = [u8; 16];

pub(super) fn id(sent_ns: u64, sender: u64) -> Id {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&sent_ns.to_be_bytes());
    id[8..].copy_from_slice(&sender.to_be_bytes());
    id
}

fn binary(bytes: &[u8]) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() }
}

pub(super) fn index() -> Document {
    doc! { NEXT_DELIVERY: 1 }
}

pub(super) fn message(id: &Id, body: &[u8], now: DateTime) -> Document {
    doc! { "_id": binary(id), BODY: binary(body), NEXT_DELIVERY: now, DELIVERIES: 0 }
}

/// Filter for messages that are visible now.
pub(super) fn due(now: DateTime) -> Document {
    doc! { NEXT_DELIVERY: { "$lte": now } }
}

/// Hides a message and counts the delivery.
pub(super) fn take(now: DateTime, lease: Duration) -> Document {
    let until = now.timestamp_millis().saturating_add(lease.as_millis() as i64);
    let until = DateTime::from_millis(until);
    doc! { "$set": { NEXT_DELIVERY: until }, "$inc": { DELIVERIES: 1 } }
}

pub(super) fn show(now: DateTime) -> Document {
    doc! { "$set": { NEXT_DELIVERY: now } }
}

pub(super) fn in_order() -> Document {
    doc! { "_id": 1 }
}

pub(super) fn these(ids: Vec<Bson>) -> Document {
    doc! { "_id": { "$in": ids } }
}

pub(super) fn taken(mut document: Document) -> Result<Taken<Bson>, Failure> {
    let deliveries = document.get_i32(DELIVERIES);
    match (document.remove("_id"), document.remove(BODY), deliveries) {
        (Some(key), Some(Bson::Binary(body)), Ok(deliveries)) => {
            Ok(Taken { key, body: Bytes::from(body.bytes), redelivered: deliveries > 1 })
        }
        _ => Err(Failure::refused("a document came that is no message of this suite")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: DateTime = DateTime::from_millis(1_000_000);

    #[test]
    fn ids_are_in_the_order_of_sending() {
        assert!(id(1, u64::MAX) < id(2, 0));
        assert!(id(255, 0) < id(256, 0));
        assert_ne!(id(1, 1), id(1, 2));
    }

    #[test]
    fn sent_message_is_due_at_once() {
        let sent = message(&id(1, 2), b"\0\xff", NOW);
        let next = sent.get_datetime("next_delivery").expect("is there");
        let due = due(NOW);
        let until = due.get_document("next_delivery").and_then(|until| until.get_datetime("$lte"));
        assert!(next <= until.expect("is a time"));
        assert_eq!(index().keys().collect::<Vec<_>>(), ["next_delivery"]);
    }

    #[test]
    fn taking_hides_for_the_lease_and_counts() {
        let hidden = DateTime::from_millis(1_003_000);
        let expected = doc! {
            "$set": { "next_delivery": hidden },
            "$inc": { "deliveries": 1 },
        };
        assert_eq!(take(NOW, Duration::from_secs(3)), expected);
    }

    #[test]
    fn message_round_trips_with_its_redelivery_mark() {
        let mut document = message(&id(1, 2), b"\0\xff", NOW);
        document.insert("deliveries", 1);
        let first = taken(document.clone()).expect("is a message");
        assert_eq!((&first.body[..], first.redelivered), (&b"\0\xff"[..], false));
        document.insert("deliveries", 2);
        assert!(taken(document).expect("is a message").redelivered);
        assert!(taken(doc! { "_id": 1 }).is_err());
    }
}
