//! Server of requests from other nodes for shards that this node leads.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use base::ShardId;
use base::limits::BARRIER_WITHIN;
use cluster::Proxy;
use delivery::relay::leader_side::Relays;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use links::{Declined, Message, NodeId, ReceivedMessage};
use shard::LocalShard;
use shard::error::Unavailable;
use shard_peers::Peers;
use shard_peers::backup_parts::SendsBackups;
use shard_peers::group_status::GroupStatus;
use shard_peers::stored_status::StoredStatus;
use shard_peers::wire::{self, DecodedRequest};
use tokio::time::{Instant, timeout};
use upkeep::scrub::Scrubbing;

use super::query_server;
use crate::leadership::disk_health::DiskHealth;
use crate::limits::HISTORY_WITHIN;
use crate::propagation::Propagation;

/// Replies to other nodes for as long as the broker is open.
#[derive(Debug)]
pub(crate) struct PeerService {
    peers: Weak<Peers>,
    /// Lease sessions of other nodes at shards that this node leads.
    relays: Weak<Relays>,
    /// The catalog's shard, then those with rows.
    shards: OnceLock<Vec<Weak<LocalShard>>>,
    catalog: OnceLock<Weak<LocalShard>>,
    health: Arc<DiskHealth>,
    propagation: Arc<Propagation>,
    scrubbing: OnceLock<Arc<Scrubbing>>,
    backups: OnceLock<Arc<dyn SendsBackups>>,
}

impl PeerService {
    pub(crate) fn new(
        peers: &Arc<Peers>,
        relays: &Arc<Relays>,
        health: &Arc<DiskHealth>,
        propagation: &Arc<Propagation>,
    ) -> Arc<Self> {
        let (peers, relays) = (Arc::downgrade(peers), Arc::downgrade(relays));
        let (health, propagation) = (Arc::clone(health), Arc::clone(propagation));
        Arc::new(Self {
            peers,
            relays,
            shards: OnceLock::new(),
            catalog: OnceLock::new(),
            health,
            propagation,
            scrubbing: OnceLock::new(),
            backups: OnceLock::new(),
        })
    }

    /// Starts to serve the newest version of the catalog, if this node leads it.
    pub(crate) fn set_catalog(&self, catalog: &Arc<LocalShard>) {
        let _ = self.catalog.set(Arc::downgrade(catalog));
    }

    /// Starts to serve requests for the shards.
    pub(crate) fn set_shards(&self, shards: &[Arc<LocalShard>], scrubbing: &Arc<Scrubbing>) {
        let _ = self.scrubbing.set(Arc::clone(scrubbing));
        let _ = self.shards.set(shards.iter().map(Arc::downgrade).collect());
    }

    /// Starts to serve backups of this node's shards.
    pub(crate) fn set_backups(&self, sends: Arc<dyn SendsBackups>) {
        let _ = self.backups.set(sends);
    }

    fn shard(&self, id: ShardId) -> Option<Arc<LocalShard>> {
        let shards = self.shards.get()?.iter().filter_map(Weak::upgrade);
        shards.into_iter().find(|shard| shard.id() == id)
    }

    fn stored(&self) -> Option<StoredStatus> {
        let shards = self.shards.get()?.iter().filter_map(Weak::upgrade);
        Some(self.scrubbing.get()?.stored(shards))
    }

    fn groups(&self) -> Option<Vec<GroupStatus>> {
        let shards = self.shards.get()?.iter().map(Weak::upgrade);
        shards.map(|shard| Some(GroupStatus::of(&*shard?))).collect()
    }
}

