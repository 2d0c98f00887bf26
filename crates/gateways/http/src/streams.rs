//! Requests of a connection of HTTP/2, which are under way at the same time.
//!
//! They run in the connection's own task and end with it, as the request of a connection of HTTP/1 does: a connection that is cut
//! off leaves nothing behind. A client decides for each answer how much of it is sent. So a socket that takes what is written
//! says nothing about a client that takes nothing of an answer: that is noticed here, and ends that request alone.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use base::limits::HTTP2_ANSWER_PIECE_BYTES;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use hyper::body::{Frame, SizeHint};
use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::time::{Sleep, sleep};
use tracing::debug;

use crate::places::RequestPlace;

/// Those that have begun and are not polled yet. Clones are the same.
#[derive(Clone)]
pub(crate) struct Streams {
    begun: Arc<Mutex<Begun>>,
    taken_within: Duration,
}

#[derive(Default)]
struct Begun {
    /// Of the request whose handler was made last: hyper makes it, and then has it carried out.
    progress: Option<Arc<Progress>>,
    streams: Vec<Stream>,
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").finish_non_exhaustive()
    }
}

impl Streams {
    /// A client that takes nothing of an answer for so long does not get the rest.
    pub(crate) fn new(taken_within: Duration) -> Self {
        Self { begun: Arc::default(), taken_within }
    }

    /// What the next one that is carried out has of its answer.
    pub(crate) fn next(&self) -> Arc<Progress> {
        let progress = Arc::new(Progress::default());
        self.begun.lock().progress = Some(Arc::clone(&progress));
        progress
    }

    /// Those that have begun since.
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

/// A request, until its answer is written.
pub(crate) struct Stream {
    answering: BoxFuture<'static, ()>,
    progress: Arc<Progress>,
    within: Duration,
    /// While a piece of the answer waits: which one, and until when.
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

/// How an answer gets on.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pieces: AtomicU64,
    is_waiting: AtomicBool,
}

impl Progress {
    /// The number of the piece that waits for the client, if one does.
    fn waiting(&self) -> Option<u64> {
        let is_waiting = self.is_waiting.load(Ordering::Relaxed);
        is_waiting.then(|| self.pieces.load(Ordering::Relaxed))
    }
}

/// A body that is handed over in pieces, each when the client has taken enough of those before.
#[derive(Debug)]
pub(crate) struct Answer {
    body: Body,
    /// Of a part that is larger than a piece.
    rest: Bytes,
    progress: Arc<Progress>,
    _place: Option<RequestPlace>,
}

impl Answer {
    pub(crate) fn new(body: Body, progress: Arc<Progress>, place: Option<RequestPlace>) -> Self {
        Self { body, rest: Bytes::new(), progress, _place: place }
    }

    fn piece(&mut self) -> Bytes {
        let piece = self.rest.split_to(self.rest.len().min(HTTP2_ANSWER_PIECE_BYTES));
        // The last pieces may wait for the client when all else of the answer is gone, and must not keep it.
        Bytes::copy_from_slice(&piece)
    }
}

impl HttpBody for Answer {
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
