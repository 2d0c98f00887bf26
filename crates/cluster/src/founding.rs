//! Founding: nodes with the same list of seeds become one cluster.
//!
//! The first seed alone draws the cluster's id. The others get it from the first seed. So no two of them can found
//! a cluster each, whatever fails in between. A node that knows the id belongs to the cluster permanently.
//!
//! | the directory | the node |
//! |---|---|
//! | empty | draws its directory's id, and the cluster's if it is the first seed |
//! | belongs to no cluster yet | requests the id from the first seed |
//! | belongs to a cluster with unseen seeds | waits for them; the list of seeds may still be corrected |
//! | belongs to a founded cluster | needs no seeds |
//! | empty, and addresses of members are given | requests to join (`joining`) |

use std::sync::{Arc, Weak};
use std::time::Duration;

use base::Levels;
use base::limits::{LINK_CONNECTS_WITHIN, LINK_HANDSHAKE_WITHIN, LINK_RETRY_MAX, LINK_RETRY_MIN};
use links::{
    ConnectError, DirectoryIdentity, Identity, Lane, NodeId, Peer, PeerListener, Phase, Refusal,
    Status, introduce,
};
use tasks::Failure;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::info;
use uuid::Uuid;
use world::{Instant, World};

use crate::directory::{Content, Directory, Record};
use crate::roster::Roster;
use crate::seeds::{FOUNDER, Seeds, SeedsError, in_one_notation};
use crate::start_error::{NodeStartError, needs_an_operator};

/// Interval of the log line of a waiting node.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// The content of the directory for this start, and the seeds while they count.
pub(crate) fn begin(
    world: &World,
    found: Option<Content>,
    address: &str,
    given: &[String],
    join: &[String],
) -> Result<(Content, Option<Seeds>), SeedsError> {
    let Some(mut content) = found else {
        if !join.is_empty() {
            in_one_notation(address)?;
            let (cluster, node, boot) = (None, NodeId(0), 1);
            let (directory, nodes) = (world.entropy.uuid(), Default::default());
            let (is_founded, joined) = (false, true);
            let (is_recovering, is_restoring) = (false, false);
            let content = Content {
                cluster,
                node,
                directory,
                boot,
                is_founded,
                joined,
                is_recovering,
                is_restoring,
                nodes,
            };
            return Ok((content, None));
        }
        let seeds = Seeds::of(given)?;
        let node = seeds.number(address)?;
        let directory = world.entropy.uuid();
        let (cluster, is_founded, joined, boot) = (None, false, false, 1);
        let nodes = Default::default();
        let (is_recovering, is_restoring) = (false, false);
        let mut content = Content {
            cluster,
            node,
            directory,
            boot,
            is_founded,
            joined,
            is_recovering,
            is_restoring,
            nodes,
        };
        take(world, &mut content, node, &seeds);
        return Ok((content, Some(seeds)));
    };
    if content.is_restoring {
        return Err(SeedsError::Restoring);
    }
    if content.is_recovering {
        return Err(SeedsError::Recovering);
    }
    content.boot += 1;
    if content.is_founded {
        return Ok((content, None));
    }
    match (content.joined, join.is_empty()) {
        (true, false) => return Ok((content, None)),
        (true, true) => return Err(SeedsError::JoinMissing),
        (false, false) => return Err(SeedsError::FoundsAnother),
        (false, true) => {}
    }
    let seeds = if given.is_empty() {
        let known = content.nodes.values().map(|record| record.address.clone());
        Seeds::of(&known.collect::<Vec<_>>())?
    } else {
        let seeds = Seeds::of(given)?;
        let (was, place) = (content.node, seeds.number(address)?);
        if was != place && content.cluster.is_some() {
            let (was, place, address) = (was.0, place.0, address.to_owned());
            return Err(SeedsError::AnotherPlace { was, place, address });
        }
        take(world, &mut content, place, &seeds);
        seeds
    };
    Ok((content, Some(seeds)))
}

