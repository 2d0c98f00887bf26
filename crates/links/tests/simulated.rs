//! Links in a network that turmoil simulates: cuts, held packets, crashes, and much time.

mod common;

use std::sync::atomic::Ordering;
use std::time::Duration;

use base::limits::LINK_RETRY_MAX;
use common::{
    Behaviour, Node, SHARD, directory, in_ms, is_waiting, request_until_answered, send_request,
    until,
};
use links::limits::{
    LINK_APPENDS_MAX, LINK_CLOSES_WITHIN, LINK_PROGRESS_WITHIN, LINK_SILENT_AFTER,
};
use links::{
    AppendError, ConnectError, ConnectionEnd, DeathEvidence, DirectoryIdentity, Lane, Message,
    NodeId, Peer, Phase, RequestError,
};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::time::sleep;
use turmoil::{Builder, Sim};
use world::Instant;

const TICK: Duration = Duration::from_millis(200);

fn simulation(seed: u64) -> Sim<'static> {
    Builder::new()
        .rng_seed(seed)
        .simulation_duration(Duration::from_secs(600))
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(Duration::from_millis(5))
        .build()
}

/// The behaviour of a host's node, which its tests change. A host that crashed starts with the next boot.
type Shared = Arc<Mutex<(u64, Arc<Behaviour>)>>;

fn serve(sim: &mut Sim<'static>, name: &'static str, node: u64) -> Shared {
    let shared: Shared = Arc::default();
    let sharing = Arc::clone(&shared);
    sim.host(name, move || {
        let shared = Arc::clone(&sharing);
        async move {
            let boot = {
                let mut shared = shared.lock();
                shared.0 += 1;
                shared.0
            };
            let node = Node::simulated(DirectoryIdentity { boot, ..directory(node) }).await;
            shared.lock().1 = Arc::clone(&node.behaviour);
            std::future::pending::<()>().await;
            drop(node);
            Ok(())
        }
    });
    shared
}

/// A node in a client, linked to the one in the host `b`.
async fn linked() -> (Node, Peer) {
    let node = Node::simulated(directory(1)).await;
    let peer = node.links.set_peer(NodeId(2), "b:7700").expect("another node");
    request_until_answered(&peer, Lane::Control).await;
    (node, peer)
}

#[test]
fn network_cut_is_detected_by_silence_and_the_link_recovers() {
    let mut sim = simulation(1);
    serve(&mut sim, "b", 2);
    sim.client("a", async {
        let (_node, peer) = linked().await;
        let began = Instant::now();
        turmoil::partition("a", "b");
        // A request in flight has an unknown outcome at the end, not before.
        let lost = send_request(&peer, Lane::Control, "vote", 10_000).await;
        assert_eq!(lost, Err(RequestError::Ended(ConnectionEnd::Silent)));
        let silent = began.elapsed();
        assert!(silent >= LINK_SILENT_AFTER - 2 * TICK, "{silent:?}");
        assert!(silent <= LINK_SILENT_AFTER + TICK, "{silent:?}");
        let status = until(&peer, Lane::Control, |status| status.last.is_some()).await;
        // Silence is no evidence that the process is gone, whatever the result of connecting.
        assert_eq!(status.last.as_ref().map(|last| &last.end), Some(&ConnectionEnd::Silent));
        let status = until(&peer, Lane::Control, is_waiting).await;
        assert_eq!(status.sign_of_death(Instant::now() + Duration::from_secs(9)), None);
        sleep(Duration::from_secs(20)).await;
        turmoil::repair("a", "b");
        let healed = Instant::now();
        request_until_answered(&peer, Lane::Control).await;
        // One pause, and an attempt that was lost.
        assert!(healed.elapsed() <= LINK_RETRY_MAX * 3, "{:?}", healed.elapsed());
        Ok(())
    });
    sim.run().expect("ends well");
}

#[test]
fn one_way_cut_ends_the_connection_on_both_sides() {
    for (from, to) in [("a", "b"), ("b", "a")] {
        let mut sim = simulation(2);
        let shared = serve(&mut sim, "b", 2);
        sim.client("a", async move {
            let (_node, peer) = linked().await;
            let behaviour = Arc::clone(&shared.lock().1);
            behaviour.hang();
            let (mut appends, mut replies) = peer.appends(SHARD, in_ms(5_000)).await?;
            appends.send(Message::from_head("a")).await?;
            sleep(Duration::from_millis(100)).await;
            assert_eq!(behaviour.streams.load(Ordering::SeqCst), 1);
            let began = Instant::now();
            turmoil::partition_oneway(from, to);
            let ended = replies.next().await.expect("an answer");
            assert!(matches!(ended, Err(AppendError::Ended(_))), "{ended:?}");
            // The side without traffic closes. The other side receives that, or then gets no traffic either.
            assert!(began.elapsed() <= 2 * (LINK_SILENT_AFTER + TICK), "{:?}", began.elapsed());
            sleep(LINK_SILENT_AFTER * 2).await;
            assert_eq!(behaviour.streams.load(Ordering::SeqCst), 0, "cut from {from}");
            turmoil::repair_oneway(from, to);
            request_until_answered(&peer, Lane::Control).await;
            Ok(())
        });
        sim.run().expect("ends well");
    }
}

