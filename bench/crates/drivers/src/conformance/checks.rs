//! The scenarios.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use driver::{
    Confirmed, DeliveryId, Failure, Lanes, Message, RECEIVE_WAIT, Receipt, Received, Receiver,
    Return, Settle, Style, Target,
};
use parking_lot::Mutex;

use super::scene::{
    GRACE, LEASE, Scene, Stage, accept, consume_within, message, messages, nothing_comes,
    same_bodies, take, take_by_any, take_within,
};
use super::{Story, skip, wrong};
use crate::connect;
use crate::pending::Together;
use crate::systems::SERVERLESS;

/// An unused port: a broker would need a privilege to listen there.
const NOBODY: &str = "127.0.0.1:1";
/// Largest body that all systems accept by default (SQS: 256 KiB with its attributes).
const LARGE_BYTES: usize = 200_000;

pub(super) async fn unknown_settings_are_refused(target: &Target) -> Story {
    let mut target = target.clone();
    target.settings.insert("no-such-setting".into(), "1".into());
    match connect(&target) {
        Err(Failure::Setting { name, .. }) if name == "no-such-setting" => Ok(()),
        Err(other) => wrong(format!("another error: {other}")),
        Ok(_) => wrong("it was accepted"),
    }
}

pub(super) async fn unreachable_server_is_an_error(target: &Target) -> Story {
    if SERVERLESS.contains(&target.system.as_str()) {
        return Err(super::Fault::NoSuchThing(format!("{} has no server", target.system)));
    }
    let mut target = target.clone();
    let was = target.endpoints.first().map_or("", String::as_str);
    // Keeps the scheme of a URL.
    let scheme = was.split_once("://").map_or(String::new(), |(scheme, _)| format!("{scheme}://"));
    target.endpoints = vec![format!("{scheme}{NOBODY}")];
    if target.system == crate::memory::SYSTEM {
        target.endpoints = vec![NOBODY.into()];
    }
    let version = match connect(&target) {
        Ok(driver) => driver.version().await,
        Err(failure) => Err(failure),
    };
    match version {
        Err(Failure::Unreachable { .. }) => Ok(()),
        Err(other) => wrong(format!("not called unreachable: {other}")),
        Ok(version) => wrong(format!("version {version} answered where nobody is")),
    }
}

pub(super) async fn wrong_password_is_an_error(target: &Target) -> Story {
    if target.password.is_none() {
        return Err(super::Fault::NoSuchThing("the target has no password".into()));
    }
    let with = |user: Option<&String>, password: Option<&str>| {
        let mut target = target.clone();
        (target.user, target.password) = (user.cloned(), password.map(str::to_owned));
        async move { connect(&target)?.version().await }
    };
    match with(target.user.as_ref(), Some("certainly-not-this-one")).await {
        Err(Failure::NotAllowed { .. }) => Ok(()),
        Err(other) => wrong(format!("not called not allowed: {other}")),
        Ok(_) if with(None, None).await.is_ok() => {
            Err(super::Fault::NoSuchThing("the server lets anyone in".into()))
        }
        Ok(_) => wrong("the server let it in"),
    }
}

/// Connects a receiver; it already listens on systems that drop messages without a receiver.
async fn with_receiver(stage: &Stage) -> Result<Box<dyn Receiver>, super::Fault> {
    let receiver = stage.receiver(0).await?;
    let mut listening = [receiver];
    if stage.forgets() {
        stage.gather_receivers(&mut listening).await?;
    }
    let [receiver] = listening;
    Ok(receiver)
}

pub(super) async fn sent_messages_are_received(scene: Scene) -> Story {
    let stage = scene.open().await?;
    let mut receiver = with_receiver(&stage).await?;
    let mut sender = stage.sender().await?;
    // Mosquitto sends at most 20 unacknowledged messages.
    let sent = messages("sent", 20);
    sender.send(0, &sent[..1]).await?;
    sender.send(0, &sent[1..]).await?;
    let came = take(&mut receiver, sent.len()).await?;
    same_bodies(&came, &sent)?;
    if let Some(marked) = came.iter().find(|received| received.redelivered == Some(true)) {
        return wrong(format!("{:?} is marked as redelivered at once", marked.body));
    }
    accept(&mut receiver, &came).await?;
    sender.close().await?;
    receiver.close().await?;
    stage.end().await
}

pub(super) async fn bodies_arrive_intact(scene: Scene) -> Story {
    let stage = scene.open().await?;
    let mut receiver = with_receiver(&stage).await?;
    let mut sender = stage.sender().await?;
    let large: Vec<u8> = (0..LARGE_BYTES).map(|place| (place * 7 % 251) as u8).collect();
    let bodies = [Bytes::from(large), Bytes::from_static(b"\0\xff\r\n\"'\\"), Bytes::from("x")];
    let sent: Vec<Message> = bodies.into_iter().map(|body| Message { lane: 0, body }).collect();
    sender.send(0, &sent).await?;
    let came = take(&mut receiver, sent.len()).await?;
    same_bodies(&came, &sent)?;
    accept(&mut receiver, &came).await?;
    sender.close().await?;
    receiver.close().await?;
    stage.end().await
}

