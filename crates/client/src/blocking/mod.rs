//! One connection for a blocking thread: for loads and checkers.
//!
//! It uses a blocking socket, and neither a runtime nor a thread of its own. Such a load shares its machine with the
//! server under test, and a blocking write and read is the least that a request can cost. It sends exactly its
//! caller's requests, once, so a checker knows what was sent and what was acknowledged. The codec is that of
//! [`Pipeline`](crate::Pipeline).
//!
//! * [`Connection`]: requests, pipelined
//! * [`ShareMember`]: a member of a share group
//! * [`Access`]: encryption and login

mod access;
mod share;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{ApiKey, MetadataResponse, ProduceRequest};
use kafka_protocol::protocol::Request;

pub use access::Access;
pub use share::ShareMember;

use access::Socket;

use crate::CLIENT_ID;
use crate::codec::{Codec, RequestHandle};
use crate::error::{BrokerRejection, CallError, FrameError, accepted};
use crate::frame::READ_LEN;
use crate::requests::{self, FetchLimits, PartitionRecords, ProduceOutcome};

/// Handle of sent batches, by which their reply is received.
pub type SentBatches = RequestHandle<ProduceRequest>;

/// Byte limit of one fetch.
pub const FETCH_BYTES: i32 = 8 << 20;

/// Produce requests have `acks=all`.
const ALL: i16 = -1;

/// One connection.
#[derive(Debug)]
pub struct Connection {
    stream: Socket,
    codec: Codec,
}

impl Connection {
    /// Connects; `patience` bounds the connect and every later wait for the broker.
    pub fn open(address: SocketAddr, patience: Duration) -> Result<Connection, CallError> {
        Self::open_with(address, patience, &Access::default())
    }

