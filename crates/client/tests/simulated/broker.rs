//! Brokers of a cluster in memory, as far as a client needs them: one topic, partition n led by the n-th broker; the
//! first broker is the coordinator of every group.

use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use client::connect::{Connecting, Stream};
use client::requests::topic_name;
use client::{Connect, records};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponsePartition, OffsetFetchResponseTopic,
};
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, duplex};
use tokio::time::sleep;

const OFFERED: [(ApiKey, i16, i16); 8] = [
    (ApiKey::ApiVersions, 0, 3),
    (ApiKey::Metadata, 4, 9),
    (ApiKey::FindCoordinator, 1, 3),
    (ApiKey::InitProducerId, 0, 4),
    (ApiKey::Produce, 3, 9),
    (ApiKey::Fetch, 4, 11),
    (ApiKey::OffsetCommit, 2, 7),
    (ApiKey::OffsetFetch, 2, 7),
];

#[derive(Clone, Copy, Debug)]
pub(crate) enum Behaviour {
    Answer,
    /// Reads every request and sends no reply.
    Silent,
    /// Connecting never completes.
    Hang,
    /// Closes the connection after so many requests, without executing the last one.
    CloseAtEvery(u64),
}

#[derive(Debug)]
struct Inside {
    addresses: Vec<String>,
    down: Vec<String>,
    behaviour: Behaviour,
    delay: Duration,
    /// By broker and partition: the received batches, each of one record.
    logs: BTreeMap<(String, i32), Vec<Bytes>>,
    committed: BTreeMap<i32, i64>,
    asked: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Cluster(Arc<Mutex<Inside>>);

impl Connect for Cluster {
    fn connect<'a>(&'a self, address: &'a str) -> Connecting<'a> {
        Box::pin(async move {
            let (behaviour, is_there) = self.with(|inside| {
                let is_there = inside.addresses.iter().any(|known| known == address)
                    && !inside.down.iter().any(|down| down == address);
                (inside.behaviour, is_there)
            });
            if let Behaviour::Hang = behaviour {
                pending::<()>().await;
            }
            if !is_there {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (near, far) = duplex(4096);
            tokio::spawn(self.clone().serve(address.to_owned(), far));
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}

impl Cluster {
    pub(crate) fn of(addresses: &[&str]) -> Self {
        Self(Arc::new(Mutex::new(Inside {
            addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
            down: Vec::new(),
            behaviour: Behaviour::Answer,
            delay: Duration::ZERO,
            logs: BTreeMap::new(),
            committed: BTreeMap::new(),
            asked: Vec::new(),
        })))
    }

    fn with<T>(&self, look: impl FnOnce(&mut Inside) -> T) -> T {
        look(&mut self.0.lock().expect("no task panics with it"))
    }

    pub(crate) fn behave(&self, behaviour: Behaviour) {
        self.with(|inside| inside.behaviour = behaviour);
    }

    pub(crate) fn answer_after(&self, delay: Duration) {
        self.with(|inside| inside.delay = delay);
    }

    pub(crate) fn take_down(&self, address: &str) {
        self.with(|inside| inside.down.push(address.to_owned()));
    }

    /// Number of records stored by a broker.
    pub(crate) fn stored(&self, address: &str) -> u64 {
        self.with(|inside| {
            let logs = inside.logs.iter().filter(|((at, _), _)| at == address);
            logs.map(|(_, log)| log.len() as u64).sum()
        })
    }

    /// The requests received by each broker, in order.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.with(|inside| inside.asked.clone())
    }

    pub(crate) async fn serve(
        self,
        address: String,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
    ) {
        let mut taken = 0;
        // Ends when the client disconnects.
        while let Ok(length) = stream.read_i32().await {
            let mut frame = BytesMut::zeroed(length as usize);
            if stream.read_exact(&mut frame).await.is_err() {
                return;
            }
            taken += 1;
            let (behaviour, delay) = self.with(|inside| (inside.behaviour, inside.delay));
            match behaviour {
                Behaviour::Silent => continue,
                Behaviour::CloseAtEvery(requests) if taken >= requests => return,
                _ => {}
            }
            sleep(delay).await;
            let answer = self.with(|inside| inside.answer(&address, frame.freeze()));
            if stream.write_all(&answer).await.is_err() {
                return;
            }
        }
    }
}

fn framed<R: Encodable + HeaderVersion>(correlation: i32, version: i16, response: &R) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    let header = ResponseHeader::default().with_correlation_id(correlation);
    header.encode(&mut frame, R::header_version(version)).expect("encodes");
    response.encode(&mut frame, version).expect("encodes");
    let length = (frame.len() - 4) as i32;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame.freeze()
}

impl Inside {
    fn answer(&mut self, address: &str, mut frame: Bytes) -> Bytes {
        let key = i16::from_be_bytes([frame[0], frame[1]]);
        let version = i16::from_be_bytes([frame[2], frame[3]]);
        let api = ApiKey::try_from(key).expect("an api");
        let header = RequestHeader::decode(&mut frame, api.request_header_version(version));
        let correlation = header.expect("a header").correlation_id;
        self.asked.push(format!("{address} {api:?} {version} {}", frame.len()));
        macro_rules! decoded {
            ($request:ty) => {
                <$request>::decode(&mut frame, version).expect("a request")
            };
        }
        match api {
            ApiKey::ApiVersions => framed(correlation, version, &versions()),
            ApiKey::Metadata => framed(correlation, version, &self.metadata()),
            ApiKey::FindCoordinator => {
                let (host, port) = parts(&self.addresses[0]);
                let found = FindCoordinatorResponse::default().with_host(host).with_port(port);
                framed(correlation, version, &found)
            }
            ApiKey::InitProducerId => {
                let id = InitProducerIdResponse::default().with_producer_id(ProducerId(7));
                framed(correlation, version, &id)
            }
            ApiKey::Produce => {
                let answer = self.produce(address, decoded!(ProduceRequest));
                framed(correlation, version, &answer)
            }
            ApiKey::Fetch => {
                framed(correlation, version, &self.fetch(address, decoded!(FetchRequest)))
            }
            ApiKey::OffsetCommit => {
                framed(correlation, version, &self.commit(decoded!(OffsetCommitRequest)))
            }
            ApiKey::OffsetFetch => framed(correlation, version, &self.committed()),
            other => panic!("{other:?} is not offered"),
        }
    }

    fn metadata(&self) -> MetadataResponse {
        let brokers = (0..).zip(&self.addresses).map(|(id, address)| {
            let (host, port) = parts(address);
            let broker = MetadataResponseBroker::default().with_node_id(BrokerId(id));
            broker.with_host(host).with_port(port)
        });
        let partitions = (0..self.addresses.len() as i32).map(|index| {
            let partition = MetadataResponsePartition::default().with_partition_index(index);
            partition.with_leader_id(BrokerId(index))
        });
        let topic = MetadataResponseTopic::default()
            .with_name(Some(topic_name(super::TOPIC)))
            .with_partitions(partitions.collect());
        MetadataResponse::default().with_brokers(brokers.collect()).with_topics(vec![topic])
    }

    fn produce(&mut self, address: &str, request: ProduceRequest) -> ProduceResponse {
        let topics = request.topic_data.into_iter().map(|topic| {
            let partitions = topic.partition_data.into_iter().map(|data| {
                let log = self.logs.entry((address.to_owned(), data.index)).or_default();
                log.push(data.records.expect("a batch"));
                let offset = log.len() as i64 - 1;
                PartitionProduceResponse::default().with_index(data.index).with_base_offset(offset)
            });
            let partitions = partitions.collect();
            TopicProduceResponse::default()
                .with_name(topic.name)
                .with_partition_responses(partitions)
        });
        ProduceResponse::default().with_responses(topics.collect())
    }

    fn fetch(&self, address: &str, request: FetchRequest) -> FetchResponse {
        let topics = request.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.into_iter().map(|asked| {
                let log = self.logs.get(&(address.to_owned(), asked.partition));
                let log = log.map(Vec::as_slice).unwrap_or_default();
                let mut bytes = BytesMut::new();
                for (offset, batch) in (0_i64..).zip(log).skip(asked.fetch_offset as usize).take(3)
                {
                    let begin = bytes.len();
                    bytes.extend_from_slice(batch);
                    bytes[begin..begin + 8].copy_from_slice(&offset.to_be_bytes());
                }
                assert!(records::records_of(bytes.clone().freeze()).is_ok());
                PartitionData::default()
                    .with_partition_index(asked.partition)
                    .with_high_watermark(log.len() as i64)
                    .with_records(Some(bytes.freeze()))
            });
            FetchableTopicResponse::default()
                .with_topic(topic.topic)
                .with_partitions(partitions.collect())
        });
        FetchResponse::default().with_responses(topics.collect())
    }

