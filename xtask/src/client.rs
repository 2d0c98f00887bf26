//! A small blocking Kafka client for loads and checkers: one socket, no retries, no hidden threads,
//! so that the checker knows exactly what was sent and what was acknowledged. It fixes one version
//! of each API, one that Apache Kafka 4 and Postroad both speak. Members of share groups, which
//! settle records one by one, are in [`share`].

mod share;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    ApiVersionsRequest, CreateTopicsRequest, FetchRequest, ListOffsetsRequest, MetadataRequest,
    ProduceRequest, RequestHeader, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use kafka_protocol::records::{
    Compression, NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Record,
    RecordBatchDecoder, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};

pub(crate) use share::{Leased, Settle, Settlement, ShareMember};

/// The versions that this client speaks: names of topics, not ids.
const API_VERSIONS: i16 = 3;
const CREATE_TOPICS: i16 = 5;
const FETCH: i16 = 12;
const LIST_OFFSETS: i16 = 6;
const METADATA: i16 = 9;
const PRODUCE: i16 = 9;
/// Postroad's own, for operators on this machine.
const OPERATE: i16 = 20_000;
const OPERATE_VERSION: i16 = 0;

/// A response larger than this is a fault of the server, not an allocation of ours.
const RESPONSE_BYTES_MAX: usize = 256 << 20;
/// What one fetch asks for.
const FETCH_BYTES: i32 = 8 << 20;
/// Length and offset: what must be there to know how long a batch is.
const BATCH_PREFIX_BYTES: usize = 12;

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    next_correlation: i32,
}

/// What the server said to one produce request of one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Acknowledged: the batch's first record has this offset.
    Acknowledged { base_offset: i64 },
    /// Refused with this error code of the protocol.
    Refused { code: i16 },
}

/// What one partition gave to a fetch.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) partition: i32,
    pub(crate) error_code: i16,
    pub(crate) records: Bytes,
}

