//! The audits must detect faults: the tests fail on a system that loses, reorders, duplicates or
//! redelivers settled messages, and pass on the same system without the fault.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use async_trait::async_trait;
use driver::{Target, Tier};
use drivers::MemoryBroker;
use futures_util::future::join_all;
use load::Watched;
use results::{Run, Verdict};
use workloads::{Context, Faults, Form, Problem, choose};

/// The broker in memory, which a test can kill.
#[derive(Debug)]
struct Reach(MemoryBroker);

#[async_trait]
impl Faults for Reach {
    fn nodes(&self) -> u32 {
        1
    }

    async fn kill(&self, _node: u32) -> Result<Instant, String> {
        let killed = Instant::now();
        self.0.kill();
        Ok(killed)
    }

    async fn stop(&self, node: u32) -> Result<Instant, String> {
        self.kill(node).await
    }

    async fn start(&self, _node: u32) -> Result<(), String> {
        self.0.start();
        Ok(())
    }

    async fn put_on_own_disk(&self, _bytes: u64) -> Result<(), String> {
        Ok(())
    }

    async fn cut_power(&self) -> Result<(), String> {
        self.kill(1).await.map(drop)
    }

    async fn start_all(&self) -> Result<(), String> {
        self.start(1).await
    }

    fn watched(&self) -> Vec<Watched> {
        Vec::new()
    }
}

