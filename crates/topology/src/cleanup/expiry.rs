//! Deletes queues with `x-expires` after they were unused on all nodes for that time ([`crate::changes::uses`]). One
//! task watches all queues; a queue is checked at its earliest possible expiry, and not before.

use std::sync::{Arc, Weak};
use std::time::Duration;

use world::Instant;

use crate::queue::Queue;
use crate::virtual_host::{Expiry, Registry};

/// Deletes queues as they expire, until the topology is dropped.
pub(crate) async fn run(topology: Weak<Registry>, expiry: Arc<Expiry>) {
    loop {
        let at = match expiry.next(Instant::now()) {
            Ok(queue) => {
                let Some(topology) = topology.upgrade() else { return };
                expire(&topology, &expiry, &queue).await;
                continue;
            }
            Err(at) => at,
        };
        if topology.strong_count() == 0 {
            return;
        }
        // Wakes up now and then even if nothing is due, to notice a dropped topology.
        let at = at.unwrap_or_else(|| Instant::now() + Duration::from_secs(60));
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(at) => {}
            () = expiry.earlier() => {}
        }
    }
}

async fn expire(topology: &Registry, expiry: &Expiry, queue: &Arc<Queue>) {
    if queue.is_expired()
        && let Some(vhost) = topology.vhost(&queue.vhost)
        && let Err(fault) = vhost.end_use(queue, Queue::is_expired).await
    {
        tracing::warn!(queue = &*queue.name, vhost = &*queue.vhost, %fault, "an expired queue could not be deleted");
    }
    if queue.is_deleted() {
        return;
    }
    // It was used meanwhile, has a consumer, or is used on another node: check it again later.
    match queue.is_expired() {
        true => expiry.watch_since(queue, Instant::now()),
        false => expiry.watch(queue),
    }
}
