//! Committed offsets as registers: one client writes each, all others read it at any node, and also read the ends
//! of partitions. A reply without an error covers everything acknowledged before the request was sent.
//!
//! A reader that gets an error or no reply learns nothing. The run fails on a reply that is too old, or that has a
//! value that was never written.

use std::time::Duration;

use base::PartitionId;
use broker::{Broker, CommitOffset, ExecuteError, Unavailable};
use tokio::time::{sleep, timeout};

use super::producers::{PARTITIONS, topic};
use crate::cluster::Shared;
use crate::random::Random;
use crate::verdict::Invariant;

/// Number of groups, each with one writer. Their coordinators are spread over the shards by name.
pub(crate) const GROUPS: usize = 6;
const ANSWERED_WITHIN: Duration = Duration::from_secs(8);

/// The registers of all groups, as clients know them.
#[derive(Debug, Default)]
pub(crate) struct Registers {
    of_group: [Register; GROUPS],
}

/// One offset that is committed repeatedly, with a higher value each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Register {
    /// Highest value that was sent.
    sent: u64,
    /// Highest value whose commit was acknowledged. 0: none.
    acknowledged: u64,
}

impl Register {
    fn send(&mut self) -> u64 {
        self.sent += 1;
        self.sent
    }

    fn acknowledge(&mut self, value: u64) {
        self.acknowledged = self.acknowledged.max(value);
    }

    /// Checks a reply by the register's values when the request was sent (`before`) and when the reply arrived
    /// (`self`).
    fn judge(self, before: Self, found: Option<u64>) -> Result<(), String> {
        let value = found.unwrap_or(0);
        if value < before.acknowledged {
            let least = before.acknowledged;
            return Err(format!("{found:?} is committed, and {least} was acknowledged before"));
        }
        if value > self.sent {
            return Err(format!("{found:?} is committed, and {} was sent at most", self.sent));
        }
        Ok(())
    }
}

fn group_name(group: usize) -> String {
    format!("register-{group}")
}

/// Commits one value after another in a group, at any node, until everything is healed. A commit without a reply
/// is followed by the next one: values only rise, so the late one is rejected or overwritten by this same client.
pub(crate) async fn write(group: usize, shared: Shared, mut random: Random) {
    let partition = PartitionId::new(topic(&shared, &mut random).await, 0);
    let name = group_name(group);
    while !shared.lock().is_healed {
        pause(&mut random, 80).await;
        let Some(broker) = shared.any_broker(&mut random) else { continue };
        let value = shared.lock().registers.of_group[group].send();
        let commit = CommitOffset {
            partition,
            offset: value,
            leader_epoch: -1,
            metadata: String::new(),
            expire_ms: None,
        };
        let (node, trace) = (broker.node(), shared.lock().trace.clone());
        let answer = {
            let shards = broker.shards();
            let commit = shards.commit_offsets(&name, vec![commit]);
            timeout(ANSWERED_WITHIN, commit).await
        };
        drop(broker);
        trace.note(format_args!("{name}: commit {value} at node {node}: {answer:?}"));
        match answer {
            Ok(Ok(refused)) if refused.is_empty() => {
                shared.lock().registers.of_group[group].acknowledge(value);
            }
            // Nothing was written.
            Ok(Ok(_) | Err(ExecuteError::Unavailable(Unavailable::NotLeader))) => {}
            // The commit may still be in flight, and would overwrite a later one that is acknowledged before it
            // arrives.
            Ok(Err(_)) | Err(_) => sleep(ANSWERED_WITHIN).await,
        }
    }
}

/// Reads registers and ends of partitions at any node until everything is healed.
pub(crate) async fn read(shared: Shared, mut random: Random) {
    let topic = topic(&shared, &mut random).await;
    while !shared.lock().is_healed {
        pause(&mut random, 40).await;
        let Some(broker) = shared.any_broker(&mut random) else { continue };
        match random.once_in(2) {
            true => {
                let group = random.below(GROUPS as u64) as usize;
                read_offset(&shared, broker, group, PartitionId::new(topic, 0)).await;
            }
            false => {
                let index = random.below(PARTITIONS.into()) as u32;
                read_end(&shared, broker, PartitionId::new(topic, index)).await;
            }
        }
    }
}

async fn read_offset(shared: &Shared, broker: Broker, group: usize, partition: PartitionId) {
    let before = shared.lock().registers.of_group[group];
    let name = group_name(group);
    let reading = async {
        broker.group_is_current(&name).await.ok()?;
        broker.shards().offsets(&name, &[partition]).await.ok()
    };
    let Ok(Some(found)) = timeout(ANSWERED_WITHIN, reading).await else { return };
    let found = found.into_iter().next().flatten().map(|committed| committed.offset);
    let state = shared.lock();
    if let Err(why) = state.registers.of_group[group].judge(before, found) {
        let what = format!("{name}, read at node {}: {why}", broker.node());
        state.verdict.violated(Invariant::Offsets, what);
    }
}

async fn read_end(shared: &Shared, broker: Broker, partition: PartitionId) {
    let acknowledged = shared.lock().history.acknowledged_end(partition.index);
    let reading = async {
        broker.copies_are_current(&[partition]).await.ok()?;
        broker.bounds_of(partition).await.ok()?
    };
    let Ok(Some(bounds)) = timeout(ANSWERED_WITHIN, reading).await else { return };
    if bounds.end < acknowledged {
        let node = broker.node();
        let what = format!(
            "{partition}, read at node {node}, ends at {}, and records before {acknowledged} were acknowledged",
            bounds.end
        );
        shared.lock().verdict.violated(Invariant::Offsets, what);
    }
}

async fn pause(random: &mut Random, max_ms: u64) {
    let ms = random.between(1, max_ms);
    sleep(Duration::from_millis(ms)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn register_rejects_a_value_older_than_acknowledged_or_never_sent() {
        let mut register = Register::default();
        let first = register.send();
        register.acknowledge(first);
        let before = register;
        assert_eq!(register.send(), 2);
        let judged = [None, Some(1), Some(2), Some(3)].map(|found| register.judge(before, found));
        assert_eq!(judged.map(|it| it.is_ok()), [false, true, true, false]);
    }
}
