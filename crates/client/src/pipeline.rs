//! One connection to one broker for one caller, over any stream.
//!
//! It has no task and no channel of its own. The caller's task writes and reads, so that an exchange costs no task
//! switch and the caller determines the order of events, which a simulation can repeat. Requests are sent once, in
//! the version that the caller names; there is no negotiation and no retry.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf;
use kafka_protocol::protocol::{Request, StrBytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;

use crate::CLIENT_ID;
use crate::codec::{Codec, RequestHandle};
use crate::connect::{Connect, Stream, connect};
use crate::connection::ANSWER_WITHIN;
use crate::error::{CallError, FrameError};
use crate::frame::{READ_LEN, make_room};

/// A connection owned by one caller. Every method may be cancelled while it waits (in a `select!`, by a timeout): the
/// next call completes its writes and reads.
pub struct Pipeline<S = Box<dyn Stream>> {
    stream: S,
    codec: Codec,
    patience: Duration,
}

impl<S> fmt::Debug for Pipeline<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline").field("codec", &self.codec).finish_non_exhaustive()
    }
}

impl Pipeline {
    /// Connects, for [`CONNECT_WITHIN`](crate::connect::CONNECT_WITHIN) at most.
    pub async fn open(connector: &dyn Connect, address: &str) -> io::Result<Self> {
        Ok(Self::over(connect(connector, address).await?))
    }
}

impl<S: Stream> Pipeline<S> {
    /// Uses a connected stream.
    pub fn over(stream: S) -> Self {
        Self { stream, codec: Codec::new(CLIENT_ID), patience: ANSWER_WITHIN }
    }

    /// Uses another client id than [`CLIENT_ID`].
    pub fn named(mut self, client_id: &'static str) -> Self {
        self.codec.set_client_id(StrBytes::from_static_str(client_id));
        self
    }

    /// Timeout of each method; by default [`ANSWER_WITHIN`].
    pub fn patient_for(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sends a request and waits for its reply. Replies to earlier requests that were not received are skipped.
    pub async fn call<R: Request>(
        &mut self,
        version: i16,
        request: &R,
    ) -> Result<R::Response, CallError> {
        let sent = self.send(version, request).await?;
        self.receive(sent).await
    }

    /// Sends without waiting for the reply.
    pub async fn send<R: Request>(
        &mut self,
        version: i16,
        request: &R,
    ) -> Result<RequestHandle<R>, CallError> {
        let sent = self.codec.send(version, request)?;
        let patience = self.patience;
        within(patience, self.write()).await?;
        Ok(sent)
    }

    /// Sends a request that has no reply (Produce with acks 0).
    pub async fn tell<R: Request>(&mut self, version: i16, request: &R) -> Result<(), CallError> {
        self.codec.tell(version, request)?;
        let patience = self.patience;
        within(patience, self.write()).await
    }

    /// The stream itself, for tests that misbehave. Bytes that were already read are not in it: none, if every reply
    /// so far was received.
    pub fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    pub fn into_stream(self) -> S {
        self.stream
    }

    /// Waits for the reply to a request.
    pub async fn receive<R: Request>(
        &mut self,
        sent: RequestHandle<R>,
    ) -> Result<R::Response, CallError> {
        let patience = self.patience;
        within(patience, self.wait_for(|codec| codec.answer(sent))).await
    }

    /// Like [`Pipeline::receive`]; `None` if the reply does not arrive within this time.
    pub async fn receive_within<R: Request>(
        &mut self,
        sent: RequestHandle<R>,
        wait: Duration,
    ) -> Result<Option<R::Response>, CallError> {
        match timeout(wait, self.wait_for(|codec| codec.answer(sent))).await {
            Ok(answered) => answered.map(Some),
            Err(_) => Ok(None),
        }
    }

    async fn wait_for<A>(
        &mut self,
        mut look: impl FnMut(&mut Codec) -> Result<Option<A>, FrameError>,
    ) -> Result<A, CallError> {
        // Completes the writes of a cancelled `send`.
        self.write().await?;
        loop {
            if let Some(answer) = look(&mut self.codec)? {
                return Ok(answer);
            }
            make_room(self.codec.arrived())?;
            if self.stream.read_buf(self.codec.arrived()).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
    }

    async fn write(&mut self) -> Result<(), CallError> {
        while !self.codec.outgoing().is_empty() {
            poll_fn(|context| self.poll_write(context)).await?;
        }
        Ok(self.stream.flush().await?)
    }

    /// Reads too while it cannot write: a broker that cannot send its replies accepts no more requests.
    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut stream = Pin::new(&mut self.stream);
        match stream.as_mut().poll_write(context, self.codec.outgoing()) {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(written) => {
                self.codec.outgoing().advance(written?);
                Poll::Ready(Ok(()))
            }
            Poll::Pending => {
                let mut chunk = [0; READ_LEN];
                let mut chunk = ReadBuf::new(&mut chunk);
                ready!(stream.poll_read(context, &mut chunk))?;
                match chunk.filled() {
                    [] => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                    read => {
                        self.codec.arrived().extend_from_slice(read);
                        Poll::Ready(Ok(()))
                    }
                }
            }
        }
    }
}

async fn within<T>(
    patience: Duration,
    call: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    match timeout(patience, call).await {
        Ok(done) => done,
        Err(_) => Err(CallError::TimedOut { waited: patience }),
    }
}
