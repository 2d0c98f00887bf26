//! Chooses the last entry of each shard, so that all entries fit together.
//!
//! Shards record facts about each other in their logs: the adopted version of the catalog, and the messages sent, taken
//! and acknowledged. A cut is one entry of each log. It is *consistent* if no shard has recorded something that the
//! other shard has not done by its own entry:
//!
//! | a shard | recorded by its entry | so the other shard by its own |
//! |---|---|---|
//! | took a message | its number | sent it |
//! | forgot a message that it had sent | its acknowledgement | took it |
//! | adopted a version of the catalog | its rows | that version |
//!
//! The backup knows a window of each log: the last index at two requests, first of all shards, then of all shards
//! again. At a moment in between every shard was inside its window. Their positions at that moment are a consistent
//! cut, because a shard records only what has happened before. That moment is unknown, but there is a last consistent
//! cut within the windows. It is found from the ends: a shard that knows too much goes back to before it knew. In no
//! shard is that cut before the moment, so it contains everything acknowledged before.

use std::collections::BTreeMap;

use base::{Offset, ShardId};
use machine::{Role, State};
use thiserror::Error;

/// A shard's knowledge of others after an entry.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct InterShardState {
    /// Outgoing messages by receiver: the first unacknowledged one, and the next one to send.
    pub sent: BTreeMap<ShardId, (Offset, Offset)>,
    /// Incoming messages by sender: the next one to take.
    pub taken: BTreeMap<ShardId, Offset>,
    /// Catalog version that the shard has or has adopted.
    pub version: u64,
}

impl InterShardState {
    pub fn of(state: &State) -> Self {
        let channels = state.rows.channels();
        let sent =
            channels.outboxes().map(|(to, outbox)| (to, (outbox.acknowledged(), outbox.end())));
        let version = match state.role() {
            Role::Catalog | Role::Whole => state.catalog.version(),
            Role::Rows(_) => state.rows.adopted(),
        };
        Self { sent: sent.collect(), taken: channels.taken().collect(), version }
    }
}

/// A shard's knowledge at the start of its window, and after each entry in it that changed it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Window {
    /// By index of the entry; the first is the start of the window.
    pub known: Vec<(u64, InterShardState)>,
    /// The last entry of the window.
    pub end: u64,
}

/// The windows have no consistent cut: their shards are of different clusters, or of different times.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{shard} knows more of {other} than that one has done: they are not of the same backup")]
pub struct NoCut {
    pub shard: ShardId,
    pub other: ShardId,
}

/// Returns the index of each shard's last entry in the last consistent cut within these windows.
pub fn choose(windows: &BTreeMap<ShardId, Window>) -> Result<BTreeMap<ShardId, u64>, NoCut> {
    let mut places: BTreeMap<ShardId, usize> = windows
        .iter()
        .map(|(shard, window)| (*shard, window.known.len().saturating_sub(1)))
        .collect();
    let knows = |places: &BTreeMap<ShardId, usize>, shard: ShardId| {
        let found = windows.get(&shard).and_then(|window| window.known.get(places[&shard]));
        found.map(|(_, knowledge)| knowledge.clone()).unwrap_or_default()
    };
    while let Some((shard, other)) = find_inconsistency(windows, |shard| knows(&places, shard)) {
        let place = places.get_mut(&shard).filter(|place| **place > 0);
        let place = place.ok_or(NoCut { shard, other })?;
        *place -= 1;
    }
    let cut = windows.iter().map(|(shard, window)| {
        let next = window.known.get(places[shard] + 1).map(|(index, _)| *index);
        (*shard, next.map_or(window.end, |next| next.saturating_sub(1)))
    });
    Ok(cut.collect())
}

