//! Runs `failover` from its first phase to its result, on a broker that is not affected by faults
//! of its nodes: no sender pauses, and every message is accounted for.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use async_trait::async_trait;
use driver::{Target, Tier};
use load::Watched;
use results::Verdict;
use workloads::{Context, Faults, Form, Problem, choose};

/// Three nodes in name only.
#[derive(Debug, Default)]
struct Three {
    killed: Mutex<Vec<u32>>,
    started: AtomicU32,
}

#[async_trait]
impl Faults for Three {
    fn nodes(&self) -> u32 {
        3
    }

    async fn kill(&self, node: u32) -> Result<Instant, String> {
        self.killed.lock().map_err(|error| error.to_string())?.push(node);
        Ok(Instant::now())
    }

    async fn stop(&self, node: u32) -> Result<Instant, String> {
        self.kill(node).await
    }

    async fn start(&self, _node: u32) -> Result<(), String> {
        self.started.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn watched(&self) -> Vec<Watched> {
        Vec::new()
    }
}

fn context(faults: Option<Arc<dyn Faults>>) -> Context {
    let mut target = Target::of("memory");
    target.endpoints.push("memory://failover".to_owned());
    let driver = drivers::connect(&target).expect("it is always there");
    let mut context = Context::new(driver, "1".to_owned(), Tier::T0, Form::Quick);
    context.faults = faults;
    context
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_is_struck_each_time_and_returns() {
    let nodes = Arc::new(Three::default());
    let chosen = choose("failover/kill").expect("there is such a test");
    let run = chosen[0].run(&mut context(Some(Arc::clone(&nodes) as _))).await.expect("it runs");
    assert_eq!(run.verdict, Verdict::Passed, "{:?}", run.audit);
    // The first node leads all destinations.
    assert_eq!(*nodes.killed.lock().expect("nobody panicked"), [1, 1, 1]);
    assert_eq!(nodes.started.load(Ordering::Relaxed), 3);
    let value = |name: &str| run.measure(name).map(|measure| measure.value);
    assert_eq!((value("kills"), value("writes that lost their leader")), (Some(3.0), Some(18.0)));
    let worst = value("its leader gone: worst").expect("all are led by it");
    assert!((0.0..1_000.0).contains(&worst), "{worst} ms");
    assert_eq!(value("leader alive: worst"), None, "nothing else leads");
    assert_eq!(run.steps.len(), 3);
    assert!(run.latencies["pause-led"].count() == 18 && run.audit.confirmed > 1_000);
}

#[tokio::test]
async fn failover_needs_three_nodes_with_faults() {
    for test in ["failover/kill", "failover/terminate", "failover/pause"] {
        let chosen = choose(test).expect("there is such a test");
        let skipped = chosen[0].run(&mut context(None)).await;
        assert!(matches!(skipped, Err(Problem::Skipped(_))), "{test}: {skipped:?}");
    }
}
