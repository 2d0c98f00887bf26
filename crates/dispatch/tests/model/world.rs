//! A driver, its consumers and its crashes, in random order.

mod agreement;
mod consumers;
mod durability;
mod ending;
mod handing;
mod log;
mod operators;

use std::collections::{BTreeMap, VecDeque};

use base::Stripe;
use dispatch::*;

use crate::model::{Record, Rules, State};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) ordering: u8,
    pub(crate) single_active: bool,
    pub(crate) attempts_max: Option<u16>,
    pub(crate) backoff_first_ms: i64,
    pub(crate) record_ttl_ms: Option<i64>,
    pub(crate) priorities: u8,
    pub(crate) dead_letters: bool,
    pub(crate) unattended: bool,
    /// Bounds small enough to be reached.
    pub(crate) tight: bool,
    pub(crate) partitions: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) kind: u8,
    pub(crate) a: u16,
    pub(crate) b: u16,
    pub(crate) c: u16,
}

#[derive(Clone, Copy, Debug)]
struct Consumer {
    joined: PushConsumer,
    /// Remaining grants.
    granted: (u64, u64),
}

const LEASE_MS: i64 = 500;
const BACKOFF_MAX_MS: i64 = 1_000;

pub(crate) struct World {
    policy: Policy,
    rules: Rules,
    bounds: Bounds,
    engine: Dispatch,
    pools: Pools,
    limits: BTreeMap<SessionId, u32>,
    logs: Vec<Vec<Record>>,
    log_starts: Vec<u64>,
    now_ms: i64,
    consumers: BTreeMap<ConsumerId, Consumer>,
    active: Option<ConsumerId>,
    /// The active consumer that left with records, and the time until which the next one waits for
    /// them.
    leaving: Option<(ConsumerId, i64)>,
    next_consumer: ConsumerId,
    tokens: Vec<Token>,
    reads: VecDeque<ReadRange>,
    letters: Vec<DeadLetter>,
    held: Vec<(u32, u64)>,
    paused: bool,
    /// The order within keys did not change while records were in flight.
    check_order: bool,
    /// Compaction removed records that the engine may know.
    compacted: bool,
    pub(crate) trace: Vec<Assignment>,
}

impl World {
    pub(crate) fn new(setup: Setup) -> Self {
        let ordering = [Ordering::Free, Ordering::Key, Ordering::Partition];
        let policy = Policy {
            ordering: ordering[usize::from(setup.ordering)],
            single_active: setup.single_active,
            priority_takes_over: false,
            lease_ms: Some(LEASE_MS),
            attempts_max: setup.attempts_max,
            backoff_first_ms: setup.backoff_first_ms,
            backoff_max_ms: BACKOFF_MAX_MS,
            record_ttl_ms: setup.record_ttl_ms,
            priorities: setup.priorities,
            two_to_one: false,
            measured: false,
            dead_letters: setup.dead_letters,
            expire_unattended: setup.unattended,
        };
        let rules = Rules {
            ordering: setup.ordering,
            attempts_max: setup.attempts_max,
            record_ttl_ms: setup.record_ttl_ms,
            priorities: if setup.ordering == 0 { setup.priorities } else { 0 },
            dead_letters: setup.dead_letters,
        };
        let bounds = match setup.tight {
            false => Bounds::default(),
            true => Bounds {
                loaded_per_partition: 5,
                loaded: 12,
                cells_per_partition: 4,
                read_first: 6,
                blocked: 3,
                delayed: 6,
                dead: 2,
                leased: 9,
                attempts: 7,
                timers_per_tick: 2,
            },
        };
        let starts = vec![PartitionStart::default(); setup.partitions];
        Self {
            engine: Dispatch::with_bounds(policy.clone(), Stripe::ALL, starts, 1, bounds),
            policy,
            rules,
            bounds,
            pools: Pools::new(),
            limits: BTreeMap::new(),
            logs: vec![Vec::new(); setup.partitions],
            log_starts: vec![0; setup.partitions],
            now_ms: 10_000,
            consumers: BTreeMap::new(),
            active: None,
            leaving: None,
            next_consumer: 1,
            tokens: Vec::new(),
            reads: VecDeque::new(),
            letters: Vec::new(),
            held: Vec::new(),
            paused: false,
            check_order: true,
            compacted: false,
            trace: Vec::new(),
        }
    }

    pub(crate) fn step(&mut self, step: Step) {
        let Step { kind, a, b, c } = step;
        let partition = usize::from(c) % self.logs.len();
        match kind {
            0..=17 => self.append(partition, a, b),
            18..=27 => self.read(usize::from(a % 5), b),
            28..=43 => self.dispatch(),
            44..=48 => self.take(a, b),
            49 => self.hold(a),
            50..=67 => self.settle(a, b, c),
            68..=72 => self.pass(i64::from(a % 700)),
            73..=76 => self.join(a, b, c),
            77 => self.leave(a, b),
            78..=79 => self.end_session(u64::from(a % 3)),
            80..=83 => self.drain(),
            84 => self.dead_letter(a),
            85 => self.conclude(a),
            86..=87 => self.credit(a, b, c),
            88 => self.seek(partition, a),
            89 => self.trim(partition, a),
            90 if b.is_multiple_of(2) => self.hand_over(a),
            90 => self.crash(a.is_multiple_of(2)),
            91 => self.compact(partition, a),
            92 => self.remove(partition, a),
            93 => self.purge(),
            94 => self.set_paused(a.is_multiple_of(3)),
            95 => self.change_policy(a, b),
            96 => self.grow(),
            97 => self.limit(a, b),
            98 => self.fail_read(),
            _ => self.look(partition, a),
        }
        self.agree();
    }
}
