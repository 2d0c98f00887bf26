//! Abuse by Kafka clients.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::blocking::Connection;
use client::requests::{ProduceOutcome, topic_name};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::{FetchRequest, MetadataRequest, OffsetCommitRequest};
use kafka_protocol::protocol::StrBytes;
use record::{BatchBuilder, BatchOptions, Compression, HEADER_LEN};

use super::bystanders::{cut_off, failed};
use super::{Abuse, Case, PATIENCE};
use crate::failure::{Context, Failure, Outcome};
use crate::records::{batch, now_ms};

pub(super) fn all() -> Vec<Case> {
    vec![
        Case::new("zip-bomb-gzip", "gzip batches that unfold to 80 MB", |abuse: &Abuse| {
            bombs(abuse, Compression::Gzip, 80)
        }),
        Case::new("zip-bomb-snappy", "snappy batches that unfold to 80 MB", |abuse| {
            bombs(abuse, Compression::Snappy, 80)
        }),
        Case::new("zip-bomb-lz4", "lz4 batches that unfold to 80 MB", |abuse| {
            bombs(abuse, Compression::Lz4, 80)
        }),
        Case::new("zip-bomb-zstd", "zstd batches that unfold to 80 MB", |abuse| {
            bombs(abuse, Compression::Zstd, 80)
        }),
        Case::new("zip-dense", "zstd batches that unfold to 60 MB, which are taken", |abuse| {
            bombs(abuse, Compression::Zstd, 60)
        }),
        Case::new("group-names", "offsets of 10,000 new groups a second", group_names),
        Case::new(
            "waiting-fetches",
            "2,000 waiting fetches of 32 KB, without sessions",
            waiting_fetches,
        ),
        Case::new("metadata", "metadata of 1,000,000 partitions, again and again", metadata),
        Case::new("slow-readers-kafka", "200 clients that fetch and never read", slow_readers),
        Case::new("idle-kafka", "5,000 idle Kafka connections", idle),
        Case::new("half-open-kafka", "2,000 Kafka connections with half a request", half_open),
    ]
}

fn connect(abuse: &Abuse) -> Outcome<Connection> {
    Connection::open(abuse.kafka, PATIENCE).context(|| "cannot connect")
}

/// A batch with one record of zeros of this uncompressed size.
fn bomb(compression: Compression, megabytes: usize) -> Outcome<Bytes> {
    let options = BatchOptions { compression, ..BatchOptions::default() };
    let mut builder = BatchBuilder::new(options);
    let value = vec![0; megabytes << 20];
    if builder.push(now_ms(), None, Some(&value), &[]).is_ok() {
        return Ok(builder.finish().into());
    }
    // Above the size limit of a batch: a valid header, and a body of compressed zeros.
    let mut small = BatchBuilder::new(BatchOptions::default());
    small.push(now_ms(), None, Some(b"x"), &[]).context(|| "cannot build a batch")?;
    let mut bytes = small.finish();
    bytes.truncate(HEADER_LEN);
    compression.compress(&value, &mut bytes);
    let length = (bytes.len() - 12) as i32;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    bytes[21..23].copy_from_slice(&i16::from(compression.id()).to_be_bytes());
    // Writes the checksum, too.
    record::set_max_timestamp(&mut bytes, now_ms());
    Ok(bytes.into())
}

fn bombs(abuse: &Abuse, compression: Compression, megabytes: usize) -> Outcome {
    const MESSAGE_TOO_LARGE: i16 = 10;
    let bomb = bomb(compression, megabytes)?;
    abuse.note(format!("{} bytes each, from 16 connections", bomb.len()));
    let limit = ("max.message.bytes", "16000000".to_owned());
    connect(abuse)?.create_topic("bombs", 4, &[limit]).context(|| "cannot create the topic")?;
    abuse.in_threads(16, |number| {
        let mut connection = connect(abuse)?;
        while abuse.continues() {
            let sent = connection.produce("bombs", (number % 4) as i32, bomb.clone())?;
            match connection.answer(sent).map_err(failed("a bomb was not answered"))? {
                ProduceOutcome::Acknowledged { .. } => abuse.count(true),
                ProduceOutcome::Refused { code: MESSAGE_TOO_LARGE } => abuse.count(false),
                ProduceOutcome::Refused { code } => {
                    return Err(Failure::new(format!("a bomb was refused with error {code}")));
                }
            }
        }
        Ok(())
    })
}

