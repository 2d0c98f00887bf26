//! One connection to one broker: versions negotiated, requests pipelined, answers in order.
//!
//! The decision that shapes it: two tasks own the two halves of the socket, so that a caller may
//! start many requests before it awaits the first answer. Nothing is retried here; who asked knows
//! whether asking again is right.

use base::HashMap;
use std::io;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, RequestHeader, ResponseHeader,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::error::{Api, ClientError};

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long a broker may think about an ordinary request.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// A larger answer is a fault, or another protocol's text taken for a length.
const ANSWER_BYTES_MAX: usize = 256 << 20;
const OUTGOING_MAX: usize = 16;
/// Also what tells Postroad that it may offer its own request.
const CLIENT_ID: StrBytes = StrBytes::from_static_str(operations::KNOWN_TO);
const CORRELATION_LEN: usize = 4;

/// A frame on its way out, and who waits for the answer.
#[derive(Debug)]
struct Outgoing {
    frame: BytesMut,
    answer: Option<Expected>,
}

#[derive(Debug)]
struct Expected {
    correlation: i32,
    answer: oneshot::Sender<Result<Bytes, String>>,
}

#[derive(Debug)]
pub(crate) struct Connection {
    address: String,
    outgoing: mpsc::Sender<Outgoing>,
    next_correlation: AtomicI32,
    versions: HashMap<i16, RangeInclusive<i16>>,
}

/// A request that was sent.
#[derive(Debug)]
pub(crate) struct Pending<R> {
    address: String,
    version: i16,
    answer: oneshot::Receiver<Result<Bytes, String>>,
    request: PhantomData<R>,
}

