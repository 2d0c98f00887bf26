//! A work queue with dead letters: confirmed messages are delivered, acknowledged ones are gone, and rejected ones
//! are dead-lettered once.

use std::collections::{BTreeMap, BTreeSet};

use crate::described;

/// Number of a message, which is its body.
pub type Message = u64;

/// Times are in milliseconds since the run began. A connection's number is used once.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub published: BTreeSet<Message>,
    pub confirmed: BTreeSet<Message>,
    pub deliveries: Vec<Delivery>,
    /// Messages of the dead-letter queue, read at the end.
    pub dead: Vec<Message>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub message: Message,
    pub connection: u64,
    pub at: u64,
    pub settled: SettleAttempt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleAttempt {
    Acknowledged,
    Rejected,
    /// The connection failed before the settle was sent.
    Not,
}

/// Checks a history. `isolates`: the nemesis pauses nodes or cuts them off. The cluster then redelivers the
/// messages of their consumers, and settles of these consumers may be lost.
pub fn check(history: &History, isolates: bool) -> Vec<String> {
    let delivered: BTreeSet<Message> = history.deliveries.iter().map(|it| it.message).collect();
    let dead: BTreeSet<Message> = history.dead.iter().copied().collect();
    let lost = history.confirmed.iter().filter(|it| !delivered.contains(it) && !dead.contains(it));
    let lost = lost.map(|it| format!("message {it} was confirmed and never delivered")).collect();
    let invented = delivered.union(&dead).filter(|it| !history.published.contains(it));
    let invented = invented.map(|it| format!("message {it} was never published")).collect();

    let mut deaths: BTreeMap<Message, usize> = BTreeMap::new();
    history.dead.iter().for_each(|it| *deaths.entry(*it).or_default() += 1);
    let twice = deaths.iter().filter(|(_, count)| **count > 1);
    let twice = twice.map(|(it, count)| format!("message {it} is dead {count} times")).collect();

    // A settle is final for as long as its connection lives.
    let mut settled: BTreeMap<(u64, Message), u64> = BTreeMap::new();
    let (mut again, mut by_message) = (Vec::new(), BTreeMap::<Message, Vec<&Delivery>>::new());
    for delivery in &history.deliveries {
        let Delivery { message, connection, at, settled: how } = delivery;
        if let Some(before) = settled.get(&(*connection, *message)) {
            again.push(format!(
                "message {message}, settled at {before} ms, came again at {at} ms on the same connection"
            ));
        }
        if *how != SettleAttempt::Not {
            settled.insert((*connection, *message), *at);
        }
        by_message.entry(*message).or_default().push(delivery);
    }
    // A node that was paused delivers late: another consumer may have acknowledged the message meanwhile.
    let is_rejected = |deliveries: &[&Delivery]| {
        let acknowledged = deliveries.iter().any(|it| it.settled == SettleAttempt::Acknowledged);
        let last = deliveries.last().is_some_and(|it| it.settled == SettleAttempt::Rejected);
        last && !(isolates && acknowledged)
    };
    let gone = by_message.iter().filter(|(it, all)| is_rejected(all) && !dead.contains(*it));
    let gone = gone
        .map(|(it, all)| format!("message {it} was rejected and is not dead, after {all:?}"))
        .collect();

    let mut all = described("queue, confirmed message lost", lost);
    all.extend(described("queue, message of no publisher", invented));
    all.extend(described("queue, dead letter duplicated", twice));
    if !isolates {
        all.extend(described("queue, settle lost on a live connection", again));
    }
    all.extend(described("queue, dead letter lost", gone));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(message: Message, connection: u64, at: u64, settled: SettleAttempt) -> Delivery {
        Delivery { message, connection, at, settled }
    }

    fn sound() -> History {
        use SettleAttempt::{Acknowledged, Not, Rejected};
        History {
            published: (1..=4).collect(),
            confirmed: [1, 2, 3].into(),
            deliveries: vec![
                delivery(1, 1, 1, Acknowledged),
                delivery(2, 1, 2, Not),
                delivery(2, 2, 3, Acknowledged),
                delivery(3, 2, 4, Rejected),
            ],
            dead: vec![3],
        }
    }

    #[test]
    fn sound_history_has_no_violation() {
        assert!(check(&sound(), false).is_empty(), "{:?}", check(&sound(), false));
        // An acknowledgement in flight may be lost when its connection ends.
        let mut history = sound();
        history.deliveries.push(delivery(1, 3, 5, SettleAttempt::Acknowledged));
        assert!(check(&history, false).is_empty());
    }

    #[test]
    fn confirmed_message_that_is_nowhere_is_found() {
        let mut history = sound();
        history.published.insert(9);
        history.confirmed.insert(9);
        assert!(check(&history, false)[0].contains("message 9 was confirmed and never delivered"));
    }

    #[test]
    fn message_of_no_publisher_is_found() {
        let mut history = sound();
        history.deliveries.push(delivery(99, 1, 9, SettleAttempt::Acknowledged));
        assert!(check(&history, false)[0].contains("message 99 was never published"));
    }

    #[test]
    fn acknowledged_message_that_returns_on_the_same_connection_is_found() {
        let mut history = sound();
        history.deliveries.push(delivery(2, 2, 9, SettleAttempt::Acknowledged));
        assert!(check(&history, false)[0].contains("settled at 3 ms, came again at 9 ms"));
        assert!(check(&history, true).is_empty(), "its node may have been cut off");
    }

    #[test]
    fn dead_letters_that_are_lost_or_duplicated_are_found() {
        let lost = History { dead: vec![], ..sound() };
        assert!(check(&lost, false)[0].contains("message 3 was rejected and is not dead"));
        let mut late = lost.clone();
        late.deliveries.insert(0, delivery(3, 1, 0, SettleAttempt::Acknowledged));
        assert!(!check(&late, false).is_empty());
        assert!(check(&late, true).is_empty(), "a paused node may deliver it late");
        let twice = History { dead: vec![3, 3], ..sound() };
        assert!(check(&twice, false)[0].contains("message 3 is dead 2 times"));
    }
}
