//! Queues of a virtual host: declared, found, deleted; and topics of other protocols, which are
//! queues as they are.

use std::sync::Arc;

use documents::store::{delete, put};
use documents::{Expect, StoreError, Stored};
use values::Table;

use super::VirtualHost;
use crate::error::{ChangeError, Entity};
use crate::lifecycle::OwnerId;
use crate::names::{DEFAULT_VHOST, topic_name};
use crate::policy::Subject;
use crate::queue::{NewQueue, Queue, QueueKind, queue_name};
use crate::settings::QueueSettings;
use crate::store::{QUEUES, QueueDocument};
use crate::stripes::{Access, Key};
use crate::topics::{self, FoundTopic};

impl VirtualHost {
    /// Makes a queue unless there is one of its name, and answers it. `judge` is asked first: with
    /// the one that is there, whether it is the one that is declared; with none, whether such a one
    /// may be made.
    pub async fn declare_queue<E: From<ChangeError>>(
        &self,
        new: NewQueue<'_>,
        judge: impl FnOnce(Option<&Queue>) -> Result<(), E>,
    ) -> Result<Arc<Queue>, E> {
        let _policing = self.0.policing.read().await;
        let _held = self.lock(&[(Key::Queue(new.name), Access::Change)]).await;
        if let Some(present) = self.present(new.name).await.map_err(ChangeError::from)? {
            judge(Some(&present))?;
            present.used();
            return Ok(present);
        }
        judge(None)?;
        Ok(self.create_queue(&new).await.map_err(ChangeError::from)?)
    }

    async fn create_queue(&self, new: &NewQueue<'_>) -> Result<Arc<Queue>, StoreError> {
        let (name, kind, durable) = (new.name, new.kind(), new.is_durable());
        let settings = {
            let policies = self.0.entities.read().policies.find(Subject::Queue(name, kind));
            QueueSettings::new(kind, new.arguments, &policies)
        };
        let topic =
            topics::plan(&self.0.broker, &self.0.name, name, settings.topic_config(kind, durable))?;
        let document = QueueDocument {
            topic: if topic.name == name { String::new() } else { topic.name.clone() },
            uuid: topic.uuid.simple().to_string(),
            kind: kind.name().to_owned(),
            durable,
            auto_delete: new.auto_delete,
            arguments: new.arguments.clone(),
        };
        let topic_name = topic.name.clone();
        let kept = documents::join(&[&self.0.name, name]);
        // The document first, in the order of the log: a topic without one would be taken for
        // another protocol's.
        let (version, topic) = tokio::join!(
            put(&self.0.broker, QUEUES, kept.clone(), &document, Expect::Anything),
            topics::create(&self.0.broker, topic),
        );
        let version = version?;
        let topic = match topic {
            Ok(topic) => topic,
            Err(error) => {
                delete(&self.0.broker, &Stored { space: QUEUES, name: kept, version }).await?;
                return Err(error);
            }
        };
        // The machine's own, so that it is there once.
        let topic_name =
            topics::name(&self.0.broker, topic).unwrap_or_else(|| Arc::from(topic_name));
        let values = &self.0.shared.values;
        let queue = Arc::new(Queue::new(
            &self.0.name,
            queue_name(name, &topic_name),
            (topic, topic_name),
            kind,
            (durable, new.auto_delete),
            new.owner,
            values.arguments(new.arguments.clone()),
            true,
            values.settings(settings),
        ));
        self.ensure_group(&queue).await?;
        self.0.entities.write().add_queue(Arc::clone(&queue), version);
        self.0.shared.expiry.watch(&queue);
        if let Some(owner) = new.owner
            && !self.0.shared.owners.add(owner, &queue)
        {
            // Its owner went while it was being made.
            self.remove(&queue).await?;
        }
        Ok(queue)
    }

    /// The queue of this name, ready to be consumed from. `user` must own it, if it has an owner.
    pub async fn queue(&self, user: OwnerId, name: &str) -> Result<Arc<Queue>, ChangeError> {
        let Some(queue) = self.present(name).await? else {
            return Err(ChangeError::NotFound(Entity::queue(name, &self.0.name)));
        };
        queue.check_owner(user)?;
        if queue.group().is_none() && !queue.is_stream() {
            let _held = self.lock(&[(Key::Queue(name), Access::Change)]).await;
            self.ensure_group(&queue).await?;
        }
        Ok(queue)
    }

    /// A queue by name, whoever asks.
    pub fn find_queue(&self, name: &str) -> Option<Arc<Queue>> {
        self.adopt(name);
        self.0.entities.read().queue(name).cloned()
    }

