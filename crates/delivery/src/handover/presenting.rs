//! Between an election and the first iteration of its driver: this node's copy of the catalog gets the groups
//! that the shard has rows of, and sessions of all nodes present their leases of earlier leaders, so that no
//! record is delivered that a consumer already holds.

use std::collections::BTreeSet;
use std::pin::pin;

use crate::limits::{LEASES_PRESENTED_WITHIN, PRESENTING_NODES_EVERY};
use consensus::Leadership;
use links::{Lane, NodeId};
use shard::Shard;
use shard::delivery::handle::{Inbox, Message};
use tokio::time::{Instant, interval, sleep_until};

use crate::drivers::node_of;
use crate::handover::Handover;
use crate::relay::RelayContext;

impl Handover {
    /// Waits until this node knows the groups that have rows, and each connected node has presented its sessions and
    /// leases, or its connection has ended, or it timed out. False: no driver must be started.
    pub(crate) async fn receive_presented(
        &mut self,
        ground: &RelayContext,
        shard: &Shard,
        leadership: &Leadership,
        inbox: &mut Inbox,
    ) -> bool {
        let begun = Instant::now();
        let connected = ground.node.links().connected(Lane::Control);
        let mut presenting = LeasePresentation {
            here: ground.node.identity().at.node.0,
            awaited: connected.into_iter().map(|node| node.0).collect(),
            presented: BTreeSet::new(),
        };
        for message in std::mem::take(&mut self.messages) {
            presenting.receive(self, message);
        }
        let mut lost = pin!(leadership.lost());
        let mut late = pin!(sleep_until(begun + LEASES_PRESENTED_WITHIN));
        let mut checks = interval(PRESENTING_NODES_EVERY);
        let mut known = pin!(shard.catalog_has_rows());
        let mut is_known = false;
        // A driver would take an unknown group for deleted, and cancel its consumers.
        while !is_known || !presenting.awaited.is_empty() {
            tokio::select! {
                biased;
                () = &mut lost => break,
                () = &mut known, if !is_known => is_known = true,
                message = inbox.recv() => match message {
                    None | Some(Message::Stop) => return false,
                    Some(message) => presenting.receive(self, message),
                },
                () = &mut late, if !presenting.awaited.is_empty() => {
                    let nodes = std::mem::take(&mut presenting.awaited);
                    tracing::info!(?nodes, "nodes have not presented the leases of their sessions in time");
                }
                _ = checks.tick(), if !presenting.awaited.is_empty() => {
                    let connected = ground.node.links().connected(Lane::Control);
                    presenting.awaited.retain(|node| connected.contains(&NodeId(*node)));
                }
            }
        }
        true
    }
}

struct LeasePresentation {
    here: u64,
    /// Connected nodes that have not presented their leases.
    awaited: BTreeSet<u64>,
    presented: BTreeSet<u64>,
}

impl LeasePresentation {
    fn receive(&mut self, handover: &mut Handover, message: Message) {
        if let Message::Presented { node } = message {
            self.awaited.remove(&node);
            if self.presented.insert(node) {
                handover.presented_by.push(node);
                return;
            }
            // By a later relay, after that one's other messages.
            return handover.messages.push_back(message);
        }
        let introduces = |session| {
            let node = node_of(session);
            node != self.here && !self.presented.contains(&node)
        };
        match message.session().is_some_and(introduces) {
            true => handover.introduced.push(message),
            false => handover.messages.push_back(message),
        }
    }
}
