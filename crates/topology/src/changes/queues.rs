//! Declares, finds and deletes queues.

use std::sync::Arc;

use base::MAIN_LEASE_GROUP;
use broker::{ExecuteError, NewGroup, TopicChange};
use documents::{Change, DocumentRef, StoreError, WritePrecondition};

use super::{AttemptOutcome, Attempts, unless_gone};
use crate::error::{ChangeError, Entity};
use crate::policy::Subject;
use crate::queue::{NewQueue, Owner, OwnerId, Queue, QueueKind, QueueSettings};
use crate::store::{OwnerDocument, QUEUES, QueueDocument, USES, UseDocument, prefix, use_name};
use crate::stripes::{Access, Key};
use crate::topics;
use crate::virtual_host::VirtualHost;

impl VirtualHost {
    /// Creates a queue unless one of its name exists, and returns it. `judge` is called first: with an existing queue
    /// it decides whether the declaration equals it, without one whether the queue may be created.
    pub async fn declare_queue<E: From<ChangeError>>(
        &self,
        new: NewQueue<'_>,
        judge: impl Fn(Option<&Queue>) -> Result<(), E>,
    ) -> Result<Arc<Queue>, E> {
        let held = self.lock(&[(Key::Queue(new.name), Access::Change)]).await;
        let (mut attempts, mut is_current) = (Attempts::default(), false);
        loop {
            self.catch_up();
            if let Some(present) = self.present(new.name).await.map_err(ChangeError::from)? {
                if !std::mem::replace(&mut is_current, true) {
                    // Another node may have deleted it.
                    self.refresh().await.map_err(ChangeError::from)?;
                    continue;
                }
                judge(Some(&present))?;
                match self.use_queue(&present).await {
                    // It was deleted at that moment.
                    Err(ChangeError::NotFound(_)) => continue,
                    used => used?,
                }
                drop(held);
                // An attempt without a reply may have created it.
                if new.owner.is_some_and(|owner| present.owner == Some(Owner::Here(owner))) {
                    self.add_to_owner(&new, &present).await?;
                }
                return Ok(present);
            }
            judge(None)?;
            if let Some(queue) = self.create_queue(&new, &mut attempts).await? {
                drop(held);
                self.add_to_owner(&new, &queue).await?;
                return Ok(queue);
            }
        }
    }

    /// Returns `None` after a concurrent change.
    async fn create_queue(
        &self,
        new: &NewQueue<'_>,
        attempts: &mut Attempts,
    ) -> Result<Option<Arc<Queue>>, ChangeError> {
        let (name, kind, durable) = (new.name, new.kind(), new.is_durable());
        let (topology, broker) = (self.topology()?, self.broker());
        let settings = {
            let policies = self.entities().read().policies.find(Subject::Queue(name, kind));
            QueueSettings::new(kind, new.arguments, &policies)
        };
        let topic = topics::plan(broker, self.name(), name, settings.topic_config(kind, durable))?;
        let uuid = topic.uuid;
        let connection = new.owner.map(|owner| owner.0);
        let document = QueueDocument {
            topic: if topic.name == name { String::new() } else { topic.name.clone() },
            uuid: uuid.simple().to_string(),
            kind: kind.name().to_owned(),
            durable,
            auto_delete: new.auto_delete,
            arguments: new.arguments.clone(),
            owner: (!durable).then_some(OwnerDocument { run: topology.run, connection }),
        };
        let config = settings.lease_config(self.name(), name);
        let group = NewGroup { name: MAIN_LEASE_GROUP.to_owned(), config };
        let group = (kind != QueueKind::Stream).then_some(group);
        let (mut change, kept) = (Change::new(), documents::join(&[self.name(), name]));
        let expect = WritePrecondition::Version(self.shared().kept.stale_version(QUEUES, &kept));
        change.put(QUEUES, kept, &document, expect)?;
        change.topic(TopicChange::Create { topic, group });
        if settings.expires_ms.is_some() && new.owner.is_none() && !broker.is_alone() {
            let (name, run) = (use_name(self.name(), name, topology.run.node), topology.run);
            change.put(USES, name, &UseDocument { run }, WritePrecondition::Anything)?;
        }
        if let AttemptOutcome::Again = self.make(change, attempts).await? {
            return Ok(None);
        }
        let made = self.entities().read().queue(name).cloned();
        let Some(queue) = made.filter(|made| topics::is_of(broker, made.topic, uuid)) else {
            // Another client deleted it already.
            return Ok(None);
        };
        if *queue.settings() != settings {
            // A policy changed in between, and the node that changed it may not have seen the queue.
            self.apply_settings(&queue).await?;
        }
        Ok(Some(queue))
    }

