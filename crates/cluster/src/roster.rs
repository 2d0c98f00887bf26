//! The members of the cluster.
//!
//! Until the catalog is known, a node is trusted when it is first seen: its number and its data directory are
//! bound from then on. Once all seeds were seen that is durable, so that a restart keeps it. Otherwise a node
//! whose disk was wiped in between would be mistaken for the one that has voted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{ClusterLevel, Levels};
use links::{Admission, DirectoryIdentity, Identity, JoiningNode, NodeId, Refusal};
use parking_lot::Mutex;
use uuid::Uuid;

use crate::applicants::Applicants;
use crate::directory::{Record, Records};
use crate::epochs::{PEERS_MAX, PeerEpoch, PeerEpochs};
use crate::seeds::{FOUNDER, Seeds, in_one_notation, is_provisional};

/// Limit of the list of seeds in a refusal, in bytes: a handshake has room for little.
const LISTED_BYTES_MAX: usize = 400;

/// A node of the cluster, as the catalog knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownNode {
    pub id: NodeId,
    /// Id of its data directory.
    pub directory: Uuid,
    /// Its last known boot.
    pub boot: u64,
    /// `HOST:PORT` of its peer port.
    pub address: String,
}

#[derive(Debug)]
pub(crate) struct Roster {
    here: DirectoryIdentity,
    level: Arc<ClusterLevel>,
    state: Mutex<State>,
    pub(crate) applicants: Applicants,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    /// Includes this node.
    nodes: Records,
    /// Nodes without a record that were admitted nevertheless.
    guests: BTreeSet<NodeId>,
    /// The highest number known to be or to have been assigned: numbers rise, and none is reused.
    highest: NodeId,
    /// Directories of nodes that were removed.
    former: BTreeMap<Uuid, NodeId>,
    /// The levels of the binaries of nodes that were admitted since this one started.
    levels: BTreeMap<NodeId, Levels>,
    /// Latest epoch of each node's directory.
    epochs: PeerEpochs,
}

#[derive(Debug)]
enum Stage {
    /// Not all seeds were seen yet.
    Founding(Seeds),
    /// All seeds were seen, or an earlier run knew the nodes. Others may have joined since.
    Founded,
    /// The catalog lists the members.
    Known,
}

impl State {
    fn note_numbers<'a>(&mut self, numbers: impl Iterator<Item = &'a NodeId>) {
        self.highest = numbers.fold(self.highest, |highest, number| highest.max(*number));
    }
}

impl Roster {
    /// `founding`: the seeds, unless an earlier run has seen all of them.
    pub(crate) fn new(
        here: DirectoryIdentity,
        level: Arc<ClusterLevel>,
        nodes: Records,
        founding: Option<Seeds>,
        epochs: PeerEpochs,
    ) -> Self {
        let stage = founding.map_or(Stage::Founded, Stage::Founding);
        let (guests, former) = (BTreeSet::new(), BTreeMap::new());
        let levels = BTreeMap::from([(here.node, level.can())]);
        let highest = here.node;
        let state = Mutex::new(State { stage, nodes, guests, highest, former, levels, epochs });
        Self { here, level, state, applicants: Applicants::default() }
    }

    pub(crate) fn records(&self) -> Records {
        self.state.lock().nodes.clone()
    }

    /// The levels of a node's binary as of its last admission.
    pub(crate) fn levels_of(&self, node: NodeId) -> Option<Levels> {
        self.state.lock().levels.get(&node).copied()
    }

    fn check_level(&self, node: NodeId, can: Levels) -> Result<(), Refusal> {
        let level = self.level.now();
        match can.has(level) {
            true => Ok(()),
            false => Err(Refusal::LevelMissing { node, level, can }),
        }
    }

    /// Latest epoch of each node's directory.
    pub(crate) fn epochs(&self) -> PeerEpochs {
        self.state.lock().epochs.clone()
    }

    /// Records the epoch that a connected node sent for its directory.
    pub(crate) fn receive_epoch(&self, node: NodeId, run: Uuid, epoch: u64) {
        let mut state = self.state.lock();
        let Some(known) = state.epochs.get_mut(&node) else { return };
        if epoch > known.epoch && !known.lost {
            (known.run, known.epoch) = (run, epoch);
        }
    }