impl Proxy for PeerService {
    fn answer(
        &self,
        shard: ShardId,
        from: NodeId,
        request: ReceivedMessage,
        _: Duration,
    ) -> BoxFuture<'static, Result<Message, Declined>> {
        let Some(peers) = self.peers.upgrade() else {
            return async { Err(Declined::NotServed) }.boxed();
        };
        let (request, asking) = match wire::decode(request, from) {
            Some(DecodedRequest::Request(request, asking)) => (request, asking),
            Some(DecodedRequest::Relay(head, body)) => {
                let relays = self.relays.upgrade();
                return async move {
                    let led = peers.serving_shard(shard).ok_or(Declined::NotServed)?;
                    let relays = relays.ok_or(Declined::NotServed)?;
                    let answer = relays.answer(led, from, head, body).await;
                    answer.ok_or(Declined::NotServed)
                }
                .boxed();
            }
            Some(DecodedRequest::CatalogVersions) => {
                let catalog = self.catalog.get().and_then(Weak::upgrade);
                return async move {
                    let catalog = catalog.ok_or(Declined::NotServed)?;
                    let result = timeout(BARRIER_WITHIN, catalog.versions_now());
                    let versions = result.await.unwrap_or(Err(Unavailable::Unanswered));
                    Ok(Message::from_head(wire::encode_catalog_versions_reply(versions)))
                }
                .boxed();
            }
            Some(DecodedRequest::ReadIndex) => {
                let found = self.shard(shard);
                return async move {
                    let led = found.ok_or(Declined::NotServed)?;
                    let result = timeout(BARRIER_WITHIN, led.read_index());
                    let index = result.await.unwrap_or(Err(Unavailable::Unanswered));
                    Ok(Message::from_head(wire::encode_read_index_reply(index)))
                }
                .boxed();
            }
            Some(DecodedRequest::WouldLead) => {
                let would = self.health.is_well(Instant::now());
                return async move { Ok(Message::from_head(wire::encode_would_lead_reply(would))) }
                    .boxed();
            }
            Some(DecodedRequest::FollowCatalog(index)) => {
                let catalog = self.catalog.get().and_then(Weak::upgrade);
                let propagation = Arc::clone(&self.propagation);
                return async move {
                    let catalog = catalog.ok_or(Declined::NotServed)?;
                    let follows = propagation.follow(&catalog.shard, index).await;
                    Ok(Message::from_head(wire::encode_follows_catalog_reply(follows)))
                }
                .boxed();
            }
            Some(DecodedRequest::HandOver(to)) => {
                let found = self.shard(shard);
                return async move {
                    let led = found.ok_or(Declined::NotServed)?;
                    let done = led.transfer_leadership(to).await;
                    let done = done.map_err(|error| error.to_string());
                    Ok(Message::from_head(wire::encode_hand_over_reply(done)))
                }
                .boxed();
            }
            Some(DecodedRequest::Look(look)) => {
                let found = self.shard(shard);
                return async move {
                    let looked = found
                        .ok_or(Declined::NotServed)?
                        .record_history(look, HISTORY_WITHIN)
                        .await;
                    Ok(Message::from_head(wire::encode_look_reply(looked)))
                }
                .boxed();
            }
            Some(DecodedRequest::BackUp(backup, step)) => {
                let sending =
                    self.backups.get().map(|it| it.back_up_for_another(backup, shard, step));
                return async move {
                    let done = sending.ok_or(Declined::NotServed)?.await;
                    Ok(wire::encode_backup_reply(done.ok_or(Declined::NotServed)?))
                }
                .boxed();
            }
            Some(DecodedRequest::Rows(query)) => {
                let found = self.shard(shard);
                return async move {
                    let led = found.ok_or(Declined::NotServed)?;
                    Ok(wire::encode_rows_reply(query_server::reply_to(&led, query).await))
                }
                .boxed();
            }
            Some(DecodedRequest::Members) => {
                let found = self.shard(shard);
                return async move {
                    let led = found.ok_or(Declined::NotServed)?;
                    let result = timeout(BARRIER_WITHIN, led.members_now());
                    let members = result.await.unwrap_or(Err(Unavailable::Unanswered));
                    Ok(Message::from_head(wire::encode_members_reply(members)))
                }
                .boxed();
            }
            Some(DecodedRequest::SessionUsers(sessions)) => {
                let users = sessions.into_iter().map(|it| peers.session_users().of(it)).collect();
                let answer = Message::from_head(wire::encode_session_users_reply(users));
                return async { Ok(answer) }.boxed();
            }
            Some(DecodedRequest::Groups) => {
                let answer = self.groups().map(wire::encode_groups_reply).map(Message::from_head);
                return async { answer.ok_or(Declined::NotServed) }.boxed();
            }
            Some(DecodedRequest::Stored) => {
                let answer = self.stored().map(wire::encode_stored_reply).map(Message::from_head);
                return async { answer.ok_or(Declined::NotServed) }.boxed();
            }
            None => {
                tracing::warn!(%from, %shard, "a request is not understood: is that node of a later version?");
                return async { Err(Declined::NotServed) }.boxed();
            }
        };
        peers.request_here(shard, request);
        async move {
            let answer = asking.answer(|| peers.applied(shard)).await;
            answer.map(Message::from_head).ok_or(Declined::NotServed)
        }
        .boxed()
    }
}