fn invalid(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

/// An error code of the protocol as an error.
fn refused(what: &str, code: i16) -> io::Error {
    let name = kafka_protocol::ResponseError::try_from_code(code)
        .map_or_else(|| format!("error {code}"), |error| format!("{error:?} ({code})"));
    io::Error::other(format!("{what} was refused: {name}"))
}

fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

impl Connection {
    /// Connects; `patience` bounds the connect and every later wait for the server.
    pub(crate) fn open(address: SocketAddr, patience: Duration) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Connection { stream, next_correlation: 1 })
    }

    pub(crate) fn send<R: Request>(&mut self, version: i16, request: &R) -> io::Result<i32> {
        let correlation = self.next_correlation;
        self.next_correlation = self.next_correlation.wrapping_add(1);
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(correlation)
            .with_client_id(Some(StrBytes::from_static_str("xtask")));
        let mut frame = BytesMut::new();
        frame.put_i32(0);
        header.encode(&mut frame, R::header_version(version)).map_err(invalid)?;
        request.encode(&mut frame, version).map_err(invalid)?;
        let length = i32::try_from(frame.len() - 4).map_err(invalid)?;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        self.stream.write_all(&frame)?;
        Ok(correlation)
    }

    fn receive_frame(&mut self) -> io::Result<Bytes> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = usize::try_from(i32::from_be_bytes(length)).map_err(invalid)?;
        if length > RESPONSE_BYTES_MAX {
            return Err(invalid(format!("a response of {length} bytes")));
        }
        let mut frame = vec![0; length];
        self.stream.read_exact(&mut frame)?;
        Ok(Bytes::from(frame))
    }

    pub(crate) fn receive<R: Request>(
        &mut self,
        version: i16,
        correlation: i32,
    ) -> io::Result<R::Response> {
        let mut frame = self.receive_frame()?;
        let header_version = R::Response::header_version(version);
        let header = ResponseHeader::decode(&mut frame, header_version).map_err(invalid)?;
        if header.correlation_id != correlation {
            let got = header.correlation_id;
            return Err(invalid(format!("response {got} came where {correlation} was due")));
        }
        R::Response::decode(&mut frame, version).map_err(invalid)
    }

    pub(crate) fn call<R: Request>(
        &mut self,
        version: i16,
        request: &R,
    ) -> io::Result<R::Response> {
        let correlation = self.send(version, request)?;
        self.receive::<R>(version, correlation)
    }

    /// Postroad's own request for operators: a document, and the document of its answer.
    pub(crate) fn operate(&mut self, operation: &str) -> io::Result<Vec<u8>> {
        let correlation = self.next_correlation;
        self.next_correlation = self.next_correlation.wrapping_add(1);
        let mut frame = BytesMut::new();
        frame.put_i32(i32::try_from(14 + operation.len()).map_err(invalid)?);
        frame.put_i16(OPERATE);
        frame.put_i16(OPERATE_VERSION);
        frame.put_i32(correlation);
        frame.put_i16(-1);
        frame.put_i32(operation.len() as i32);
        frame.put_slice(operation.as_bytes());
        self.stream.write_all(&frame)?;
        let mut answer = self.receive_frame()?;
        let too_short = || invalid("the answer to an operation is too short");
        let got = answer.try_get_i32().map_err(|_| too_short())?;
        if got != correlation {
            return Err(invalid(format!("response {got} came where {correlation} was due")));
        }
        let code = answer.try_get_i16().map_err(|_| too_short())?;
        if code != 0 {
            return Err(refused("an operation", code));
        }
        let message = answer.try_get_i16().map_err(|_| too_short())?.max(0) as usize;
        if answer.len() < message + 4 {
            return Err(too_short());
        }
        Ok(answer.slice(message + 4..).to_vec())
    }

    /// The socket itself, for those who do what no client should.
    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Asks for the versions: the cheapest proof that a server answers.
    pub(crate) fn api_versions(&mut self) -> io::Result<()> {
        let request = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str("xtask"))
            .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
        match self.call(API_VERSIONS, &request)?.error_code {
            0 => Ok(()),
            code => Err(refused("ApiVersions", code)),
        }
    }

    /// How many partitions of a topic have a leader; 0 for a topic that is not there (yet).
    pub(crate) fn partitions_led(&mut self, topic: &str) -> io::Result<usize> {
        let asked = MetadataRequestTopic::default().with_name(Some(name(topic)));
        let request = MetadataRequest::default()
            .with_topics(Some(vec![asked]))
            .with_allow_auto_topic_creation(false);
        let response = self.call(METADATA, &request)?;
        let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
        Ok(partitions.filter(|partition| partition.leader_id.0 >= 0).count())
    }

    /// Creates a topic and returns when the server says that it is there.
    pub(crate) fn create_topic(
        &mut self,
        topic: &str,
        partitions: i32,
        configs: &[(&'static str, String)],
    ) -> io::Result<()> {
        let configs = configs.iter().map(|(name, value)| {
            CreatableTopicConfig::default()
                .with_name(StrBytes::from_static_str(name))
                .with_value(Some(StrBytes::from_string(value.clone())))
        });
        let creatable = CreatableTopic::default()
            .with_name(name(topic))
            .with_num_partitions(partitions)
            .with_replication_factor(1)
            .with_configs(configs.collect());
        let request =
            CreateTopicsRequest::default().with_topics(vec![creatable]).with_timeout_ms(60_000);
        let response = self.call(CREATE_TOPICS, &request)?;
        match response.topics.first() {
            Some(created) if created.error_code == 0 => Ok(()),
            Some(created) => Err(refused("CreateTopics", created.error_code)),
            None => Err(invalid("CreateTopics answered for no topic")),
        }
    }

    /// Sends one batch to one partition with `acks=all`; the answer is taken by
    /// [`Connection::answer`], in the order of sending.
    pub(crate) fn produce(&mut self, topic: &str, index: i32, batch: Bytes) -> io::Result<i32> {
        self.produce_each(topic, vec![(index, batch)])
    }

    /// Sends a batch to each of several partitions, as [`Connection::produce`] does to one; the
    /// answers are taken by [`Connection::answers`].
    pub(crate) fn produce_each(
        &mut self,
        topic: &str,
        batches: Vec<(i32, Bytes)>,
    ) -> io::Result<i32> {
        let partition = |(index, batch)| {
            PartitionProduceData::default().with_index(index).with_records(Some(batch))
        };
        let partitions = batches.into_iter().map(partition).collect();
        let topic =
            TopicProduceData::default().with_name(name(topic)).with_partition_data(partitions);
        let request = ProduceRequest::default()
            .with_acks(-1)
            .with_timeout_ms(30_000)
            .with_topic_data(vec![topic]);
        self.send(PRODUCE, &request)
    }

    /// Takes the answer to the produce request that was sent under this correlation id.
    pub(crate) fn answer(&mut self, correlation: i32) -> io::Result<Answer> {
        let answers = self.answers(correlation)?;
        answers.first().copied().ok_or_else(|| invalid("Produce answered for no partition"))
    }

    /// As [`Connection::answer`]; `None` if it does not begin to come within this time.
    pub(crate) fn answer_within(
        &mut self,
        correlation: i32,
        wait: Duration,
    ) -> io::Result<Option<Answer>> {
        let patience = self.stream.read_timeout()?;
        // A timeout of zero would be none.
        self.stream.set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
        let found = self.stream.peek(&mut [0]);
        self.stream.set_read_timeout(patience)?;
        match found {
            // Also when the connection was closed, which the answer tells.
            Ok(_) => self.answer(correlation).map(Some),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The same of a request with several batches, in their order.
    pub(crate) fn answers(&mut self, correlation: i32) -> io::Result<Vec<Answer>> {
        let response = self.receive::<ProduceRequest>(PRODUCE, correlation)?;
        let partitions = response.responses.iter().flat_map(|topic| &topic.partition_responses);
        Ok(partitions
            .map(|partition| match partition.error_code {
                0 => Answer::Acknowledged { base_offset: partition.base_offset },
                code => Answer::Refused { code },
            })
            .collect())
    }

    /// Reads partitions from the given offsets on; waits up to `wait` for the first byte.
    pub(crate) fn fetch(
        &mut self,
        topic: &str,
        offsets: &[(i32, i64)],
        wait: Duration,
    ) -> io::Result<Vec<Fetched>> {
        let partitions = offsets.iter().map(|&(partition, offset)| {
            FetchPartition::default()
                .with_partition(partition)
                .with_fetch_offset(offset)
                .with_partition_max_bytes(FETCH_BYTES)
        });
        let topic =
            FetchTopic::default().with_topic(name(topic)).with_partitions(partitions.collect());
        let request = FetchRequest::default()
            .with_max_wait_ms(wait.as_millis() as i32)
            .with_min_bytes(1)
            .with_max_bytes(FETCH_BYTES)
            .with_topics(vec![topic]);
        let response = self.call(FETCH, &request)?;
        if response.error_code != 0 {
            return Err(refused("Fetch", response.error_code));
        }
        let partitions = response.responses.into_iter().flat_map(|topic| topic.partitions);
        Ok(partitions
            .map(|partition| Fetched {
                partition: partition.partition_index,
                error_code: partition.error_code,
                records: partition.records.unwrap_or_default(),
            })
            .collect())
    }

    /// The offset after the last record of each partition, in the order of the partitions.
    pub(crate) fn end_offsets(&mut self, topic: &str, partitions: i32) -> io::Result<Vec<i64>> {
        const LATEST: i64 = -1;
        let asked = (0..partitions).map(|index| {
            ListOffsetsPartition::default().with_partition_index(index).with_timestamp(LATEST)
        });
        let topic = ListOffsetsTopic::default().with_name(name(topic));
        let topics = vec![topic.with_partitions(asked.collect())];
        let request =
            ListOffsetsRequest::default().with_replica_id((-1).into()).with_topics(topics);
        let response = self.call(LIST_OFFSETS, &request)?;
        let mut ends = vec![-1; usize::try_from(partitions).map_err(invalid)?];
        for answer in response.topics.iter().flat_map(|topic| &topic.partitions) {
            if answer.error_code != 0 {
                return Err(refused("ListOffsets", answer.error_code));
            }
            let index = usize::try_from(answer.partition_index).map_err(invalid)?;
            *ends.get_mut(index).ok_or_else(|| invalid("a partition nobody asked for"))? =
                answer.offset;
        }
        Ok(ends)
    }
}

/// Milliseconds since 1970 by the clock of this machine.
pub(crate) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64
}

/// A record to be sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewRecord {
    pub(crate) key: Option<Bytes>,
    pub(crate) value: Bytes,
    pub(crate) headers: Vec<(&'static str, String)>,
}

/// An uncompressed batch of these values, of now, without keys and without a producer id.
pub(crate) fn batch(values: impl Iterator<Item = Bytes>) -> Bytes {
    batch_of(values.map(|value| NewRecord { value, ..NewRecord::default() }))
}

/// An uncompressed batch of these records, of now, without a producer id.
pub(crate) fn batch_of(records: impl Iterator<Item = NewRecord>) -> Bytes {
    let timestamp_ms = now_ms();
    let record = |(index, new): (usize, NewRecord)| Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: NO_PARTITION_LEADER_EPOCH,
        producer_id: NO_PRODUCER_ID,
        producer_epoch: NO_PRODUCER_EPOCH,
        timestamp_type: TimestampType::Creation,
        offset: index as i64,
        // The encoder keeps records in one batch while offset minus sequence stays the same; the
        // base sequence that it writes is the first record's.
        sequence: NO_SEQUENCE + index as i32,
        // Not a constant: retention would delete records of years ago.
        timestamp: timestamp_ms,
        key: new.key,
        value: Some(new.value),
        headers: new
            .headers
            .into_iter()
            .map(|(name, value)| (StrBytes::from_static_str(name), Some(Bytes::from(value))))
            .collect(),
    };
    let records: Vec<Record> = records.enumerate().map(record).collect();
    let options = RecordEncodeOptions { version: 2, compression: Compression::None };
    let mut encoded = BytesMut::new();
    RecordBatchEncoder::encode(&mut encoded, &records, &options)
        .expect("a batch without compression encodes");
    encoded.freeze()
}

/// The records of all whole batches; a server may cut the last one short, and clients skip that.
pub(crate) fn records_of(mut batches: Bytes) -> io::Result<Vec<Record>> {
    let mut records = Vec::new();
    while let Some(prefix) = batches.first_chunk::<BATCH_PREFIX_BYTES>() {
        let length = i32::from_be_bytes([prefix[8], prefix[9], prefix[10], prefix[11]]);
        let length = usize::try_from(length).map_err(invalid)?;
        if batches.len() < BATCH_PREFIX_BYTES + length {
            break;
        }
        let mut batch = batches.split_to(BATCH_PREFIX_BYTES + length);
        let decoded = RecordBatchDecoder::decode(&mut batch).map_err(invalid)?;
        records.extend(decoded.records);
    }
    Ok(records)
}
