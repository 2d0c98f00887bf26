//! Elections on request, from any node: the shard of a partition moves to the first node among its replicas.
//! [`crate::leadership::leader_balance`] would move it there too, once that node has been up for a while. So the result of the
//! election is permanent.

use std::collections::BTreeMap;
use std::time::Duration;

use base::{PartitionId, ShardId};
use consensus::TransferError;
use futures_util::future::join_all;
use links::NodeId;
use shard::LocalShard;
use shard::error::Unavailable;
use shard_peers::Remote;
use tokio::time::{Instant, sleep, timeout};

use crate::broker::Broker;
use crate::leadership::leader_balance::{self, connected_for};

/// All shards are elected at once, which takes a moment. A shard that takes longer is reported.
const ALL_WITHIN: Duration = Duration::from_secs(5);
const RETRIED_FOR: Duration = Duration::from_secs(3);
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// Time within which this node learns of the new leader.
const LEADER_KNOWN_WITHIN: Duration = Duration::from_secs(1);

/// Reason why the first replica does not lead.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ElectionError {
    /// Without a leader, no node can hand leadership over.
    #[error(
        "its {voters:?} are electing a leader by themselves, for which a majority of them must live"
    )]
    NoLeader { voters: Vec<u32> },
    #[error("broker {0} is to lead it, and is not connected")]
    Gone(u32),
    /// Also if it does not confirm in time that it would lead.
    #[error(
        "broker {0} is to lead it, and would not do it well: its disk was slow or full within the last minute, or it does \
         not answer at once"
    )]
    Unwell(u32),
    #[error("broker {node} is to lead it, and does not yet: {why}")]
    NotHandedOver { node: u32, why: String },
    #[error("no other of its brokers {voters:?} is connected with a disk that is well")]
    NoOther { voters: Vec<u32> },
    #[error("it has no new leader after {ALL_WITHIN:?}")]
    TooLate,
}

/// Shards whose leader's term did not end as requested.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotElected(pub Vec<(ShardId, ElectionError)>);

impl std::error::Error for NotElected {}

impl std::fmt::Display for NotElected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (place, (shard, error)) in self.0.iter().enumerate() {
            let separator = if place > 0 { "; " } else { "" };
            write!(f, "{separator}{shard}: {error}")?;
        }
        Ok(())
    }
}

impl Broker {
    /// Moves the leadership of these partitions, and of all others in the same shards, to the first of their replicas
    /// ([`crate::Leaders::replicas`]). `false`: it led before.
    #[tasks::boxed]
    pub async fn elect_preferred(
        &self,
        partitions: &[PartitionId],
    ) -> Vec<Result<bool, ElectionError>> {
        let places = self.places_of(partitions.iter().copied());
        let mut asked = places.clone();
        asked.sort_unstable();
        asked.dedup();
        let electing = asked.into_iter().map(async |place| {
            (place, self.elect_first_replica(&self.shards_with_rows()[place]).await)
        });
        let elected: BTreeMap<usize, _> = join_all(electing).await.into_iter().collect();
        places.into_iter().map(|place| elected[&place].clone()).collect()
    }

    /// Ends the terms of the leaders of all shards, at once, and begins new ones. A node that is alone leads again.
    /// In a cluster each shard goes to the first of its replicas, by way of another one where that one leads already.
    /// Returns the newest term.
    #[tasks::boxed]
    pub async fn elect_all(&self) -> Result<u64, NotElected> {
        let shards = self.local_shards();
        let electing = shards.iter().map(async |shard| {
            let elected = timeout(ALL_WITHIN, self.elect_new_term(shard)).await;
            (shard.id(), elected.unwrap_or(Err(ElectionError::TooLate)))
        });
        let (mut newest, mut failed) = (0, Vec::new());
        for (shard, elected) in join_all(electing).await {
            match elected {
                Ok(term) => newest = newest.max(term),
                Err(error) => failed.push((shard, error)),
            }
        }
        if failed.is_empty() { Ok(newest) } else { Err(NotElected(failed)) }
    }