pub(super) async fn posted_messages_are_confirmed(scene: Scene) -> Story {
    const COUNT: usize = 2_500;
    let stage = scene.open().await?;
    let mut receiver = with_receiver(&stage).await?;
    let mut sender = stage.sender().await?;
    let sent = messages("posted", COUNT);
    let together = Together::of(COUNT);
    let posting = async {
        for (number, message) in sent.iter().enumerate() {
            let account: Arc<dyn Confirmed> = Arc::clone(&together) as _;
            sender.post(0, message.clone(), Receipt::new(account, number as u64)).await;
        }
        sender.flush().await?;
        together.wait().await?;
        Ok::<_, super::Fault>(())
    };
    let receiving = async {
        let deadline = Instant::now() + Duration::from_secs(45);
        let mut came = Vec::new();
        while came.len() < COUNT {
            let some = receiver.receive(COUNT - came.len()).await?;
            accept(&mut receiver, &some).await?;
            came.extend(some);
            if Instant::now() > deadline {
                return wrong(format!("{} of {COUNT} came", came.len()));
            }
        }
        Ok(came)
    };
    let (posted, came) = tokio::join!(posting, receiving);
    posted?;
    same_bodies(&came?, &sent)?;
    sender.close().await?;
    receiver.close().await?;
    stage.end().await
}

pub(super) async fn received_messages_are_hidden(scene: Scene) -> Story {
    const COUNT: usize = 20;
    let stage = scene.open().await?;
    let mut receivers = [stage.receiver(0).await?, stage.receiver(0).await?];
    stage.gather_receivers(&mut receivers).await?;
    let mut sender = stage.sender().await?;
    let sent = messages("hidden", COUNT);
    sender.send(0, &sent).await?;
    let [mut one, mut other] = receivers;
    // Nothing is settled, so a duplicate was not hidden. The wait is shorter than a lease.
    let deadline = Instant::now() + LEASE * 2 / 3;
    let (mut to_one, mut to_other): (Vec<Received>, Vec<Received>) = (Vec::new(), Vec::new());
    let mut quiet = 0;
    while quiet < 1 && Instant::now() < deadline {
        let (first, second) = tokio::join!(one.receive(100), other.receive(100));
        let (first, second) = (first?, second?);
        quiet = if first.is_empty() && second.is_empty() { quiet + 1 } else { 0 };
        to_one.extend(first);
        to_other.extend(second);
    }
    same_bodies(to_one.iter().chain(&to_other), &sent)?;
    accept(&mut one, &to_one).await?;
    accept(&mut other, &to_other).await?;
    sender.close().await?;
    one.close().await?;
    other.close().await?;
    stage.end().await
}

pub(super) async fn settled_messages_are_gone(scene: Scene) -> Story {
    if scene.about.returns == Return::Never {
        return skip(&scene.about, "settling");
    }
    let stage = scene.open().await?;
    let mut sender = stage.sender().await?;
    sender.send(0, &messages("settled", 10)).await?;
    let mut receiver = stage.receiver(0).await?;
    let came = take(&mut receiver, 10).await?;
    accept(&mut receiver, &came).await?;
    receiver.close().await?;
    let mut another = stage.receiver(0).await?;
    nothing_comes(&mut another, LEASE + Duration::from_secs(2)).await?;
    // A new message proves that the receiver would have received the old ones.
    sender.send(0, &messages("new", 1)).await?;
    let came = take(&mut another, 1).await?;
    same_bodies(&came, &messages("new", 1))?;
    accept(&mut another, &came).await?;
    sender.close().await?;
    another.close().await?;
    stage.end().await
}

pub(super) async fn released_messages_are_redelivered(scene: Scene) -> Story {
    if scene.about.returns == Return::Never {
        return skip(&scene.about, "releasing");
    }
    let stage = scene.open().await?;
    let mut sender = stage.sender().await?;
    let sent = messages("released", 5);
    sender.send(0, &sent).await?;
    let mut receiver = stage.receiver(0).await?;
    let came = take(&mut receiver, 5).await?;
    let settle = |(number, received): (usize, &Received)| {
        (received.id, if number == 2 { Settle::Release } else { Settle::Accept })
    };
    let settles: Vec<(DeliveryId, Settle)> = came.iter().enumerate().map(settle).collect();
    receiver.settle(&settles).await?;
    let again = take_within(&mut receiver, 1, LEASE + GRACE).await?;
    if again[0].body != came[2].body {
        return wrong(format!("{:?} came again, not {:?}", again[0].body, came[2].body));
    }
    is_marked(&stage, &again)?;
    accept(&mut receiver, &again).await?;
    nothing_comes(&mut receiver, LEASE + Duration::from_secs(1)).await?;
    sender.close().await?;
    receiver.close().await?;
    stage.end().await
}

