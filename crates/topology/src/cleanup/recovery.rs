//! The start: loads documents into memory, and deletes leftovers of a restart or a crash.
//!
//! | found | action |
//! | --- | --- |
//! | a transient entity of an earlier run of this node | deleted, a queue with its topic |
//! | the same of another node | deleted once that node is lost ([`super::sweep`]) |
//! | a queue whose topic is missing or has another UUID | the document is deleted: another protocol deleted the topic |
//! | a queue without a lease group | the group is created |
//! | bindings with an end that is missing or replaced | the document is deleted |
//! | entities of a missing vhost | deleted: the vhost was being deleted |
//!
//! Nothing else is deleted. A document belongs to the topology by its space, and a topic by its UUID in the queue's
//! document. A later topic of the name belongs to another protocol, and is a queue of its own. A document that cannot
//! be understood, such as an exchange type of a later version, stops the start and is left unchanged.
//!
//! A node that is alone does all of this before it serves. A node of a cluster cannot rely on the others, which may
//! be starting as well, and does it when it can.

use std::sync::Arc;

use broker::TopicChange;
use documents::{Change, DocumentRef, StoreError};

use crate::projection::DocumentError;
use crate::queue::Queue;
use crate::store::{IN_VHOSTS, QUEUES, QueueDocument};
use crate::topics;
use crate::virtual_host::Registry;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Document(#[from] DocumentError),
    #[error("what is left over could not be taken away: {0}")]
    Clearing(#[from] StoreError),
}

pub(crate) async fn recover(topology: &Registry) -> Result<(), OpenError> {
    if let Some(error) = topology.project().into_iter().next() {
        return Err(error.into());
    }
    if topology.broker.is_alone() {
        clean_up(topology).await?;
    }
    Ok(())
}

/// Deletes leftovers of this node's earlier runs and stale documents, and completes interrupted declarations.
pub(crate) async fn clean_up(topology: &Registry) -> Result<(), StoreError> {
    clear_stale(topology).await?;
    topology.delete_of_earlier_runs().await?;
    for vhost in topology.all_vhosts() {
        let grouped = |queue: &Arc<Queue>| queue.declared && queue.group().is_none();
        let queues: Vec<_> = vhost.queues().into_iter().filter(grouped).collect();
        for some in queues.chunks(MADE_AT_ONCE) {
            let made = some.iter().map(|queue| vhost.ensure_group(queue));
            futures_util::future::try_join_all(made).await?;
        }
        // A policy may have changed right before a crash, and not reached every queue.
        vhost.apply_policies().await?;
    }
    Ok(())
}

/// Number of lease groups created, or queues deleted, concurrently.
pub(crate) const MADE_AT_ONCE: usize = 1_024;

/// Deletes stale documents, and the topics of missing vhosts.
async fn clear_stale(topology: &Registry) -> Result<(), StoreError> {
    let vhost_of =
        |((_, name), _): ((&str, Arc<str>), u64)| documents::split(&name).into_iter().next();
    let vhosts: std::collections::BTreeSet<String> =
        topology.shared.kept.stale().into_iter().filter_map(vhost_of).collect();
    for vhost in &vhosts {
        if topology.vhost(vhost).is_none() {
            clear_vhost(topology, vhost).await?;
        }
    }
    topology.delete_stale().await
}

/// Deletes all contents of a missing vhost by their documents, since memory does not contain them.
pub(crate) async fn clear_vhost(topology: &Registry, name: &str) -> Result<(), StoreError> {
    let prefix = documents::join(&[name, ""]);
    let found: Vec<(DocumentRef, Option<QueueDocument>)> = {
        let catalog = topology.broker.catalog();
        let mut found = Vec::new();
        for space in IN_VHOSTS {
            found.extend(catalog.documents_under(space, &prefix).map(|(name, document)| {
                let body = (space == QUEUES).then(|| serde_json::from_slice(&document.body).ok());
                let (name, version) = (name.to_owned(), document.version);
                (DocumentRef { space, name, version }, body.flatten())
            }));
        }
        found
    };
    for some in found.chunks(MADE_AT_ONCE) {
        let mut deleted = Vec::with_capacity(some.len());
        for (stored, queue) in some {
            deleted.push(delete_left(topology, stored, queue.as_ref()));
        }
        futures_util::future::try_join_all(deleted).await?;
    }
    topology.catch_up();
    Ok(())
}

async fn delete_left(
    topology: &Registry,
    stored: &DocumentRef,
    queue: Option<&QueueDocument>,
) -> Result<(), StoreError> {
    let mut change = Change::new();
    change.delete(stored);
    if let Some(topic) = queue.and_then(|queue| topic_of(topology, stored, queue)) {
        change.topic(TopicChange::Delete(topic));
    }
    match change.make(&topology.broker).await {
        // Another node deletes the same.
        Err(error) if error.is_conflict() => Ok(()),
        made => made,
    }
}

fn topic_of(
    topology: &Registry,
    stored: &DocumentRef,
    queue: &QueueDocument,
) -> Option<base::TopicId> {
    let parts = documents::split(&stored.name);
    let topic = topics::named(&topology.broker, queue.topic(parts.get(1)?))?;
    queue.is_of(&topic.uuid).then_some(topic.id)
}
