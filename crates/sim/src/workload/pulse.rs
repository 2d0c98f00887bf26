//! One record after another, with Kafka's protocol: it is acknowledged, a waiting consumer receives it, and so
//! does a member of a share group. [`crate::checkers::calm`] checks the waits without faults.

use std::time::Duration;

use client::requests::{self, FetchLimits, ProduceOutcome};
use client::share::{Settlement, ShareLimits, ShareMember};
use client::{CallError, Pipeline, records};

use super::{Client, LifeEnded, RecordToSend, kafka, number, settings, value};
use crate::network;

const TOPIC: &str = "pulse";
const GROUP: &str = "pulse-takers";
const CONFIG: [(&str, &str); 1] = [("share.auto.offset.reset", "earliest")];
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// Checks all pending waits now and then.
pub async fn watch(client: Client) -> LifeEnded {
    loop {
        tokio::time::sleep(CHECK_EVERY).await;
        let now_ms = client.trace.now_ms();
        client.knowledge.lock().calm.check(now_ms, &client.verdict);
    }
}

pub async fn beat(mut client: Client) -> LifeEnded {
    let open = async {
        settings::allow(&mut client).await?;
        settings::configure(&mut client, GROUP, &CONFIG).await?;
        client.topic(TOPIC, 1, &[]).await
    };
    if open.await.is_err() {
        return LifeEnded;
    }
    loop {
        let ended = beat_on(&mut client).await;
        client.trace.note(format_args!("the pulse is cut off: {ended:?}"));
        client.think(500).await;
    }
}

/// Beats until a connection fails.
async fn beat_on(client: &mut Client) -> Result<(), CallError> {
    let (mut producer, mut reader) = (network::kafka().await?, network::kafka().await?);
    let (coordinator, leader) = (network::kafka().await?, network::kafka().await?);
    let (id, topics) = (client.broker.entropy().uuid(), [TOPIC.to_owned()]);
    let joining = ShareMember::join(coordinator, leader, GROUP, &topics, id);
    let mut taker = client.due("a place in a share group", joining).await?;
    loop {
        let beat = client.random.number() as u32;
        let record = RecordToSend { key: None, value: value(beat, 0), headers: Vec::new() };
        let sent = kafka::append(client, &mut producer, (TOPIC, 0), &[record]).await?;
        let ProduceOutcome::Acknowledged { base_offset } = sent else {
            client.think(300).await;
            continue;
        };
        client.due("a record that a reader waits for", read(&mut reader, base_offset)).await?;
        client.due("a record for a share group", take(&mut taker, beat)).await?;
        client.trace.note(format_args!("beat {beat:x} at {base_offset}"));
        client.think(300).await;
    }
}

/// Reads until the record at this offset has arrived.
async fn read(reader: &mut Pipeline, offset: i64) -> Result<(), CallError> {
    loop {
        let limits = FetchLimits::up_to(64 << 10, Duration::from_millis(500));
        let request = requests::fetch([(TOPIC, [(0, offset)])], limits);
        let answer = reader.call(requests::FETCH, &request).await?;
        for partition in requests::fetched(answer)? {
            let mut records = records::records_of(partition.records)?.into_iter();
            if records.any(|record| record.offset == offset) {
                return Ok(());
            }
        }
    }
}

/// Leases and accepts until the record with this value was among the leased ones.
async fn take(taker: &mut ShareMember, beat: u32) -> Result<(), CallError> {
    let wait = Duration::from_millis(500);
    let limits = ShareLimits { records_max: 16, bytes_max: 64 << 10, wait };
    loop {
        let leased = taker.fetch(limits, &[]).await?;
        let settles: Vec<_> = leased.iter().map(|it| it.settle(Settlement::Accept)).collect();
        taker.acknowledge(&settles).await?;
        if leased.iter().any(|it| number(&it.value) == Some(beat)) {
            return Ok(());
        }
    }
}