#[test]
fn briefly_held_packets_do_not_end_the_connection() {
    let mut sim = simulation(3);
    serve(&mut sim, "b", 2);
    sim.client("a", async {
        let (_node, peer) = linked().await;
        let asking = tokio::spawn({
            let peer = peer.clone();
            async move { send_request(&peer, Lane::Control, "vote", 5_000).await }
        });
        turmoil::hold("a", "b");
        sleep(Duration::from_millis(1_000)).await;
        turmoil::release("a", "b");
        assert_eq!(asking.await?.as_deref(), Ok("vote"));
        assert_eq!(peer.status(Lane::Control).last, None);
        // Longer than a link may be silent: the same as a cut.
        turmoil::hold("a", "b");
        sleep(LINK_SILENT_AFTER * 2).await;
        assert_eq!(
            peer.status(Lane::Control).last.map(|last| last.end),
            Some(ConnectionEnd::Silent)
        );
        turmoil::release("a", "b");
        request_until_answered(&peer, Lane::Control).await;
        Ok(())
    });
    sim.run().expect("ends well");
}

#[test]
fn dead_process_is_distinguished_from_a_restarted_one() {
    let mut sim = simulation(4);
    serve(&mut sim, "b", 2);
    let seen = Arc::new(Mutex::new(None::<Peer>));
    let see = Arc::clone(&seen);
    sim.client("a", async move {
        let (node, peer) = linked().await;
        *see.lock() = Some(peer.clone());
        until(&peer, Lane::Control, |status| status.last.is_some()).await;
        // The crash as the peer sees it. Turmoil drops packets to a host that is down, as for a machine without
        // power, so connections time out instead of being refused.
        let down = until(&peer, Lane::Control, is_waiting).await;
        assert!(down.last.as_ref().is_some_and(|last| last.end.is_by_peer()), "{down:?}");
        assert!(down.sign_of_death(Instant::now()).is_some(), "{down:?}");
        let unsent =
            send_request(&peer, Lane::Control, "vote", 1).await.expect_err("not connected");
        assert!(unsent.is_not_sent());
        request_until_answered(&peer, Lane::Control).await;
        let up = peer.status(Lane::Control);
        assert_eq!(up.sign_of_death(Instant::now()), Some(DeathEvidence::NewBoot), "{up:?}");
        drop(node);
        Ok(())
    });
    while seen.lock().is_none() {
        sim.step().expect("goes on");
    }
    for _ in 0..200 {
        sim.step().expect("goes on");
    }
    sim.crash("b");
    for _ in 0..4_000 {
        sim.step().expect("goes on");
    }
    sim.bounce("b");
    sim.run().expect("ends well");
}

#[test]
fn hung_appends_on_a_live_link_end_after_the_progress_timeout() {
    let mut sim = simulation(5);
    let shared = serve(&mut sim, "b", 2);
    sim.client("a", async move {
        let (_node, peer) = linked().await;
        let behaviour = Arc::clone(&shared.lock().1);
        behaviour.hang();
        let (mut appends, mut replies) = peer.appends(SHARD, in_ms(5_000)).await?;
        let began = Instant::now();
        for _ in 0..LINK_APPENDS_MAX {
            appends.send(Message::from_head("a")).await?;
        }
        // Another shard continues meanwhile.
        let other = base::ShardId(9);
        behaviour.resume();
        for _ in 0..LINK_APPENDS_MAX {
            replies.next().await.expect("an answer")?;
        }
        behaviour.hang();
        let last = Instant::now();
        appends.send(Message::from_head("a")).await?;
        assert_eq!(replies.next().await.map(|it| it.map(drop)), Some(Err(AppendError::Stalled)));
        assert!(last.elapsed() >= LINK_PROGRESS_WITHIN, "{:?}", began.elapsed());
        assert!(last.elapsed() <= LINK_PROGRESS_WITHIN + 2 * TICK, "{:?}", last.elapsed());
        assert_eq!(appends.send(Message::from_head("a")).await, Err(AppendError::Stalled));
        // The link itself is up, and the follower has dropped the hung appends.
        assert_eq!(peer.status(Lane::Replication).last, None);
        sleep(Duration::from_millis(100)).await;
        assert_eq!(behaviour.streams.load(Ordering::SeqCst), 0);
        behaviour.resume();
        let (mut appends, mut replies) = peer.appends(other, in_ms(5_000)).await?;
        appends.send(Message::from_head("a")).await?;
        replies.next().await.expect("an answer")?;
        Ok(())
    });
    sim.run().expect("ends well");
}

