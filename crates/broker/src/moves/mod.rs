//! Moves partitions to other shards ([ADR 0024]). The leader of the shard that a partition leaves does it, step by step:
//!
//! ```text
//! copies what is there while the partition is served     Import and ImportIds, as often as it takes, in the other shard's log
//! stops appends                                          Freeze, in its own
//! copies the rest; where that takes too long             Thaw, and later again
//! gives the partition away                               HandOver: from here on there is no way back
//! has it served there, and says where it is              Activate there, EndMove in the catalog
//! drops its bytes, a moment later                        Leave
//! ```
//!
//! The logs have all that matters. Whoever leads next looks at the rows and at what the catalog wants, and goes on.
//!
//! * `copying`: the partition's bytes on their way
//! * `wanted`: what is to be done next
//!
//! What operators ask is in `crate::moving`.
//!
//! [ADR 0024]: ../../../../docs/adr/0024-a-partition-moves-by-its-source.md

mod copying;
mod wanted;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::{ClusterLevel, Offset, PartitionId, ShardId};
use futures_util::future::join_all;
use machine::moves::{MOVES_SINCE, MoveEnd, MoveStep, Step};
use machine::{Adoption, Command, Outcome, Refusal};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};

use crate::error::{ExecuteError, Unavailable};
use crate::local_shard::LocalShard;
use crate::peers::Peers;
use crate::request::Request;

use wanted::{Move, Wanted};

/// Between two looks at what is wanted.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Before another try, where a step was not possible.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// The bytes of a partition that is elsewhere are kept for so long: a node that has not heard of it yet reads them.
const LEAVES_AFTER: Duration = Duration::from_millis(500);
/// For so long a partition takes no appends; then it takes some again, and is moved later.
const FROZEN_AT_MOST: Duration = Duration::from_millis(700);
/// What is left is copied within this while the partition is served, or the freeze is not begun.
const NEARLY_THERE: Duration = Duration::from_millis(200);
/// Leader epochs after a move are above all that there may have been before it: there is no time for so many
/// elections between the choice and the moment in which it holds.
const EPOCH_STEP: i32 = 1 << 16;

/// Moves what leaves the shards that this node leads, until they are gone.
pub(crate) async fn run(
    shards: Vec<Weak<LocalShard>>,
    peers: Arc<Peers>,
    level: Arc<ClusterLevel>,
) {
    let of_shard = |shard| Mover {
        shard,
        peers: Arc::clone(&peers),
        level: Arc::clone(&level),
        not_before: BTreeMap::new(),
    };
    join_all(shards.into_iter().map(|shard| of_shard(shard).run())).await;
}

