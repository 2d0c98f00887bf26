//! Compares the topology with a model: after any order of declarations, bindings, deletions and restarts, messages
//! reach the queues that the model predicts.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Queue { queue: u8, durable: bool },
    Exchange { exchange: u8, durable: bool },
    DeleteQueue(u8),
    DeleteExchange(u8),
    Bind { from: u8, to: u8, key: u8 },
    Unbind { from: u8, to: u8, key: u8 },
    Restart,
}

const QUEUES: u8 = 3;
const EXCHANGES: u8 = 3;

fn step() -> impl Strategy<Value = Step> {
    let (queue, exchange) = (0..QUEUES, 0..EXCHANGES);
    let binding = || (0..EXCHANGES, 0..QUEUES + EXCHANGES, 0_u8..2);
    prop_oneof![
        4 => (queue.clone(), proptest::arbitrary::any::<bool>()).prop_map(|(queue, durable)| Step::Queue { queue, durable }),
        4 => (exchange.clone(), proptest::arbitrary::any::<bool>())
            .prop_map(|(exchange, durable)| Step::Exchange { exchange, durable }),
        1 => queue.prop_map(Step::DeleteQueue),
        1 => exchange.prop_map(Step::DeleteExchange),
        8 => binding().prop_map(|(from, to, key)| Step::Bind { from, to, key }),
        3 => binding().prop_map(|(from, to, key)| Step::Unbind { from, to, key }),
        1 => Just(Step::Restart),
    ]
}

/// Entities by name, and whether they are durable; bindings by source, destination and key.
#[derive(Clone, Debug, Default)]
struct Model {
    queues: BTreeMap<u8, bool>,
    exchanges: BTreeMap<u8, bool>,
    bindings: BTreeSet<(u8, u8, u8)>,
}

impl Model {
    /// Destinations below [`QUEUES`] are queues.
    fn durable(&self, to: u8) -> Option<bool> {
        if to < QUEUES {
            self.queues.get(&to).copied()
        } else {
            self.exchanges.get(&(to - QUEUES)).copied()
        }
    }

    fn drop_dangling(&mut self) {
        let Self { queues, exchanges, bindings } = self;
        bindings.retain(|(from, to, _)| {
            let there = |to: &u8| {
                if *to < QUEUES {
                    queues.contains_key(to)
                } else {
                    exchanges.contains_key(&(to - QUEUES))
                }
            };
            exchanges.contains_key(from) && there(to)
        });
    }

    fn reached(&self, from: u8, key: u8) -> Vec<String> {
        let (mut visited, mut found) = (BTreeSet::from([from]), BTreeSet::new());
        let mut waiting = vec![from];
        while let Some(exchange) = waiting.pop() {
            for (_, to, _) in self.bindings.iter().filter(|(f, _, k)| *f == exchange && *k == key) {
                if *to < QUEUES {
                    found.insert(format!("q{to}"));
                } else if visited.insert(to - QUEUES) {
                    waiting.push(to - QUEUES);
                }
            }
        }
        found.into_iter().collect()
    }
}

fn destination(to: u8) -> Destination {
    if to < QUEUES {
        queue_named(&format!("q{to}"))
    } else {
        exchange_named(&format!("x{}", to - QUEUES))
    }
}

/// A second declaration differs from the first.
#[derive(Debug)]
struct DeclarationConflict;

impl From<ChangeError> for DeclarationConflict {
    fn from(error: ChangeError) -> Self {
        panic!("nothing else is refused: {error}");
    }
}

async fn run(steps: Vec<Step>) {
    let (mut node, mut model) = (open().await, Model::default());
    let arguments = &Table::new();
    for step in steps {
        match step {
            Step::Queue { queue, durable } => {
                let name = &format!("q{queue}");
                let (auto_delete, owner) = (false, None);
                let new = NewQueue { name, durable, auto_delete, owner, arguments };
                let same = |present: Option<&Queue>| match present {
                    Some(present) if present.durable != durable => Err(DeclarationConflict),
                    _ => Ok(()),
                };
                let declared = node.vhost.declare_queue(new, same).await;
                let known = *model.queues.entry(queue).or_insert(durable);
                assert_eq!(declared.is_ok(), known == durable);
            }
            Step::Exchange { exchange, durable } => {
                let (kind, auto_delete, internal) = (ExchangeKind::Direct, false, false);
                let name = &format!("x{exchange}");
                let new = NewExchange { name, kind, durable, auto_delete, internal, arguments };
                let same = |present: Option<&Exchange>| match present {
                    Some(present) if present.durable != durable => Err(DeclarationConflict),
                    _ => Ok(()),
                };
                let declared = node.vhost.declare_exchange(new, same).await;
                let known = *model.exchanges.entry(exchange).or_insert(durable);
                assert_eq!(declared.is_ok(), known == durable);
            }
            Step::DeleteQueue(queue) => {
                let name = format!("q{queue}");
                let deleted = node.vhost.delete_queue(node.client, &name, false, false).await;
                deleted.expect("it is deleted");
                model.queues.remove(&queue);
                model.drop_dangling();
            }
            Step::DeleteExchange(exchange) => {
                let deleted = node.vhost.delete_exchange(&format!("x{exchange}"), false).await;
                deleted.expect("it is deleted");
                model.exchanges.remove(&exchange);
                model.drop_dangling();
            }
            Step::Bind { from, to, key } => {
                let bound =
                    node.bind(&format!("x{from}"), &destination(to), &key.to_string()).await;
                let there = model.exchanges.contains_key(&from) && model.durable(to).is_some();
                assert_eq!(bound.is_ok(), there);
                if there {
                    model.bindings.insert((from, to, key));
                }
            }
            Step::Unbind { from, to, key } => {
                node.unbind(&format!("x{from}"), &destination(to), &key.to_string()).await;
                model.bindings.remove(&(from, to, key));
            }
            Step::Restart => {
                node = node.restart().await;
                model.queues.retain(|_, durable| *durable);
                model.exchanges.retain(|_, durable| *durable);
                model.drop_dangling();
            }
        }
        assert_eq!(node.vhost.bindings().len(), model.bindings.len());
        for (from, key) in model.exchanges.keys().flat_map(|from| [(*from, 0), (*from, 1)]) {
            let found = node.reached(&format!("x{from}"), &key.to_string());
            assert_eq!(found, model.reached(from, key));
        }
    }
    node.broker.shutdown().await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn messages_reach_the_queues_predicted_by_a_model(steps in proptest::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        runtime.expect("a runtime").block_on(run(steps));
    }
}