/// Finds a shard that knows too much, and the shard that it knows too much of.
fn find_inconsistency(
    windows: &BTreeMap<ShardId, Window>,
    knows: impl Fn(ShardId) -> InterShardState,
) -> Option<(ShardId, ShardId)> {
    let known: BTreeMap<ShardId, InterShardState> =
        windows.keys().map(|shard| (*shard, knows(*shard))).collect();
    let nothing = InterShardState::default();
    let of = |shard: ShardId| known.get(&shard).unwrap_or(&nothing);
    known.iter().find_map(|(&shard, here)| {
        if here.version > of(ShardId::CATALOG).version {
            return Some((shard, ShardId::CATALOG));
        }
        let took = here
            .taken
            .iter()
            .find(|(from, next)| **next > of(**from).sent.get(&shard).map_or(0, |(_, end)| *end));
        let forgot = here.sent.iter().find(|(to, (acknowledged, _))| {
            *acknowledged > of(**to).taken.get(&shard).copied().unwrap_or(0)
        });
        let other = took.map(|(from, _)| *from).or(forgot.map(|(to, _)| *to))?;
        Some((shard, other))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: ShardId = ShardId(1);
    const B: ShardId = ShardId(2);

    fn window(known: Vec<(u64, InterShardState)>, end: u64) -> Window {
        Window { known, end }
    }

    fn sent(to: ShardId, acknowledged: Offset, end: Offset) -> InterShardState {
        InterShardState { sent: [(to, (acknowledged, end))].into(), ..InterShardState::default() }
    }

    fn taken(from: ShardId, next: Offset) -> InterShardState {
        InterShardState { taken: [(from, next)].into(), ..InterShardState::default() }
    }

    #[test]
    fn cut_contains_the_send_of_every_taken_message() {
        let windows = BTreeMap::from([
            (A, window(vec![(10, sent(B, 0, 1))], 14)),
            (B, window(vec![(20, taken(A, 1)), (25, taken(A, 2)), (27, taken(A, 3))], 30)),
        ]);
        assert_eq!(choose(&windows), Ok(BTreeMap::from([(A, 14), (B, 24)])));
    }

    #[test]
    fn cut_contains_the_take_of_every_acknowledged_message() {
        let windows = BTreeMap::from([
            (A, window(vec![(10, sent(B, 0, 2)), (12, sent(B, 2, 2))], 14)),
            (B, window(vec![(20, taken(A, 1))], 30)),
        ]);
        assert_eq!(choose(&windows), Ok(BTreeMap::from([(A, 11), (B, 30)])));
    }

    #[test]
    fn adopted_catalog_version_is_within_the_cut_of_the_catalog() {
        let version = |version| InterShardState { version, ..InterShardState::default() };
        let windows = BTreeMap::from([
            (ShardId::CATALOG, window(vec![(5, version(3))], 9)),
            (A, window(vec![(10, version(2)), (11, version(3)), (13, version(4))], 14)),
        ]);
        assert_eq!(choose(&windows), Ok(BTreeMap::from([(ShardId::CATALOG, 9), (A, 12)])));
    }

    #[test]
    fn shard_that_goes_back_makes_its_peer_go_back() {
        // B goes back behind A, so A may not have forgotten B's messages yet.
        let windows = BTreeMap::from([
            (A, window(vec![(10, sent(B, 0, 2)), (12, sent(B, 2, 2))], 14)),
            (
                B,
                window(
                    vec![
                        (20, InterShardState { version: 1, ..taken(A, 1) }),
                        (22, InterShardState { version: 9, ..taken(A, 2) }),
                    ],
                    30,
                ),
            ),
            (
                ShardId::CATALOG,
                window(vec![(1, InterShardState { version: 1, ..InterShardState::default() })], 2),
            ),
        ]);
        let cut = BTreeMap::from([(ShardId::CATALOG, 2), (A, 11), (B, 21)]);
        assert_eq!(choose(&windows), Ok(cut));
    }

    #[test]
    fn windows_of_different_times_have_no_cut() {
        let windows = BTreeMap::from([
            (A, window(vec![(10, sent(B, 0, 1))], 14)),
            (B, window(vec![(20, taken(A, 7))], 30)),
        ]);
        assert_eq!(choose(&windows), Err(NoCut { shard: B, other: A }));
    }

    /// Shards that send to each other, in one total order of events.
    #[derive(Default)]
    struct World {
        known: Vec<InterShardState>,
        /// Knowledge of each shard after each entry, starting from nothing.
        logs: Vec<Vec<InterShardState>>,
    }

    impl World {
        fn new(shards: usize) -> Self {
            let known = vec![InterShardState::default(); shards];
            Self { logs: known.iter().map(|it| vec![it.clone()]).collect(), known }
        }

        fn step(&mut self, what: u8, shard: usize, other: usize) {
            let (here, there) = (ShardId(shard as u32), ShardId(other as u32));
            match what {
                _ if shard == 0 => self.known[0].version += 1,
                0 if other == 0 => self.known[shard].version = self.known[0].version,
                _ if other == 0 || other == shard => {}
                0 | 1 => self.known[shard].sent.entry(there).or_default().1 += 1,
                2 => {
                    let end = self.known[other].sent.get(&here).map_or(0, |it| it.1);
                    let next = self.known[shard].taken.entry(there).or_default();
                    *next = (*next + 1).min(end);
                }
                _ => {
                    let next = self.known[other].taken.get(&here).copied().unwrap_or(0);
                    self.known[shard].sent.entry(there).or_default().0 = next;
                }
            }
            let known = self.known[shard].clone();
            self.logs[shard].push(known);
        }

        fn lengths(&self) -> Vec<u64> {
            self.logs.iter().map(|log| log.len() as u64 - 1).collect()
        }
    }

    proptest! {
        #[test]
        fn cut_exists_if_all_window_starts_were_requested_before_all_ends(
            steps in prop::collection::vec((0..4_u8, 0..4_usize, 0..4_usize), 1..300),
            // Number of steps between two requests.
            pauses in prop::collection::vec(0..20_usize, 8),
        ) {
            let mut world = World::new(4);
            let mut steps = steps.into_iter();
            let (mut asked, mut at_once) = (Vec::new(), Vec::new());
            for (question, pause) in pauses.into_iter().enumerate() {
                for (what, shard, other) in steps.by_ref().take(pause) {
                    world.step(what, shard, other);
                }
                asked.push(world.lengths()[question % 4]);
                if question == 3 {
                    at_once = world.lengths();
                }
            }
            let windows: BTreeMap<ShardId, Window> = (0..4).map(|shard| {
                let (from, end) = (asked[shard], asked[shard + 4]);
                let log = &world.logs[shard];
                let mut known = vec![(from, log[from as usize].clone())];
                for index in from + 1..=end {
                    if log[index as usize] != known[known.len() - 1].1 {
                        known.push((index, log[index as usize].clone()));
                    }
                }
                (ShardId(shard as u32), Window { known, end })
            }).collect();
            let cut = choose(&windows).expect("there is one");
            for (shard, at_once) in (0..).map(ShardId).zip(at_once) {
                prop_assert!(cut[&shard] >= at_once, "{:?} {}", shard, at_once);
                prop_assert!(cut[&shard] <= windows[&shard].end);
            }
            let knows = |shard: ShardId| world.logs[shard.0 as usize][cut[&shard] as usize].clone();
            prop_assert_eq!(find_inconsistency(&windows, knows), None);
        }
    }
}