fn is_marked(stage: &Stage, again: &[Received]) -> Story {
    let told = |received: &&Received| received.redelivered == Some(true);
    if stage.scene.about.tells_redelivery && again.iter().filter(told).count() != again.len() {
        return wrong("what came again is not marked as redelivered");
    }
    Ok(())
}

pub(super) async fn closed_receiver_returns_its_messages(scene: Scene) -> Story {
    let wait = match scene.about.returns {
        Return::Never => return skip(&scene.about, "redelivery"),
        Return::Lease => LEASE + GRACE,
        Return::Connection | Return::LeaseOrConnection => GRACE,
    };
    let stage = scene.open().await?;
    let mut sender = stage.sender().await?;
    let sent = messages("given-back", 8);
    sender.send(0, &sent).await?;
    let mut receiver = stage.receiver(0).await?;
    let came = take(&mut receiver, 8).await?;
    accept(&mut receiver, &came[..3]).await?;
    let open: Vec<Message> =
        came[3..].iter().map(|received| Message { lane: 0, body: received.body.clone() }).collect();
    receiver.close().await?;
    let mut another = stage.receiver(0).await?;
    let again = take_within(&mut another, 5, wait).await?;
    same_bodies(&again, &open)?;
    is_marked(&stage, &again)?;
    accept(&mut another, &again).await?;
    sender.close().await?;
    another.close().await?;
    stage.end().await
}

pub(super) async fn waiting_receive_is_cancellable(scene: Scene) -> Story {
    let stage = scene.open().await?;
    let mut waiting = [stage.receiver(0).await?];
    stage.gather_receivers(&mut waiting).await?;
    let [mut receiver] = waiting;
    if let Ok(came) = tokio::time::timeout(RECEIVE_WAIT / 4, receiver.receive(10)).await {
        same_bodies(&came?, &[])?;
    }
    receiver.close().await?;
    let mut another = with_receiver(&stage).await?;
    let mut sender = stage.sender().await?;
    let sent = messages("later", 5);
    sender.send(0, &sent).await?;
    // The cancelled receive may have leased some of them.
    let came = take_within(&mut another, sent.len(), LEASE + GRACE).await?;
    same_bodies(&came, &sent)?;
    accept(&mut another, &came).await?;
    sender.close().await?;
    another.close().await?;
    stage.end().await
}

pub(super) async fn expired_lease_redelivers(scene: Scene) -> Story {
    if !matches!(scene.about.returns, Return::Lease | Return::LeaseOrConnection)
        || scene.topology.style == Style::Log && scene.about.lanes != Lanes::Unordered
    {
        return skip(&scene.about, "lease by time");
    }
    let stage = scene.open().await?;
    let mut sender = stage.sender().await?;
    let sent = messages("leased", 3);
    sender.send(0, &sent).await?;
    let mut holder = stage.receiver(0).await?;
    let held = take(&mut holder, 3).await?;
    same_bodies(&held, &sent)?;
    let mut receivers = [holder, stage.receiver(0).await?];
    // A redelivered record goes to the current owner of its partition.
    let takers = if stage.scene.about.lanes == Lanes::Partitioned { 0.. } else { 1.. };
    let takers = &mut receivers[takers];
    let again = take_by_any(takers, 3, LEASE + GRACE).await?;
    same_bodies(again.iter().flatten(), &sent)?;
    for (taker, again) in takers.iter_mut().zip(&again) {
        is_marked(&stage, again)?;
        accept(taker, again).await?;
    }
    sender.close().await?;
    for receiver in receivers {
        receiver.close().await?;
    }
    stage.end().await
}

