//! The injected faults of the broker in memory take effect: tests of the audits rely on this.

use bytes::Bytes;
use driver::{Failure, Message, Settle, Style, Target, Tier, Topology};
use drivers::MemoryBroker;

/// Sends `count` messages of one lane with the fault, and returns the bodies in the order of their
/// arrival, all settled.
async fn received_with(fault: &str, value: &str, count: u32) -> Vec<u32> {
    let mut target = Target::of("memory");
    target.settings.insert(fault.into(), value.into());
    let driver = drivers::connect(&target).expect("connects");
    let topology = Topology { ordered: true, ..Topology::new("lies", Style::Queue, Tier::T0) };
    driver.create(&topology).await.expect("creates");
    let mut sender = driver.sender(&topology).await.expect("a sender");
    for number in 0..count {
        let body = Bytes::from(number.to_string());
        sender.send(0, &[Message { lane: 0, body }]).await.expect("it says that it was sent");
    }
    let mut receiver = driver.receiver(&topology, &[0], 0).await.expect("a receiver");
    let mut numbers = Vec::new();
    loop {
        let came = receiver.receive(10).await.expect("receives");
        if came.is_empty() {
            return numbers;
        }
        for received in came {
            numbers.push(String::from_utf8_lossy(&received.body).parse().expect("a number"));
            receiver.settle(&[(received.id, Settle::Accept)]).await.expect("settles");
        }
    }
}

#[tokio::test]
async fn lose_drops_confirmed_messages() {
    let numbers = received_with("lose", "0.1", 500).await;
    assert!((400..490).contains(&numbers.len()), "{}", numbers.len());
}

#[tokio::test]
async fn duplicate_delivers_twice() {
    let mut numbers = received_with("duplicate", "0.1", 500).await;
    assert!(numbers.len() > 510, "{}", numbers.len());
    numbers.dedup();
    assert_eq!(numbers.len(), 500);
}

#[tokio::test]
async fn reorder_changes_the_order() {
    let mut numbers = received_with("reorder", "0.1", 500).await;
    assert!(!numbers.is_sorted());
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..500));
}

#[tokio::test]
async fn return_settled_redelivers_settled_messages() {
    let mut numbers = received_with("return-settled", "0.1", 500).await;
    assert!(numbers.len() > 510, "{}", numbers.len());
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 500);
}

#[tokio::test]
async fn without_a_fault_delivery_is_exact() {
    let numbers = received_with("seed", "7", 500).await;
    assert!(numbers.into_iter().eq(0..500));
}

#[tokio::test]
async fn clients_must_reconnect_after_a_kill() {
    let mut target = Target::of("memory");
    target.endpoints.push("memory://killed".into());
    target.settings.insert("crash-loses".into(), "1".into());
    let (driver, broker) =
        (drivers::connect(&target).expect("connects"), MemoryBroker::at("killed"));
    let topology = Topology::new("killed", Style::Queue, Tier::T0);
    driver.create(&topology).await.expect("creates");
    let mut sender = driver.sender(&topology).await.expect("a sender");
    let mut receiver = driver.receiver(&topology, &[0], 0).await.expect("a receiver");
    let message =
        |body: &'static str| Message { lane: 0, body: Bytes::from_static(body.as_bytes()) };
    sender.send(0, &[message("kept"), message("forgotten")]).await.expect("is confirmed");
    broker.kill();
    assert!(matches!(driver.sender(&topology).await, Err(Failure::Unreachable { .. })));
    broker.start();
    assert!(matches!(sender.send(0, &[message("lost")]).await, Err(Failure::Unknown(_))));
    assert!(matches!(receiver.receive(1).await, Err(Failure::Unknown(_))));
    let mut receiver = driver.receiver(&topology, &[0], 0).await.expect("a receiver");
    let came = receiver.receive(10).await.expect("receives");
    assert_eq!(came.iter().map(|it| &it.body[..]).collect::<Vec<_>>(), [b"kept"]);
    assert!(receiver.receive(10).await.expect("receives").is_empty());
}
