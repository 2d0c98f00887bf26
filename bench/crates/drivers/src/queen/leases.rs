//! A receiver's leases. An acknowledgement of this server moves a position past everything before
//! it. So messages are acknowledged in their order, and only when everything before them is
//! settled. Messages that are settled out of order stay here until then.

use std::collections::{HashMap, HashSet, VecDeque};

use driver::Settle;

/// A leased partition, by the server's names of both.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Lease {
    pub(super) partition: String,
    pub(super) lease: String,
}

/// An acknowledgement for the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Acknowledgement {
    pub(super) lease: Lease,
    /// Transaction id of the message.
    pub(super) transaction: String,
    pub(super) settle: Settle,
}

#[derive(Debug)]
struct Open {
    delivery: u64,
    transaction: String,
    settle: Option<Settle>,
}

#[derive(Debug, Default)]
pub(super) struct Leases {
    /// By partition: its current or last lease.
    current: HashMap<String, String>,
    open: HashMap<Lease, VecDeque<Open>>,
    /// By delivery: its lease, and the message.
    deliveries: HashMap<u64, (Lease, String)>,
    next: u64,
    /// By partition: settled messages that cannot be acknowledged, since the lease is over or an
    /// earlier message is not settled. If they are redelivered, they count as settled.
    done: HashMap<String, HashSet<String>>,
}

impl Leases {
    /// Registers the next message of a lease. Returns its delivery, or `None` if it was settled
    /// before and must not be delivered again.
    pub(super) fn came(&mut self, lease: &Lease, transaction: String) -> Option<u64> {
        let before = self.current.insert(lease.partition.clone(), lease.lease.clone());
        if let Some(before) = before.filter(|before| *before != lease.lease) {
            self.over(&Lease { partition: lease.partition.clone(), lease: before });
        }
        let settled =
            self.done.get_mut(&lease.partition).is_some_and(|done| done.remove(&transaction));
        self.next += 1;
        let delivery = self.next;
        if !settled {
            self.deliveries.insert(delivery, (lease.clone(), transaction.clone()));
        }
        let settle = settled.then_some(Settle::Accept);
        let open = Open { delivery, transaction, settle };
        self.open.entry(lease.clone()).or_default().push_back(open);
        (!settled).then_some(delivery)
    }

    /// Returns false if there is no such delivery.
    pub(super) fn settle(&mut self, delivery: u64, settle: Settle) -> bool {
        let Some((lease, transaction)) = self.deliveries.remove(&delivery) else { return false };
        let open = self
            .open
            .get_mut(&lease)
            .and_then(|open| open.iter_mut().find(|open| open.delivery == delivery));
        match open {
            Some(open) => open.settle = Some(settle),
            // The lease is over, and the message will be redelivered.
            None if settle == Settle::Accept => self.remember(&lease, transaction),
            None => {}
        }
        true
    }

    /// Takes the acknowledgements that are due, in order for each lease. A release ends its lease,
    /// and is sent as soon as everything before it is settled.
    pub(super) fn take_due(&mut self) -> Vec<Acknowledgement> {
        let mut told = Vec::new();
        let mut given_back = Vec::new();
        for (lease, open) in &mut self.open {
            while let Some(Open { transaction, settle: Some(settle), .. }) =
                open.pop_front_if(|open| open.settle.is_some())
            {
                told.push(Acknowledgement { lease: lease.clone(), transaction, settle });
                if settle == Settle::Release {
                    given_back.push(lease.clone());
                    break;
                }
            }
        }
        for lease in given_back {
            self.over(&lease);
        }
        self.open.retain(|_, open| !open.is_empty());
        told
    }

    /// Releases all open messages.
    pub(super) fn give_back(&mut self) -> Vec<Acknowledgement> {
        let mut told = self.take_due();
        for (lease, open) in self.open.drain() {
            // The first one is not settled, or it would have been taken.
            let first = open.into_iter().next();
            told.extend(first.map(|Open { transaction, .. }| Acknowledgement {
                lease,
                transaction,
                settle: Settle::Release,
            }));
        }
        self.deliveries.clear();
        told
    }

    /// Remembers messages of the lease that are settled and not acknowledged.
    fn over(&mut self, lease: &Lease) {
        for open in self.open.remove(lease).into_iter().flatten() {
            if open.settle == Some(Settle::Accept) {
                self.remember(lease, open.transaction);
            }
        }
    }