/// Assigns the node its number among the seeds.
fn take(world: &World, content: &mut Content, node: NodeId, seeds: &Seeds) {
    content.node = node;
    if node == FOUNDER && content.cluster.is_none() {
        content.cluster = Some(world.entropy.uuid());
    }
    let unseen = |address: &str| Record { address: address.to_owned(), directory: None, boot: 0 };
    content.nodes = seeds.nodes().map(|(node, address)| (node, unseen(address))).collect();
}

/// Requests from the first seed the cluster that this node will be part of, until it replies. Other peers get no
/// reply meanwhile.
pub(crate) async fn learn_cluster(
    world: &World,
    listener: &PeerListener,
    content: &Content,
    seeds: &Seeds,
    levels: Levels,
) -> Result<Uuid, NodeStartError> {
    let Content { node, directory, boot, .. } = *content;
    let cluster = seeds.provisional_cluster();
    let at = DirectoryIdentity { cluster, node, directory, boot, epoch: 0 };
    let identity = Identity { at, run: world.entropy.uuid(), levels };
    let asking = request_cluster(world, listener, &identity, seeds.first());
    tokio::select! {
        biased;
        answer = asking => answer,
        never = listener.turn_away() => match never {},
    }
}

async fn request_cluster(
    world: &World,
    listener: &PeerListener,
    identity: &Identity,
    seed: &str,
) -> Result<Uuid, NodeStartError> {
    let within = LINK_CONNECTS_WITHIN + LINK_HANDSHAKE_WITHIN;
    let (mut pause, mut said) = (LINK_RETRY_MIN, None);
    loop {
        let error = match introduce(world, listener.security(), seed, identity, within).await {
            Ok(founder) if founder.at.node == FOUNDER => return Ok(founder.at.cluster),
            Ok(other) => {
                let refusal = Refusal::AnotherNode { wanted: FOUNDER, found: other.at.node };
                ConnectError::RefusedHere(refusal)
            }
            Err(error) => error,
        };
        if needs_an_operator(&error) {
            return Err(NodeStartError::FirstSeed { seed: seed.to_owned(), error });
        }
        if said.is_none_or(|said: Instant| said.elapsed() >= SAID_EVERY) {
            said = Some(Instant::now());
            info!(
                seed, %error,
                "waits for the first seed, which founds the cluster: start it with the same seeds"
            );
        }
        sleep(pause).await;
        pause = (pause * 2).min(LINK_RETRY_MAX);
    }
}

/// The end of a founding: all seeds were connected, and their identities are recorded.
pub(crate) struct Completion {
    pub(crate) others: Vec<Peer>,
    pub(crate) roster: Arc<Roster>,
    /// Owned by the node, and gone when the node is dropped.
    pub(crate) directory: Weak<Directory>,
    pub(crate) all_seen: watch::Sender<bool>,
    pub(crate) failure: Failure,
}

impl Completion {
    /// Does not return: the task is owned by the node.
    pub(crate) async fn run(self) {
        for peer in &self.others {
            seen(peer).await;
        }
        if let Some(directory) = self.directory.upgrade() {
            let written = directory.change(|content| {
                content.is_founded = true;
                content.nodes = self.roster.records();
            });
            match written.await {
                Ok(()) => {
                    self.roster.founded();
                    self.all_seen.send_replace(true);
                }
                Err(error) => self.failure.report(error.to_string()),
            }
        }
        std::future::pending().await
    }
}

/// Waits until a peer has been connected to.
async fn seen(peer: &Peer) {
    let mut watch = peer.watch(Lane::Control);
    let mut status = watch.get();
    while !was_connected(&status) {
        match timeout(SAID_EVERY, watch.changed()).await {
            Ok(Some(changed)) => status = changed,
            // It is no peer any more: the catalog has listed the members.
            Ok(None) => return std::future::pending().await,
            Err(_) => match &status.phase {
                Phase::Waiting { error, .. } => {
                    info!(node = %peer.node(), %error, "waits for a seed, to found the cluster");
                }
                _ => info!(node = %peer.node(), "waits for a seed, to found the cluster"),
            },
        }
    }
}

fn was_connected(status: &Status) -> bool {
    matches!(status.phase, Phase::Connected { .. }) || status.last.is_some()
}