impl Connection {
    /// Connects, and asks which requests the broker takes. An I/O error means that it could not be
    /// reached; the caller knows how to say so.
    pub(crate) async fn open(address: &str) -> Result<Result<Connection, ClientError>, io::Error> {
        let stream = timeout(CONNECT_WITHIN, TcpStream::connect(address))
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "it does not answer"))??;
        stream.set_nodelay(true)?;
        let (read, write) = stream.into_split();
        let (outgoing, to_send) = mpsc::channel(OUTGOING_MAX);
        let (expected, to_expect) = mpsc::unbounded_channel();
        tokio::spawn(send_all(write, to_send, expected));
        tokio::spawn(receive_all(read, to_expect));
        let mut connection = Connection {
            address: address.to_owned(),
            outgoing,
            next_correlation: AtomicI32::new(0),
            versions: HashMap::default(),
        };
        Ok(match connection.negotiate().await {
            Ok(versions) => {
                connection.versions = versions;
                Ok(connection)
            }
            Err(error) => Err(error),
        })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Asks and waits. `versions` are those that the caller's code was written for.
    pub(crate) async fn call<R: Request>(
        &self,
        request: &R,
        versions: RangeInclusive<i16>,
    ) -> Result<R::Response, ClientError> {
        self.start(request, versions).await?.answer(ANSWER_WITHIN).await
    }

    /// Sends without waiting for the answer: requests go out in the order of these calls.
    pub(crate) async fn start<R: Request>(
        &self,
        request: &R,
        versions: RangeInclusive<i16>,
    ) -> Result<Pending<R>, ClientError> {
        let version = self.version::<R>(&versions)?;
        let (answer, pending) = oneshot::channel();
        self.send(request, version, Some(answer)).await?;
        Ok(Pending {
            address: self.address.clone(),
            version,
            answer: pending,
            request: PhantomData,
        })
    }

    /// Sends what has no answer (Produce with acks 0).
    pub(crate) async fn tell<R: Request>(
        &self,
        request: &R,
        versions: RangeInclusive<i16>,
    ) -> Result<(), ClientError> {
        let version = self.version::<R>(&versions)?;
        self.send(request, version, None).await
    }

    /// Whether the broker takes this request in one of `versions`.
    pub(crate) fn offers(&self, api: ApiKey, versions: RangeInclusive<i16>) -> bool {
        self.versions.get(&(api as i16)).is_some_and(|theirs| overlap(theirs, &versions).is_some())
    }

    fn version<R: Request>(&self, ours: &RangeInclusive<i16>) -> Result<i16, ClientError> {
        let theirs = self.versions.get(&R::KEY);
        theirs.and_then(|theirs| overlap(theirs, ours)).ok_or_else(|| ClientError::Unsupported {
            address: self.address.clone(),
            api: api_of::<R>(),
            ours: format!("{} to {}", ours.start(), ours.end()),
            theirs: theirs.map_or("none".into(), |t| format!("{} to {}", t.start(), t.end())),
        })
    }

    async fn send<R: Request>(
        &self,
        request: &R,
        version: i16,
        answer: Option<oneshot::Sender<Result<Bytes, String>>>,
    ) -> Result<(), ClientError> {
        let api = api_of::<R>();
        self.send_framed(api, |correlation| frame(request, version, correlation), answer).await
    }

    async fn send_framed(
        &self,
        api: Api,
        frame: impl FnOnce(i32) -> Result<BytesMut, String>,
        answer: Option<oneshot::Sender<Result<Bytes, String>>>,
    ) -> Result<(), ClientError> {
        let correlation = self.next_correlation.fetch_add(1, Ordering::Relaxed);
        let frame = frame(correlation).map_err(|reason| {
            let address = self.address.clone();
            ClientError::Unreadable { address, api, reason }
        })?;
        let answer = answer.map(|answer| Expected { correlation, answer });
        let closed = |_| ClientError::Closed { address: self.address.clone(), api };
        self.outgoing.send(Outgoing { frame, answer }).await.map_err(closed)
    }

    /// Asks Postroad's own request; the answer is whole but for its correlation id.
    pub(crate) async fn operate(
        &self,
        version: i16,
        document: &[u8],
        within: Duration,
    ) -> Result<Bytes, ClientError> {
        let theirs = self.versions.get(&operations::API_KEY);
        if !theirs.is_some_and(|versions| versions.contains(&version)) {
            return Err(ClientError::NotOperated { address: self.address.clone() });
        }
        let (answer, pending) = oneshot::channel();
        let frame = |correlation| operate_frame(version, document, correlation);
        self.send_framed(Api::Operate, frame, Some(answer)).await?;
        let mut answer = received(&self.address, Api::Operate, pending, within).await?;
        // Its correlation id was checked on arrival.
        Ok(answer.split_off(CORRELATION_LEN))
    }

    /// Asks in version 3, and in version 0 whoever does not know that (KIP-511).
    async fn negotiate(&self) -> Result<HashMap<i16, RangeInclusive<i16>>, ClientError> {
        let named = ApiVersionsRequest::default()
            .with_client_software_name(CLIENT_ID)
            .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
        let (answer, pending) = oneshot::channel();
        self.send(&named, 3, Some(answer)).await?;
        let bytes =
            received(&self.address, ApiKey::ApiVersions.into(), pending, ANSWER_WITHIN).await?;
        // An error is answered in version 0, which begins alike: the code tells which it is.
        let refused =
            bytes.get(4..6) == Some(&ResponseError::UnsupportedVersion.code().to_be_bytes());
        let response = if refused {
            let (answer, pending) = oneshot::channel();
            self.send(&ApiVersionsRequest::default(), 0, Some(answer)).await?;
            let api = ApiKey::ApiVersions.into();
            let bytes = received(&self.address, api, pending, ANSWER_WITHIN).await?;
            decode::<ApiVersionsRequest>(&self.address, bytes, 0)?
        } else {
            decode::<ApiVersionsRequest>(&self.address, bytes, 3)?
        };
        Ok(ranges(response))
    }
}

fn ranges(response: ApiVersionsResponse) -> HashMap<i16, RangeInclusive<i16>> {
    response.api_keys.iter().map(|key| (key.api_key, key.min_version..=key.max_version)).collect()
}

/// The highest version in both.
fn overlap(theirs: &RangeInclusive<i16>, ours: &RangeInclusive<i16>) -> Option<i16> {
    let (low, high) = (*theirs.start().max(ours.start()), *theirs.end().min(ours.end()));
    (low <= high).then_some(high)
}

impl<R: Request> Pending<R> {
    pub(crate) async fn answer(self, within: Duration) -> Result<R::Response, ClientError> {
        let bytes = received(&self.address, api_of::<R>(), self.answer, within).await?;
        decode::<R>(&self.address, bytes, self.version)
    }
}

async fn received(
    address: &str,
    api: Api,
    answer: oneshot::Receiver<Result<Bytes, String>>,
    within: Duration,
) -> Result<Bytes, ClientError> {
    let address = address.to_owned();
    match timeout(within, answer).await {
        Ok(Ok(Ok(bytes))) => Ok(bytes),
        Ok(Ok(Err(reason))) => Err(ClientError::Unreadable { address, api, reason }),
        Ok(Err(_)) => Err(ClientError::Closed { address, api }),
        Err(_) => Err(ClientError::TimedOut { address, api, waited: within }),
    }
}