    fn remember(&mut self, lease: &Lease, transaction: String) {
        self.done.entry(lease.partition.clone()).or_default().insert(transaction);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(name: &str) -> Lease {
        Lease { partition: "p".into(), lease: name.into() }
    }

    fn leases(count: usize) -> (Leases, Vec<u64>) {
        let mut leases = Leases::default();
        let ids = come(&mut leases, "one", 0..count).into_iter().flatten().collect();
        (leases, ids)
    }

    fn come(
        leases: &mut Leases,
        name: &str,
        numbers: impl Iterator<Item = usize>,
    ) -> Vec<Option<u64>> {
        numbers.map(|number| leases.came(&lease(name), number.to_string())).collect()
    }

    fn acknowledged(leases: &mut Leases) -> Vec<(String, Settle)> {
        leases.take_due().into_iter().map(|told| (told.transaction, told.settle)).collect()
    }

    fn accepted(numbers: impl IntoIterator<Item = u32>) -> Vec<(String, Settle)> {
        numbers.into_iter().map(|number| (number.to_string(), Settle::Accept)).collect()
    }

    #[test]
    fn message_is_acknowledged_after_all_before_it() {
        let (mut leases, ids) = leases(3);
        assert!(leases.settle(ids[1], Settle::Accept));
        assert_eq!(acknowledged(&mut leases), []);
        assert!(leases.settle(ids[0], Settle::Accept));
        assert_eq!(acknowledged(&mut leases), accepted([0, 1]));
        assert!(!leases.settle(ids[0], Settle::Accept));
    }

    #[test]
    fn messages_settled_after_a_release_are_not_delivered_again() {
        let (mut leases, ids) = leases(4);
        for (id, settle) in [(0, Settle::Accept), (1, Settle::Release), (2, Settle::Accept)] {
            assert!(leases.settle(ids[id], settle));
        }
        let released = ("1".to_owned(), Settle::Release);
        assert_eq!(acknowledged(&mut leases), [accepted([0]), vec![released]].concat());
        // The release returned the partition, including the fourth message.
        assert!(leases.settle(ids[3], Settle::Accept));
        assert_eq!(acknowledged(&mut leases), []);
        let again = come(&mut leases, "two", 1..5);
        let given: Vec<bool> = again.iter().map(Option::is_some).collect();
        assert_eq!(given, [true, false, false, true]);
        assert!(leases.settle(again[0].expect("came"), Settle::Accept));
        assert_eq!(acknowledged(&mut leases), accepted([1, 2, 3]));
    }

    #[test]
    fn release_waits_for_earlier_messages() {
        let (mut leases, ids) = leases(2);
        assert!(leases.settle(ids[1], Settle::Release));
        assert_eq!(acknowledged(&mut leases), []);
        assert!(leases.settle(ids[0], Settle::Accept));
        assert_eq!(acknowledged(&mut leases).len(), 2);
    }

    #[test]
    fn new_lease_of_a_partition_ends_the_previous_one() {
        let (mut leases, ids) = leases(2);
        assert!(leases.settle(ids[1], Settle::Accept));
        let again = come(&mut leases, "two", 0..2);
        assert!(again[0].is_some() && again[1].is_none());
        assert!(leases.settle(ids[0], Settle::Release));
        assert_eq!(acknowledged(&mut leases), [], "it is nobody's business any more");
        assert!(leases.settle(again[0].expect("came"), Settle::Accept));
        assert_eq!(acknowledged(&mut leases), accepted([0, 1]));
    }

    #[test]
    fn open_messages_are_released_once_for_each_lease() {
        let (mut leases, ids) = leases(3);
        leases.came(&Lease { partition: "q".into(), lease: "one".into() }, "9".into());
        assert!(leases.settle(ids[0], Settle::Accept));
        let mut told: Vec<_> = leases
            .give_back()
            .into_iter()
            .map(|told| (told.transaction, told.lease.partition, told.settle == Settle::Accept))
            .collect();
        told.sort_unstable();
        let expected = [("0", "p", true), ("1", "p", false), ("9", "q", false)];
        let owned = |(message, partition, accepted): (&str, &str, bool)| {
            (message.to_owned(), partition.to_owned(), accepted)
        };
        assert_eq!(told, expected.map(owned));
    }
}
