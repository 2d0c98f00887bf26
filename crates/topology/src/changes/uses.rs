//! Tracks which nodes use a queue that is deleted when unused: an auto-delete queue, or one with `x-expires`.
//!
//! Each node counts its own consumers. In a cluster it also keeps a document of its use of the queue: from its first
//! consumer to its last, and with `x-expires` from the first use until it has not used the queue for that long. A
//! node that stops using a queue deletes its document. If there are no others, the queue is deleted by the same
//! command, on the condition that there are none. So the queue is deleted with its last use on any node and never
//! before, and the log orders concurrent uses of two nodes. The documents of a lost node are deleted with its run
//! (`sweep`).
//!
//! A node that is alone needs no documents, nor does an exclusive queue, which one connection uses.

use std::sync::Arc;
use std::time::Duration;

use documents::{Change, DocumentRef, StoreError, WritePrecondition};

use super::{AttemptOutcome, Attempts};
use crate::error::{ChangeError, Entity};
use crate::queue::Queue;
use crate::store::{DocumentId, QUEUES, USES, UseDocument, prefix, use_name};
use crate::stripes::{Access, Key};
use crate::virtual_host::{Registry, VirtualHost};

/// Age from which a use without a consumer is dropped: its consumer never came.
const IDLE_AFTER: Duration = Duration::from_secs(30);

impl VirtualHost {
    /// Announces a consumer: the queue is not deleted meanwhile. Call [`VirtualHost::use_failed`] if the consumer is
    /// not created.
    pub async fn begin_use(&self, queue: &Arc<Queue>) -> Result<(), ChangeError> {
        if !self.is_kept(queue) {
            return Ok(());
        }
        let (topology, mut attempts) = (self.topology()?, Attempts::default());
        let (node, gone) =
            (topology.run.node, || ChangeError::NotFound(Entity::queue(&queue.name, self.name())));
        loop {
            let name = use_name(self.name(), &queue.name, node);
            let (queue_version, use_version) = {
                let entities = self.entities().read();
                let entry = entities.queue_entry(&queue.name);
                let entry = entry.filter(|entry| Arc::ptr_eq(&entry.queue, queue));
                let version = documents::store::version(self.broker(), USES, &name);
                (entry.ok_or_else(gone)?.version, version)
            };
            // A use of an earlier run of this node is deleted soon, and this use with it.
            if use_version.is_some() && topology.is_own_use(&name) {
                return Ok(());
            }
            let mut change = Change::new();
            change.check_version(
                QUEUES,
                documents::join(&[self.name(), &queue.name]),
                queue_version,
            );
            let expect = WritePrecondition::Version(use_version.unwrap_or(0));
            change.put(USES, name, &UseDocument { run: topology.run }, expect)?;
            if let AttemptOutcome::Done = self.make(change, &mut attempts).await? {
                return Ok(());
            }
        }
    }

    /// Withdraws a [`VirtualHost::begin_use`] whose consumer was not created.
    pub async fn use_failed(&self, queue: &Arc<Queue>) {
        if queue.auto_delete
            && queue.consumers_here() == 0
            && let Err(error) = self.drop_own_use(queue).await
        {
            // It is dropped later.
            tracing::debug!(queue = &*queue.name, %error, "a use that came to nothing stays for a while");
        }
    }

    /// Records a use other than by a consumer: `basic.get`, or a declaration, even a passive one.
    pub async fn use_queue(&self, queue: &Arc<Queue>) -> Result<(), ChangeError> {
        queue.used();
        match queue.settings().expires_ms {
            Some(_) => self.begin_use(queue).await,
            None => Ok(()),
        }
    }

    /// Removes a consumer. The last one deletes an auto-delete queue.
    pub async fn consumer_left(&self, queue: &Arc<Queue>) -> Result<(), StoreError> {
        if queue.consumer_went() && queue.auto_delete {
            self.end_use(queue, |queue| queue.consumers_here() == 0).await?;
        }
        Ok(())
    }

    /// Number of the queue's consumers on all nodes, as counted by the leader of its lease group.
    pub async fn consumer_count(&self, queue: &Queue) -> u32 {
        let here = queue.consumers_here();
        match queue.group() {
            Some(group) if !self.broker().is_alone() => {
                let counted = self.broker().counters(group).await;
                counted.map_or(here, |counted| counted.consumers.max(here))
            }
            _ => here,
        }
    }

    /// Returns whether uses of the queue are recorded as documents.
    fn is_kept(&self, queue: &Queue) -> bool {
        let goes = queue.declared && queue.owner.is_none() && queue.is_deleted_when_unused();
        goes && !self.broker().is_alone()
    }

