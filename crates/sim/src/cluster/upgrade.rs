//! Programs of two versions: in profile `upgrade` each life of a node is of the version before or of the next one,
//! until an operator raises the cluster's feature level, under faults. The next version writes its level in every
//! entry and snapshot above the first level, so that one that is written too early ends the nodes of the version
//! before.

use std::time::Duration;

use base::{Level, Levels};
use nodes::Administration;
use operations::cluster::{Operation, Upgrade};
use operations::family::OperationFamily;
use tokio::time::{Instant, sleep, timeout};

use super::{Shared, State};
use crate::random::Random;

const NEXT: Level = Level(2);
const ANSWERED_WITHIN: Duration = Duration::from_secs(8);
/// Simulated time limit for every node of a healed cluster to reach the level.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The versions of the nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Versions {
    /// The version of this source.
    Same,
    /// The last version at which each node has every shard.
    BelowReplicas,
    /// The version before, until all nodes have been open at the same time: a cluster is founded at the newest
    /// level that all support.
    Before,
    Mixed,
    /// The next version: the level may be raised at any moment.
    Next,
}

/// The levels of the program that is started at a place.
pub(super) fn program(state: &mut State, place: usize) -> Levels {
    let max = match state.versions {
        Versions::Same => return Levels::OURS,
        Versions::BelowReplicas => Level(Level::REPLICAS.0 - 1),
        Versions::Before => Level::FIRST,
        Versions::Mixed if state.random.once_in(4) => Level::FIRST,
        Versions::Mixed | Versions::Next => NEXT,
    };
    let levels = Levels { min: Level::FIRST, max };
    state.nodes[place].levels = levels;
    levels
}

/// Raises the level once every node supports it, or until everything is healed.
pub(super) async fn finalize(shared: Shared, mut random: Random) {
    while !shared.lock().is_healed {
        sleep(Duration::from_millis(random.between(50, 1_000))).await;
        resume(&shared);
        if shared.lock().versions == Versions::Next && request_raise(&shared, &mut random).await {
            return;
        }
    }
}

/// Begins the next stage, if all nodes are open.
fn resume(shared: &Shared) {
    let mut state = shared.lock();
    if state.nodes.iter().any(|place| place.broker.is_none()) {
        return;
    }
    let all_can = state.nodes.iter().all(|place| place.levels.max == NEXT);
    let next = match state.versions {
        Versions::Before => Versions::Mixed,
        Versions::Mixed if all_can => Versions::Next,
        as_it_is => as_it_is,
    };
    if std::mem::replace(&mut state.versions, next) != next {
        state.trace.note(format_args!("versions: {next:?}"));
    }
}

/// Requests the raise from any open node. Returns whether the level is raised.
async fn request_raise(shared: &Shared, random: &mut Random) -> bool {
    let administration: Option<Administration> = {
        let state = shared.lock();
        let first = random.below(state.nodes.len() as u64) as usize;
        let (before, from) = state.nodes.split_at(first);
        let mut places = from.iter().chain(before);
        places.find_map(|place| Some(place.nodes.as_ref()?.administration(place.broker.as_ref()?)))
    };
    let Some(administration) = administration else { return false };
    let asked = serde_json::to_vec(&Operation::Upgrade { finalize: true });
    let asked = asked.expect("an operation is a document");
    let answer = timeout(ANSWERED_WITHIN, administration.carry_out(asked)).await;
    let trace = shared.lock().trace.clone();
    let answer = answer.map(|answer| answer.map(|said| serde_json::from_slice::<Upgrade>(&said)));
    let raised = matches!(&answer, Ok(Ok(Ok(upgrade))) if upgrade.level >= NEXT.0);
    trace.note(format_args!("the level is to be raised: {raised}"));
    raised
}

/// Whether every node is at one level: at the next one, if that was requested.
pub(super) async fn is_done(shared: &Shared) -> Result<(), String> {
    let (wanted, mut random) = {
        let mut state = shared.lock();
        if matches!(state.versions, Versions::Same | Versions::BelowReplicas) {
            return Ok(());
        }
        let is_next = state.versions == Versions::Next;
        (if is_next { NEXT } else { Level::FIRST }, state.random.fork())
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        if wanted == NEXT {
            request_raise(shared, &mut random).await;
        }
        let levels: Vec<Option<Level>> = {
            let state = shared.lock();
            let level = |broker: &broker::Broker| broker.level().now();
            state.nodes.iter().map(|place| place.broker.as_ref().map(level)).collect()
        };
        if levels.iter().all(|level| *level == Some(wanted)) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("nodes are at levels {levels:?}, and not at {wanted}"));
        }
        sleep(LOOK_EVERY).await;
    }
}