    async fn add_to_owner(
        &self,
        new: &NewQueue<'_>,
        queue: &Arc<Queue>,
    ) -> Result<(), ChangeError> {
        if let Some(owner) = new.owner
            && !self.shared().owners.add(owner, queue)
        {
            // The owner was removed during the creation.
            self.delete_owned(owner, &queue.name).await?;
        }
        Ok(())
    }

    /// Returns the queue of this name. `user` must own it, if it has an owner. A topic of another protocol may have
    /// no lease group yet: see [`VirtualHost::make_ready`].
    pub async fn queue(&self, user: OwnerId, name: &str) -> Result<Arc<Queue>, ChangeError> {
        let Some(queue) = self.look_for_queue(name).await? else {
            return Err(ChangeError::NotFound(Entity::queue(name, self.name())));
        };
        queue.check_owner(user)?;
        if queue.group().is_none() && !queue.is_stream() {
            let made = topics::main_group(self.broker(), queue.topic);
            made.into_iter().for_each(|group| queue.set_group(group));
        }
        Ok(queue)
    }

    /// Creates the lease group shared by the queue's consumers, unless it exists.
    pub async fn make_ready(&self, queue: &Queue) -> Result<(), ChangeError> {
        if queue.group().is_none() && !queue.is_stream() {
            let _held = self.lock(&[(Key::Queue(&queue.name), Access::Change)]).await;
            self.ensure_group(queue).await?;
        }
        Ok(())
    }

    /// Like [`VirtualHost::queue`], after applying all changes of other nodes.
    pub async fn current_queue(
        &self,
        user: OwnerId,
        name: &str,
    ) -> Result<Arc<Queue>, ChangeError> {
        self.refresh().await?;
        self.queue(user, name).await
    }

    /// Returns a queue whose topic exists. `None` holds for all nodes. A queue that is found may have been deleted by
    /// another node: the change or lease that follows detects that.
    async fn look_for_queue(&self, name: &str) -> Result<Option<Arc<Queue>>, StoreError> {
        if let Some(queue) = self.present(name).await? {
            return Ok(Some(queue));
        }
        self.refresh().await?;
        self.present(name).await
    }

    /// Deletes a queue. Returns its number of ready messages. A missing queue counts as deleted.
    pub async fn delete_queue(
        &self,
        user: OwnerId,
        name: &str,
        if_unused: bool,
        if_empty: bool,
    ) -> Result<u64, ChangeError> {
        let _held = self.lock(&[(Key::Queue(name), Access::Change)]).await;
        let mut attempts = Attempts::default();
        loop {
            self.catch_up();
            let Some(queue) = self.look_for_queue(name).await? else { return Ok(0) };
            queue.check_owner(user)?;
            let entity = || Entity::queue(&queue.name, self.name());
            if if_unused && self.consumer_count(&queue).await > 0 {
                return Err(ChangeError::InUse(entity()));
            }
            let messages = self.message_count(&queue).await?;
            if if_empty && messages > 0 {
                return Err(ChangeError::NotEmpty(entity()));
            }
            let uses = self.uses_of(&queue);
            if let AttemptOutcome::Done = self.try_remove(&queue, uses, &mut attempts).await? {
                return Ok(messages);
            }
        }
    }

