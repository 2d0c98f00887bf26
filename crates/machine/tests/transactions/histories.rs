//! Random histories over three shards, compared with a model that keeps each record and each decision.

use std::collections::BTreeMap;

use base::{Offset, ShardId};
use machine::{AppendOutcome, Command, EndCause, ProducerKey, State, TransactionRefusal};
use proptest::prelude::*;

use crate::shards::{PARTITIONS, SHARDS, Shards, pairs, partition, shard_of};

const IDS: usize = 3;
const GROUPS: [&str; 2] = ["g", "h"];

#[derive(Clone, Debug)]
enum Step {
    Initialize {
        id: usize,
        expects: bool,
    },
    /// Also by an earlier producer of the id.
    Produce {
        id: usize,
        ago: usize,
        index: u32,
        span: u32,
    },
    /// The home has the shard in the transaction, and the shard learns it with `Open`, or never.
    JoinWithoutOpening {
        id: usize,
        shard: u32,
    },
    /// The oldest of these.
    Open,
    Offsets {
        id: usize,
        ago: usize,
        group: usize,
        offset: Offset,
    },
    End {
        id: usize,
        ago: usize,
        commit: bool,
        bumps: bool,
    },
    /// InitProducerId over an open transaction.
    Replace {
        id: usize,
    },
    Expire {
        id: usize,
    },
    Deliver {
        pair: usize,
    },
    Snapshot {
        shard: u32,
    },
    DeleteRecords {
        index: u32,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0..IDS;
    let ago = prop_oneof![6 => Just(0_usize), 1 => 1_usize..3];
    prop_oneof![
        2 => (id.clone(), any::<bool>()).prop_map(|(id, expects)| Step::Initialize { id, expects }),
        12 => (id.clone(), ago.clone(), 0..PARTITIONS, 1_u32..4)
            .prop_map(|(id, ago, index, span)| Step::Produce { id, ago, index, span }),
        2 => (id.clone(), 1..=SHARDS)
            .prop_map(|(id, shard)| Step::JoinWithoutOpening { id, shard }),
        2 => Just(Step::Open),
        3 => (id.clone(), ago.clone(), 0..GROUPS.len(), 0_u64..100)
            .prop_map(|(id, ago, group, offset)| Step::Offsets { id, ago, group, offset }),
        5 => (id.clone(), ago, any::<bool>(), any::<bool>())
            .prop_map(|(id, ago, commit, bumps)| Step::End { id, ago, commit, bumps }),
        1 => id.clone().prop_map(|id| Step::Replace { id }),
        1 => id.prop_map(|id| Step::Expire { id }),
        8 => (0_usize..6).prop_map(|pair| Step::Deliver { pair }),
        1 => (1..=SHARDS).prop_map(|shard| Step::Snapshot { shard }),
        1 => (0..PARTITIONS).prop_map(|index| Step::DeleteRecords { index }),
    ]
}

#[derive(Default)]
struct Model {
    /// Producers of each id, the current one last.
    producers: Vec<Vec<ProducerKey>>,
    /// Transaction and producer of each record.
    records: BTreeMap<(u32, Offset), (Transaction, i64)>,
    /// Whether a transaction was committed.
    decisions: BTreeMap<Transaction, bool>,
    /// Offsets in transactions that are not committed yet, in the order of the requests.
    pending: Vec<(Transaction, usize, Offset)>,
    /// `Open`s that are on their way.
    delayed: Vec<(ShardId, ProducerKey, u64, ShardId)>,
    fresh: i64,
}

/// Home and number.
type Transaction = (ShardId, u64);

fn home_of(id: usize) -> ShardId {
    ShardId(id as u32 % SHARDS + 1)
}

fn name_of(id: usize) -> String {
    format!("id {id}")
}

/// Shard of a group.
fn shard_of_group(group: usize) -> ShardId {
    ShardId(group as u32 + 2)
}

struct History {
    shards: Shards,
    model: Model,
}

impl History {
    fn new() -> Self {
        let producers = vec![Vec::new(); IDS];
        Self { shards: Shards::new(), model: Model { producers, ..Model::default() } }
    }

