//! A session's socket: input, output, and timers.
//!
//! One task serves a connection. It reads while the session accepts frames, writes while there is output, and sleeps
//! otherwise. No other module uses the socket.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use base::limits::WRITTEN_AT_ONCE_BYTES_MAX;
use broker::{Permit, YieldBudget};
use futures_util::{FutureExt, StreamExt};
use gateway::{SlowReader, Socket};
use tasks::Task;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::input::{Input, Read};
use crate::limits::{
    AMQP_READ_BYTES_MAX, AMQP_READ_BYTES_MIN, AMQP_UNSENT_BYTES_MAX, AMQP_UNSENT_BYTES_SOFT,
};
use crate::session::end::SessionEnd;
use crate::session::{Phase, Session};

/// Interval of the timer when nothing is due sooner.
const IDLE_TICK: Duration = Duration::from_secs(60);
/// Events handled before the socket is polled again.
const EVENTS_PER_TURN: usize = 256;
/// A client that takes at least one byte of its output is not too slow.
const TAKEN_BYTES_MIN: usize = 1;
/// A client is disconnected after this many half intervals without traffic: two intervals.
const SILENT_TICKS_MAX: u32 = 4;

/// The session, and the socket, buffers and timers that it runs on.
struct Connection {
    socket: Socket,
    session: Session,
    input: Input,
    pace: YieldBudget,
    timer: Pin<Box<Sleep>>,
    /// Memory reserved for a large read.
    read_permit: Option<Permit>,
    heartbeat: Heartbeat,
    reader: SlowReader,
}

/// Heartbeat state, both ways.
#[derive(Debug)]
struct Heartbeat {
    /// The negotiated interval; zero before negotiation, and when heartbeats are disabled.
    interval: Duration,
    next_tick: Instant,
    sent: bool,
    received: bool,
    silent_ticks: u32,
}

/// Reason why a connection was woken.
enum WakeReason {
    /// State has changed: handle everything again.
    Go,
    /// The socket took the most bytes that are written at once, and there are more.
    HasMore,
    Timer,
    End(SessionEnd),
}

/// Serves one connection until it ends. Returns the reason and the client's name.
pub(crate) async fn run(socket: Socket, session: Session) -> (SessionEnd, String) {
    let turns = session.gateway.broker.turns();
    let taken_within = session.gateway.options.replies_taken_within;
    let mut connection = Connection {
        socket,
        pace: YieldBudget::new(turns, WRITTEN_AT_ONCE_BYTES_MAX as u32),
        reader: SlowReader::new(taken_within, TAKEN_BYTES_MIN),
        session,
        input: Input::default(),
        timer: Box::pin(sleep_until(Instant::now())),
        read_permit: None,
        heartbeat: Heartbeat {
            interval: Duration::ZERO,
            next_tick: Instant::now() + IDLE_TICK,
            sent: false,
            received: false,
            silent_ticks: 0,
        },
    };
    // Exclusive queues and consumers must be released, however the session ended.
    let served = AssertUnwindSafe(serve(&mut connection)).catch_unwind().await;
    let end = served.unwrap_or(SessionEnd::Panicked);
    connection.close().await;
    (end, connection.session.client)
}

async fn serve(connection: &mut Connection) -> SessionEnd {
    let mut shutdown = connection.session.gateway.shutdown.clone();
    let mut alarm = connection.session.gateway.alarm.subscribe();
    let mut topology = connection.session.gateway.topology.changes();
    let mut users = connection.session.gateway.users.changes();
    let mut draining = false;
    let closing = connection.session.connection.clone();
    let mut is_told_to_close = false;
    loop {
        if !is_told_to_close && closing.is_closing() {
            is_told_to_close = true;
            connection.session.close_for_operator(closing.close_reason());
        }
        if closing.is_snapshot_requested() {
            connection.session.reply_with_snapshot();
        }
        connection.turn();
        let wake = tokio::select! {
            biased;
            wake = poll_fn(|context| connection.poll(context)) => wake,
            changed = alarm.changed() => {
                if changed.is_ok() {
                    connection.session.notify_blocked();
                }
                WakeReason::Go
            }
            changed = topology.changed() => {
                if changed.is_ok() {
                    connection.session.recheck_access();
                }
                WakeReason::Go
            }
            changed = users.changed() => {
                if changed.is_ok() {
                    connection.session.recheck_access();
                }
                WakeReason::Go
            }
            _ = shutdown.wait_for(|stopping| *stopping), if !draining => {
                draining = true;
                connection.session.drain();
                WakeReason::Go
            }
            () = closing.closing(), if !is_told_to_close => WakeReason::Go,
            () = closing.snapshot_requested() => WakeReason::Go,
        };
        match wake {
            WakeReason::Go => {}
            WakeReason::HasMore => connection.pace.step(WRITTEN_AT_ONCE_BYTES_MAX as u32).await,
            WakeReason::Timer => {
                if let Some(end) = connection.tick() {
                    return end;
                }
            }
            WakeReason::End(end) => return end,
        }
    }
}

