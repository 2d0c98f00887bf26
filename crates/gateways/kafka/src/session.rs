//! One connection: requests in, responses out in the same order.
//!
//! A session is one task with two sides. The reading side decodes frames and starts them; the writing side
//! responds in order. A produce request goes to the broker the moment it is read, so that any number of them
//! (up to a bound) share a sync, and only its response waits in the queue. Every other request runs when its
//! turn comes, as in Kafka: a fetch that waits for records delays only the later responses of its own
//! connection. Because both sides are one task, nothing hops between threads from the socket to the broker
//! and back.

use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::limits::{LOGIN_FRAME_BYTES_MAX, LOGIN_WITHIN, RESPONSE_TAKEN_BYTES_MIN};
use base::limits::{REQUESTS_IN_FLIGHT_PER_SESSION_MAX, WRITTEN_AT_ONCE_BYTES_MAX};
use broker::{Permit, YieldBudget, YieldSlots};
use gateway::socket::{ReadHalf, Socket, WriteHalf};
use gateway::{SlowReader, UnsentOutput, WriteError};
use tasks::Task;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::dispatch::{self, AcceptedRequest};
use crate::messages::frames::{Backlog, FrameBudgets, FrameError, FrameLimits, FrameReader};
use crate::messages::{RequestError, Response};
use crate::security::authentication;
use crate::state::{Gateway, Session};

/// Responses that are ready together are written together, up to this many bytes.
const COALESCED_BYTES_MAX: usize = 256 << 10;

/// Reason of a session's end.
#[derive(Debug, Error)]
pub(crate) enum SessionEnd {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("the client did not take its response within {0:?}")]
    SlowReader(Duration),
    #[error("writing: {0}")]
    Write(std::io::Error),
    #[error("the client did not log in within {LOGIN_WITHIN:?}")]
    SlowLogin,
    #[error("its log-in was refused")]
    LoginRefused,
    #[error("an operator closed the connection")]
    ClosedByOperator,
    #[error("the node shuts down")]
    Drained,
}

impl From<WriteError> for SessionEnd {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Io(error) => Self::Write(error),
            WriteError::SlowReader(within) => Self::SlowReader(within),
        }
    }
}

impl SessionEnd {
    /// False if the client made an error, which is worth a warning.
    pub(crate) fn is_ordinary(&self) -> bool {
        match self {
            Self::Frame(FrameError::Closed | FrameError::Idle(_))
            | Self::Request(RequestError::NotLoggedIn(_) | RequestError::LoginRefused)
            | Self::SlowLogin
            | Self::LoginRefused
            | Self::ClosedByOperator
            | Self::Drained => true,
            Self::Frame(FrameError::Io(error)) | Self::Write(error) => matches!(
                error.kind(),
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted
            ),
            _ => false,
        }
    }
}

/// A started request in the queue of responses.
struct InFlightResponse {
    started: AcceptedRequest,
    /// Bytes in the session's backlog until it is answered.
    queued: usize,
}

/// Serves one connection until it ends. The size of this future is the cost of an idle connection.
pub(crate) async fn run(
    mut socket: Socket,
    session: Arc<Session>,
    gateway: Arc<Gateway>,
) -> SessionEnd {
    let limits = FrameLimits {
        arrives_within: gateway.options.request_arrives_within,
        idle_max: gateway.options.session_idle_max,
    };
    let (read_half, write_half) = socket.split();
    let (queue, turns) = mpsc::channel(REQUESTS_IN_FLIGHT_PER_SESSION_MAX);
    let frames = FrameReader::new(read_half, limits);
    let backlog = Backlog::default();
    let mut reading = pin!(read(frames, queue, &backlog, &session, &gateway));
    let taken_within = gateway.options.response_taken_within;
    let writer = Writer::new(write_half, &backlog, taken_within, gateway.broker.turns());
    let mut writing = pin!(writer.run(turns));
    tokio::select! {
        // A request that was just read may be answered in the same poll.
        biased;
        () = session.connection.closing() => SessionEnd::ClosedByOperator,
        end = &mut reading => match end {
            // Started requests are answered before the connection is closed.
            end @ (SessionEnd::Drained | SessionEnd::LoginRefused) => {
                writing.await.err().unwrap_or(end)
            }
            end => end,
        },
        written = &mut writing => written.err().unwrap_or(SessionEnd::Drained),
    }
}

