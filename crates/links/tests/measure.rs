//! The cost of a link on loopback: `cargo test --release -p links --test measure -- --ignored --nocapture`.

mod common;

use std::net::SocketAddr;

use bytes::Bytes;
use common::{Node, OPEN, SHARD, directory, in_ms, request_until_answered};
use links::{Lane, Message, Security, Tls};
use world::{Instant, World};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn round_trips_and_throughput() {
    println!("without TLS");
    measure(OPEN).await;
    println!("with TLS");
    measure(Security::Tls(Tls::from_secret(&[1; 32]).expect("long enough"))).await;
}

async fn measure(security: Security) {
    let start = |number| {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        Node::start_with(World::real(), directory(number), listen, security.clone())
    };
    let (one, other) = (start(1).await, start(2).await);
    let peer = one.peer_of(&other);
    request_until_answered(&peer, Lane::Control).await;
    let mut taken = Vec::new();
    for _ in 0..50_000 {
        let began = Instant::now();
        let message = Message::from_head(Bytes::from_static(&[1; 64]));
        peer.request(Lane::Control, SHARD, message, in_ms(1_000)).await.expect("answered");
        taken.push(began.elapsed());
    }
    taken.sort_unstable();
    let at = |part: usize| taken[taken.len() * part / 1_000];
    println!("64 bytes, one at a time: p50 {:?}, p99 {:?}, p999 {:?}", at(500), at(990), at(999));

    let began = Instant::now();
    let mut asking = Vec::new();
    for _ in 0..32 {
        let peer = peer.clone();
        asking.push(tokio::spawn(async move {
            for _ in 0..5_000 {
                let message = Message::from_head(Bytes::from_static(&[1; 64]));
                let answer = peer.request(Lane::Control, SHARD, message, in_ms(1_000)).await;
                answer.expect("answered");
            }
        }));
    }
    for asks in asking {
        asks.await.expect("no panic");
    }
    println!("64 bytes, 32 at a time: {:.0} a second", 160_000.0 / began.elapsed().as_secs_f64());

    let (mut appends, mut replies) = peer.appends(SHARD, in_ms(5_000)).await.expect("connected");
    let body = Bytes::from(vec![7; 1 << 20]);
    let count = 4_000;
    let began = Instant::now();
    let sending = async {
        for _ in 0..count {
            let message = Message { head: Bytes::from_static(b"head"), body: vec![body.clone()] };
            appends.send(message).await.expect("sent");
        }
    };
    let taking = async {
        for _ in 0..count {
            replies.next().await.expect("an answer").expect("no error");
        }
    };
    tokio::join!(sending, taking);
    let seconds = began.elapsed().as_secs_f64();
    println!("appends of 1 MiB: {:.0} MB/s", f64::from(count) * 1.048_576 / seconds);
}