impl Connection {
    /// Handles buffered input as far as that needs no waiting.
    fn turn(&mut self) {
        tasks::inject::point(Task::AmqpSession);
        self.session.work(&mut self.input);
        let interval = self.session.negotiated.heartbeat;
        if self.heartbeat.interval != interval {
            self.heartbeat.interval = interval;
            self.heartbeat.next_tick = Instant::now() + interval / 2;
        }
    }

    /// Writes pending output, and polls everything that may make progress.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<WakeReason> {
        match self.write(context) {
            Ok(taken) if taken >= WRITTEN_AT_ONCE_BYTES_MAX && !self.session.output.is_empty() => {
                return Poll::Ready(WakeReason::HasMore);
            }
            Ok(_) => self.pace.rest(),
            Err(error) => return Poll::Ready(WakeReason::End(SessionEnd::Write(error))),
        }
        if self.session.phase == Phase::Ended && self.session.output.is_empty() {
            let end = self.session.end.take().unwrap_or(SessionEnd::Closed);
            return Poll::Ready(WakeReason::End(end));
        }
        let mut any = self.session.poll_operation(context).is_ready();
        any |= self.poll_admission(context);
        any |= self.session.arriving.poll(context);
        any |= self.session.poll_appended(context).is_ready();
        any |= self.session.poll_quotas(context).is_ready();
        any |= self.poll_events(context);
        if self.listens() && self.socket.poll_read_ready(context).is_ready() {
            return Poll::Ready(self.read(context).map_or(WakeReason::Go, WakeReason::End));
        }
        if any {
            return Poll::Ready(WakeReason::Go);
        }
        let at = self.next_deadline();
        if self.timer.deadline() != at {
            self.timer.as_mut().reset(at);
        }
        self.timer.as_mut().poll(context).map(|()| WakeReason::Timer)
    }

    /// Returns the bytes that the socket took. The task is woken when it can take more.
    fn write(&mut self, context: &mut Context<'_>) -> std::io::Result<usize> {
        let output = &mut self.session.output;
        if output.is_empty() {
            return Ok(0);
        }
        let taken = match output.poll_write(context, &mut self.socket) {
            Poll::Ready(taken) => taken?,
            Poll::Pending => 0,
        };
        self.heartbeat.sent |= taken > 0;
        self.reader.note(taken, output.bytes());
        Ok(taken)
    }

    fn listens(&self) -> bool {
        self.session.listens() && self.session.output.bytes() < AMQP_UNSENT_BYTES_MAX
    }

    fn poll_admission(&mut self, context: &mut Context<'_>) -> bool {
        let Some((admission, bytes)) = &mut self.session.admission else { return false };
        let Poll::Ready(permit) = admission.poll_unpin(context) else { return false };
        let bytes = *bytes;
        self.session.admission = None;
        self.session.admitted(permit, bytes);
        true
    }

    /// Handles deliveries and replies while the client takes its output.
    fn poll_events(&mut self, context: &mut Context<'_>) -> bool {
        let mut any = false;
        for _ in 0..EVENTS_PER_TURN {
            if self.session.output.bytes() >= AMQP_UNSENT_BYTES_SOFT
                || !self.session.charges.may_receive()
            {
                break;
            }
            if let Poll::Ready(Some((channel, generation, event))) =
                self.session.events.poll_next_unpin(context)
            {
                self.session.lease_event(channel, generation, event);
            } else if let Poll::Ready(Some(posted)) = self.session.posted.poll_recv(context) {
                self.session.posted(*posted);
            } else {
                return any;
            }
            any = true;
        }
        any
    }

    fn read(&mut self, context: &mut Context<'_>) -> Option<SessionEnd> {
        if self.read_permit.is_none() {
            let broker = self.session.gateway.broker.clone();
            self.read_permit =
                async move { broker.admit(AMQP_READ_BYTES_MAX).await }.now_or_never();
        }
        let bytes_max =
            if self.read_permit.is_some() { AMQP_READ_BYTES_MAX } else { AMQP_READ_BYTES_MIN };
        let read = self.input.read_from(&mut self.socket, context, bytes_max);
        let end = match read {
            Ok(Read::Bytes(_)) => {
                self.heartbeat.received = true;
                None
            }
            Ok(Read::Nothing) => None,
            Ok(Read::Closed) => Some(self.session.end.take().unwrap_or(SessionEnd::ClosedAbruptly)),
            Err(error) => Some(SessionEnd::Read(error)),
        };
        if end.is_none() {
            self.session.work(&mut self.input);
        }
        // The bytes are in batches now, or accounted for separately.
        self.read_permit = None;
        end
    }

    // ---------------------------------------------------------------------------------- clock

    fn next_deadline(&self) -> Instant {
        let deadlines = [
            self.session.deadline,
            self.session.answers_due,
            self.session.login_ends,
            self.too_slow_at(),
        ];
        let first = deadlines.into_iter().flatten().min();
        first.map_or(self.heartbeat.next_tick, |at| at.min(self.heartbeat.next_tick))
    }

    /// So much output is unsent that the client is not read any more, or the connection is closing: the client must
    /// take output.
    fn is_stalled(&self) -> bool {
        self.session.output.bytes() >= AMQP_UNSENT_BYTES_MAX
            || matches!(self.session.phase, Phase::Closing | Phase::Closed | Phase::Ended)
    }

    /// Deadline for a stalled client to take output.
    fn too_slow_at(&self) -> Option<Instant> {
        self.reader.due().filter(|_| self.is_stalled())
    }

    fn tick(&mut self) -> Option<SessionEnd> {
        let now = Instant::now();
        let options = &self.session.gateway.options;
        if self.too_slow_at().is_some_and(|at| now >= at) {
            return Some(SessionEnd::SlowReader(options.replies_taken_within));
        }
        if self.session.deadline.is_some_and(|at| now >= at) {
            return Some(match self.session.phase {
                Phase::Running => SessionEnd::SlowMessage(options.message_arrives_within),
                Phase::Closing | Phase::Closed | Phase::Ended => {
                    self.session.end.take().unwrap_or(SessionEnd::Closed)
                }
                _ => SessionEnd::Handshake(options.handshake_within),
            });
        }
        if self.session.answers_due.is_some_and(|at| now >= at) {
            self.session.time_out_deliveries(now);
        }
        if self.session.login_ends.is_some_and(|at| now >= at) {
            self.session.login_ends = None;
            self.session.close_for_end_of_login();
        }
        if now >= self.heartbeat.next_tick { self.beat(now) } else { None }
    }

    /// Runs twice per interval: sends a heartbeat if there was no other output, and checks that the client is alive.
    fn beat(&mut self, now: Instant) -> Option<SessionEnd> {
        let interval = self.heartbeat.interval;
        let asked = !interval.is_zero() && self.session.phase == Phase::Running;
        self.heartbeat.next_tick = now + if asked { interval / 2 } else { IDLE_TICK };
        let sent = std::mem::replace(&mut self.heartbeat.sent, false);
        let received = std::mem::replace(&mut self.heartbeat.received, false);
        if !asked {
            return None;
        }
        if !sent && self.session.output.is_empty() {
            self.session.output.heartbeat();
        }
        // Silence of a client that is not read proves nothing.
        if received || !self.listens() {
            self.heartbeat.silent_ticks = 0;
        } else {
            self.heartbeat.silent_ticks += 1;
        }
        let is_silent = self.heartbeat.silent_ticks >= SILENT_TICKS_MAX;
        is_silent.then_some(SessionEnd::MissedHeartbeats(interval))
    }

    /// Final cleanup: passes collected messages to the broker, removes consumers, deletes exclusive queues.
    async fn close(&mut self) {
        // After a panic, clean up as much as still works.
        if catch_unwind(AssertUnwindSafe(|| self.session.abandon_channels())).is_err() {
            tracing::error!(session = self.session.id.0, "leaving a session's channels panicked");
        }
        let (topology, id) = (self.session.gateway.topology.clone(), self.session.id);
        let close = async move { topology.close_owner(id).await };
        let closing = tasks::spawn(Task::AmqpSessionEnd, close);
        match closing.await {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => {
                tracing::warn!(session = id.0, %fault, "exclusive queues could not be deleted");
            }
            Err(error) => tracing::error!(session = id.0, %error, "closing a session failed"),
        }
    }
}