pub(super) async fn lanes_are_in_order(mut scene: Scene) -> Story {
    const LANES: u32 = 5;
    const EACH: u32 = 100;
    let receivers = match scene.about.lanes {
        Lanes::Unordered => return skip(&scene.about, "order"),
        Lanes::Ordered | Lanes::Partitioned => 2,
        Lanes::Single => 1,
    };
    scene.topology.ordered = true;
    scene.topology.partitions = if scene.about.lanes == Lanes::Partitioned { 4 } else { 1 };
    let stage = scene.open().await?;
    let mut all = Vec::new();
    for _ in 0..receivers {
        all.push(stage.receiver(0).await?);
    }
    stage.gather_receivers(&mut all).await?;
    let mut sender = stage.sender().await?;
    let total = (LANES * EACH) as usize;
    let together = Together::of(total);
    for number in 0..EACH {
        for lane in 0..LANES {
            let account: Arc<dyn Confirmed> = Arc::clone(&together) as _;
            let receipt = Receipt::new(account, u64::from(number));
            sender.post(0, message(lane, format!("{lane}:{number}")), receipt).await;
        }
    }
    sender.flush().await?;
    together.wait().await?;
    let arrived = Mutex::new(Arrived::default());
    let loops = all.iter_mut().map(|receiver| receive_in_order(receiver, &arrived, total));
    futures_util::future::try_join_all(loops).await?;
    sender.close().await?;
    for receiver in all {
        receiver.close().await?;
    }
    stage.end().await
}

#[derive(Default)]
struct Arrived {
    /// By lane: the next number.
    due: HashMap<u32, u32>,
    count: usize,
}

/// Receives until all messages have arrived at any receiver. Checks each message before it settles
/// it: from then on the next of its lane may go to another receiver.
async fn receive_in_order(
    receiver: &mut Box<dyn Receiver>,
    arrived: &Mutex<Arrived>,
    total: usize,
) -> Story {
    let deadline = Instant::now() + Duration::from_secs(30);
    while arrived.lock().count < total {
        if Instant::now() > deadline {
            return wrong(format!("{} of {total} came", arrived.lock().count));
        }
        let some = receiver.receive(7).await?;
        {
            let mut arrived = arrived.lock();
            for received in &some {
                in_order(&mut arrived.due, received)?;
            }
            arrived.count += some.len();
        }
        accept(receiver, &some).await?;
    }
    Ok(())
}

fn in_order(due: &mut HashMap<u32, u32>, received: &Received) -> Story {
    let text = String::from_utf8_lossy(&received.body);
    let parts = text.split_once(':');
    let number_of = |text: &str| text.parse::<u32>().ok();
    let parsed = parts.and_then(|(lane, number)| number_of(lane).zip(number_of(number)));
    let Some((lane, number)) = parsed else {
        return wrong(format!("{text:?} was never sent"));
    };
    let due = due.entry(lane).or_default();
    if number != *due {
        return wrong(format!("lane {lane}: {number} came where {due} was due"));
    }
    *due += 1;
    Ok(())
}

pub(super) async fn subscriptions_get_all(mut scene: Scene) -> Story {
    if !scene.about.subscriptions {
        return skip(&scene.about, "second subscription");
    }
    scene.topology.subscriptions = 2;
    let stage = scene.open().await?;
    let mut receivers = [stage.receiver(0).await?, stage.receiver(1).await?];
    if stage.forgets() {
        stage.gather_receivers(&mut receivers).await?;
    }
    let mut sender = stage.sender().await?;
    let sent = messages("for-all", 12);
    sender.send(0, &sent).await?;
    let (mut to_all, mut count) = (Vec::new(), 0);
    for receiver in &mut receivers {
        let came = take(receiver, sent.len()).await?;
        same_bodies(&came, &sent)?;
        accept(receiver, &came).await?;
        count += came.len();
        to_all.push(came);
    }
    if count != sent.len() * 2 {
        return wrong(format!("{count} came"));
    }
    sender.close().await?;
    for mut receiver in receivers {
        nothing_comes(&mut receiver, Duration::from_secs(1)).await?;
        receiver.close().await?;
    }
    stage.end().await
}

pub(super) async fn survives_a_reconnect(scene: Scene) -> Story {
    if scene.about.returns == Return::Never {
        return skip(&scene.about, "storage");
    }
    if scene.target.system == crate::memory::SYSTEM && scene.target.endpoints.is_empty() {
        return skip(&scene.about, "life beyond its driver, unless it has a name");
    }
    let stage = scene.open().await?;
    let mut sender = stage.sender().await?;
    let sent = messages("survives", 10);
    sender.send(0, &sent).await?;
    let mut receiver = stage.receiver(0).await?;
    let came = take(&mut receiver, 4).await?;
    accept(&mut receiver, &came).await?;
    sender.close().await?;
    receiver.close().await?;
    let settled: Vec<Bytes> = came.into_iter().map(|received| received.body).collect();
    let stage = stage.reconnected().await?;
    let mut receiver = stage.receiver(0).await?;
    let mut sender = stage.sender().await?;
    let late = messages("late", 1);
    sender.send(0, &late).await?;
    let mut due: Vec<Message> =
        sent.into_iter().filter(|message| !settled.contains(&message.body)).collect();
    due.extend(late);
    let came = consume_within(&mut receiver, due.len(), LEASE + GRACE).await?;
    same_bodies(&came, &due)?;
    sender.close().await?;
    receiver.close().await?;
    stage.end().await
}
