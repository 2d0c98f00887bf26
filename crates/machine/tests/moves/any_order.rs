//! Every intended step of a shard's leader arrives eventually, once or twice, in any order.

use std::collections::BTreeSet;

use base::ShardId;
use machine::rows::moves::Phase;
use machine::{AppendOutcome, Command, MoveEnd, Outcome, State, Step};

use super::*;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

/// A step in flight to a log.
#[derive(Clone)]
enum DelayedStep {
    Catalog(Command),
    Shard(usize, u64, Step),
    Import { to: usize, id: u64, from: u64, upto: u64, source: Box<Shard> },
}

struct World {
    random: Random,
    catalog: Shard,
    shards: Vec<Shard>,
    late: Vec<DelayedStep>,
    appended: u64,
    last_epoch: i32,
    moved: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let catalog = catalog_with_topic(1);
        let shards = (1..=SHARDS).map(|id| adopting(&catalog, id)).collect();
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Self { random, catalog, shards, late: Vec::new(), appended: 0, last_epoch: 0, moved: 0 }
    }

    /// Records a next step of a shard's leader, given the current states: it may be executed much
    /// later.
    fn intend(&mut self, at: usize) {
        let rows = &self.shards[at].state.rows;
        let catalog = &self.catalog.state.catalog;
        let topic = catalog.topic(P.topic).expect("it stays");
        let moving = topic.moving.get(&0).copied();
        let own = ShardId(at as u32 + 1);
        let step = |id, what| DelayedStep::Shard(at, id, what);
        let mut next = Vec::new();
        if let Some(leaving) = rows.topic(P.topic).and_then(|topic| topic.leaving(0)) {
            let is_wanted = moving.is_some_and(|moving| moving.id == leaving.id);
            match leaving.phase {
                Phase::HandedOver => {
                    let to = leaving.to.0 as usize - 1;
                    let row = rows.moved_row(P).expect("its bytes are here");
                    let epoch_base = rows.epoch_base(P) + self.shards[at].term + 1_000;
                    next.push(DelayedStep::Shard(
                        to,
                        leaving.id,
                        Step::Activate { row, epoch_base },
                    ));
                    let there = self.shards[to].state.rows.topic(P.topic);
                    let moves = there.and_then(|topic| topic.moves());
                    let arrived = moves.and_then(|it| it.arrived(0));
                    if let Some(arrived) = arrived.filter(|arrived| arrived.id == leaving.id) {
                        let end = MoveEnd::Placed { epoch_base: arrived.epoch_base };
                        let (partition, id) = (P, leaving.id);
                        next.push(DelayedStep::Catalog(Command::EndMove { partition, id, end }));
                        if !is_wanted {
                            next.push(step(leaving.id, Step::Leave));
                        }
                    }
                }
                Phase::Cancelled if is_wanted => {
                    let (partition, id, end) = (P, leaving.id, MoveEnd::Cancelled);
                    next.push(DelayedStep::Catalog(Command::EndMove { partition, id, end }));
                }
                Phase::Cancelled => next.push(step(leaving.id, Step::Forget)),
                Phase::Frozen if !is_wanted => next.push(step(leaving.id, Step::Cancel)),
                Phase::Frozen | Phase::Away => {}
            }
        }
        if let Some(import) = rows.import(P)
            && moving.is_none_or(|moving| moving.id != import.id)
            && catalog.moves() >= import.id
        {
            next.push(step(import.id, Step::Discard));
        }
        if let (Some(moving), Some(row)) = (moving, rows.partition(P))
            && moving.to != own
        {
            let (id, to) = (moving.id, moving.to);
            if moving.cancelled {
                next.push(step(id, Step::Cancel));
            }
            let there = to.0 as usize - 1;
            let import = self.shards[there].state.rows.import(P).filter(|it| it.id == id);
            let end = row.next_offset();
            match import {
                None => {
                    let what = Step::Import { from: row.log_start(), to: row.log_start() };
                    next.push(DelayedStep::Shard(there, id, what));
                }
                Some(import) => {
                    let source = Box::new(self.shards[at].clone());
                    let (to, from, upto) = (there, import.next, end);
                    next.push(DelayedStep::Import { to, id, from, upto, source });
                    if rows.is_frozen(P) && import.next == end {
                        next.push(step(id, Step::HandOver { end }));
                    }
                }
            }
            next.push(step(id, Step::Freeze { to }));
            if self.random.below(3) == 0 {
                next.push(step(id, Step::Thaw));
            }
        }
        self.late.extend(next);
    }

    fn arrive(&mut self) {
        if self.late.is_empty() {
            return;
        }
        let at = self.random.below(self.late.len() as u64) as usize;
        let late = match self.random.below(4) {
            0 => self.late[at].clone(),
            _ => self.late.swap_remove(at),
        };
        match late {
            DelayedStep::Catalog(command) => drop(self.catalog.run(command)),
            DelayedStep::Shard(at, id, what) => {
                let outcome = self.shards[at].step(id, what);
                self.moved += u64::from(matches!(outcome, Ok(Outcome::Activated { .. })));
            }
            DelayedStep::Import { to, id, from, upto, source } => {
                // A sequencer queries the catalog first.
                let topic = self.catalog.state.catalog.topic(P.topic).expect("it stays");
                if topic.moving.get(&0).is_some_and(|moving| moving.id == id) {
                    let _ = self.shards[to].import(id, from, upto, &source);
                }
            }
        }
        self.late.truncate(40);
    }

    fn check(&self) {
        let served: Vec<usize> =
            (0..self.shards.len()).filter(|at| self.shards[*at].end().is_some()).collect();
        assert!(served.len() <= 1, "it is served in {served:?}");
        let complete =
            |shard: &Shard| (0..self.appended).all(|at| shard.stored.get(&at) == Some(&at));
        match served[..] {
            [at] => {
                assert_eq!(self.shards[at].end(), Some(self.appended));
                assert!(complete(&self.shards[at]));
            }
            _ => assert!(self.shards.iter().any(complete), "nobody has all of it"),
        }
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            match self.random.below(16) {
                0 => {
                    let to = self.random.below(SHARDS.into()) as u32 + 1;
                    let _ = self.catalog.run(wanted(P.topic, to));
                }
                1 if self.random.below(3) == 0 => {
                    let (topic, partitions) = (P.topic, vec![0]);
                    self.catalog.run(Command::CancelMoves { topic, partitions }).expect("it stays");
                }
                2 => {
                    let at = self.random.below(SHARDS.into()) as usize;
                    self.shards[at].term += self.random.below(5) as i32;
                }
                3 => {
                    let at = self.random.below(SHARDS.into()) as usize;
                    let state = &self.shards[at].state;
                    assert_eq!(State::decode(&state.encode()).as_ref(), Ok(state));
                    let state = &self.catalog.state;
                    assert_eq!(State::decode(&state.encode()).as_ref(), Ok(state));
                }
                4..=6 => {
                    for shard in &mut self.shards {
                        let Some(end) = shard.end() else { continue };
                        if let AppendOutcome::Taken { base_offset } = shard.append(end) {
                            let epoch = shard.term + shard.state.rows.epoch_base(P);
                            assert!(epoch >= self.last_epoch, "epochs only rise");
                            assert_eq!(base_offset, self.appended);
                            (self.appended, self.last_epoch) = (end + 1, epoch);
                        }
                    }
                }
                7..=10 => {
                    let at = self.random.below(SHARDS.into()) as usize;
                    self.intend(at);
                }
                _ => self.arrive(),
            }
            self.check();
        }
    }
}

#[test]
fn partition_is_complete_and_in_one_shard_in_any_order_of_steps() {
    let (mut moved, mut shards) = (0, BTreeSet::new());
    for seed in 1..=60 {
        let mut world = World::new(seed);
        world.run(1_500);
        moved += world.moved;
        shards.extend((0..3).filter(|at| world.shards[*at].end().is_some()));
    }
    assert!(moved > 60 && shards.len() == 3, "{moved} moves that ended in {shards:?}");
}