    /// Ends this node's use of the queue, if `condition` still holds. If no other node uses it, the queue is deleted.
    pub(crate) async fn end_use(
        &self,
        queue: &Arc<Queue>,
        condition: impl Fn(&Queue) -> bool,
    ) -> Result<(), StoreError> {
        let _held = self.lock(&[(Key::Queue(&queue.name), Access::Change)]).await;
        // A node that was not connected for a moment may not know of another node's use.
        self.refresh().await?;
        let mut attempts = Attempts::default();
        loop {
            self.catch_up();
            if queue.is_deleted() || !condition(queue) {
                return Ok(());
            }
            let node = self.topology()?.run.node;
            let own = use_name(self.name(), &queue.name, node);
            let uses = self.uses_of(queue);
            let (own, others): (Vec<_>, Vec<_>) = uses.into_iter().partition(|it| it.name == own);
            let made = match others.is_empty() {
                true => self.try_remove(queue, own, &mut attempts).await,
                false if own.is_empty() => return Ok(()),
                false => self.try_drop(own, &mut attempts).await,
            };
            match made {
                Ok(AttemptOutcome::Again) => {}
                Ok(AttemptOutcome::Done) => return Ok(()),
                Err(ChangeError::Store(error)) => return Err(error),
                Err(_) => return Ok(()),
            }
        }
    }

    async fn drop_own_use(&self, queue: &Arc<Queue>) -> Result<(), StoreError> {
        if !self.is_kept(queue) {
            return Ok(());
        }
        // A queue without any consumer so far stays, as it would have without the attempt.
        let own = use_name(self.name(), &queue.name, self.topology()?.run.node);
        let uses = self.uses_of(queue).into_iter().filter(|it| it.name == own).collect::<Vec<_>>();
        documents::store::delete_all(self.broker(), &uses).await
    }

    /// Ends the use by a lost node. The last use deletes an auto-delete queue.
    pub(crate) async fn end_use_of(&self, name: &str, id: &DocumentId) -> Result<(), StoreError> {
        let _held = self.lock(&[(Key::Queue(name), Access::Change)]).await;
        self.refresh().await?;
        let mut attempts = Attempts::default();
        loop {
            self.catch_up();
            let Some(version) = documents::store::version(self.broker(), USES, &id.1) else {
                return Ok(());
            };
            let stored = DocumentRef { space: USES, name: id.1.to_string(), version };
            let queue = self.entities().read().queue(name).cloned();
            let last = queue.filter(|queue| queue.auto_delete && self.uses_of(queue).len() == 1);
            let made = match last {
                Some(queue) => self.try_remove(&queue, vec![stored], &mut attempts).await,
                None => self.try_drop(vec![stored], &mut attempts).await,
            };
            match made {
                Ok(AttemptOutcome::Again) => {}
                Ok(AttemptOutcome::Done) => return Ok(()),
                Err(ChangeError::Store(error)) => return Err(error),
                Err(_) => return Ok(()),
            }
        }
    }

    async fn try_drop(
        &self,
        uses: Vec<DocumentRef>,
        attempts: &mut Attempts,
    ) -> Result<AttemptOutcome, ChangeError> {
        let mut change = Change::new();
        uses.iter().for_each(|stored| change.delete(stored));
        self.make(change, attempts).await
    }

    /// Documents of the uses of a queue.
    pub(crate) fn uses_of(&self, queue: &Queue) -> Vec<DocumentRef> {
        let catalog = self.broker().catalog();
        let prefix = prefix(self.name(), &queue.name);
        let uses = catalog.documents_under(USES, &prefix);
        let stored = uses.map(|(name, document)| {
            let (name, version) = (name.to_owned(), document.version);
            DocumentRef { space: USES, name, version }
        });
        stored.collect()
    }
}

impl Registry {
    fn is_own_use(&self, name: &str) -> bool {
        self.shared.kept.run_of(&(USES, Arc::from(name))) == Some(self.run)
    }

    /// Ends this node's uses of auto-delete queues whose consumers never came.
    pub(crate) async fn end_idle_uses(&self) -> Result<(), StoreError> {
        let uses =
            self.shared.kept.documents_of(self.run).into_iter().filter(|(space, _)| *space == USES);
        for id in uses {
            let Some((vhost, name)) = self.entity_of(&id) else { continue };
            let queue = vhost.entities().read().queue(&name).cloned();
            let Some(queue) = queue else { continue };
            let idle = |queue: &Queue| {
                let unused = queue.unused_since().is_some_and(|since| since.elapsed() > IDLE_AFTER);
                unused && (queue.settings().expires_ms.is_none() || queue.is_expired())
            };
            if idle(&queue) {
                vhost.drop_own_use(&queue).await?;
            }
        }
        Ok(())
    }
}
