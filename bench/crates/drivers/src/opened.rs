//! What a receiver has and has not settled yet, where a delivery is a row or a document: its table
//! or collection, and what it is known by there.

use std::collections::HashMap;

use driver::{DeliveryId, Failure, Settle};

/// By delivery: which of the receiver's places, and what it is known by there.
pub(crate) type Opened<K> = HashMap<u64, (usize, K)>;

type Rows<K> = Vec<(usize, K)>;

/// Takes out what is settled: what was accepted, and what was released.
pub(crate) fn take_settled<K>(
    open: &mut Opened<K>,
    settles: &[(DeliveryId, Settle)],
) -> Result<(Rows<K>, Rows<K>), Failure> {
    let (mut accepted, mut released) = (Vec::new(), Vec::new());
    for &(DeliveryId(delivery), settle) in settles {
        let Some(row) = open.remove(&delivery) else {
            return Err(Failure::refused(format!("delivery {delivery} is not open")));
        };
        match settle {
            Settle::Accept => accepted.push(row),
            Settle::Release => released.push(row),
        }
    }
    Ok((accepted, released))
}

pub(crate) fn by_place<K>(rows: impl IntoIterator<Item = (usize, K)>) -> HashMap<usize, Vec<K>> {
    let mut grouped: HashMap<usize, Vec<K>> = HashMap::new();
    for (place, key) in rows {
        grouped.entry(place).or_default().push(key);
    }
    grouped
}