#[test]
fn link_survives_a_long_idle_time() {
    let mut sim = simulation(6);
    serve(&mut sim, "b", 2);
    sim.client("a", async {
        let (_node, peer) = linked().await;
        request_until_answered(&peer, Lane::Proxy).await;
        sleep(Duration::from_secs(120)).await;
        for lane in [Lane::Control, Lane::Proxy] {
            assert_eq!(peer.status(lane).last, None);
            assert_eq!(send_request(&peer, lane, "vote", 100).await.as_deref(), Ok("vote"));
        }
        // The other lanes were not requested.
        assert_eq!(peer.status(Lane::Bulk).phase, Phase::Idle);
        Ok(())
    });
    sim.run().expect("ends well");
}

#[test]
fn orderly_close_is_reported_to_the_peer() {
    let mut sim = simulation(7);
    sim.host("b", || async {
        let node = Node::simulated(directory(2)).await;
        sleep(Duration::from_secs(3)).await;
        let began = Instant::now();
        node.links.close().await;
        assert!(began.elapsed() < LINK_CLOSES_WITHIN, "{:?}", began.elapsed());
        std::future::pending::<()>().await;
        Ok(())
    });
    sim.client("a", async {
        let (node, peer) = linked().await;
        let status = until(&peer, Lane::Control, is_waiting).await;
        assert_eq!(status.last.as_ref().map(|last| &last.end), Some(&ConnectionEnd::Left));
        assert!(
            matches!(status.phase, Phase::Waiting { error: ConnectError::NobodyListens, .. }),
            "{status:?}"
        );
        assert_eq!(status.sign_of_death(Instant::now()), Some(DeathEvidence::NobodyListens));
        node.links.close().await;
        assert_eq!(send_request(&peer, Lane::Control, "vote", 10).await, Err(RequestError::Gone));
        Ok(())
    });
    sim.run().expect("ends well");
}

#[test]
fn changed_address_is_used_at_once() {
    let mut sim = simulation(8);
    serve(&mut sim, "b", 2);
    sim.client("a", async {
        let node = Node::simulated(directory(1)).await;
        let peer = node.links.set_peer(NodeId(2), "b:1").expect("another node");
        until(&peer, Lane::Control, is_waiting).await;
        sleep(Duration::from_secs(10)).await;
        let began = Instant::now();
        node.links.set_peer(NodeId(2), "b:7700");
        while send_request(&peer, Lane::Control, "vote", 500).await.is_err() {
            sleep(Duration::from_millis(1)).await;
        }
        assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
        Ok(())
    });
    sim.run().expect("ends well");
}

#[test]
fn node_that_connects_is_connected_at_once() {
    for seed in 0..10 {
        let mut sim = simulation(seed);
        let started: Arc<Mutex<Option<Instant>>> = Arc::default();
        let starts = Arc::clone(&started);
        sim.client("b", async move {
            // Long enough for the pauses of the other node to have grown.
            sleep(Duration::from_secs(8)).await;
            let node = Node::simulated(directory(2)).await;
            let peer = node.links.set_peer(NodeId(1), "a:7700").expect("another node");
            request_until_answered(&peer, Lane::Control).await;
            *starts.lock() = Some(Instant::now());
            sleep(LINK_RETRY_MAX * 3).await;
            Ok(())
        });
        sim.client("a", async move {
            let node = Node::simulated(directory(1)).await;
            let peer = node.links.set_peer(NodeId(2), "b:7700").expect("another node");
            until(&peer, Lane::Control, |it| matches!(it.phase, Phase::Connected { .. })).await;
            let connected = Instant::now();
            let started = started.lock().unwrap_or(connected);
            let waited = connected.saturating_duration_since(started);
            assert!(waited < Duration::from_millis(50), "seed {seed}: {waited:?}");
            // The other node still waits for its answer.
            sleep(LINK_RETRY_MAX * 3).await;
            Ok(())
        });
        sim.run().expect("ends well");
    }
}

#[test]
fn same_seed_repeats_the_run() {
    let run = |seed| {
        let trace = Arc::new(Mutex::new(Vec::new()));
        let mut sim = simulation(seed);
        serve(&mut sim, "b", 2);
        let tracing = Arc::clone(&trace);
        sim.client("a", async move {
            let (_node, peer) = linked().await;
            for round in 0..6 {
                if round % 2 == 0 {
                    turmoil::partition("a", "b");
                } else {
                    turmoil::repair("a", "b");
                }
                for _ in 0..20 {
                    let asked = send_request(&peer, Lane::Control, "vote", 250).await;
                    tracing.lock().push((turmoil::sim_elapsed(), format!("{asked:?}")));
                    sleep(Duration::from_millis(50)).await;
                }
            }
            Ok(())
        });
        sim.run().expect("ends well");
        std::mem::take(&mut *trace.lock())
    };
    assert_eq!(run(9), run(9));
    assert_ne!(run(9), run(10));
}
