//! An operator that has nodes join, drained, removed and replaced, one after the other, by requests to any
//! available node. A rejected request is dropped; an accepted one has to complete once everything is healed.

use std::time::Duration;

use base::limits::REPLICAS;
use operations::cluster::{Node, NodeDecision, NodeState as Wanted, Operation, Shard, Status};
use operations::family::{OperationError, OperationFamily};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};

use super::place::{IntendedState, NodePlace, PlaceRequest};
use super::{Shared, State};
use crate::random::Random;

/// Largest number of nodes.
const NODES_MAX: usize = 5;
const SPREAD_NODES_MAX: usize = 7;
/// Requests that would go below this number are rejected.
const NODES_MIN: usize = 3;
const ANSWERED_WITHIN: Duration = Duration::from_secs(8);
/// Simulated time limit for a healed cluster to complete accepted requests.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Debug)]
enum OperatorReply<T> {
    Done(T),
    Refused(String),
    /// The request may be accepted, or not.
    Unknown,
}

#[derive(Debug)]
pub(super) struct Operator {
    shared: Shared,
    random: Random,
}

/// Resolves once a node does not start any more and the operator has not declared it lost yet.
pub(super) async fn is_needed(shared: &Shared) {
    let waits = |place: &NodePlace| place.trouble.is_refused && place.asked.is_none();
    while !shared.lock().nodes.iter().any(waits) {
        sleep(LOOK_EVERY).await;
    }
}

impl Operator {
    pub(super) fn new(shared: Shared, random: Random) -> Self {
        Self { shared, random }
    }