/// Of one shard.
struct Mover {
    shard: Weak<LocalShard>,
    peers: Arc<Peers>,
    level: Arc<ClusterLevel>,
    /// Partitions that are left alone until then.
    not_before: BTreeMap<PartitionId, Instant>,
}

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
enum Stopped {
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
                sleep(LOOK_EVERY).await;
                continue;
            };
            let partition = wanted.partition();
            let done = self.carry_out(&shard, &wanted).await;
            if done.is_ok() && matches!(wanted, Wanted::Move(_) | Wanted::Finish(_)) {
                self.not_before.insert(partition, Instant::now() + LEAVES_AFTER);
            }
            if let Err(stopped) = done {
                match stopped {
                    // Another node goes on.
                    Stopped::NotWanted | Stopped::Execute(ExecuteError::Unavailable(_)) => {
                        tracing::debug!(%partition, %stopped, "a move waits");
                    }
                    stopped => tracing::warn!(%partition, %stopped, "a move waits"),
                }
                self.not_before.insert(partition, Instant::now() + AGAIN_AFTER);
                drop(shard);
                sleep(LOOK_EVERY).await;
            }
        }
    }

    /// What is to be done, if this node leads the shard and may do it.
    fn next(&self, shard: &LocalShard) -> Option<Wanted> {
        if self.level.now() < MOVES_SINCE || shard.serves_in().is_none() {
            return None;
        }
        shard.read(|view| wanted::next(view, |partition| self.not_before.contains_key(&partition)))
    }

    async fn carry_out(&self, shard: &LocalShard, wanted: &Wanted) -> Result<(), Stopped> {
        match *wanted {
            Wanted::Move(ref it) => self.move_on(shard, it).await,
            Wanted::Finish(ref it) => self.finish(shard, it).await,
            Wanted::Cancel(ref it) => self.cancel(shard, it).await,
            Wanted::Leave { partition, id } => here(shard, partition, id, Step::Leave).await,
            Wanted::Forget { partition, id } => here(shard, partition, id, Step::Forget).await,
            Wanted::Discard { partition, id } => here(shard, partition, id, Step::Discard).await,
            Wanted::Drop { topic, adopted } => {
                let topics_gone = vec![topic];
                let (from, to) = (adopted, adopted);
                let gone = Adoption { from, to, topics_gone, ..Adoption::default() };
                shard.execute(Command::Adopt(gone)).await?;
                Ok(())
            }
        }
    }

    /// From the first byte to the end. What was done before is not done again.
    async fn move_on(&self, shard: &LocalShard, it: &Move) -> Result<(), Stopped> {
        let Move { partition, id, to, frozen } = *it;
        if frozen {
            // By a leader that is gone: what it had copied meanwhile is not known here.
            here(shard, partition, id, Step::Thaw).await?;
        }
        let mut copy = copying::Copy::begin(self, shard, it).await?;
        loop {
            let began = Instant::now();
            copy.catch_up().await?;
            if began.elapsed() <= NEARLY_THERE {
                break;
            }
        }
        let until = Instant::now() + FROZEN_AT_MOST;
        here(shard, partition, id, Step::Freeze { to }).await?;
        let copied = timeout_at(until, copy.catch_up()).await.unwrap_or(Err(Stopped::TooSlow));
        let end = copied.and_then(|end| match Instant::now() < until {
            true => Ok(end),
            false => Err(Stopped::TooSlow),
        });
        let handed_over = match end {
            Ok(end) => here(shard, partition, id, Step::HandOver { end }).await,
            Err(stopped) => Err(stopped),
        };
        if let Err(stopped) = handed_over {
            // Where it was handed over all the same, this changes nothing.
            here(shard, partition, id, Step::Thaw).await?;
            return Err(stopped);
        }
        self.finish(shard, it).await
    }

    /// The partition is the other shard's.
    async fn finish(&self, shard: &LocalShard, it: &Move) -> Result<(), Stopped> {
        let Move { partition, id, to, .. } = *it;
        let (row, base) = shard
            .read(|view| Some((view.rows.moved_row(partition)?, view.rows.epoch_base(partition))))
            .ok_or(Stopped::NotWanted)?;
        let term = i32::try_from(shard.term()).ok();
        let epoch_base = term.and_then(|term| base.checked_add(term)?.checked_add(EPOCH_STEP));
        let epoch_base = epoch_base.filter(|base| *base < i32::MAX / 2).ok_or(Stopped::TooOften)?;
        let activate = Step::Activate { row, epoch_base };
        let activate = MoveStep { partition, id, what: activate };
        let epoch_base = match self.ask(to, Command::Move(activate)).await? {
            Outcome::Activated { epoch_base } => epoch_base,
            _ => return Err(Stopped::Unexpected),
        };
        self.end(partition, id, MoveEnd::Placed { epoch_base }).await?;
        tracing::info!(%partition, from = %shard.id(), %to, "a partition was moved");
        Ok(())
    }

    async fn cancel(&self, shard: &LocalShard, it: &Move) -> Result<(), Stopped> {
        let Move { partition, id, .. } = *it;
        here(shard, partition, id, Step::Cancel).await?;
        self.end(partition, id, MoveEnd::Cancelled).await?;
        tracing::info!(%partition, from = %shard.id(), "a move was cancelled");
        here(shard, partition, id, Step::Forget).await
    }

    /// A topic that is gone has no moves either.
    async fn end(&self, partition: PartitionId, id: u64, end: MoveEnd) -> Result<(), Stopped> {
        match self.ask(ShardId::CATALOG, Command::EndMove { partition, id, end }).await {
            Ok(_) | Err(ExecuteError::Refused(Refusal::UnknownTopic { .. })) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Puts a command into the log of a shard, whichever node leads it.
    async fn ask(&self, shard: ShardId, command: Command) -> Result<Outcome, ExecuteError> {
        self.request(shard, |reply| Request::Execute { command, reply }).await
    }

    async fn request(
        &self,
        shard: ShardId,
        request: impl FnOnce(crate::request::CommandReply) -> Request,
    ) -> Result<Outcome, ExecuteError> {
        let (reply, answer) = oneshot::channel();
        self.peers.request(shard, request(reply));
        answer.await.unwrap_or(Err(Unavailable::Unanswered.into()))
    }
}

/// Puts a step into the log of a shard that this node leads.
async fn here(
    shard: &LocalShard,
    partition: PartitionId,
    id: u64,
    what: Step,
) -> Result<(), Stopped> {
    let step = MoveStep { partition, id, what };
    shard.execute(Command::Move(step)).await?;
    Ok(())
}
