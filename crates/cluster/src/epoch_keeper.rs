//! Raises the epoch while the node's logs or votes change, and sends it to the peers.

use std::io;
use std::sync::{Arc, Weak};

use base::{ClusterLevel, Level, ShardId};
use futures_util::future::join_all;
use links::{Lane, Links, NodeId};
use tasks::Task;
use tokio::time::sleep;
use tracing::{error, warn};
use uuid::Uuid;
use world::{Instant, World};

use crate::directory::Directory;
use crate::epochs::{Content, EPOCH_EVERY, EpochFile, PeerEpochs};
use crate::groups::{GroupEnd, Groups};
use crate::roster::Roster;
use crate::wire::ControlRequest;

pub(crate) struct EpochKeeper {
    pub(crate) world: World,
    pub(crate) file: Arc<EpochFile>,
    /// Durable epoch of this node.
    pub(crate) own: u64,
    pub(crate) roster: Arc<Roster>,
    pub(crate) groups: Groups,
    pub(crate) links: Weak<Links>,
    pub(crate) level: Arc<ClusterLevel>,
    /// Holds the lock of the data directory while the file is written.
    pub(crate) directory: Weak<Directory>,
}

/// State that the last durable write had.
#[derive(Default)]
struct DurableEpochs {
    ends: Vec<(ShardId, GroupEnd)>,
    peers: PeerEpochs,
}

impl EpochKeeper {
    /// Returns once the node's links or its directory are gone.
    pub(crate) async fn run(mut self) {
        let mut written = DurableEpochs { peers: self.roster.epochs(), ..DurableEpochs::default() };
        let mut failing = false;
        loop {
            sleep(EPOCH_EVERY).await;
            let Some(links) = self.links.upgrade() else { return };
            self.refuse_lost(&links);
            if self.level.now() < Level::EPOCHS {
                continue;
            }
            match self.raise(&mut written).await {
                Ok(true) => failing = false,
                Ok(false) => return,
                Err(error) if !failing => {
                    failing = true;
                    warn!(%error, "the epoch of this node cannot be written: a disk image from now on would not be noticed");
                }
                Err(_) => {}
            }
            self.send(&links).await;
        }
    }

    /// Disconnects members that lost acknowledged entries, as leaders of this node's shards found.
    fn refuse_lost(&self, links: &Links) {
        for (shard, node) in self.groups.take_lost() {
            let node = NodeId(node);
            let Some(address) = self.roster.refuse_lost(node) else { continue };
            error!(
                %node, %shard,
                "the node lacks entries that it acknowledged, and is refused from now on: its data directory was set back \
                 or lost writes; start a new node with `--join`, then type `postroad node replace {} --with NEW`",
                node.0
            );
            links.remove_peer(node);
            links.set_peer(node, &address);
        }
    }

    /// Makes a later epoch durable if logs or votes changed. False: the directory is gone.
    async fn raise(&mut self, written: &mut DurableEpochs) -> io::Result<bool> {
        let (ends, peers) = (self.groups.ends(), self.roster.epochs());
        let moved = ends != written.ends;
        if !moved && peers == written.peers && self.own > 0 {
            return Ok(true);
        }
        let own = self.own + u64::from(moved || self.own == 0);
        let held = match self.directory.upgrade() {
            Some(directory) => directory.hold().await,
            None => return Ok(false),
        };
        let (file, content) = (Arc::clone(&self.file), Content::new(own, peers.clone()));
        let write = move || {
            let done = file.write(&content);
            drop(held);
            done
        };
        self.world.workers.blocking(Task::NodeDirectory, write).await??;
        self.own = own;
        *written = DurableEpochs { ends, peers };
        Ok(true)
    }

    async fn send(&self, links: &Links) {
        if self.own == 0 {
            return;
        }
        let run: Uuid = links.identity().run;
        let deadline = Instant::now() + EPOCH_EVERY;
        let sent =
            links.connected(Lane::Control).into_iter().filter_map(|node| {
                let peer = links.peer(node)?;
                let message = ControlRequest::Epoch { run, epoch: self.own }.into();
                Some(async move {
                    peer.request(Lane::Control, ShardId::CATALOG, message, deadline).await
                })
            });
        // A peer that misses it receives the next.
        let _ = join_all(sent).await;
    }
}
