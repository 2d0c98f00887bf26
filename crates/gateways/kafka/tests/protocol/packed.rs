//! Compressed batches: limits of decompression, and its effect on other requests.

use std::sync::mpsc;

use base::limits::{CPU_JOBS_MAX, PRODUCED_UNPACKED_BYTES_MAX};
use bytes::Bytes;
use record::{BatchOptions, Compression, HEADER_LEN};

use crate::harness::*;

const MESSAGE_TOO_LARGE: i16 = 10;
const CODECS: [Compression; 4] =
    [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

/// A batch with a valid header whose body decompresses to so many zeros.
fn bomb(compression: Compression, unpacked: usize) -> Vec<u8> {
    let mut bytes = batch(&["x"]);
    bytes.truncate(HEADER_LEN);
    compression.compress(&vec![0; unpacked], &mut bytes);
    let length = (bytes.len() - 12) as i32;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    bytes[21..23].copy_from_slice(&i16::from(compression.id()).to_be_bytes());
    // Also writes the checksum.
    record::set_max_timestamp(&mut bytes, TIMESTAMP);
    bytes
}

fn packed(compression: Compression, values: &[&str]) -> Bytes {
    let options = BatchOptions { compression, ..BatchOptions::default() };
    batch_of(options, &values.iter().map(|value| (None, *value)).collect::<Vec<_>>()).into()
}

#[tokio::test]
async fn batch_that_decompresses_to_too_much_is_refused_for_every_codec() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 1, &[("max.message.bytes", "20000000")]).await;
    client.create("gzip", 1, &[("compression.type", "gzip")]).await;

    for codec in CODECS {
        let refused =
            client.produce("orders", 0, bomb(codec, PRODUCED_UNPACKED_BYTES_MAX + 1)).await;
        assert_eq!(refused.error_code, MESSAGE_TOO_LARGE, "{codec}");
        let message = refused.error_message.expect("it says why");
        assert!(message.contains("unfolds to more than 67108864 bytes"), "{message}");
    }
    // The limit is lower if the topic recompresses.
    let refused = client.produce("gzip", 0, bomb(Compression::Zstd, 20 << 20)).await;
    assert_eq!(refused.error_code, MESSAGE_TOO_LARGE);
    assert_eq!(client.put("orders", 0, &["well"]).await, 0);
}

#[tokio::test]
async fn large_compressed_batches_and_small_ones_keep_the_order_of_their_session() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 1, &[("compression.type", "lz4")]).await;

    let large = "x".repeat(300_000);
    let (mut expected, mut sent) = (Vec::new(), Vec::new());
    for n in 0..40 {
        let value = if n % 2 == 0 { format!("{n}{large}") } else { n.to_string() };
        let codec = if n % 4 == 3 { Compression::None } else { CODECS[n % 4] };
        let request = produce("orders", 0, -1, packed(codec, &[&value]));
        sent.push(client.send(9, &request).await);
        expected.push(value);
    }
    for (n, sent) in (0..).zip(sent) {
        let answer = only_partition(client.receive(sent).await);
        assert_eq!((answer.error_code, answer.base_offset), (0, n), "{:?}", answer.error_message);
    }
    let mut found = Vec::new();
    while found.len() < expected.len() {
        found.extend(client.get("orders", 0, found.len() as i64).await);
    }
    assert!(found == expected, "the records are not in the order in which they were sent");
}

/// Expensive checks run on threads of their own. While all of these are busy, other records are accepted and
/// acknowledged, including small compressed batches.
#[tokio::test]
async fn small_batches_are_acknowledged_while_all_cpu_threads_are_busy() {
    let node = Node::start().await;
    let (mut client, mut other) = (node.client().await, node.client().await);
    client.create("orders", 1, &[]).await;

    let mut gates = Vec::new();
    let mut busy = Vec::new();
    for _ in 0..CPU_JOBS_MAX {
        let (gate, closed) = mpsc::channel::<()>();
        let cpu = node.broker.cpu().clone();
        busy.push(tokio::spawn(async move { cpu.run(move || closed.recv().is_err()).await }));
        gates.push(gate);
    }
    tokio::task::yield_now().await;
    let large = packed(Compression::Gzip, &["x".repeat(500_000).as_str()]);
    let sent = client.send(9, &produce("orders", 0, -1, large)).await;
    for n in 0..10 {
        assert_eq!(other.put("orders", 0, &["small"]).await, 2 * n);
        let small = other.produce("orders", 0, packed(Compression::Zstd, &["also small"])).await;
        assert_eq!((small.error_code, small.base_offset), (0, 2 * n + 1));
    }
    drop(gates);
    let answer = only_partition(client.receive(sent).await);
    assert_eq!((answer.error_code, answer.base_offset), (0, 20));
    for job in busy {
        assert!(job.await.expect("it ran"), "its gate was dropped");
    }
}