    /// Refuses the node from now on, because its directory lacks entries that it acknowledged. Returns its address
    /// if that is new.
    pub(crate) fn refuse_lost(&self, node: NodeId) -> Option<String> {
        let mut state = self.state.lock();
        let address = state.nodes.get(&node)?.address.clone();
        let known = state.epochs.get_mut(&node)?;
        let is_new = !std::mem::replace(&mut known.lost, true);
        is_new.then_some(address)
    }

    /// Whether not all seeds were seen yet.
    pub(crate) fn is_founding(&self) -> bool {
        matches!(self.state.lock().stage, Stage::Founding(_))
    }

    /// All seeds were seen.
    pub(crate) fn founded(&self) {
        let stage = &mut self.state.lock().stage;
        if let Stage::Founding(_) = stage {
            *stage = Stage::Founded;
        }
    }

    /// Sets the nodes of the cluster. Returns the former ones that are no longer in it.
    pub(crate) fn know(&self, nodes: &[KnownNode]) -> BTreeSet<NodeId> {
        let mut state = self.state.lock();
        let known = |node: &KnownNode| {
            let seen = state.nodes.get(&node.id);
            let seen = seen.filter(|seen| seen.directory == Some(node.directory));
            // Peers see a boot before the catalog does.
            let boot = node.boot.max(seen.map_or(0, |seen| seen.boot));
            let directory = Some(node.directory);
            (node.id, Record { address: node.address.clone(), directory, boot })
        };
        let nodes: Records = nodes.iter().map(known).collect();
        state.note_numbers(nodes.keys());
        let mut gone: BTreeSet<NodeId> = state.nodes.keys().copied().collect();
        // A guest with a higher number joined after this catalog version: it stays a guest.
        let highest = state.highest;
        gone.extend(state.guests.extract_if(.., |node| *node <= highest));
        gone.retain(|node| !nodes.contains_key(node));
        let is_in = |directory| nodes.values().any(|node| node.directory == Some(directory));
        self.applicants.let_in(is_in);
        state.epochs.retain(|node, _| nodes.contains_key(node) || *node > highest);
        state.nodes = nodes;
        state.stage = Stage::Known;
        gone
    }

    /// Sets the directories of former nodes of the cluster.
    pub(crate) fn know_former(&self, former: BTreeMap<Uuid, NodeId>) {
        let mut state = self.state.lock();
        state.note_numbers(former.values());
        state.former = former;
    }

    fn newcomer(&self, seeds: &Seeds, nodes: &Records, peer: &Identity) -> Result<(), Refusal> {
        let DirectoryIdentity { cluster, node, directory: presented, .. } = peer.at;
        let is_listed = seeds.has(node) && node != FOUNDER && self.here.node == FOUNDER;
        if cluster != seeds.provisional_cluster() || !is_listed {
            let mut listed = seeds.listed();
            listed.truncate(listed.floor_char_boundary(LISTED_BYTES_MAX));
            return Err(Refusal::SeedsDiffer { node: self.here.node, listed });
        }
        match nodes.get(&node).and_then(|record| record.directory) {
            Some(known) if known != presented => {
                Err(Refusal::AnotherDirectory { node, known, presented })
            }
            _ => Ok(()),
        }
    }
}

impl Admission for Roster {
    fn admit(&self, peer: &Identity) -> Result<(), Refusal> {
        let DirectoryIdentity { node, directory: presented, boot, .. } = peer.at;
        if node == self.here.node {
            // Another process: this one does not connect to itself.
            let here = &self.here;
            return Err(known_as(node, here.directory, presented)
                .err()
                .unwrap_or(Refusal::OldBoot { node, seen: here.boot, presented: boot }));
        }
        let mut state = self.state.lock();
        let State { stage, nodes, guests, highest, former, levels, epochs } = &mut *state;
        let admitted = match (nodes.get_mut(&node), stage) {
            (Some(record), _) => {
                known_as(node, *record.directory.get_or_insert(presented), presented)?;
                if boot < record.boot {
                    return Err(Refusal::OldBoot { node, seen: record.boot, presented: boot });
                }
                record.boot = boot;
                Ok(())
            }
            (None, _) if former.contains_key(&presented) => Err(Refusal::Removed { node }),
            // It may have joined since this node's last knowledge, and the catalog may have to come from it.
            (None, Stage::Founded) => {
                guests.insert(node);
                Ok(())
            }
            // The same holds if the known catalog is old: later joined nodes have higher numbers.
            (None, Stage::Known) if node > *highest => {
                guests.insert(node);
                Ok(())
            }
            (None, Stage::Founding(_) | Stage::Known) => Err(Refusal::UnknownNode { node }),
        };
        // A node outside the cluster gets that reason first: an upgrade would not help it.
        admitted.and_then(|()| not_set_back(epochs.get(&node), peer))?;
        self.check_level(node, peer.levels)?;
        levels.insert(node, peer.levels);
        Ok(())
    }