    pub(crate) async fn delete_owned(&self, owner: OwnerId, name: &str) -> Result<(), StoreError> {
        self.delete_where(name, |queue| queue.owner == Some(Owner::Here(owner))).await
    }

    /// Deletes a queue whose run has ended.
    pub(crate) async fn delete_left_queue(&self, name: &str) -> Result<(), StoreError> {
        let id = (QUEUES, documents::join(&[self.name(), name]).into());
        let kept = Arc::clone(&self.shared().kept);
        let over = kept.run_of(&id);
        self.delete_where(name, move |_| over.is_some() && kept.run_of(&id) == over).await
    }

    async fn delete_where(
        &self,
        name: &str,
        condition: impl Fn(&Queue) -> bool,
    ) -> Result<(), StoreError> {
        let _held = self.lock(&[(Key::Queue(name), Access::Change)]).await;
        let mut attempts = Attempts::default();
        loop {
            self.catch_up();
            let queue = self.entities().read().queue(name).cloned();
            let Some(queue) = queue.filter(|queue| condition(queue)) else { return Ok(()) };
            let uses = self.uses_of(&queue);
            match self.try_remove(&queue, uses, &mut attempts).await {
                Ok(AttemptOutcome::Again) => {}
                made => return unless_gone(made.map(drop)),
            }
        }
    }

    /// Deletes a queue with its topic and its bindings, on the condition that its uses are exactly `uses`.
    pub(crate) async fn try_remove(
        &self,
        queue: &Arc<Queue>,
        uses: Vec<DocumentRef>,
        attempts: &mut Attempts,
    ) -> Result<AttemptOutcome, ChangeError> {
        let mut change = Change::new();
        {
            let entities = self.entities().read();
            if !entities.queue(&queue.name).is_some_and(|known| Arc::ptr_eq(known, queue)) {
                return Ok(AttemptOutcome::Again);
            }
            if let Some(removal) = entities.plan_queue_removal(&queue.name) {
                removal.add_to(self.name(), &mut change);
            }
        }
        uses.iter().for_each(|stored| change.delete(stored));
        change.check_under(USES, prefix(self.name(), &queue.name), uses.len());
        if topics::partition_count(self.broker(), queue.topic).is_some() {
            change.topic(TopicChange::Delete(queue.topic));
        }
        let made = self.make(change, attempts).await?;
        if matches!(made, AttemptOutcome::Done) && !queue.declared {
            // It had no document, so the projection does not remove it.
            self.forget_topic(queue);
        }
        Ok(made)
    }

    /// Returns the queue of this name if its topic still exists: another protocol may have deleted it.
    async fn present(&self, name: &str) -> Result<Option<Arc<Queue>>, StoreError> {
        let mut attempts = Attempts::default();
        loop {
            let Some(queue) = self.find_queue(name) else { return Ok(None) };
            if let Some(partitions) = topics::partition_count(self.broker(), queue.topic) {
                queue.set_partition_count(partitions);
                return Ok(Some(queue));
            }
            self.catch_up();
            if queue.is_deleted() {
                continue;
            }
            // A topic created later under the name is a queue of its own.
            let uses = self.uses_of(&queue);
            unless_gone(self.try_remove(&queue, uses, &mut attempts).await.map(drop))?;
            if !self.topology()?.has(self) {
                return Ok(None);
            }
        }
    }

    /// Creates the lease group shared by the queue's consumers.
    pub(crate) async fn ensure_group(&self, queue: &Queue) -> Result<(), StoreError> {
        if queue.is_stream() || queue.group().is_some() {
            return Ok(());
        }
        let config = queue.settings().lease_config(&queue.vhost, &queue.name);
        let group = topics::ensure_group(self.broker(), queue.topic, config).await?;
        queue.set_group(group);
        Ok(())
    }

    /// Number of messages ready for consumers; of a stream, all its messages.
    pub async fn message_count(&self, queue: &Queue) -> Result<u64, StoreError> {
        let counted = topics::record_count(self.broker(), queue.topic, queue.group()).await;
        Ok(counted.map_err(ExecuteError::from)?)
    }
}
