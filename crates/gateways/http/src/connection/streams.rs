//! Concurrent requests of an HTTP/2 connection.
//!
//! They run in the connection's task and end with it, as with HTTP/1: a closed connection leaves nothing behind. In
//! HTTP/2 a client controls the flow of each response, so a socket that accepts writes does not prove that the client
//! reads a response. A stalled response is detected here, and only its request ends.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use hyper::body::{Frame, SizeHint};
use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::time::{Sleep, sleep};
use tracing::debug;

use crate::connection::admission::RequestPlace;
use crate::limits::HTTP2_ANSWER_PIECE_BYTES;

/// Requests that have begun and are not polled yet. Clones share them.
#[derive(Clone)]
pub(crate) struct Streams {
    begun: Arc<Mutex<HandlerStreams>>,
    taken_within: Duration,
}

#[derive(Default)]
struct HandlerStreams {
    /// Progress of the last created handler: hyper creates it, then executes it.
    progress: Option<Arc<Progress>>,
    streams: Vec<Stream>,
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").finish_non_exhaustive()
    }
}

impl Streams {
    /// A client that reads nothing of a response for this long does not get the rest.
    pub(crate) fn new(taken_within: Duration) -> Self {
        Self { begun: Arc::default(), taken_within }
    }

    /// Progress of the response of the next request that is executed.
    pub(crate) fn next(&self) -> Arc<Progress> {
        let progress = Arc::new(Progress::default());
        self.begun.lock().progress = Some(Arc::clone(&progress));
        progress
    }

    /// Requests that have begun since the last call.
    pub(crate) fn take(&self) -> Vec<Stream> {
        std::mem::take(&mut self.begun.lock().streams)
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let mut begun = self.begun.lock();
        let progress = begun.progress.take().unwrap_or_default();
        let (answering, within) = (Box::pin(stream), self.taken_within);
        begun.streams.push(Stream { answering, progress, within, due: None });
    }
}

/// A request, until its response is written.
pub(crate) struct Stream {
    answering: BoxFuture<'static, ()>,
    progress: Arc<Progress>,
    within: Duration,
    /// The piece of the response that waits, and its deadline.
    due: Option<(u64, Pin<Box<Sleep>>)>,
}

impl Future for Stream {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let stream = &mut *self;
        if stream.answering.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let Some(piece) = stream.progress.waiting() else {
            stream.due = None;
            return Poll::Pending;
        };
        let within = stream.within;
        let begin = || (piece, Box::pin(sleep(within)));
        let mut due = stream.due.take().filter(|(of, _)| *of == piece).unwrap_or_else(begin);
        let is_over = due.1.as_mut().poll(context).is_ready();
        stream.due = Some(due);
        if is_over {
            debug!(?within, "the client took nothing of an answer: the request ends");
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

/// Progress of a response.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pieces: AtomicU64,
    is_waiting: AtomicBool,
}

impl Progress {
    /// Number of the piece that waits for the client, if one does.
    fn waiting(&self) -> Option<u64> {
        let is_waiting = self.is_waiting.load(Ordering::Relaxed);
        is_waiting.then(|| self.pieces.load(Ordering::Relaxed))
    }
}

/// A response body that is sent in pieces, each after the client has read enough of the previous ones.
#[derive(Debug)]
pub(crate) struct PacedBody {
    body: Body,
    /// Remainder of a frame that is larger than a piece.
    rest: Bytes,
    progress: Arc<Progress>,
    _place: Option<RequestPlace>,
}

impl PacedBody {
    pub(crate) fn new(body: Body, progress: Arc<Progress>, place: Option<RequestPlace>) -> Self {
        Self { body, rest: Bytes::new(), progress, _place: place }
    }

    fn piece(&mut self) -> Bytes {
        let piece = self.rest.split_to(self.rest.len().min(HTTP2_ANSWER_PIECE_BYTES));
        // The last pieces may wait after the rest of the response is dropped, and must not keep its buffer alive.
        Bytes::copy_from_slice(&piece)
    }
}

impl HttpBody for PacedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let answer = self.get_mut();
        answer.progress.is_waiting.store(false, Ordering::Relaxed);
        if answer.rest.is_empty() {
            match ready!(Pin::new(&mut answer.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.len() > HTTP2_ANSWER_PIECE_BYTES => answer.rest = data,
                    Ok(data) => {
                        answer.progress.pieces.fetch_add(1, Ordering::Relaxed);
                        answer.progress.is_waiting.store(true, Ordering::Relaxed);
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                ended => return Poll::Ready(ended),
            }
        }
        answer.progress.pieces.fetch_add(1, Ordering::Relaxed);
        answer.progress.is_waiting.store(true, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(answer.piece()))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (of_body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(of_body.lower().saturating_add(rest));
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}
