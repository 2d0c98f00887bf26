//! With any network faults, replies belong to their requests, appends arrive in order, once per stream, and in the
//! end everything continues.

mod common;

use std::sync::Arc;
use std::time::Duration;

use base::limits::LINK_RETRY_MAX;
use common::{Node, SHARD, directory, in_ms, request_until_answered, send_request};
use links::limits::LINK_SILENT_AFTER;
use links::{Lane, Message, NodeId, Peer};
use tokio::time::{sleep, timeout};
use turmoil::Builder;
use world::{Entropy, Instant, SeededEntropy};

const FAULTS: usize = 12;

async fn disturb(entropy: Arc<dyn Entropy>) {
    for _ in 0..FAULTS {
        sleep(Duration::from_millis(u64::from(entropy.u32() % 2_000))).await;
        match entropy.u32() % 4 {
            0 => turmoil::partition("a", "b"),
            1 => turmoil::partition_oneway("a", "b"),
            2 => turmoil::partition_oneway("b", "a"),
            _ => turmoil::hold("a", "b"),
        }
        sleep(Duration::from_millis(u64::from(entropy.u32() % 4_000))).await;
        turmoil::release("a", "b");
        turmoil::repair_oneway("a", "b");
        turmoil::repair_oneway("b", "a");
        turmoil::repair("a", "b");
    }
}

/// Sends requests without end; each reply has to belong to its request.
async fn request_continuously(peer: Peer, lane: Lane) {
    for number in 0.. {
        let head = format!("{} {number}", lane.name());
        if let Ok(answer) = send_request(&peer, lane, &head, 700).await {
            assert_eq!(answer, head);
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Appends without end; each reply has to belong to the next append of its stream.
async fn append_on(peer: Peer) {
    loop {
        let Ok((mut appends, mut replies)) = peer.appends(SHARD, in_ms(1_000)).await else {
            sleep(Duration::from_millis(20)).await;
            continue;
        };
        let sending = async move {
            for number in 0.. {
                let message =
                    Message { head: number.to_string().into(), body: vec![vec![7; 3_000].into()] };
                if appends.send(message).await.is_err() {
                    return;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        let taking = async move {
            for number in 0.. {
                match replies.next().await {
                    Some(Ok(reply)) => assert_eq!(reply.head[..], *number.to_string().as_bytes()),
                    Some(Err(_)) => {}
                    None => return,
                }
            }
        };
        tokio::join!(sending, taking);
    }
}

fn run(seed: u64) {
    let mut sim = Builder::new()
        .rng_seed(seed)
        .simulation_duration(Duration::from_secs(600))
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(Duration::from_millis(20))
        .build();
    sim.host("b", || async {
        let _node = Node::simulated(directory(2)).await;
        std::future::pending::<()>().await;
        Ok(())
    });
    sim.client("a", async move {
        let node = Node::simulated(directory(1)).await;
        let peer = node.links.set_peer(NodeId(2), "b:7700").expect("another node");
        let load = async {
            let (control, proxy) = (peer.clone(), peer.clone());
            tokio::join!(
                request_continuously(control, Lane::Control),
                request_continuously(proxy, Lane::Proxy),
                append_on(peer.clone()),
            );
        };
        tokio::select! {
            biased;
            () = disturb(Arc::new(SeededEntropy::new(seed))) => {}
            () = load => {}
        }
        // Both ends may have to detect it, and then connect.
        let healed = Instant::now();
        for lane in [Lane::Control, Lane::Proxy, Lane::Replication] {
            request_until_answered(&peer, lane).await;
        }
        assert!(healed.elapsed() <= (LINK_SILENT_AFTER + LINK_RETRY_MAX) * 2, "{healed:?}");
        let (mut appends, mut replies) = peer.appends(SHARD, in_ms(5_000)).await?;
        appends.send(Message::from_head("0")).await?;
        let reply = timeout(Duration::from_secs(1), replies.next()).await?.expect("an answer")?;
        assert_eq!(&reply.head[..], b"0");
        Ok(())
    });
    if let Err(error) = sim.run() {
        panic!("seed {seed}: {error}");
    }
}

#[test]
fn replies_match_their_requests_under_network_faults_and_links_recover() {
    for seed in 0..40 {
        run(seed);
    }
}