    fn producer(&self, id: usize, ago: usize) -> Option<ProducerKey> {
        self.model.producers[id].iter().rev().nth(ago).copied()
    }

    fn fresh(&mut self) -> i64 {
        self.model.fresh += 1;
        self.model.fresh
    }

    /// Opens the transaction in a shard, as a session does before its first write there.
    fn join(&mut self, id: usize, producer: ProducerKey, shard: ShardId) -> Option<u64> {
        let participation = self.shards.state(shard).rows.transactions().participation(producer.id);
        if let Some(it) = participation
            && it.is_open
            && it.epoch == producer.epoch
        {
            return Some(it.number);
        }
        let home = home_of(id);
        let number = self.shards.join(home, &name_of(id), producer, shard).ok()?;
        if shard != home {
            self.shards.open(shard, producer, number, home).ok()?;
        }
        Some(number)
    }

    fn end(&mut self, id: usize, producer: ProducerKey, commit: bool, cause: EndCause) {
        let (home, name, fresh) = (home_of(id), name_of(id), self.fresh());
        let ids = self.shards.state(home).rows.transactions().ids();
        let open = ids.get(&name).and_then(|it| it.ongoing()).map(|open| open.number);
        let Ok(next) = self.shards.end(home, &name, producer, commit, cause, fresh) else { return };
        if let Some(number) = open {
            self.model.decisions.insert((home, number), commit);
        }
        if self.model.producers[id].last() != Some(&next) {
            self.model.producers[id].push(next);
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Initialize { id, expects } => {
                let expect = self.producer(id, 0).filter(|_| expects);
                let fresh = self.fresh();
                let given = self.shards.initialize(home_of(id), &name_of(id), expect, fresh);
                if let Ok(producer) = given
                    && self.producer(id, 0) != Some(producer)
                {
                    self.model.producers[id].push(producer);
                }
            }
            Step::Produce { id, ago, index, span } => {
                let Some(producer) = self.producer(id, ago) else { return };
                let shard = shard_of(index);
                let Some(number) = self.join(id, producer, shard) else { return };
                let batch = self.shards.batch(index, span, producer);
                if let AppendOutcome::Taken { base_offset } = self.shards.append(batch) {
                    for offset in base_offset..batch.end() {
                        let of = ((home_of(id), number), producer.id);
                        self.model.records.insert((index, offset), of);
                    }
                }
            }
            Step::JoinWithoutOpening { id, shard } => {
                let (home, shard) = (home_of(id), ShardId(shard));
                let Some(producer) = self.producer(id, 0) else { return };
                if let Ok(number) = self.shards.join(home, &name_of(id), producer, shard)
                    && shard != home
                {
                    self.model.delayed.push((shard, producer, number, home));
                }
            }
            Step::Open => {
                if !self.model.delayed.is_empty() {
                    let (shard, producer, number, home) = self.model.delayed.remove(0);
                    let _ = self.shards.open(shard, producer, number, home);
                }
            }
            Step::Offsets { id, ago, group, offset } => {
                let Some(producer) = self.producer(id, ago) else { return };
                let shard = shard_of_group(group);
                let Some(number) = self.join(id, producer, shard) else { return };
                let name = GROUPS[group];
                if self.shards.pending(shard, producer, name, offset).is_ok() {
                    self.model.pending.push(((home_of(id), number), group, offset));
                }
            }
            Step::End { id, ago, commit, bumps } => {
                let Some(producer) = self.producer(id, ago) else { return };
                let cause = if bumps { EndCause::ClientWithNextEpoch } else { EndCause::Client };
                self.end(id, producer, commit, cause);
            }
            Step::Replace { id } => {
                let Some(producer) = self.producer(id, 0) else { return };
                let cause = EndCause::Initialized { expect: None, timeout_ms: 5 };
                self.end(id, producer, false, cause);
            }
            Step::Expire { id } => {
                let Some(producer) = self.producer(id, 0) else { return };
                self.end(id, producer, false, EndCause::Expired);
            }
            Step::Deliver { pair } => {
                let (from, to) = pairs().nth(pair).expect("there are six");
                self.shards.deliver(from, to);
            }
            Step::Snapshot { shard } => {
                let state = self.shards.state(ShardId(shard));
                let bytes = state.encode();
                let restored = State::decode(&bytes).expect("it was encoded by us");
                assert_eq!(&restored, state);
                assert_eq!(restored.encode(), bytes);
                self.shards.replace(ShardId(shard), restored);
            }
            Step::DeleteRecords { index } => {
                let state = self.shards.state(shard_of(index));
                let end = state.rows.partition(partition(index)).map_or(0, |it| it.next_offset());
                let starts = vec![(partition(index), end.saturating_sub(2))];
                let deleted =
                    self.shards.command(shard_of(index), Command::AdvanceStart { starts });
                assert!(deleted.is_ok());
            }
        }
    }