/// The reading side. Returns the reason of its end; after `Drained`, started requests are still finished.
async fn read(
    mut frames: FrameReader<ReadHalf<'_>>,
    queue: mpsc::Sender<InFlightResponse>,
    backlog: &Backlog,
    session: &Arc<Session>,
    gateway: &Arc<Gateway>,
) -> SessionEnd {
    let mut draining = pin!(gateway.draining());
    loop {
        let budgets = FrameBudgets {
            produce: match session.has_slow_checks() {
                true => &gateway.packed_budget,
                false => gateway.broker.produce_budget(),
            },
            requests: &gateway.request_budget,
            arriving: &gateway.arriving_budget,
        };
        let login = &session.login;
        let is_open = login.is_open();
        let bytes_max = match is_open {
            true => gateway.options.request_bytes_max,
            false => LOGIN_FRAME_BYTES_MAX.min(gateway.options.request_bytes_max),
        };
        let next = async {
            match login.takes_bare_messages() {
                true => frames.next_bare(bytes_max).await,
                false => frames.next(budgets, backlog, bytes_max, &session.meter).await,
            }
        };
        let frame = tokio::select! {
            // A client that always has a request ready must not delay a shutdown.
            biased;
            () = &mut draining => return SessionEnd::Drained,
            frame = next => frame,
            () = sleep_until(login.due()), if !is_open && !login.is_authenticated() => {
                return SessionEnd::SlowLogin;
            }
        };
        let frame = match frame {
            Ok(frame) => frame,
            Err(end) => return end.into(),
        };
        tasks::inject::point(Task::KafkaSession);
        let queued = frame.queued;
        let started = match login.takes_bare_messages() {
            true => Box::pin(authentication::bare(gateway, session, &frame.bytes))
                .await
                .map(AcceptedRequest::Answered),
            false => dispatch::start(gateway, session, frame).await,
        };
        let started = match started {
            Ok(started) => started,
            Err(end) => return end.into(),
        };
        if queue.send(InFlightResponse { started, queued }).await.is_err() {
            // The writing side has ended, and returns the reason.
            return SessionEnd::Drained;
        }
        if login.has_failed() {
            return SessionEnd::LoginRefused;
        }
    }
}

struct Writer<'a> {
    socket: WriteHalf<'a>,
    backlog: &'a Backlog,
    taken_within: Duration,
    pace: YieldBudget,
    unsent: UnsentOutput,
    rooms: Vec<OwnedSemaphorePermit>,
    permits: Vec<Permit>,
    /// Fires when the current request times out, or earlier. Setting it for each request would cost more.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<'a> Writer<'a> {
    fn new(
        socket: WriteHalf<'a>,
        backlog: &'a Backlog,
        taken_within: Duration,
        turns: &YieldSlots,
    ) -> Self {
        Self {
            pace: YieldBudget::new(turns, WRITTEN_AT_ONCE_BYTES_MAX as u32),
            socket,
            backlog,
            taken_within,
            unsent: UnsentOutput::default(),
            rooms: Vec::new(),
            permits: Vec::new(),
            timer: None,
        }
    }

    /// The writing side. Returns `Ok` once the reading side has ended and all requests are answered.
    async fn run(mut self, mut turns: mpsc::Receiver<InFlightResponse>) -> Result<(), SessionEnd> {
        let mut next = None;
        loop {
            let mut turn: InFlightResponse = match next.take() {
                Some(turn) => turn,
                None => match turns.recv().await {
                    Some(turn) => turn,
                    None => return Ok(()),
                },
            };
            let answer = self.answer(&mut turn.started).await?;
            self.push(answer, turn.queued);
            next = self.push_ready(&mut turns)?;
            self.flush().await?;
        }
    }

    /// Waits for a request's response until its deadline.
    async fn answer(
        &mut self,
        started: &mut AcceptedRequest,
    ) -> Result<Option<Response>, RequestError> {
        let Some(due) = started.due() else { return started.await };
        poll_fn(|context| {
            if let Poll::Ready(answer) = Pin::new(&mut *started).poll(context) {
                return Poll::Ready(answer);
            }
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
            if timer.deadline() > due {
                timer.as_mut().reset(due);
            }
            while timer.as_mut().poll(context).is_ready() {
                if Instant::now() >= due {
                    return Poll::Ready(started.time_out());
                }
                // The timer was set for an earlier request.
                timer.as_mut().reset(due);
            }
            Poll::Pending
        })
        .await
    }

    /// Adds the following responses as long as they are ready; returns the first request that is not.
    fn push_ready(
        &mut self,
        turns: &mut mpsc::Receiver<InFlightResponse>,
    ) -> Result<Option<InFlightResponse>, SessionEnd> {
        while self.unsent.bytes() < COALESCED_BYTES_MAX {
            let Ok(mut turn) = turns.try_recv() else { return Ok(None) };
            // A request that has not run yet must be polled with a waker.
            if !turn.started.has_started() {
                return Ok(Some(turn));
            }
            let mut context = Context::from_waker(Waker::noop());
            match Pin::new(&mut turn.started).poll(&mut context) {
                Poll::Ready(answer) => self.push(answer?, turn.queued),
                Poll::Pending => return Ok(Some(turn)),
            }
        }
        Ok(None)
    }

    fn push(&mut self, answer: Option<Response>, queued: usize) {
        self.backlog.remove(queued);
        if let Some(response) = answer {
            for chunk in response.chunks {
                self.unsent.push(chunk);
            }
            self.rooms.extend(response.room);
            self.permits.extend(response.permit);
        }
    }

    async fn flush(&mut self) -> Result<(), SessionEnd> {
        while !self.unsent.is_empty() {
            let write = |context: &mut Context<'_>| {
                Poll::Ready(self.unsent.poll_write(context, &mut self.socket))
            };
            match poll_fn(write).await {
                Poll::Ready(written) => {
                    let written = written.map_err(SessionEnd::Write)?;
                    self.pace.step(written as u32).await;
                }
                Poll::Pending => {
                    self.pace.rest();
                    let reader = SlowReader::new(self.taken_within, RESPONSE_TAKEN_BYTES_MIN);
                    reader.wait(&mut self.unsent, &mut self.socket).await?;
                }
            }
        }
        self.pace.rest();
        self.rooms.clear();
        self.permits.clear();
        Ok(())
    }
}
