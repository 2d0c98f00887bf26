//! Queues of a vhost in memory, and topics of other protocols, which are usable as queues.

use std::sync::Arc;

use values::Table;

use super::VirtualHost;
use crate::names::{DEFAULT_VHOST, topic_name};
use crate::queue::{Owner, Queue, QueueKind, QueueSettings};
use crate::topics::{self, FoundTopic};

impl VirtualHost {
    /// Returns a queue by name for any user, as far as this node knows.
    pub fn find_queue(&self, name: &str) -> Option<Arc<Queue>> {
        self.adopt(name);
        self.0.entities.read().queue(name).cloned()
    }

    /// Returns the topic of another protocol that backs a queue of this name.
    pub(crate) fn foreign_topic(&self, name: &str) -> Option<FoundTopic> {
        // Only plain names: escaped ones belong to the topology.
        if *self.0.name != *DEFAULT_VHOST || topic_name(DEFAULT_VHOST, name) != name {
            return None;
        }
        topics::named(&self.0.broker, name)
    }

    /// Adds a topic of another protocol as a queue, if there is one of this name.
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

    /// Removes a queue whose document was deleted.
    pub(crate) fn forget(&self, name: &str) {
        let removed = self.0.entities.write().remove_queue(name);
        if let Some(queue) = removed
            && let Some(Owner::Here(owner)) = queue.owner
        {
            self.0.shared.owners.remove(owner, &queue);
        }
    }

    /// Removes a queue that was the deleted topic of another protocol.
    pub(crate) fn forget_topic(&self, queue: &Queue) {
        let mut entities = self.0.entities.write();
        let same = entities.queue(&queue.name).is_some_and(|known| known.topic == queue.topic);
        if same {
            entities.remove_queue(&queue.name);
        }
        queue.set_deleted();
    }
}