    /// Below the stable end every record has the fate of its transaction.
    fn check(&self) {
        for (&(index, offset), (transaction, producer)) in &self.model.records {
            let rows = &self.shards.state(shard_of(index)).rows;
            let row = rows.partition(partition(index)).expect("it exists");
            if offset < row.log_start() {
                continue;
            }
            let transactions = rows.transactions();
            let stable = transactions.stable_end(partition(index), row.next_offset());
            let known = transactions.partition(partition(index));
            let aborted = known.is_some_and(|it| it.is_aborted(*producer, offset));
            match self.model.decisions.get(transaction) {
                None => assert!(offset >= stable, "{index}/{offset} of an open transaction"),
                Some(_) if offset >= stable => {}
                Some(commit) => assert_eq!(aborted, !commit, "{index}/{offset}, {transaction:?}"),
            }
        }
        for state in self.shards.all() {
            let transactions = state.rows.transactions();
            let open = transactions.participations().iter().filter(|(_, it)| it.is_open).count();
            assert_eq!(transactions.participations().open(), open);
        }
    }

    /// Ends and delivers everything. Then nothing is open, and offsets are those of committed transactions.
    fn finish(mut self) {
        for id in 0..IDS {
            self.step(&Step::Expire { id });
        }
        self.shards.deliver_all();
        while !self.model.delayed.is_empty() {
            self.step(&Step::Open);
        }
        self.check();
        for index in 0..PARTITIONS {
            let rows = &self.shards.state(shard_of(index)).rows;
            let next = rows.partition(partition(index)).expect("it exists").next_offset();
            assert_eq!(rows.transactions().stable_end(partition(index), next), next, "{index}");
        }
        for state in self.shards.all() {
            let transactions = state.rows.transactions();
            assert_eq!((transactions.ids().open(), transactions.participations().open()), (0, 0));
        }
        let committed = |it: &&(Transaction, usize, Offset)| self.model.decisions[&it.0];
        for (group, name) in GROUPS.iter().enumerate() {
            let rows = &self.shards.state(shard_of_group(group)).rows;
            let offset = rows.group(name).and_then(|it| it.offset(partition(0)));
            let mut of_group = self.model.pending.iter().filter(|it| it.1 == group);
            match offset {
                // The transactions of several producers commit in any order.
                Some(offset) => {
                    let known = of_group.filter(committed).any(|it| it.2 == offset.offset);
                    assert!(known, "{name} has an offset of no committed transaction");
                }
                None => assert!(!of_group.any(|it| committed(&it)), "{name} lost its offset"),
            }
            assert!(!rows.transactions().participations().has_pending_of(name));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 400 } else { 4_000 }))]

    #[test]
    fn records_and_offsets_share_the_fate_of_their_transaction(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut history = History::new();
        for step in &steps {
            history.step(step);
            history.check();
        }
        history.finish();
    }
}

#[test]
fn late_open_of_an_ended_transaction_is_rejected() {
    let mut history = History::new();
    history.step(&Step::Initialize { id: 0, expects: false });
    history.step(&Step::JoinWithoutOpening { id: 0, shard: 2 });
    history.step(&Step::End { id: 0, ago: 0, commit: true, bumps: true });
    history.step(&Step::Deliver { pair: 0 });
    let (shard, producer, number, home) = history.model.delayed[0];
    let refused = history.shards.open(shard, producer, number, home);
    assert_eq!(refused, Err(TransactionRefusal::Fenced { current: 1 }));
}