fn group_names(abuse: &Abuse) -> Outcome {
    const VERSION: i16 = 8;
    const A_SECOND: u64 = 10_000;
    const BURST: u64 = 50;
    const THREADS: u64 = 4;
    connect(abuse)?.create_topic("grouped", 1, &[]).context(|| "cannot create the topic")?;
    abuse.in_threads(THREADS as usize, |thread| {
        let mut connection = connect(abuse)?;
        let mut number = 0;
        while abuse.continues() {
            let due = number * 1_000_000 * THREADS / A_SECOND;
            std::thread::sleep(Duration::from_micros(due).saturating_sub(abuse.begun.elapsed()));
            let mut sent = Vec::new();
            for _ in 0..BURST {
                let partition = OffsetCommitRequestPartition::default().with_committed_offset(0);
                let topic = OffsetCommitRequestTopic::default()
                    .with_name(topic_name("grouped"))
                    .with_partitions(vec![partition]);
                let group = format!("group-{thread}-{number}-{}", "x".repeat(100));
                let request = OffsetCommitRequest::default()
                    .with_group_id(StrBytes::from_string(group).into())
                    .with_topics(vec![topic]);
                sent.push(connection.send(VERSION, &request)?);
                number += 1;
            }
            for sent in sent {
                let answer =
                    connection.receive(sent).map_err(failed("a commit was not answered"))?;
                let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
                partitions.for_each(|partition| abuse.count(partition.error_code == 0));
            }
        }
        Ok(())
    })
}

/// A fetch of this number of partitions without a session, with the longest wait.
fn long_fetch(topic: &str, partitions: i32) -> FetchRequest {
    let rows = (0..partitions).map(|index| {
        FetchPartition::default()
            .with_partition(index)
            .with_fetch_offset(0)
            .with_partition_max_bytes(1 << 20)
    });
    let topic = FetchTopic::default().with_topic(topic_name(topic)).with_partitions(rows.collect());
    FetchRequest::default()
        .with_max_wait_ms(300_000)
        .with_min_bytes(1)
        .with_max_bytes(50 << 20)
        .with_session_epoch(-1)
        .with_topics(vec![topic])
}

fn waiting_fetches(abuse: &Abuse) -> Outcome {
    const VERSION: i16 = 11;
    const CLIENTS: usize = 2_000;
    /// Each takes 28 bytes of the request.
    const PARTITIONS: i32 = 1_170;
    connect(abuse)?
        .create_topic("silent", PARTITIONS, &[])
        .context(|| "cannot create the topic")?;
    let request = long_fetch("silent", PARTITIONS);
    let mut waiting = Vec::with_capacity(CLIENTS);
    for _ in 0..CLIENTS {
        let mut connection = connect(abuse)?;
        connection.send(VERSION, &request).map_err(failed("a fetch cannot be sent"))?;
        abuse.count(true);
        waiting.push(connection);
    }
    abuse.note(format!("all sent after {:.1?}", abuse.begun.elapsed()));
    std::thread::sleep(abuse.left());
    Ok(())
}