    async fn elect_new_term(&self, shard: &LocalShard) -> Result<u64, ElectionError> {
        let order = self.order_of(shard);
        let alone = || async {
            let elected = shard.consensus.reelect().await;
            elected.map_err(|error| ElectionError::NotHandedOver {
                node: self.node(),
                why: error.to_string(),
            })
        };
        let Some(remote) = self.peers().remote() else { return alone().await };
        if order == [self.node()] {
            return alone().await;
        }
        let (before, begun) = (shard.term(), Instant::now());
        loop {
            let step = match shard.leader() == Some(order[0]) && shard.term() == before {
                true => self.hand_to_another(remote, shard, &order).await,
                false => self.elect_first_replica(shard).await.map(drop),
            };
            match step {
                Ok(()) if shard.leader() == Some(order[0]) && shard.term() > before => {
                    return Ok(shard.term());
                }
                // Under load a node may not reply at once, or not take over in time.
                Err(error) if begun.elapsed() >= RETRIED_FOR => return Err(error),
                Ok(()) | Err(_) => sleep(RETRY_DELAY).await,
            }
        }
    }

    /// Has the first replica, which leads, transfer the shard to another one.
    async fn hand_to_another(
        &self,
        remote: &Remote,
        shard: &LocalShard,
        order: &[u32],
    ) -> Result<(), ElectionError> {
        for other in order.iter().copied().skip(1) {
            if self.would_lead(remote, other).await {
                return self.hand(remote, shard, order[0], other).await;
            }
        }
        Err(ElectionError::NoOther { voters: order.to_vec() })
    }

    /// Ends the term in which this node leads, and begins another one. Clients that write or wait for records see no
    /// more than a pause. Returns the new term, once this node leads in it. Only for a node that is alone.
    #[tasks::boxed]
    pub async fn reelect(&self) -> Result<u64, Unavailable> {
        let mut term = 0;
        for shard in self.local_shards() {
            let elected = shard.consensus.reelect().await;
            term = elected.map_err(|error| Unavailable::from(&error))?;
        }
        Ok(term)
    }

    /// The nodes that have the shard, in the order of preference for its leader.
    pub(crate) fn order_of(&self, shard: &LocalShard) -> Vec<u32> {
        let Some(node) = self.cluster() else { return vec![self.node()] };
        let members = shard.members();
        let (nodes, may_lead) = (leader_balance::nodes_of(node), |id| !node.rests(NodeId(id)));
        let order = leader_balance::order(&nodes, &members, shard.id(), may_lead);
        order.into_iter().filter_map(|node| u32::try_from(node).ok()).collect()
    }

    async fn elect_first_replica(&self, shard: &LocalShard) -> Result<bool, ElectionError> {
        let order = self.order_of(shard);
        let (Some(cluster), Some(remote)) = (self.cluster(), self.peers().remote()) else {
            return Ok(false);
        };
        // A follower reports the last known leader even once that node is gone.
        let lives =
            |node: &u32| *node == self.node() || connected_for(cluster, u64::from(*node)).is_some();
        let leader = shard.leader().filter(lives);
        let Some((leader, to)) = leader.zip(order.first().copied()) else {
            return Err(ElectionError::NoLeader { voters: order });
        };
        if leader == to {
            return Ok(false);
        }
        if !lives(&to) {
            return Err(ElectionError::Gone(to));
        }
        if !self.would_lead(remote, to).await {
            return Err(ElectionError::Unwell(to));
        }
        self.hand(remote, shard, leader, to).await?;
        Ok(true)
    }

    async fn would_lead(&self, remote: &Remote, node: u32) -> bool {
        match node == self.node() {
            true => self.disk_is_well(),
            false => remote.would_lead(node.into()).await,
        }
    }

    /// Has the shard's leader transfer it to `to`.
    async fn hand(
        &self,
        remote: &Remote,
        shard: &LocalShard,
        leader: u32,
        to: u32,
    ) -> Result<(), ElectionError> {
        let handed_over = match leader == self.node() {
            true => {
                let handing = shard.transfer_leadership(to.into());
                handing.await.map_err(|error: TransferError| error.to_string())
            }
            false => remote.hand_over(leader, shard.id(), to).await,
        };
        handed_over.map_err(|why| ElectionError::NotHandedOver { node: to, why })?;
        tracing::info!(shard = %shard.id(), to, "leadership is handed over, as a client asks");
        if let Some(mut role) = shard.role() {
            let heard = role.wait_for(|_| shard.leader() == Some(to));
            // The transfer is complete; this lets the next request to this node see the new leader.
            let _ = timeout(LEADER_KNOWN_WITHIN, heard).await;
        }
        Ok(())
    }
}
