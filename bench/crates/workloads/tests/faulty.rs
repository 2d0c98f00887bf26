//! The audits must bite: on a system that loses, reorders, doubles or gives back what was settled,
//! the tests fail; on the same system without the fault they pass.

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

/// The broker in memory, which whoever tests it can kill.
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
async fn a_sound_broker_passes() {
    for test in ["mqperf/mid", "verify/order", "verify/release", "verify/lease", "queen/cg-5"] {
        let run = run(test, &[]).await;
        assert_eq!(run.verdict, Verdict::Passed, "{test}: {:?}", run.audit);
        assert!(run.audit.confirmed > 100 && run.measures[0].value.is_finite());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_loses_fails() {
    let tests = ["mqperf/mid", "verify/order", "lowlat/size-1024"];
    for run in join_all(tests.map(|test| run(test, &[("lose", "0.01")]))).await {
        fails_by(&run, "never received");
        assert!(run.audit.lost > 0 && run.audit.findings.iter().any(|it| it.kind == "lost"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_keeps_what_it_confirmed_may_be_killed() {
    for test in ["verify/lossless", "mqperf/crash"] {
        let run = run(test, &[]).await;
        assert_eq!(run.verdict, Verdict::Passed, "{test}: {:?}", run.audit);
        let killed = run.marks.iter().filter(|mark| mark.what.starts_with("kill -9")).count();
        let broke = run.remarks.iter().any(|remark| remark.contains("was killed"));
        assert!(killed > 0 && broke && run.audit.confirmed > 100, "{test}: {:?}", run.remarks);
        // It is down for a second or less, and what drains afterwards is no silence.
        let silent = run.measure("silent").map_or(0.0, |silent| silent.value);
        assert!(silent <= 3.0, "{test}: {silent} s");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_forgets_when_it_is_killed_fails() {
    let tests = ["verify/lossless", "mqperf/crash"];
    for run in join_all(tests.map(|test| run(test, &[("crash-loses", "20")]))).await {
        fails_by(&run, "never received");
        let audit = &run.audit;
        assert!(audit.lost > 0 && audit.settled_again == 0, "{}: {audit:?}", run.test.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_forgets_when_the_power_fails_fails_where_it_promised_to_have_synced() {
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
async fn a_broker_that_reorders_fails_where_order_is_asked_for() {
    fails_by(&run("verify/order", &[("reorder", "0.05")]).await, "out of order");
    let run = run("mqperf/mid", &[("reorder", "0.05")]).await;
    assert_eq!(run.verdict, Verdict::Passed, "nobody asked for order");
    assert!(run.audit.out_of_order > 0, "and yet it is seen");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_doubles_without_a_mark_fails() {
    fails_by(&run("mqperf/mid", &[("duplicate", "0.01")]).await, "twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_gives_back_what_was_settled_fails() {
    fails_by(&run("mqperf/mid", &[("return-settled", "0.01")]).await, "settle was confirmed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_of_there_and_back_is_one_way() {
    let slow = [("latency-us", "20000")];
    let (there, back) =
        (run("lowlat/fire-and-forget-512", &[]), run("lowlat/ping-pong-512", &slow));
    let (there, back) = tokio::join!(there, back);
    for run in [&there, &back] {
        assert_eq!(run.verdict, Verdict::Passed, "{:?}", run.audit);
        assert_eq!(run.measures[0].name, "one way p50");
        assert!(run.audit.confirmed > 20, "{:?}", run.audit);
    }
    // The broker in memory gives a message out before it confirms it, and the stage in between
    // waits for that before it takes the next.
    let trips = back.measure("round trips").expect("how many there were").value;
    assert!((5.0..60.0).contains(&trips), "{trips} a second");
    let round = back.latencies["receive"].quantile_us(0.5) as f64 / 1e3;
    assert!((back.measures[0].value - round / 2.0).abs() < 0.1, "{round}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_subscription_that_stalls_harms_nobody_else() {
    let run = run("verify/slow-consumer", &[]).await;
    assert_eq!(run.verdict, Verdict::Passed, "{:?}", run.audit);
    let piled_up = run.measure("piled up").expect("how much").value;
    assert!(piled_up > 0.1, "nobody stalled: {piled_up} MB");
    assert_eq!(run.audit.received, 2 * run.audit.confirmed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_always_given_back_becomes_a_dead_letter_or_the_test_fails() {
    let sound = run("verify/dlq", &[]).await;
    assert_eq!(sound.verdict, Verdict::Passed, "{:?}", sound.audit);
    assert!(sound.measure("buried").expect("how many").value > 20.0);
    fails_by(&run("verify/dlq", &[("lose-dead", "0.2")]).await, "no dead letters");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_twice_comes_once_or_the_test_fails() {
    let sound = run("verify/dedup", &[]).await;
    assert_eq!(sound.verdict, Verdict::Passed, "{:?}", sound.audit);
    assert_eq!((sound.audit.repeated, sound.audit.lost), (0, 0));
    fails_by(&run("verify/dedup", &[("take-twice", "0.1")]).await, "came twice");
}

#[tokio::test]
async fn what_a_system_does_not_have_is_a_result_too() {
    let mut context = context(&[]);
    context.faults = None;
    let chosen = &choose("verify/lossless").expect("there is such a test")[0];
    let Err(Problem::Skipped(why)) = chosen.run(&mut context).await else { panic!("it ran") };
    let run = context.not_supported(&chosen.name, why);
    assert!(run.not_supported().is_some_and(|why| why.contains("cannot be made to fail")));
    assert!(!run.counts() && run.test.asks == chosen.asks());
}