    /// Makes random requests until everything is healed, and then waits until all accepted ones are complete.
    pub(super) async fn run(mut self) -> Result<(), String> {
        while !self.shared.lock().is_healed {
            let pause = self.random.between(100, 3_000);
            sleep(Duration::from_millis(pause)).await;
            let Some(status) = self.status().await else { continue };
            match self.lost(&status) {
                Some(lost) => self.replace(lost, &status).await,
                None => self.decide(&status).await,
            }
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status().await;
            let done = match &status {
                Some(status) => self.finish(status).await,
                None => false,
            };
            if done {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("what was decided of nodes is not done: {status:?}"));
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// The node with a lost disk, until it is removed from the cluster. A node that does not start any more, or that
    /// was set back and is refused by the others, is declared lost.
    fn lost(&self, status: &Status) -> Option<u64> {
        let mut state = self.shared.lock();
        let State { nodes, lost, trace, .. } = &mut *state;
        // A node whose boot is lower than the others have seen keeps running.
        let is_refused = |it: &Node| it.why.as_ref().is_some_and(|why| why.contains("set back"));
        let is_shut_out = |place: &NodePlace| {
            let is_here = |it: &&Node| place.is_node(it.node);
            place.is_set_back && status.nodes.iter().filter(is_here).any(is_refused)
        };
        let refused = nodes
            .iter_mut()
            .find(|it| it.asked.is_none() && (it.trouble.is_refused || is_shut_out(it)));
        if let (Some(place), None) = (refused, *lost) {
            *lost = place.number.map(u64::from);
            place.asked = lost.map(|_| PlaceRequest::Lose);
            trace.note(format_args!("the operator declares {lost:?} lost"));
        }
        *lost
    }

    async fn decide(&mut self, status: &Status) {
        let nodes = &status.nodes;
        if nodes.is_empty() {
            // The cluster has only been started.
            return;
        }
        let any = self.random.below(nodes.len() as u64) as usize;
        let Node { node, standing, .. } = nodes[any];
        let is_calm = !nodes.iter().any(|node| node.standing == Wanted::Leaving);
        if self.shared.lock().image.are_taken && self.random.once_in(2) {
            let may_lose = is_calm && status.verdict.can_lose_a_node;
            return self.use_images(status, may_lose);
        }
        match (self.random.below(4), standing) {
            (0, Wanted::Active) => self.start_one(),
            (1, Wanted::Active) => drop(self.request(Operation::DrainNode { node }).await),
            // The replying node may not know yet that a drained one is to leave: it stays then, too.
            (0 | 1, Wanted::Drained) | (2, Wanted::Leaving) => self.have_it_stay(node).await,
            (2, Wanted::Drained) if is_calm => self.remove(node).await,
            // Never one node too many.
            (3, Wanted::Active) if is_calm && status.verdict.can_lose_a_node => self.lose(node),
            _ => {}
        }
    }

    /// Starts another node, which joins, if there is room and all others are there.
    fn start_one(&mut self) {
        let mut state = self.shared.lock();
        let present = state.nodes.iter().filter(|place| place.may_run()).count();
        let present = present + usize::from(state.lost.is_some());
        let waits = |place: &NodePlace| {
            place.asked.is_some() || (place.is_member() && place.broker.is_none())
        };
        let nodes_max = if state.spreads { SPREAD_NODES_MAX } else { NODES_MAX };
        if present >= nodes_max || state.nodes.iter().any(waits) {
            return;
        }
        if let Some(place) = state.nodes.iter_mut().find(|place| !place.may_run()) {
            place.asked = Some(PlaceRequest::Start);
        }
    }

    async fn remove(&mut self, node: u64) {
        self.place_is(node, IntendedState::Leaving);
        loop {
            match self.request(Operation::RemoveNode { node }).await {
                OperatorReply::Done(NodeDecision { .. }) => return,
                OperatorReply::Refused(why) if is_removed(&why) => return,
                OperatorReply::Refused(_) => return self.place_is(node, IntendedState::Member),
                OperatorReply::Unknown => sleep(LOOK_EVERY).await,
            }
        }
    }

    async fn have_it_stay(&mut self, node: u64) {
        loop {
            match self.request(Operation::ResumeNode { node }).await {
                OperatorReply::Done(NodeDecision { .. }) => {
                    return self.place_is(node, IntendedState::Member);
                }
                OperatorReply::Refused(_) => return,
                OperatorReply::Unknown => sleep(LOOK_EVERY).await,
            }
        }
    }

    fn lose(&mut self, node: u64) {
        let mut state = self.shared.lock();
        let is_sound =
            |it: &NodePlace| it.broker.is_some() && (it.is_node(node) || !it.is_damaged());
        let others_are_sound = state.nodes.iter().all(|it| !it.may_run() || is_sound(it));
        let place = state.nodes.iter_mut().find(|place| place.is_node(node));
        if let (Some(place), true) = (place, others_are_sound) {
            place.asked = Some(PlaceRequest::Lose);
            state.lost = Some(node);
        }
    }

    /// Takes an image of a disk, or starts a node from a taken image.
    fn use_images(&mut self, status: &Status, may_lose: bool) {
        let mut state = self.shared.lock();
        let now = Duration::from_millis(state.trace.now_ms());
        let of_image = state.image_node(now);
        let is_sound = |it: &NodePlace| it.broker.is_some() && !it.is_damaged();
        let all_are_sound = state.nodes.iter().all(|it| !it.may_run() || is_sound(it));
        let active = |node: u64| {
            let found = status.nodes.iter().find(|it| it.node == node);
            found.is_some_and(|it| it.standing == Wanted::Active)
        };
        match of_image {
            Some((place, node)) if state.nodes[place].is_node(node) => {
                if may_lose && all_are_sound && state.lost.is_none() && active(node) {
                    state.nodes[place].asked = Some(PlaceRequest::SetBack);
                }
            }
            // Another node is there by now, or none.
            _ => {
                let place = self.random.below(state.nodes.len() as u64) as usize;
                if of_image.is_some() || !state.image.is_taken() {
                    state.take_image(place, now);
                }
            }
        }
    }

    /// Replaces the lost node by the newest one, once there are enough nodes.
    async fn replace(&mut self, lost: u64, status: &Status) {
        let stay = || status.nodes.iter().filter(|node| node.standing != Wanted::Leaving);
        let others = stay().filter(|node| node.node != lost);
        let newest = others.filter(|node| node.live).map(|node| node.node).max();
        let known = status.nodes.iter().find(|node| node.node == lost);
        let operation = match (known.map(|node| node.standing), newest) {
            // The queried node's state is old, or the lost one is already removed.
            (None, _) => Operation::RemoveNode { node: lost },
            (Some(Wanted::Leaving), _) => return,
            (_, Some(newest)) if stay().count() > NODES_MIN => {
                Operation::ReplaceNode { node: lost, with: newest }
            }
            _ => return self.start_one(),
        };
        if let OperatorReply::Refused(why) = self.request(operation).await
            && is_removed(&why)
        {
            self.shared.lock().lost = None;
        }
    }

    /// Whether nothing is left to do.
    async fn finish(&mut self, status: &Status) -> bool {
        if let Some(lost) = self.lost(status) {
            self.replace(lost, status).await;
            return false;
        }
        let drained = status.nodes.iter().find(|node| node.standing == Wanted::Drained);
        if let Some(Node { node, .. }) = drained {
            self.have_it_stay(*node).await;
            return false;
        }
        let nodes: Vec<u64> = status.nodes.iter().map(|node| node.node).collect();
        let spreads = self.shared.lock().spreads;
        let has_all = |shard: &Shard| shard.voters == nodes && shard.learners.is_empty();
        let is_whole = |shard: &Shard| match spreads {
            true => !shard.changing && is_spread(shard, &nodes),
            false => !shard.changing && has_all(shard),
        };
        let members: Vec<u64> = {
            let state = self.shared.lock();
            // The others have to refuse a node that was set back.
            let is_open = |place: &NodePlace| place.broker.is_some() && !place.is_set_back;
            if state.nodes.iter().any(|place| place.may_run() && !is_open(place)) {
                return false;
            }
            let mut members: Vec<u64> = (state.nodes.iter())
                .filter(|place| place.may_run() || place.asked.is_some())
                .map(|place| place.number.map_or(0, u64::from))
                .collect();
            members.sort_unstable();
            members
        };
        nodes == members
            && status.nodes.iter().all(|node| node.standing == Wanted::Active)
            && status.shards.iter().all(is_whole)
            && (!spreads || is_even(status))
    }

    fn place_is(&self, node: u64, standing: IntendedState) {
        let mut state = self.shared.lock();
        if let Some(place) = state.nodes.iter_mut().find(|place| place.is_node(node)) {
            place.standing = standing;
        }
    }

    async fn request(&mut self, operation: Operation) -> OperatorReply<NodeDecision> {
        let asked = format!("{operation:?}");
        let answer = self.answer(operation).await;
        let trace = self.shared.lock().trace.clone();
        trace.note(format_args!("the operator asks: {asked}: {answer:?}"));
        answer
    }

    async fn status(&mut self) -> Option<Status> {
        match self.answer(Operation::Status {}).await {
            OperatorReply::Done(status) => Some(status),
            OperatorReply::Refused(_) | OperatorReply::Unknown => None,
        }
    }

    /// Queries any node that is to stay.
    async fn answer<T: DeserializeOwned>(&mut self, operation: Operation) -> OperatorReply<T> {
        let administration = {
            let state = self.shared.lock();
            let first = self.random.below(state.nodes.len() as u64) as usize;
            let (before, from) = state.nodes.split_at(first);
            let mut places = from.iter().chain(before).filter(|place| place.is_member());
            places.find_map(|place| {
                Some(place.nodes.as_ref()?.administration(place.broker.as_ref()?))
            })
        };
        let Some(administration) = administration else { return OperatorReply::Unknown };
        let operation = serde_json::to_vec(&operation).expect("an operation is a document");
        let answer = timeout(ANSWERED_WITHIN, administration.carry_out(operation)).await;
        match answer {
            Ok(Ok(answer)) => match serde_json::from_slice(&answer) {
                Ok(answer) => OperatorReply::Done(answer),
                Err(_) => OperatorReply::Unknown,
            },
            Ok(Err(OperationError::Invalid(why))) => OperatorReply::Refused(why),
            Ok(Err(_)) | Err(_) => OperatorReply::Unknown,
        }
    }
}

/// Three nodes have a shard, and all have the catalog.
fn is_spread(shard: &Shard, nodes: &[u64]) -> bool {
    let are_nodes = shard.voters.iter().all(|voter| nodes.contains(voter));
    match shard.shard {
        0 => are_nodes && shard.voters.len() + shard.learners.len() == nodes.len(),
        _ => are_nodes && shard.voters.len() == REPLICAS && shard.learners.is_empty(),
    }
}

/// Whether the numbers of shards with rows on any two nodes differ by one at most.
fn is_even(status: &Status) -> bool {
    let rows = || status.shards.iter().filter(|shard| shard.shard != 0);
    let has = |node: &Node| rows().filter(|shard| shard.voters.contains(&node.node)).count();
    let loads: Vec<usize> = status.nodes.iter().map(has).collect();
    let (most, least) = (loads.iter().max(), loads.iter().min());
    most <= least.map(|least| least + 1).as_ref()
}

fn is_removed(refusal: &str) -> bool {
    refusal.contains("was removed")
}
