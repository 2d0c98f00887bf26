//! Queues and topics that one client declares and deletes, at a different node each time. Every reply must be
//! consistent with a single node.

use crate::described;

/// Operations in the client's order; each was sent after the reply to the previous one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// The queue or topic was declared, with a confirmed answer.
    Declared {
        node: usize,
        at: u64,
    },
    /// A change with an unknown outcome.
    Unknown,
    Deleted {
        node: usize,
        at: u64,
    },
    /// A mandatory message was confirmed and not returned.
    Published {
        node: usize,
        at: u64,
        body: u64,
    },
    /// All messages of the queue; `None`: the node replied that it does not exist.
    Read {
        node: usize,
        bodies: Option<Vec<u64>>,
    },
    /// A request was rejected because the queue or topic does not exist.
    SaidMissing {
        node: usize,
        what: &'static str,
        at: u64,
    },
}

/// Operations before a violation that are shown with it.
const SHOWN_BEFORE: usize = 6;

pub fn check(name: &str, history: &[Op]) -> Vec<String> {
    // `None`: unknown.
    let mut exists = Some(false);
    let mut due: Vec<(u64, usize, u64)> = Vec::new();
    let (mut lost, mut missing) = (Vec::new(), Vec::new());
    for (place, op) in history.iter().enumerate() {
        match op {
            Op::Declared { .. } => exists = Some(true),
            Op::Unknown => {
                // A deletion may have removed the published messages.
                exists = None;
                due.clear();
            }
            Op::Deleted { .. } => {
                exists = Some(false);
                due.clear();
            }
            Op::Published { node, at, body } => due.push((*body, *node, *at)),
            Op::Read { node, bodies } => {
                let found = bodies.as_deref().unwrap_or_default();
                for (body, published, at) in due.drain(..) {
                    if !found.contains(&body) {
                        let how = if bodies.is_none() {
                            "the queue does not exist"
                        } else {
                            "it is not there"
                        };
                        lost.push(format!(
                            "message {body} of {name}, confirmed by node {} at {at} ms: {how} at node {}",
                            published + 1,
                            node + 1
                        ));
                    }
                }
            }
            Op::SaidMissing { node, what, at } if exists == Some(true) => {
                let before = &history[place.saturating_sub(SHOWN_BEFORE)..place];
                missing.push(format!(
                    "node {} said to {what} at {at} ms that {name} does not exist, after {before:?}",
                    node + 1
                ));
            }
            Op::SaidMissing { .. } => {}
        }
    }
    let mut all = described("catalog, confirmed message lost", lost);
    all.extend(described("catalog, existing object denied", missing));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_that_was_confirmed_to_a_stale_queue_is_found() {
        let published = Op::Published { node: 0, at: 5, body: 7 };
        let stale = [
            Op::Declared { node: 1, at: 1 },
            Op::Deleted { node: 1, at: 2 },
            Op::Declared { node: 0, at: 3 },
            published.clone(),
            Op::Read { node: 2, bodies: None },
        ];
        let found = check("q", &stale);
        assert!(found[0].contains("message 7 of q, confirmed by node 1 at 5 ms"), "{found:?}");
        let mut sound = stale.to_vec();
        sound[4] = Op::Read { node: 2, bodies: Some(vec![7]) };
        assert!(check("q", &sound).is_empty());
        sound.insert(4, Op::Unknown);
        sound[5] = Op::Read { node: 2, bodies: None };
        assert!(check("q", &sound).is_empty(), "it may have been deleted");
    }

    #[test]
    fn denial_of_an_existing_topic_is_found() {
        let denied = Op::SaidMissing { node: 1, what: "AlterConfigs", at: 5 };
        let history = [Op::Declared { node: 0, at: 3 }, denied.clone()];
        assert!(check("t", &history)[0].contains("node 2 said to AlterConfigs"));
        assert!(
            check("t", &[Op::Declared { node: 0, at: 3 }, Op::Deleted { node: 0, at: 4 }, denied])
                .is_empty()
        );
    }
}
