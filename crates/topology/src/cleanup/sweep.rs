//! Deletes the leftovers of ended runs of nodes: transient queues and exchanges, and a node's documents about its use
//! of queues.
//!
//! A node deletes the leftovers of its own earlier runs. The catalog's leader deletes those of another node once that
//! node has restarted or was disconnected for [`crate::limits::RUN_GONE_AFTER`]. If such a node was only partitioned
//! and reconnects, its clients find their exclusive queues deleted, as after any deletion by another client.

use std::sync::{Arc, Weak};
use std::time::Duration;

use base::HashMap;
use documents::StoreError;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::timeout;
use world::Instant;

use super::recovery::{MADE_AT_ONCE, clean_up};
use crate::queue::OwnerId;
use crate::store::{DocumentId, EXCHANGES, QUEUES, Run, USES};
use crate::virtual_host::Registry;

/// Interval in a cluster, and after a failed deletion.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Interval while there is nothing to do, to notice that the topology was dropped.
const IDLE_LOOK_EVERY: Duration = Duration::from_secs(60);

/// Time at which each other node was last connected.
#[derive(Default)]
struct LastConnected(HashMap<u32, Instant>);

impl LastConnected {
    /// Returns whether a run of another node has ended.
    fn is_gone(&mut self, topology: &Registry, run: Run, now: Instant) -> bool {
        match topology.broker.connected_boot(run.node) {
            Some(boot) => {
                self.0.insert(run.node, now);
                boot > run.boot
            }
            // A node never seen since this node's start is given the same time.
            None => {
                let last = *self.0.entry(run.node).or_insert(now);
                now.saturating_duration_since(last) >= topology.options.gone_after
            }
        }
    }
}

/// Runs until the topology is dropped.
pub(crate) async fn run(topology: Weak<Registry>) {
    let mut seen = LastConnected::default();
    let Some((is_alone, owners)) = topology
        .upgrade()
        .map(|topology| (topology.broker.is_alone(), Arc::clone(&topology.shared.owners)))
    else {
        return;
    };
    let mut is_in_order = is_alone;
    loop {
        if is_alone {
            // Only queues whose deletion failed are left to do.
            let left = timeout(IDLE_LOOK_EVERY, owners.left()).await;
            if left.is_err() && topology.strong_count() > 0 {
                continue;
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(topology) = topology.upgrade() else { return };
        if let Err(error) = topology.sweep(&mut seen, &mut is_in_order).await {
            tracing::debug!(%error, "what is left over cannot be taken away yet");
        }
    }
}

impl Registry {
    async fn sweep(
        &self,
        seen: &mut LastConnected,
        is_in_order: &mut bool,
    ) -> Result<(), StoreError> {
        let now = Instant::now();
        let runs = self.shared.kept.runs();
        let others = runs.iter().filter(|run| run.node != self.run.node);
        // All nodes track the runs, not only the leader: any of them may lead next.
        let gone: Vec<Run> = others.filter(|run| seen.is_gone(self, **run, now)).copied().collect();
        for (owner, (vhost, queue)) in self.shared.owners.take_left() {
            let deleted = self.delete_owned(&vhost, &queue, owner).await;
            if deleted.is_err() {
                self.shared.owners.leave(owner, (vhost, queue));
            }
            deleted?;
        }
        if !*is_in_order {
            clean_up(self).await?;
            *is_in_order = true;
        }
        self.delete_of_earlier_runs().await?;
        self.end_idle_uses().await?;
        if !self.broker.is_alone() && self.broker.leads_catalog() {
            self.delete_stale().await?;
            for run in &gone {
                tracing::info!(
                    node = run.node,
                    boot = run.boot,
                    "a node is gone: so is what went with it"
                );
                self.delete_of_run(*run).await?;
            }
            if !gone.is_empty() {
                // The ended node may have been about to apply a policy.
                for vhost in self.all_vhosts() {
                    vhost.apply_policies().await?;
                }
            }
        }
        Ok(())
    }

    pub(crate) async fn delete_owned(
        &self,
        vhost: &str,
        queue: &str,
        owner: OwnerId,
    ) -> Result<(), StoreError> {
        match self.vhost(vhost) {
            Some(vhost) => vhost.delete_owned(owner, queue).await,
            None => Ok(()),
        }
    }

    /// Returns whether it is an earlier run of this node.
    fn is_earlier(&self, run: Run) -> bool {
        run != self.run && (self.broker.is_alone() || run.node == self.run.node)
    }

    pub(crate) async fn delete_of_earlier_runs(&self) -> Result<(), StoreError> {
        for run in self.shared.kept.runs() {
            if self.is_earlier(run) {
                self.delete_of_run(run).await?;
            }
        }
        Ok(())
    }

    /// Deletes the entities of an ended run.
    async fn delete_of_run(&self, run: Run) -> Result<(), StoreError> {
        for some in self.shared.kept.documents_of(run).chunks(MADE_AT_ONCE) {
            let mut deleted = Vec::with_capacity(some.len());
            for id in some {
                deleted.push(self.delete_one_of_run(id));
            }
            futures_util::future::try_join_all(deleted).await?;
        }
        Ok(())
    }

    fn delete_one_of_run<'a>(
        &'a self,
        id: &'a DocumentId,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        async move {
            let Some((vhost, name)) = self.entity_of(id) else { return Ok(()) };
            match id.0 {
                QUEUES => vhost.delete_left_queue(&name).await,
                EXCHANGES => vhost.delete_left_exchange(&name).await,
                USES => vhost.end_use_of(&name, id).await,
                _ => Ok(()),
            }
        }
        .boxed()
    }
}