    fn commit(&mut self, request: OffsetCommitRequest) -> OffsetCommitResponse {
        let mut topics = Vec::new();
        for topic in request.topics {
            let mut partitions = Vec::new();
            for partition in topic.partitions {
                let index = partition.partition_index;
                self.committed.insert(index, partition.committed_offset);
                let done = OffsetCommitResponsePartition::default();
                partitions.push(done.with_partition_index(index));
            }
            let done = OffsetCommitResponseTopic::default().with_name(topic.name);
            topics.push(done.with_partitions(partitions));
        }
        OffsetCommitResponse::default().with_topics(topics)
    }

    fn committed(&self) -> OffsetFetchResponse {
        let partitions = self.committed.iter().map(|(index, offset)| {
            OffsetFetchResponsePartition::default()
                .with_partition_index(*index)
                .with_committed_offset(*offset)
        });
        let topic = OffsetFetchResponseTopic::default()
            .with_name(topic_name(super::TOPIC))
            .with_partitions(partitions.collect());
        OffsetFetchResponse::default().with_topics(vec![topic])
    }
}

fn versions() -> ApiVersionsResponse {
    let keys = OFFERED.iter().map(|(api, low, high)| {
        let key = ApiVersion::default().with_api_key(*api as i16);
        key.with_min_version(*low).with_max_version(*high)
    });
    ApiVersionsResponse::default().with_api_keys(keys.collect())
}

fn parts(address: &str) -> (StrBytes, i32) {
    let (host, port) = address.split_once(':').expect("a host and a port");
    (StrBytes::from_string(host.to_owned()), port.parse().expect("a port"))
}
