//! Commands, put into the log where they belong, whichever node leads there.

use std::sync::Arc;
use std::time::Duration;

use base::limits::{ADOPTED_WITHIN, MAJORITY_AWAITED_FOR};
use base::{Levelled, ShardId};
use futures_util::future::try_join_all;
use machine::command::Home;
use machine::{Command, Outcome, Refusal};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use world::Instant;

use crate::broker::Broker;
use crate::error::{ExecuteError, Unavailable};
use crate::local_shard::LocalShard;
use crate::question::{Question, Told};
use crate::request::Request;

/// A change of the catalog looks for a leader for so long.
const EXECUTED_WITHIN: Duration = Duration::from_secs(5);
/// The pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);

impl Broker {
    /// Puts a command into the log where it belongs, whichever node leads there, and answers what it led to,
    /// once it is durable and applied. What changed in the catalog is then so in the shards, too.
    pub(crate) async fn execute(&self, command: Command) -> Result<Outcome, ExecuteError> {
        // Nodes of an earlier version could not read it.
        if !self.level().permits(&command) {
            let (needed, at) = (command.level(), self.level().now());
            return Err(ExecuteError::Refused(Refusal::LevelTooLow { needed, at }));
        }
        match command.home() {
            Home::Catalog => {
                let outcome = self.execute_in_time(self.catalog_shard(), command).await?;
                self.adopted().await?;
                Ok(outcome)
            }
            Home::Rows => self.execute_in(self.home_of_command(&command), command).await,
        }
    }

    /// The same for a command whose outcome says more than that it was done: `part` takes that out.
    /// The machine answers a command with the outcome of its kind, so `part` meets no other.
    pub(crate) async fn execute_for<T>(
        &self,
        command: Command,
        part: impl FnOnce(Outcome) -> Option<T>,
    ) -> Result<T, ExecuteError> {
        let outcome = self.execute(command).await?;
        Ok(part(outcome).expect("the machine answers a command with the outcome of its kind"))
    }

    /// As [`Broker::execute_in`]; goes to the next leader if the one that was asked led no more, for
    /// [`EXECUTED_WITHIN`] at most, and for [`MAJORITY_AWAITED_FOR`] where this node is cut off.
    async fn execute_in_time(
        &self,
        shard: &LocalShard,
        command: Command,
    ) -> Result<Outcome, ExecuteError> {
        let begun = Instant::now();
        let deadline = begun + EXECUTED_WITHIN;
        loop {
            match self.execute_in(shard, command.clone()).await {
                // It was certainly not done.
                Err(ExecuteError::Unavailable(Unavailable::NotLeader))
                    if !self.is_alone()
                        && Instant::now() < deadline
                        && (begun.elapsed() < MAJORITY_AWAITED_FOR
                            || shard.majority_is_connected()) =>
                {
                    sleep(LOOK_EVERY).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// Puts a command into a shard's log, whichever node leads it.
    pub(crate) async fn execute_in(
        &self,
        shard: &LocalShard,
        command: Command,
    ) -> Result<Outcome, ExecuteError> {
        match shard.is_led_here() {
            true => shard.execute(command).await,
            false => self.execute_elsewhere(shard.id(), command).await,
        }
    }

    async fn execute_elsewhere(
        &self,
        shard: ShardId,
        command: Command,
    ) -> Result<Outcome, ExecuteError> {
        let (reply, answer) = oneshot::channel();
        self.peers().request(shard, Request::Execute { command, reply });
        answer.await.unwrap_or(Err(ExecuteError::Unavailable(Unavailable::Unanswered)))
    }

    /// The shard of a command that is about one partition or one group.
    fn home_of_command(&self, command: &Command) -> &Arc<LocalShard> {
        match command {
            Command::CommitOffsets { group, .. }
            | Command::DeleteOffsets { group, .. }
            | Command::DeleteGroup { group } => self.home_of(group),
            Command::Compacted { partition, .. } => self.shard_of(*partition),
            _ => &self.shards_with_rows()[0],
        }
    }

    /// Waits until the shards have taken over all that changed in the catalog; in a cluster, where one of them
    /// may have no leader, for [`ADOPTED_WITHIN`] at most.
    pub(crate) async fn adopted(&self) -> Result<(), Unavailable> {
        let version = self.catalog_shard().read(|view| view.catalog.version());
        let adopted = async {
            for shard in self.shards_with_rows().iter().filter(|shard| shard.has_rows()) {
                shard.adopts(version).await?;
            }
            let others = self.shards_with_rows().iter().filter(|shard| !shard.has_rows());
            let others = others.map(|shard| self.adopted_elsewhere(shard, version));
            try_join_all(others).await.map(drop)
        };
        if self.is_alone() {
            return adopted.await;
        }
        timeout(ADOPTED_WITHIN, adopted).await.unwrap_or_else(|_| {
            tracing::warn!(version, "a shard has not taken over what changed in the catalog");
            Ok(())
        })
    }

    /// Waits until a shard that this node has no rows of has taken over a version of the catalog.
    pub(crate) async fn adopted_elsewhere(
        &self,
        shard: &LocalShard,
        version: u64,
    ) -> Result<(), Unavailable> {
        let part = |told| matches!(told, Told::Adopted).then_some(());
        let question = Question::Adopted { version };
        match self.ask_leader_within(shard, &question, ADOPTED_WITHIN, part).await {
            // As where a member waits for a leader in vain.
            Err(Unavailable::NotLeader | Unavailable::Unanswered) => {
                tracing::warn!(shard = %shard.id(), version, "a shard's leader does not say that it follows the catalog");
                Ok(())
            }
            adopted => adopted,
        }
    }
}