fn metadata(abuse: &Abuse) -> Outcome {
    const VERSION: i16 = 9;
    /// In total: ten topics with the maximum number of partitions each.
    const PARTITIONS: i32 = 100_000;
    let begun = Instant::now();
    let mut connection = connect(abuse)?;
    for topic in 0..10 {
        connection
            .create_topic(&format!("vast-{topic}"), PARTITIONS, &[])
            .context(|| "cannot create a million partitions")?;
    }
    abuse.note(format!("created in {:.1?}, which counts as well", begun.elapsed()));
    abuse.in_threads(4, |_| {
        let mut connection = connect(abuse)?;
        let request = MetadataRequest::default().with_topics(None);
        let mut sink = vec![0; 1 << 20];
        while abuse.continues() {
            connection.send(VERSION, &request)?;
            // Read without decoding, whose cost is not the server's.
            let socket = connection.stream();
            let mut length = [0; 4];
            socket.read_exact(&mut length).map_err(failed("metadata did not come"))?;
            let mut left = u32::from_be_bytes(length) as usize;
            while left > 0 {
                let part = left.min(sink.len());
                let read = socket.read(&mut sink[..part]).map_err(failed("metadata"))?;
                if read == 0 {
                    return Err(Failure::new("the connection was closed within metadata"));
                }
                left -= read;
            }
            abuse.count(true);
        }
        Ok(())
    })
}

fn slow_readers(abuse: &Abuse) -> Outcome {
    const VERSION: i16 = 11;
    let mut connection = connect(abuse)?;
    let retention = ("retention.ms", "-1".to_owned());
    connection.create_topic("bulk", 1, &[retention]).context(|| "cannot create the topic")?;
    let value = Bytes::from(vec![b'x'; 900_000]);
    for _ in 0..60 {
        let sent = connection.produce("bulk", 0, batch(std::iter::once(value.clone())))?;
        connection.answer(sent)?;
    }
    let mut request = long_fetch("bulk", 1);
    request.topics[0].partitions[0].partition_max_bytes = 50 << 20;
    let mut deaf = Vec::new();
    for _ in 0..200 {
        let mut connection = connect(abuse)?;
        // Several requests: the responses exceed the buffer of a socket.
        for _ in 0..4 {
            connection.send(VERSION, &request)?;
        }
        abuse.count(true);
        deaf.push(connection);
    }
    std::thread::sleep(abuse.left());
    Ok(())
}

fn idle(abuse: &Abuse) -> Outcome {
    let mut idle = Vec::new();
    for _ in 0..5_000 {
        let mut connection = connect(abuse)?;
        connection.api_versions().map_err(failed("a connection is not served"))?;
        abuse.count(true);
        idle.push(connection);
    }
    std::thread::sleep(abuse.left());
    // Idle connections are still served.
    for connection in idle.iter_mut().step_by(100) {
        connection.api_versions().map_err(failed("an idle connection is not served"))?;
    }
    Ok(())
}

/// Announces a produce request of 90 MB and sends 20 KB of it.
fn half_open(abuse: &Abuse) -> Outcome {
    let mut begun = (90_i32 << 20).to_be_bytes().to_vec();
    begun.extend_from_slice(&[0, 0, 0, 9, 0, 0, 0, 1, 0xFF, 0xFF, 0]);
    begun.resize(20_000, 0);
    keep_half_open(abuse, abuse.kafka, &begun, 2_000)
}

/// Keeps this number of connections open that have sent only these bytes. Connections that the server closes are
/// opened again.
pub(super) fn keep_half_open(
    abuse: &Abuse,
    address: SocketAddr,
    begun: &[u8],
    count: usize,
) -> Outcome {
    let mut open: Vec<TcpStream> = Vec::with_capacity(count);
    loop {
        while open.len() < count && abuse.continues() {
            let mut socket = TcpStream::connect_timeout(&address, PATIENCE)?;
            match socket.write_all(begun) {
                Ok(()) => abuse.count(true),
                Err(error) if cut_off(&error) => abuse.count(false),
                Err(error) => return Err(error.into()),
            }
            socket.set_nonblocking(true)?;
            open.push(socket);
        }
        if !abuse.continues() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(200));
        let mut sink = [0; 4096];
        open.retain_mut(|socket| match socket.read(&mut sink) {
            Ok(read) => read > 0,
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        });
    }
}
