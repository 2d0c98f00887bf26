//! Moves partitions to other shards ([ADR 0024]). The leader of the source shard carries out the steps:
//!
//! ```text
//! copy the records while the partition is served         Import and ImportIds, repeated, in the target's log
//! stop appends                                           Freeze, in the source's log
//! copy the rest; if that takes too long                  Thaw, and retry later
//! hand the partition over                                HandOver: from here on the move cannot be cancelled
//! activate it at the target, and record its place        Activate in the target's log, EndMove in the catalog
//! drop its bytes, a moment later                         Leave
//! ```
//!
//! All state is in the logs. The next leader resumes by the rows and by the moves that the catalog wants.
//!
//! * `partition_copy`: the copy of the partition's bytes
//! * `move_action`: the next step
//!
//! Requests of operators are in the broker.
//!
//! [ADR 0024]: ../../../../docs/adr/0024-a-partition-moves-by-its-source.md

mod move_action;
mod partition_copy;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::{ClusterLevel, Offset, PartitionId, ShardId};
use futures_util::future::join_all;
use machine::moves::{MOVES_SINCE, MoveEnd, MoveStep, Step};
use machine::{Adoption, Command, Outcome, Refusal};
use move_action::{Move, MoveAction};
use shard::LocalShard;
use shard::error::{ExecuteError, Unavailable};
use shard::request::Request;
use shard_peers::Peers;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};

/// Interval of checks for wanted moves.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Delay before a retry of a failed step.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Time for which the source keeps the bytes of a moved partition: nodes that do not know of the move yet read them.
const LEAVES_AFTER: Duration = Duration::from_millis(500);
/// Longest time without appends to a partition; then it is thawed, and moved later.
const FROZEN_AT_MOST: Duration = Duration::from_millis(700);
/// The freeze begins only if the rest was copied within this time while the partition is served.
const NEARLY_THERE: Duration = Duration::from_millis(200);
/// Leader epochs after a move exceed all earlier ones: there is no time for so many elections between the choice of
/// the epoch and its activation.
const EPOCH_STEP: i32 = 1 << 16;

/// Moves partitions out of the shards that this node leads, until the shards are gone.
pub async fn run(shards: Vec<Weak<LocalShard>>, peers: Arc<Peers>, level: Arc<ClusterLevel>) {
    let of_shard = |shard| Mover {
        shard,
        peers: Arc::clone(&peers),
        level: Arc::clone(&level),
        not_before: BTreeMap::new(),
    };
    join_all(shards.into_iter().map(|shard| of_shard(shard).run())).await;
}

/// Moves the partitions of one shard.
struct Mover {
    shard: Weak<LocalShard>,
    peers: Arc<Peers>,
    level: Arc<ClusterLevel>,
    /// Partitions with a delayed next step.
    not_before: BTreeMap<PartitionId, Instant>,
}

/// Reason why a step was not done.
#[derive(Debug, thiserror::Error)]
enum MoveError {
    #[error(transparent)]
    Execute(#[from] ExecuteError),
    #[error("its records cannot be read: {0}")]
    Read(String),
    #[error("{to} has it up to {there} and this shard up to {here}")]
    Ahead { to: ShardId, there: Offset, here: Offset },
    #[error("what was appended meanwhile could not be copied within {}", humantime(FROZEN_AT_MOST))]
    TooSlow,
    #[error("it is not wanted any more, or this node does not lead the shard any more")]
    NotWanted,
    #[error("ids of its topic's records are still being stored")]
    IdsIncomplete,
    #[error("it was moved as often as possible")]
    TooOften,
    #[error("the log answered something else")]
    Unexpected,
}

fn humantime(duration: Duration) -> String {
    format!("{} ms", duration.as_millis())
}

impl Mover {
    async fn run(mut self) {
        while let Some(shard) = self.shard.upgrade() {
            let now = Instant::now();
            self.not_before.retain(|_, until| *until > now);
            let wanted = self.next(&shard);
            let Some(wanted) = wanted else {
                drop(shard);
                sleep(CHECK_INTERVAL).await;
                continue;
            };
            let partition = wanted.partition();
            let done = self.take_step(&shard, &wanted).await;
            if done.is_ok() && matches!(wanted, MoveAction::Move(_) | MoveAction::Finish(_)) {
                self.not_before.insert(partition, Instant::now() + LEAVES_AFTER);
            }
            if let Err(stopped) = done {
                match stopped {
                    // Another node resumes the move.
                    MoveError::NotWanted | MoveError::Execute(ExecuteError::Unavailable(_)) => {
                        tracing::debug!(%partition, %stopped, "a move waits");
                    }
                    stopped => tracing::warn!(%partition, %stopped, "a move waits"),
                }
                self.not_before.insert(partition, Instant::now() + RETRY_DELAY);
                drop(shard);
                sleep(CHECK_INTERVAL).await;
            }
        }
    }

    /// Returns the next step, if this node leads the shard and the level permits moves.
    fn next(&self, shard: &LocalShard) -> Option<MoveAction> {
        if self.level.now() < MOVES_SINCE || shard.serves_in().is_none() {
            return None;
        }
        shard.read(|view| {
            move_action::next(view, |partition| self.not_before.contains_key(&partition))
        })
    }

