//! One connection to one broker for many callers: negotiated versions, pipelined requests, ordered replies.
//!
//! Two tasks own the two halves of the stream, so that a caller may start many requests before it awaits the first
//! reply. There are no retries here, because only the caller knows whether a retry is right.

use std::io;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use base::HashMap;
use bytes::{Bytes, BytesMut};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest, ApiVersionsResponse};
use kafka_protocol::protocol::{Request, StrBytes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::CLIENT_ID;
use crate::connect::{Stream, Tcp, connect};
use crate::error::{Api, ClientError, FrameError};
use crate::frame::{
    OperateReply, api_of, correlation_of, decode, decode_operated, make_room, overlap, put_operate,
    put_request, take_frame,
};

/// Timeout of an ordinary request at the broker.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const OUTGOING_MAX: usize = 16;

type FrameResult = Result<Bytes, FrameError>;

/// A frame to be sent, and the channel for its reply.
#[derive(Debug)]
struct OutgoingFrame {
    frame: BytesMut,
    answer: Option<PendingAnswer>,
}

#[derive(Debug)]
struct PendingAnswer {
    api: Api,
    correlation: i32,
    answer: oneshot::Sender<FrameResult>,
}

/// A connection with negotiated versions. Its two tasks end when it is dropped and the last reply has arrived, or
/// when the stream fails.
#[derive(Debug)]
pub struct Connection {
    address: String,
    outgoing: mpsc::Sender<OutgoingFrame>,
    next_correlation: AtomicI32,
    versions: HashMap<i16, RangeInclusive<i16>>,
}

/// A request that was sent.
#[derive(Debug)]
pub struct PendingResponse<R> {
    address: String,
    version: i16,
    answer: oneshot::Receiver<FrameResult>,
    request: PhantomData<fn() -> R>,
}

impl Connection {
    /// Connects over TCP, and requests the broker's API versions. The outer error means that the broker could not be
    /// reached, which the caller reports.
    pub async fn open(address: &str) -> Result<Result<Connection, ClientError>, io::Error> {
        let stream = connect(&Tcp, address).await?;
        Ok(Self::over(stream, address).await)
    }

    /// Uses a connected stream. `address` names it in errors. Needs a tokio runtime, and no clock but tokio's.
    pub async fn over(
        stream: impl Stream,
        address: impl Into<String>,
    ) -> Result<Connection, ClientError> {
        let (read, write) = tokio::io::split(stream);
        let (outgoing, to_send) = mpsc::channel(OUTGOING_MAX);
        let (expected, to_expect) = mpsc::unbounded_channel();
        tokio::spawn(send_all(write, to_send, expected));
        tokio::spawn(receive_all(read, to_expect));
        let mut connection = Connection {
            address: address.into(),
            outgoing,
            next_correlation: AtomicI32::new(0),
            versions: HashMap::default(),
        };
        connection.refresh_versions().await?;
        Ok(connection)
    }

    pub(crate) async fn refresh_versions(&mut self) -> Result<(), ClientError> {
        self.versions = self.negotiate().await?;
        Ok(())
    }

    /// Whether the broker offers Postroad's own request to this client.
    pub(crate) fn is_operated(&self) -> bool {
        self.versions.contains_key(&operations::API_KEY)
    }

    /// The address given to [`Connection::open`] or [`Connection::over`].
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends a request and waits for its reply, for [`ANSWER_WITHIN`]. `versions` are those that the caller supports;
    /// the highest that the broker supports too is used.
    pub async fn call<R: Request>(
        &self,
        request: &R,
        versions: RangeInclusive<i16>,
    ) -> Result<R::Response, ClientError> {
        self.start(request, versions).await?.answer(ANSWER_WITHIN).await
    }

    /// Sends without waiting for the reply: requests are sent in the order of these calls.
    pub async fn start<R: Request>(
        &self,
        request: &R,
        versions: RangeInclusive<i16>,
    ) -> Result<PendingResponse<R>, ClientError> {
        let version = self.version::<R>(&versions)?;
        let (answer, pending) = oneshot::channel();
        self.send(request, version, Some(answer)).await?;
        Ok(PendingResponse {
            address: self.address.clone(),
            version,
            answer: pending,
            request: PhantomData,
        })
    }

    /// Sends a request that has no reply (Produce with acks 0).
    pub async fn tell<R: Request>(
        &self,
        request: &R,
        versions: RangeInclusive<i16>,
    ) -> Result<(), ClientError> {
        let version = self.version::<R>(&versions)?;
        self.send(request, version, None).await
    }

    /// Whether the broker supports this request in one of `versions`.
    pub fn offers(&self, api: ApiKey, versions: RangeInclusive<i16>) -> bool {
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
        answer: Option<oneshot::Sender<FrameResult>>,
    ) -> Result<(), ClientError> {
        let encode = |frame: &mut BytesMut, correlation| {
            put_request(frame, &CLIENT_ID, correlation, version, request)
        };
        self.send_framed(api_of::<R>(), encode, answer).await
    }

    async fn send_framed(
        &self,
        api: Api,
        encode: impl FnOnce(&mut BytesMut, i32) -> Result<(), FrameError>,
        answer: Option<oneshot::Sender<FrameResult>>,
    ) -> Result<(), ClientError> {
        let correlation = self.next_correlation.fetch_add(1, Ordering::Relaxed);
        let mut frame = BytesMut::new();
        encode(&mut frame, correlation).map_err(|error| client_error(&self.address, api, error))?;
        let answer = answer.map(|answer| PendingAnswer { api, correlation, answer });
        let closed = |_| ClientError::Closed { address: self.address.clone(), api };
        self.outgoing.send(OutgoingFrame { frame, answer }).await.map_err(closed)
    }

    /// Sends Postroad's own request.
    pub(crate) async fn operate(
        &self,
        version: i16,
        document: &[u8],
        within: Duration,
    ) -> Result<OperateReply, ClientError> {
        let theirs = self.versions.get(&operations::API_KEY);
        if !theirs.is_some_and(|versions| versions.contains(&version)) {
            return Err(ClientError::NotOperated { address: self.address.clone() });
        }
        let (answer, pending) = oneshot::channel();
        let encode = |frame: &mut BytesMut, correlation| {
            put_operate(frame, &CLIENT_ID, correlation, version, document)
        };
        self.send_framed(Api::Operate, encode, Some(answer)).await?;
        let answer = received(&self.address, Api::Operate, pending, within).await?;
        decode_operated(answer).map_err(|error| client_error(&self.address, Api::Operate, error))
    }

    /// Requests version 3, then version 0 if the broker does not know that (KIP-511).
    async fn negotiate(&self) -> Result<HashMap<i16, RangeInclusive<i16>>, ClientError> {
        let named = ApiVersionsRequest::default()
            .with_client_software_name(CLIENT_ID)
            .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
        let (answer, pending) = oneshot::channel();
        self.send(&named, 3, Some(answer)).await?;
        let api = ApiKey::ApiVersions.into();
        let bytes = received(&self.address, api, pending, ANSWER_WITHIN).await?;
        // An error reply is in version 0, which begins alike: the code distinguishes it.
        let refused =
            bytes.get(4..6) == Some(&ResponseError::UnsupportedVersion.code().to_be_bytes());
        let (bytes, version) = if refused {
            let (answer, pending) = oneshot::channel();
            self.send(&ApiVersionsRequest::default(), 0, Some(answer)).await?;
            (received(&self.address, api, pending, ANSWER_WITHIN).await?, 0)
        } else {
            (bytes, 3)
        };
        let response = decode::<ApiVersionsRequest>(bytes, version)
            .map_err(|error| client_error(&self.address, api, error))?;
        Ok(ranges(response))
    }
}

fn ranges(response: ApiVersionsResponse) -> HashMap<i16, RangeInclusive<i16>> {
    response.api_keys.iter().map(|key| (key.api_key, key.min_version..=key.max_version)).collect()
}

impl<R: Request> PendingResponse<R> {
    /// Waits for the reply for `within` at most. A timeout leaves the connection usable.
    pub async fn answer(self, within: Duration) -> Result<R::Response, ClientError> {
        let api = api_of::<R>();
        let bytes = received(&self.address, api, self.answer, within).await?;
        decode::<R>(bytes, self.version).map_err(|error| client_error(&self.address, api, error))
    }
}

fn client_error(address: &str, api: Api, error: FrameError) -> ClientError {
    let address = address.to_owned();
    match error {
        FrameError::Unsendable { api, reason } => ClientError::Unsendable { api, reason },
        FrameError::Unreadable { reason, .. } => ClientError::Unreadable { address, api, reason },
        FrameError::ImpossibleLength { .. } => {
            let reason = "its length is impossible".to_owned();
            ClientError::Unreadable { address, api, reason }
        }
        FrameError::OutOfOrder { .. } | FrameError::NotDue { .. } => {
            let reason = "it answers another request".to_owned();
            ClientError::Unreadable { address, api, reason }
        }
    }
}

async fn received(
    address: &str,
    api: Api,
    answer: oneshot::Receiver<FrameResult>,
    within: Duration,
) -> Result<Bytes, ClientError> {
    match timeout(within, answer).await {
        Ok(Ok(Ok(bytes))) => Ok(bytes),
        Ok(Ok(Err(error))) => Err(client_error(address, api, error)),
        Ok(Err(_)) => Err(ClientError::Closed { address: address.to_owned(), api }),
        Err(_) => Err(ClientError::TimedOut { address: address.to_owned(), api, waited: within }),
    }
}

/// Ends when the connection's handle is dropped, or the stream fails: dropping `expected` then ends the other task.
async fn send_all<S: AsyncWrite>(
    mut stream: WriteHalf<S>,
    mut outgoing: mpsc::Receiver<OutgoingFrame>,
    expected: mpsc::UnboundedSender<PendingAnswer>,
) {
    while let Some(OutgoingFrame { frame, answer }) = outgoing.recv().await {
        if let Some(answer) = answer
            && expected.send(answer).is_err()
        {
            return;
        }
        if stream.write_all(&frame).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}

/// Distributes replies in order. When it ends, callers that still wait see their channels closed.
async fn receive_all<S: AsyncRead>(
    mut stream: ReadHalf<S>,
    mut expected: mpsc::UnboundedReceiver<PendingAnswer>,
) {
    let mut arrived = BytesMut::new();
    while let Some(PendingAnswer { api, correlation, answer }) = expected.recv().await {
        let received = match receive(&mut stream, &mut arrived).await {
            Ok(Some(bytes)) if correlation_of(&bytes) == correlation => Ok(bytes),
            Ok(Some(bytes)) => {
                let got = correlation_of(&bytes);
                Err(FrameError::OutOfOrder { api, got, due: correlation })
            }
            Ok(None) => return,
            Err(error) => Err(error),
        };
        let failed = received.is_err();
        // The caller may have stopped waiting: the reply had to be read anyway.
        let _ = answer.send(received);
        if failed {
            return;
        }
    }
}

/// The next frame; `None` when the stream ended or failed.
async fn receive<S: AsyncRead>(
    stream: &mut ReadHalf<S>,
    arrived: &mut BytesMut,
) -> Result<Option<Bytes>, FrameError> {
    loop {
        if let Some(frame) = take_frame(arrived)? {
            return Ok(Some(frame));
        }
        make_room(arrived)?;
        match stream.read_buf(arrived).await {
            Ok(0) | Err(_) => return Ok(None),
            Ok(_) => {}
        }
    }
}