    /// Like [`Self::open`], with the encryption and login of `access`.
    pub fn open_with(
        address: SocketAddr,
        patience: Duration,
        access: &Access,
    ) -> Result<Connection, CallError> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let stream = Socket::over(stream, address, access)?;
        let mut connection = Connection { stream, codec: Codec::new(CLIENT_ID) };
        if let Some((name, password)) = &access.login {
            connection.log_in(name, password)?;
        }
        Ok(connection)
    }

    /// Sends a request; returns once the socket has taken it.
    pub fn send<R: Request>(
        &mut self,
        version: i16,
        request: &R,
    ) -> Result<RequestHandle<R>, CallError> {
        let sent = self.codec.send(version, request)?;
        self.write()?;
        Ok(sent)
    }

    fn write(&mut self) -> Result<(), CallError> {
        let outgoing = self.codec.outgoing();
        let written = self.stream.write_all(outgoing).and_then(|()| self.stream.flush());
        // After an error the connection is unusable: nothing is written twice.
        outgoing.clear();
        Ok(written?)
    }

    /// Waits for the reply to a request. Replies to earlier ones that were not received are skipped.
    pub fn receive<R: Request>(
        &mut self,
        sent: RequestHandle<R>,
    ) -> Result<R::Response, CallError> {
        self.wait_for(|codec| codec.answer(sent))
    }

    /// Sends a request and waits for its reply.
    pub fn call<R: Request>(
        &mut self,
        version: i16,
        request: &R,
    ) -> Result<R::Response, CallError> {
        let sent = self.send(version, request)?;
        self.receive(sent)
    }

    fn wait_for<A>(
        &mut self,
        look: impl Fn(&mut Codec) -> Result<Option<A>, FrameError>,
    ) -> Result<A, CallError> {
        loop {
            if let Some(answer) = look(&mut self.codec)? {
                return Ok(answer);
            }
            self.read()?;
        }
    }

    /// Reads available bytes, or all missing bytes of a large reply.
    fn read(&mut self) -> Result<(), CallError> {
        let missing = self.codec.missing()?;
        let arrived = self.codec.arrived();
        if missing > READ_LEN {
            let before = arrived.len();
            arrived.resize(before + missing, 0);
            let read = self.stream.read_exact(&mut arrived[before..]);
            if read.is_err() {
                arrived.truncate(before);
            }
            return Ok(read?);
        }
        let mut chunk = [0; READ_LEN];
        match self.stream.read(&mut chunk)? {
            0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            read => {
                arrived.extend_from_slice(&chunk[..read]);
                Ok(())
            }
        }
    }

    /// The socket itself, below any encryption, for tests that misbehave. Bytes that this connection has read already
    /// are not in it.
    pub fn stream(&mut self) -> &mut TcpStream {
        self.stream.tcp()
    }

    /// Postroad's own request: sends a document and returns the document of the reply.
    pub fn operate(&mut self, document: &[u8]) -> Result<Bytes, CallError> {
        let correlation = self.codec.operate(operations::VERSION, document)?;
        self.write()?;
        let answer = self.wait_for(|codec| codec.operated(correlation))?;
        match ResponseError::try_from_code(answer.code) {
            None => Ok(answer.document),
            Some(code) => {
                let what = "an operation was refused".to_owned();
                Err(BrokerRejection { what, code, message: answer.message }.into())
            }
        }
    }

    /// Requests the API versions: the cheapest proof that a broker replies.
    pub fn api_versions(&mut self) -> Result<(), CallError> {
        let request = requests::api_versions(operations::KNOWN_TO);
        let answer = self.call(requests::API_VERSIONS, &request)?;
        Ok(accepted(answer.error_code, None, || "cannot ask for versions".into())?)
    }

    /// Metadata of topics, with their ids.
    pub fn metadata(&mut self, topics: &[String]) -> Result<MetadataResponse, CallError> {
        let topics = topics.iter().map(String::as_str);
        self.call(requests::METADATA, &requests::metadata(topics))
    }

    /// Number of a topic's partitions with a leader; 0 for a missing topic.
    pub fn partitions_led(&mut self, topic: &str) -> Result<usize, CallError> {
        let answer = self.call(requests::METADATA, &requests::metadata([topic]))?;
        Ok(requests::partitions_led(&answer))
    }

    /// Creates a topic with the broker's default replication, and returns when the broker has confirmed it.
    pub fn create_topic(
        &mut self,
        topic: &str,
        partitions: i32,
        configs: &[(&str, String)],
    ) -> Result<(), CallError> {
        let configs = configs.iter().map(|(name, value)| (*name, value.as_str()));
        let request = requests::create_topic(topic, partitions, -1, configs);
        let answer = self.call(requests::CREATE_TOPICS, &request)?;
        Ok(requests::created(&answer)?)
    }

    /// Sends one batch to one partition with `acks=all`; [`Connection::answer`] receives the reply.
    pub fn produce(
        &mut self,
        topic: &str,
        partition: i32,
        batch: Bytes,
    ) -> Result<SentBatches, CallError> {
        self.send(requests::PRODUCE, &requests::produce(topic, ALL, [(partition, batch)]))
    }

    /// Sends a batch to each of several partitions; [`Connection::answers`] receives the replies.
    pub fn produce_each(
        &mut self,
        topic: &str,
        batches: Vec<(i32, Bytes)>,
    ) -> Result<SentBatches, CallError> {
        self.send(requests::PRODUCE, &requests::produce(topic, ALL, batches))
    }

    /// Waits for the reply to a produce request of one batch.
    pub fn answer(&mut self, sent: SentBatches) -> Result<ProduceOutcome, CallError> {
        first(&self.answers(sent)?)
    }

    /// The same for a request with several batches, in their order.
    pub fn answers(&mut self, sent: SentBatches) -> Result<Vec<ProduceOutcome>, CallError> {
        Ok(requests::produced(&self.receive(sent)?))
    }

    /// Like [`Connection::answer`]; `None` if it does not begin to arrive within this time.
    pub fn answer_within(
        &mut self,
        sent: SentBatches,
        wait: Duration,
    ) -> Result<Option<ProduceOutcome>, CallError> {
        if let Some(answer) = self.codec.answer(sent)? {
            return first(&requests::produced(&answer)).map(Some);
        }
        if self.codec.arrived().is_empty() && !self.is_readable_within(wait)? {
            return Ok(None);
        }
        self.answer(sent).map(Some)
    }

    /// Also true once the connection is closed, which the next read reports.
    fn is_readable_within(&mut self, wait: Duration) -> io::Result<bool> {
        if self.stream.has_read_ahead() {
            return Ok(true);
        }
        let socket = self.stream.tcp();
        let patience = socket.read_timeout()?;
        // A timeout of zero would mean none.
        socket.set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
        let found = socket.peek(&mut [0]);
        socket.set_read_timeout(patience)?;
        match found {
            Ok(_) => Ok(true),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads partitions of a topic from the given offsets; waits up to `wait` for the first byte.
    pub fn fetch(
        &mut self,
        topic: &str,
        offsets: &[(i32, i64)],
        wait: Duration,
    ) -> Result<Vec<PartitionRecords>, CallError> {
        let limits = FetchLimits::up_to(FETCH_BYTES, wait);
        let request = requests::fetch([(topic, offsets.iter().copied())], limits);
        Ok(requests::fetched(self.call(requests::FETCH, &request)?)?)
    }

    /// The offset after the last record of each partition, in the order of the partitions.
    pub fn end_offsets(&mut self, topic: &str, partitions: i32) -> Result<Vec<i64>, CallError> {
        self.end_offsets_of(topic, 0..partitions)
    }

    /// The same for one partition, as the others may be led by other nodes.
    pub fn end_offset(&mut self, topic: &str, partition: i32) -> Result<i64, CallError> {
        let ends = self.end_offsets_of(topic, partition..partition.saturating_add(1))?;
        Ok(ends.last().copied().unwrap_or(-1))
    }

    /// From partition 0 on; -1 for partitions outside the range.
    fn end_offsets_of(
        &mut self,
        topic: &str,
        partitions: Range<i32>,
    ) -> Result<Vec<i64>, CallError> {
        let count = usize::try_from(partitions.end).unwrap_or_default();
        let latest = partitions.map(|index| (index, requests::LATEST));
        let request = requests::list_offsets([(topic, latest)]);
        let answer = self.call(requests::LIST_OFFSETS, &request)?;
        requests::offsets_of_each(&answer, count)
    }
}

fn first(answers: &[ProduceOutcome]) -> Result<ProduceOutcome, CallError> {
    answers.first().copied().ok_or_else(|| CallError::Unfitting {
        api: ApiKey::Produce.into(),
        reason: "it is of no partition".to_owned(),
    })
}