    fn admitted(&self, peer: &Identity) {
        let Identity { at: DirectoryIdentity { node, directory, epoch, .. }, run, .. } = *peer;
        let epochs = &mut self.state.lock().epochs;
        let presented = PeerEpoch { directory, run, epoch, lost: false };
        let has_room = epochs.len() < PEERS_MAX;
        match epochs.get(&node) {
            // A run presents the epoch at which it began: it may have sent a later one.
            Some(known) if known.directory == directory && known.run == run => {}
            None if !has_room => {}
            _ => drop(epochs.insert(node, presented)),
        }
    }

    fn levels(&self) -> Levels {
        self.level.can()
    }

    fn admit_newcomer(&self, ours: &Identity, peer: &Identity) -> Result<(), Refusal> {
        let (cluster, presented) = (ours.at.cluster, peer.at.cluster);
        if !is_provisional(presented) {
            return Err(Refusal::AnotherCluster { cluster, presented });
        }
        let state = self.state.lock();
        match &state.stage {
            Stage::Founding(seeds) => self.newcomer(seeds, &state.nodes, peer),
            Stage::Founded | Stage::Known => Err(Refusal::Founded { cluster, node: peer.at.node }),
        }
    }

    fn admit_joining(&self, ours: &Identity, joining: &JoiningNode) -> Result<NodeId, Refusal> {
        let pending = Err(Refusal::JoinPending { node: ours.at.node });
        let declined = |mut reason: String| {
            reason.truncate(reason.floor_char_boundary(LISTED_BYTES_MAX));
            Err(Refusal::NotJoined { reason })
        };
        if let Err(error) = in_one_notation(&joining.address) {
            return declined(error.to_string());
        }
        let (level, can) = (self.level.now(), joining.levels);
        if !can.has(level) {
            return declined(format!(
                "it is at feature level {level}, and the program of this node supports {can}: start it with the program \
                 that the other nodes run"
            ));
        }
        let state = self.state.lock();
        let Stage::Known = state.stage else { return pending };
        let known = state.nodes.iter().find(|(_, it)| it.directory == Some(joining.directory));
        if let Some((node, _)) = known {
            return Ok(*node);
        }
        if let Some(node) = state.former.get(&joining.directory) {
            return declined(format!(
                "its data directory is of {node}, which was removed; start it with an empty data directory"
            ));
        }
        drop(state);
        match self.applicants.apply(joining) {
            Ok(()) => pending,
            Err(reason) => declined(reason),
        }
    }
}

/// Whether a peer's directory has everything that the peer made durable before, as far as this node received.
fn not_set_back(known: Option<&PeerEpoch>, peer: &Identity) -> Result<(), Refusal> {
    let DirectoryIdentity { node, directory, epoch, .. } = peer.at;
    match known.filter(|known| known.directory == directory) {
        Some(known) if known.lost => Err(Refusal::LogLost { node }),
        // Each run begins at an epoch later than all that the runs before it had sent.
        Some(known) if known.epoch > 0 && known.run != peer.run && epoch <= known.epoch => {
            Err(Refusal::SetBack { node, seen: known.epoch, presented: epoch })
        }
        _ => Ok(()),
    }
}

fn known_as(node: NodeId, known: Uuid, presented: Uuid) -> Result<(), Refusal> {
    match known == presented {
        true => Ok(()),
        false => Err(Refusal::AnotherDirectory { node, known, presented }),
    }
}