fn context(settings: &[(&str, &str)]) -> Context {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("faulty-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let mut target = Target::of("memory");
    target.endpoints.push(format!("memory://{name}"));
    for (name, value) in settings {
        target.settings.insert((*name).to_owned(), (*value).to_owned());
    }
    let driver = drivers::connect(&target).expect("the memory broker takes these settings");
    let mut context = Context::new(driver, "1".to_owned(), Tier::T0, Form::Quick);
    context.faults = Some(Arc::new(Reach(MemoryBroker::at(&name))));
    context
}

async fn run(test: &str, settings: &[(&str, &str)]) -> Run {
    let chosen = choose(test).expect("there is such a test");
    chosen[0].run(&mut context(settings)).await.expect("it runs")
}

fn fails_by(run: &Run, what: &str) {
    let Verdict::Failed(faults) = &run.verdict else {
        panic!("{} passed: {:?}", run.test.name, run.audit)
    };
    assert!(faults.iter().any(|fault| fault.contains(what)), "{faults:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sound_broker_passes() {
    for test in ["mqperf/mid", "verify/order", "verify/release", "verify/lease", "queen/cg-5"] {
        let run = run(test, &[]).await;
        assert_eq!(run.verdict, Verdict::Passed, "{test}: {:?}", run.audit);
        assert!(run.audit.confirmed > 100 && run.measures[0].value.is_finite());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_messages_fail_the_run() {
    let tests = ["mqperf/mid", "verify/order", "lowlat/size-1024"];
    for run in join_all(tests.map(|test| run(test, &[("lose", "0.01")]))).await {
        fails_by(&run, "never received");
        assert!(run.audit.lost > 0 && run.audit.findings.iter().any(|it| it.kind == "lost"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_broker_with_all_confirmed_messages_passes() {
    for test in ["verify/lossless", "mqperf/crash"] {
        let run = run(test, &[]).await;
        assert_eq!(run.verdict, Verdict::Passed, "{test}: {:?}", run.audit);
        let killed = run.marks.iter().filter(|mark| mark.what.starts_with("kill -9")).count();
        let broke = run.remarks.iter().any(|remark| remark.contains("was killed"));
        assert!(killed > 0 && broke && run.audit.confirmed > 100, "{test}: {:?}", run.remarks);
        // It is down for a second or less, and the drain afterwards is no silence.
        let silent = run.measure("silent").map_or(0.0, |silent| silent.value);
        assert!(silent <= 3.0, "{test}: {silent} s");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_lost_in_a_kill_fail_the_run() {
    let tests = ["verify/lossless", "mqperf/crash"];
    for run in join_all(tests.map(|test| run(test, &[("crash-loses", "20")]))).await {
        fails_by(&run, "never received");
        let audit = &run.audit;
        assert!(audit.lost > 0 && audit.settled_again == 0, "{}: {audit:?}", run.test.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_lost_in_a_power_cut_fail_the_run_at_a_synced_tier() {
    let run = async |tier: Tier, settings: &[(&str, &str)]| {
        let mut context = context(settings);
        context.tier = tier;
        choose("verify/powerfail").expect("there is such a test")[0].run(&mut context).await
    };
    let sound = run(Tier::T3, &[]).await.expect("it runs");
    assert_eq!(sound.verdict, Verdict::Passed, "{:?}", sound.audit);
    assert!(sound.marks.iter().any(|mark| mark.what == "the power fails"));
    let forgets = run(Tier::T3, &[("crash-loses", "20")]).await.expect("it runs");
    fails_by(&forgets, "never received");
    let Err(Problem::Skipped(why)) = run(Tier::T1, &[]).await else { panic!("it ran") };
    assert!(why.contains("T1"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reordering_fails_the_run_where_order_is_required() {
    fails_by(&run("verify/order", &[("reorder", "0.05")]).await, "out of order");
    let run = run("mqperf/mid", &[("reorder", "0.05")]).await;
    assert_eq!(run.verdict, Verdict::Passed, "nobody asked for order");
    assert!(run.audit.out_of_order > 0, "and yet it is seen");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unmarked_duplicates_fail_the_run() {
    fails_by(&run("mqperf/mid", &[("duplicate", "0.01")]).await, "twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redelivery_of_settled_messages_fails_the_run() {
    fails_by(&run("mqperf/mid", &[("return-settled", "0.01")]).await, "settle was confirmed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_way_latency_is_half_of_the_round_trip() {
    let slow = [("latency-us", "20000")];
    let (there, back) =
        (run("lowlat/fire-and-forget-512", &[]), run("lowlat/ping-pong-512", &slow));
    let (there, back) = tokio::join!(there, back);
    for run in [&there, &back] {
        assert_eq!(run.verdict, Verdict::Passed, "{:?}", run.audit);
        assert_eq!(run.measures[0].name, "one way p50");
        assert!(run.audit.confirmed > 20, "{:?}", run.audit);
    }
    // The broker in memory delivers a message before it confirms it, and the stage in between waits
    // for that before it receives the next.
    let trips = back.measure("round trips").expect("how many there were").value;
    assert!((5.0..60.0).contains(&trips), "{trips} a second");
    let round = back.latencies["receive"].quantile_us(0.5) as f64 / 1e3;
    assert!((back.measures[0].value - round / 2.0).abs() < 0.1, "{round}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_subscription_does_not_harm_others() {
    let run = run("verify/slow-consumer", &[]).await;
    assert_eq!(run.verdict, Verdict::Passed, "{:?}", run.audit);
    let piled_up = run.measure("piled up").expect("how much").value;
    assert!(piled_up > 0.1, "nobody stalled: {piled_up} MB");
    assert_eq!(run.audit.received, 2 * run.audit.confirmed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn always_released_messages_must_become_dead_letters() {
    let sound = run("verify/dlq", &[]).await;
    assert_eq!(sound.verdict, Verdict::Passed, "{:?}", sound.audit);
    assert!(sound.measure("buried").expect("how many").value > 20.0);
    fails_by(&run("verify/dlq", &[("lose-dead", "0.2")]).await, "no dead letters");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicates_must_be_dropped_by_deduplication() {
    let sound = run("verify/dedup", &[]).await;
    assert_eq!(sound.verdict, Verdict::Passed, "{:?}", sound.audit);
    assert_eq!((sound.audit.repeated, sound.audit.lost), (0, 0));
    fails_by(&run("verify/dedup", &[("take-twice", "0.1")]).await, "came twice");
}

#[tokio::test]
async fn unsupported_test_is_a_result() {
    let mut context = context(&[]);
    context.faults = None;
    let chosen = &choose("verify/lossless").expect("there is such a test")[0];
    let Err(Problem::Skipped(why)) = chosen.run(&mut context).await else { panic!("it ran") };
    let run = context.not_supported(&chosen.name, why);
    assert!(run.not_supported().is_some_and(|why| why.contains("cannot be made to fail")));
    assert!(!run.counts() && run.test.asks == chosen.question());
}