    async fn take_step(&self, shard: &LocalShard, wanted: &MoveAction) -> Result<(), MoveError> {
        match *wanted {
            MoveAction::Move(ref it) => self.move_on(shard, it).await,
            MoveAction::Finish(ref it) => self.finish(shard, it).await,
            MoveAction::Cancel(ref it) => self.cancel(shard, it).await,
            MoveAction::Leave { partition, id } => here(shard, partition, id, Step::Leave).await,
            MoveAction::Forget { partition, id } => here(shard, partition, id, Step::Forget).await,
            MoveAction::Discard { partition, id } => {
                here(shard, partition, id, Step::Discard).await
            }
            MoveAction::Drop { topic, adopted } => {
                let topics_gone = vec![topic];
                let (from, to) = (adopted, adopted);
                let gone = Adoption { from, to, topics_gone, ..Adoption::default() };
                shard.execute(Command::Adopt(gone)).await?;
                Ok(())
            }
        }
    }

    /// Moves a partition from the first byte to the end. Steps done before are not repeated.
    async fn move_on(&self, shard: &LocalShard, it: &Move) -> Result<(), MoveError> {
        let Move { partition, id, to, frozen } = *it;
        if frozen {
            // Frozen by a lost leader, whose progress of the copy is not known here.
            here(shard, partition, id, Step::Thaw).await?;
        }
        let mut copy = partition_copy::PartitionCopy::begin(self, shard, it).await?;
        loop {
            let began = Instant::now();
            copy.catch_up().await?;
            if began.elapsed() <= NEARLY_THERE {
                break;
            }
        }
        let until = Instant::now() + FROZEN_AT_MOST;
        here(shard, partition, id, Step::Freeze { to }).await?;
        let copied = timeout_at(until, copy.catch_up()).await.unwrap_or(Err(MoveError::TooSlow));
        let end = copied.and_then(|end| match Instant::now() < until {
            true => Ok(end),
            false => Err(MoveError::TooSlow),
        });
        let handed_over = match end {
            Ok(end) => here(shard, partition, id, Step::HandOver { end }).await,
            Err(stopped) => Err(stopped),
        };
        if let Err(stopped) = handed_over {
            // If the partition was handed over all the same, this has no effect.
            here(shard, partition, id, Step::Thaw).await?;
            return Err(stopped);
        }
        self.finish(shard, it).await
    }

    /// Finishes a move after the hand-over to the other shard.
    async fn finish(&self, shard: &LocalShard, it: &Move) -> Result<(), MoveError> {
        let Move { partition, id, to, .. } = *it;
        let found = shard.read(|view| {
            let row = view.rows.moved_row(partition)?;
            Some((row, view.rows.epoch_base(partition), view.rows.moved_aborted(partition)))
        });
        let (row, base, aborted) = found.ok_or(MoveError::NotWanted)?;
        let term = i32::try_from(shard.term()).ok();
        let epoch_base = term.and_then(|term| base.checked_add(term)?.checked_add(EPOCH_STEP));
        let epoch_base =
            epoch_base.filter(|base| *base < i32::MAX / 2).ok_or(MoveError::TooOften)?;
        let activate = match aborted.is_empty() {
            true => Step::Activate { row, epoch_base },
            false => Step::ActivateWith { row, epoch_base, aborted },
        };
        let activate = MoveStep { partition, id, what: activate };
        let epoch_base = match self.execute(to, Command::Move(activate)).await? {
            Outcome::Activated { epoch_base } => epoch_base,
            _ => return Err(MoveError::Unexpected),
        };
        self.end(partition, id, MoveEnd::Placed { epoch_base }).await?;
        tracing::info!(%partition, from = %shard.id(), %to, "a partition was moved");
        Ok(())
    }

    async fn cancel(&self, shard: &LocalShard, it: &Move) -> Result<(), MoveError> {
        let Move { partition, id, .. } = *it;
        here(shard, partition, id, Step::Cancel).await?;
        self.end(partition, id, MoveEnd::Cancelled).await?;
        tracing::info!(%partition, from = %shard.id(), "a move was cancelled");
        here(shard, partition, id, Step::Forget).await
    }

    /// Ends a move in the catalog. A deleted topic has no moves.
    async fn end(&self, partition: PartitionId, id: u64, end: MoveEnd) -> Result<(), MoveError> {
        match self.execute(ShardId::CATALOG, Command::EndMove { partition, id, end }).await {
            Ok(_) | Err(ExecuteError::Refused(Refusal::UnknownTopic { .. })) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Proposes a command to the log of a shard, on any leader.
    async fn execute(&self, shard: ShardId, command: Command) -> Result<Outcome, ExecuteError> {
        self.request(shard, |reply| Request::Execute { command, reply }).await
    }

    async fn request(
        &self,
        shard: ShardId,
        request: impl FnOnce(shard::request::CommandReply) -> Request,
    ) -> Result<Outcome, ExecuteError> {
        let (reply, answer) = oneshot::channel();
        self.peers.request(shard, request(reply));
        answer.await.unwrap_or(Err(Unavailable::Unanswered.into()))
    }
}

/// Proposes a step to the log of a shard that this node leads.
async fn here(
    shard: &LocalShard,
    partition: PartitionId,
    id: u64,
    what: Step,
) -> Result<(), MoveError> {
    let step = MoveStep { partition, id, what };
    shard.execute(Command::Move(step)).await?;
    Ok(())
}