    /// Deletes a queue; how many messages were ready. One that is not there is deleted already.
    pub async fn delete_queue(
        &self,
        user: OwnerId,
        name: &str,
        if_unused: bool,
        if_empty: bool,
    ) -> Result<u64, ChangeError> {
        let _held = self.lock(&[(Key::Queue(name), Access::Change)]).await;
        let Some(queue) = self.present(name).await? else { return Ok(0) };
        queue.check_owner(user)?;
        let entity = || Entity::queue(&queue.name, &self.0.name);
        if if_unused && queue.consumer_count() > 0 {
            return Err(ChangeError::InUse(entity()));
        }
        let messages = self.message_count(&queue).await;
        if if_empty && messages > 0 {
            return Err(ChangeError::NotEmpty(entity()));
        }
        self.remove(&queue).await?;
        Ok(messages)
    }

    /// A consumer is gone; the last one takes an auto-delete queue with it.
    pub async fn consumer_left(&self, queue: &Arc<Queue>) -> Result<(), StoreError> {
        if queue.consumer_went() && queue.auto_delete {
            self.delete_if(queue, |queue| queue.consumer_count() == 0).await?;
        }
        Ok(())
    }

    pub(crate) async fn delete_if(
        &self,
        queue: &Arc<Queue>,
        condition: impl Fn(&Queue) -> bool,
    ) -> Result<(), StoreError> {
        let _held = self.lock(&[(Key::Queue(&queue.name), Access::Change)]).await;
        if queue.is_deleted() || !condition(queue) {
            return Ok(());
        }
        self.remove(queue).await
    }

    pub(crate) async fn delete_owned(&self, owner: OwnerId, name: &str) -> Result<(), StoreError> {
        let _held = self.lock(&[(Key::Queue(name), Access::Change)]).await;
        let queue = self.0.entities.read().queue(name).cloned();
        match queue.filter(|queue| queue.owner == Some(owner)) {
            Some(queue) => self.remove(&queue).await,
            None => Ok(()),
        }
    }

    /// Deletes a queue that is locked for it. The topic goes first: it is what makes a queue.
    pub(crate) async fn remove(&self, queue: &Arc<Queue>) -> Result<(), StoreError> {
        topics::delete(&self.0.broker, queue.topic).await?;
        self.forget(queue).await
    }

    /// What follows once a queue's topic is gone.
    async fn forget(&self, queue: &Arc<Queue>) -> Result<(), StoreError> {
        if let Some(owner) = queue.owner {
            self.0.shared.owners.remove(owner, queue);
        }
        let removed = {
            let mut entities = self.0.entities.write();
            let same = entities.queue(&queue.name).is_some_and(|known| known.topic == queue.topic);
            if same { entities.remove_queue(&queue.name) } else { None }
        };
        queue.set_deleted();
        match removed {
            Some(removed) => self.finish(removed).await,
            None => Ok(()),
        }
    }

    /// The queue of this name, if its topic is there still: another protocol may have deleted it.
    async fn present(&self, name: &str) -> Result<Option<Arc<Queue>>, StoreError> {
        let Some(queue) = self.find_queue(name) else { return Ok(None) };
        match topics::partition_count(&self.0.broker, queue.topic) {
            Some(partitions) => {
                queue.set_partition_count(partitions);
                Ok(Some(queue))
            }
            None => {
                self.forget(&queue).await?;
                // A topic made since then under the name is a queue of its own.
                Ok(self.find_queue(name))
            }
        }
    }

    /// The topic of another protocol that this name is a queue of.
    pub(crate) fn foreign_topic(&self, name: &str) -> Option<FoundTopic> {
        // Only plain names: the escaped ones are ours.
        if *self.0.name != *DEFAULT_VHOST || topic_name(DEFAULT_VHOST, name) != name {
            return None;
        }
        topics::named(&self.0.broker, name)
    }

    /// Makes a topic of another protocol known as a queue, if there is one of this name.
    pub(crate) fn adopt(&self, name: &str) {
        if self.0.entities.read().queue(name).is_some() {
            return;
        }
        let Some(topic) = self.foreign_topic(name) else { return };
        let mut entities = self.0.entities.write();
        if entities.queue(name).is_some() || entities.queue_of_topic(topic.id).is_some() {
            return;
        }
        let queue = Queue::new(
            &self.0.name,
            Arc::clone(&topic.name),
            (topic.id, topic.name),
            QueueKind::Classic,
            (true, false),
            None,
            self.0.shared.values.arguments(Table::new()),
            false,
            self.0.shared.values.settings(QueueSettings::default()),
        );
        queue.set_partition_count(topic.partitions);
        topic.group.into_iter().for_each(|group| queue.set_group(group));
        entities.add_queue(Arc::new(queue), 0);
    }

    /// Makes the lease group that the queue's consumers share.
    pub(crate) async fn ensure_group(&self, queue: &Queue) -> Result<(), StoreError> {
        if queue.is_stream() || queue.group().is_some() {
            return Ok(());
        }
        let config = queue.settings().lease_config(&queue.vhost, &queue.name);
        let group = topics::ensure_group(&self.0.broker, queue.topic, config).await?;
        queue.set_group(group);
        Ok(())
    }

    /// Messages that a consumer could have now; of a stream, all that are there.
    pub async fn message_count(&self, queue: &Queue) -> u64 {
        topics::record_count(&self.0.broker, queue.topic, queue.group()).await
    }
}
