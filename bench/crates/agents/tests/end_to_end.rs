//! Runs tests on one broker with agents and a coordinator. The broker is in memory, so the agents
//! are tasks of this process. They talk to the coordinator over real connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use agents::{Coordinator, Server};
use driver::{Target, Tier};
use load::Observer;
use results::{Mark, Run, Second, Verdict};
use tokio::task::{AbortHandle, JoinHandle};
use workloads::{Context, Form, Problem, choose};

const TOKEN: &str = "open sesame";

/// Agents that end when they are dropped.
struct Party {
    addresses: Vec<String>,
    agents: Vec<JoinHandle<()>>,
    target: Target,
}

impl Drop for Party {
    fn drop(&mut self) {
        self.agents.iter().for_each(JoinHandle::abort);
    }
}

async fn party(agents: usize, settings: &[(&str, &str)]) -> Party {
    static BROKERS: AtomicU32 = AtomicU32::new(0);
    let mut target = Target::of("memory");
    // Each party has its own broker.
    target.endpoints.push(format!("memory://{}", BROKERS.fetch_add(1, Ordering::Relaxed)));
    for (name, value) in settings {
        target.settings.insert((*name).to_owned(), (*value).to_owned());
    }
    let mut party = Party { addresses: Vec::new(), agents: Vec::new(), target };
    for _ in 0..agents {
        let server = Server::bind("127.0.0.1:0", Some(TOKEN.to_owned()), drivers::connect).await;
        let server = server.expect("listens");
        party.addresses.push(server.address().to_string());
        party.agents.push(tokio::spawn(server.serve()));
    }
    party
}

impl Party {
    fn context(&self) -> Context {
        let driver = drivers::connect(&self.target).expect("takes these settings");
        let mut context = Context::new(driver, "1".to_owned(), Tier::T0, Form::Quick);
        let (addresses, token) = (self.addresses.clone(), Some(TOKEN.to_owned()));
        context.recruiter = Arc::new(Coordinator::new(addresses, token, self.target.clone()));
        context
    }

    async fn run(&self, test: &str) -> Result<Run, Problem> {
        let chosen = choose(test).expect("there is such a test");
        chosen[0].run(&mut self.context()).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_agents_carry_a_load_with_one_account() {
    let party = party(2, &[]).await;
    for test in ["mqperf/mid", "lowlat/size-1024", "queen/cg-5", "queen/pipeline-ordered"] {
        let run = party.run(test).await.expect("it runs");
        assert_eq!(run.verdict, Verdict::Passed, "{test}: {:?}", run.audit);
        assert!(run.audit.confirmed > 100, "{test}: {:?}", run.audit);
        let of_each = run.audit.received / run.audit.confirmed;
        let subscriptions = run.test.parameters["subscriptions"].as_u64().expect("a number");
        assert_eq!(of_each, subscriptions, "{test}");
        assert!(!run.seconds.is_empty() && run.latencies["receive"].count() > 100, "{test}");
        assert!(run.latencies["send"].count() > 100, "{test}");
        // Agents with receivers come first, as in OpenMessaging Benchmark.
        let shares: Vec<_> = run.agents.iter().map(|it| (it.senders, it.receivers)).collect();
        let senders = run.test.parameters["senders"].as_u64().expect("a number") as u32;
        assert!(matches!(shares[..], [(0, 1..), (sending, 0)] if sending == senders), "{shares:?}");
        for agent in &run.agents {
            let end = agent.clock_at_end.expect("it was there");
            // All agents run on this machine, so their clocks agree.
            let wrong = end.ahead_us.abs() - end.uncertainty_us;
            assert!(wrong < 0.01 && agent.clock.uncertainty_us > 0.0, "{agent:?}");
        }
        assert!(run.processes.iter().any(|process| process.name == "agent 2"), "{test}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_agents_keep_order_and_agree_on_redeliveries() {
    let party = party(4, &[]).await;
    for test in ["verify/order", "verify/release", "verify/dlq", "verify/dedup"] {
        let run = party.run(test).await.expect("it runs");
        assert_eq!(run.verdict, Verdict::Passed, "{test}: {:?}", run.audit);
        assert!(run.agents.iter().all(|agent| agent.senders + agent.receivers > 0), "{test}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_lost_between_two_agents_fails_the_run() {
    let run = party(2, &[("lose", "0.01")]).await.run("mqperf/mid").await.expect("it runs");
    fails_by(&run, "never received");
    assert!(run.audit.lost > 0 && run.audit.findings.iter().any(|it| it.kind == "lost"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audit_finds_each_fault_across_agents() {
    for (fault, test, what) in [
        (("reorder", "0.05"), "verify/order", "out of order"),
        (("duplicate", "0.01"), "mqperf/mid", "twice"),
        (("return-settled", "0.01"), "mqperf/mid", "settle was confirmed"),
        (("damage", "0.01"), "mqperf/mid", "not what was sent"),
    ] {
        fails_by(&party(4, &[fault]).await.run(test).await.expect("it runs"), what);
    }
}

fn fails_by(run: &Run, what: &str) {
    let Verdict::Failed(faults) = &run.verdict else {
        panic!("{} passed: {:?}", run.test.name, run.audit)
    };
    assert!(faults.iter().any(|fault| fault.contains(what)), "{faults:?}");
}

/// Ends an agent after one second of load.
struct Killer(AbortHandle);

impl Observer for Killer {
    fn second(&mut self, _: &Second, _: &str, _: Duration, _: Duration) {
        self.0.abort();
    }

    fn mark(&mut self, _: &Mark) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_agent_ends_the_run_and_is_named() {
    let party = party(2, &[]).await;
    let dies = party.agents[1].abort_handle();
    let mut context = party.context();
    context.watch = Box::new(move |_| Box::new(Killer(dies.clone())));
    let chosen = choose("verify/release").expect("there is such a test");
    let run = chosen[0].run(&mut context).await.expect("what there was is a result");
    let Verdict::Interrupted(why) = &run.verdict else { panic!("{:?}", run.verdict) };
    assert!(why.contains(&party.addresses[1]) && why.contains("s after the start"), "{why}");
    assert!(run.audit.confirmed > 0 && run.audit.lost == 0, "{:?}", run.audit);
    assert!(run.marks.iter().any(|mark| mark.what.contains(&party.addresses[1])));
    assert!(run.agents[0].clock_at_end.is_some() && run.agents[1].clock_at_end.is_none());
}

#[tokio::test]
async fn system_unusable_by_an_agent_is_reported_in_one_line() {
    let mut party = party(2, &[]).await;
    let context = &mut party.context();
    party.target.endpoints = vec!["memory://another".to_owned()];
    let (addresses, token) = (party.addresses.clone(), Some(TOKEN.to_owned()));
    context.recruiter = Arc::new(Coordinator::new(addresses, token, party.target.clone()));
    let chosen = choose("mqperf/base").expect("there is such a test");
    let problem = chosen[0].run(context).await.expect_err("that broker has no such queue");
    let said = problem.to_string();
    assert!(said.starts_with("agent 127.0.0.1:") && said.contains("nothing was created"), "{said}");
    assert_eq!(said.lines().count(), 1);
}

#[tokio::test]
async fn ping_pong_is_not_split_over_agents() {
    let problem = party(2, &[]).await.run("lowlat/ping-pong").await.expect_err("is refused");
    assert!(problem.to_string().ends_with("run it without --agents"), "{problem}");
}