/// Decodes an answer that begins with its correlation id, which was checked on arrival.
fn decode<R: Request>(
    address: &str,
    mut bytes: Bytes,
    version: i16,
) -> Result<R::Response, ClientError> {
    ResponseHeader::decode(&mut bytes, R::Response::header_version(version))
        .and_then(|_| R::Response::decode(&mut bytes, version))
        .map_err(|error| ClientError::Unreadable {
            address: address.to_owned(),
            api: api_of::<R>(),
            reason: error.to_string(),
        })
}

/// A whole frame, its length in front.
fn frame<R: Request>(request: &R, version: i16, correlation: i32) -> Result<BytesMut, String> {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation)
        .with_client_id(Some(CLIENT_ID));
    let size = request.compute_size(version).map_err(|error| error.to_string())?;
    let mut frame = BytesMut::with_capacity(size + 64);
    frame.put_i32(0);
    header
        .encode(&mut frame, R::header_version(version))
        .and_then(|()| request.encode(&mut frame, version))
        .map_err(|error| error.to_string())?;
    let length = i32::try_from(frame.len() - 4).map_err(|_| "it is over 2 GB".to_owned())?;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    Ok(frame)
}

/// Postroad's own request, whose shape [`operations`] says.
fn operate_frame(version: i16, document: &[u8], correlation: i32) -> Result<BytesMut, String> {
    let body = i32::try_from(document.len()).map_err(|_| "it is over 2 GB".to_owned())?;
    let mut frame = BytesMut::with_capacity(document.len() + 64);
    frame.put_i32(0);
    frame.put_i16(operations::API_KEY);
    frame.put_i16(version);
    frame.put_i32(correlation);
    frame.put_i16(CLIENT_ID.len() as i16);
    frame.put_slice(CLIENT_ID.as_bytes());
    frame.put_i32(body);
    frame.put_slice(document);
    let length = i32::try_from(frame.len() - 4).map_err(|_| "it is over 2 GB".to_owned())?;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    Ok(frame)
}

fn api_of<R: Request>() -> Api {
    Api::Kafka(ApiKey::try_from(R::KEY).expect("every request of the message crate has a key"))
}

/// Ends when the connection's handle is dropped, or the socket fails: dropping `expected` then
/// tells the other task.
async fn send_all(
    mut socket: OwnedWriteHalf,
    mut outgoing: mpsc::Receiver<Outgoing>,
    expected: mpsc::UnboundedSender<Expected>,
) {
    while let Some(Outgoing { frame, answer }) = outgoing.recv().await {
        if let Some(answer) = answer
            && expected.send(answer).is_err()
        {
            return;
        }
        if socket.write_all(&frame).await.is_err() {
            return;
        }
    }
}

/// Hands out answers in order. Whoever still waits when it ends learns it by its dropped channel.
async fn receive_all(mut socket: OwnedReadHalf, mut expected: mpsc::UnboundedReceiver<Expected>) {
    while let Some(Expected { correlation, answer }) = expected.recv().await {
        let received = match receive(&mut socket).await {
            Ok(bytes) if bytes.get(..4) == Some(&correlation.to_be_bytes()[..]) => Ok(bytes),
            Ok(_) => Err("it answers another request".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(error.to_string()),
            Err(_) => return,
        };
        let failed = received.is_err();
        // Who asked may have stopped waiting: the answer had to be read all the same.
        let _ = answer.send(received);
        if failed {
            return;
        }
    }
}

async fn receive(socket: &mut OwnedReadHalf) -> io::Result<Bytes> {
    let length = socket.read_i32().await?;
    let length = usize::try_from(length).ok().filter(|length| *length <= ANSWER_BYTES_MAX);
    let Some(length) = length else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "its length is impossible"));
    };
    let mut bytes = BytesMut::with_capacity(length);
    let mut rest = socket.take(length as u64);
    while bytes.len() < length {
        if rest.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(bytes.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_version_that_both_know_is_spoken() {
        assert_eq!(overlap(&(0..=9), &(3..=12)), Some(9));
        assert_eq!(overlap(&(4..=18), &(4..=12)), Some(12));
        assert_eq!(overlap(&(0..=2), &(3..=12)), None);
    }

    #[test]
    fn a_frame_has_its_length_in_front() {
        let frame = frame(&ApiVersionsRequest::default(), 0, 7).expect("encodes");
        let length = i32::from_be_bytes(frame[..4].try_into().expect("four bytes"));
        assert_eq!(length as usize, frame.len() - 4);
        assert_eq!(frame[8..12], 7_i32.to_be_bytes());
    }
}
