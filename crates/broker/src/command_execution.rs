//! Execution of commands through the log of the right shard, on whichever node its leader is.

use std::sync::Arc;
use std::time::Duration;

use base::{Levelled, ShardId};
use futures_util::future::try_join_all;
use machine::command::Home;
use machine::{Command, Outcome, Refusal};
use shard::LocalShard;
use shard::error::{ExecuteError, Unavailable};
use shard::limits::MAJORITY_AWAITED_FOR;
use shard::request::Request;
use shard_peers::shard_query::{ShardQuery, ShardQueryReply};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use world::Instant;

use crate::broker::Broker;
use crate::limits::ADOPTED_WITHIN;

/// Time limit for a change of the catalog to find a leader.
const EXECUTED_WITHIN: Duration = Duration::from_secs(5);
/// Interval of checks for a leader.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

impl Broker {
    /// Proposes a command to the log of its shard, on any leader, and returns the outcome once it is durable and
    /// applied. By then the shards have adopted a change of the catalog, and the connected nodes follow it.
    #[tasks::boxed]
    pub(crate) async fn execute(&self, command: Command) -> Result<Outcome, ExecuteError> {
        // Nodes of an earlier version could not read the command.
        if !self.level().permits(&command) {
            let (needed, at) = (command.level(), self.level().now());
            return Err(ExecuteError::Refused(Refusal::LevelTooLow { needed, at }));
        }
        match command.home() {
            Home::Catalog => {
                let outcome = self.execute_in_time(self.catalog_shard(), command).await?;
                self.adopted().await?;
                self.propagated().await;
                Ok(outcome)
            }
            Home::Rows => self.execute_in(self.home_of_command(&command), command).await,
        }
    }

    /// Executes a command, and returns the part of its outcome that `part` extracts. The outcome is always of the
    /// command's kind, so `part` never returns `None`.
    pub(crate) async fn execute_for<T>(
        &self,
        command: Command,
        part: impl FnOnce(Outcome) -> Option<T>,
    ) -> Result<T, ExecuteError> {
        let outcome = self.execute(command).await?;
        Ok(part(outcome).expect("the machine answers a command with the outcome of its kind"))
    }

    /// Executes a command like [`Broker::execute_in`], and retries at the next leader if the first one has stepped
    /// down. Retries end after [`EXECUTED_WITHIN`], or after [`MAJORITY_AWAITED_FOR`] where this node is cut off.
    async fn execute_in_time(
        &self,
        shard: &LocalShard,
        command: Command,
    ) -> Result<Outcome, ExecuteError> {
        let begun = Instant::now();
        let deadline = begun + EXECUTED_WITHIN;
        loop {
            match self.execute_in(shard, command.clone()).await {
                // The command was certainly not executed.
                Err(ExecuteError::Unavailable(Unavailable::NotLeader))
                    if !self.is_alone()
                        && Instant::now() < deadline
                        && (begun.elapsed() < MAJORITY_AWAITED_FOR
                            || shard.majority_is_connected()) =>
                {
                    sleep(CHECK_INTERVAL).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// Proposes a command to a shard's log, on any leader.
    #[tasks::boxed]
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

    /// Returns the shard of a command on one partition or one group.
    fn home_of_command(&self, command: &Command) -> &Arc<LocalShard> {
        match command {
            Command::CommitOffsets { group, .. }
            | Command::DeleteOffsets { group, .. }
            | Command::DeleteGroup { group } => self.home_of(group),
            Command::Compacted { partition, .. } => self.shard_of(*partition),
            _ => &self.shards_with_rows()[0],
        }
    }

    /// Waits until the shards have adopted all changes of the catalog. In a cluster, where a shard may have no
    /// leader, the wait ends after [`ADOPTED_WITHIN`].
    #[tasks::boxed]
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

    /// Waits until a shard without rows on this node has adopted a version of the catalog.
    pub(crate) async fn adopted_elsewhere(
        &self,
        shard: &LocalShard,
        version: u64,
    ) -> Result<(), Unavailable> {
        let part = |reply| matches!(reply, ShardQueryReply::Adopted).then_some(());
        let query = ShardQuery::Adopted { version };
        match self.query_leader_within(shard, &query, ADOPTED_WITHIN, part).await {
            // As for a member that waits for a leader in vain.
            Err(Unavailable::NotLeader | Unavailable::Unanswered) => {
                tracing::warn!(shard = %shard.id(), version, "a shard's leader does not say that it follows the catalog");
                Ok(())
            }
            adopted => adopted,
        }
    }
}
