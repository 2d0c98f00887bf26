//! The end of a session or of a channel: reasons, notification of the client, and remaining waits.

use std::borrow::Cow;
use std::time::Duration;

use thiserror::Error;
use tokio::time::Instant;

use crate::codec::frame::FrameError;
use crate::codec::methods::{ChannelClose, ConnectionClose, MethodId};
use crate::errors::{Exception, ReplyCode};
use crate::failure::Failure;
use crate::session::{Phase, Session};

/// Time for a client to answer `connection.close`.
const CLOSE_WITHIN: Duration = Duration::from_secs(10);
/// Time for a client that closed the connection to close its socket (RabbitMQ's `CLOSING_TIMEOUT`).
const SOCKET_CLOSE_WITHIN: Duration = Duration::from_secs(30);

/// Reason why a session ended.
#[derive(Debug, Error)]
pub(crate) enum SessionEnd {
    #[error("the client closed the connection")]
    Closed,
    #[error("the client closed the socket without closing the connection")]
    ClosedAbruptly,
    #[error("{0:?} is no protocol header of AMQP 0-9-1")]
    ProtocolHeader([u8; 8]),
    #[error("the connection was not open within {0:?}")]
    Handshake(Duration),
    #[error("{mechanism} login refused: {reason}")]
    LoginRefused { mechanism: String, reason: String },
    #[error("{0}")]
    Exception(Exception),
    #[error("missed heartbeats from client, timeout: {}s", .0.as_secs())]
    MissedHeartbeats(Duration),
    #[error("a message did not arrive within {0:?}")]
    SlowMessage(Duration),
    #[error("the client did not take its replies within {0:?}")]
    SlowReader(Duration),
    #[error("reading: {0}")]
    Read(std::io::Error),
    #[error("writing: {0}")]
    Write(std::io::Error),
    /// A panic of this session only; the log has its message.
    #[error("the session panicked; please report this")]
    Panicked,
    #[error("an operator closed the connection")]
    ClosedByOperator,
    #[error("what the client logged in by has ended")]
    LoginEnded,
    #[error("the node shuts down")]
    Drained,
}

impl SessionEnd {
    /// Ordinary ends are not worth a warning; errors of the client are.
    pub(crate) fn is_ordinary(&self) -> bool {
        match self {
            // Refused log-ins are logged where they are counted, once a minute for each name.
            Self::LoginRefused { .. } => true,
            Self::Closed
            | Self::ClosedAbruptly
            | Self::ClosedByOperator
            | Self::LoginEnded
            | Self::Drained => true,
            Self::Read(error) | Self::Write(error) => matches!(
                error.kind(),
                std::io::ErrorKind::ConnectionReset
                    | std::io::ErrorKind::BrokenPipe
                    | std::io::ErrorKind::ConnectionAborted
            ),
            _ => false,
        }
    }
}

impl Session {
    /// Closes the channel or the connection, with the exception as the reason.
    pub(crate) fn fail(&mut self, failure: Failure) {
        let Failure { channel, method, exception } = failure;
        if matches!(self.phase, Phase::Closing | Phase::Closed | Phase::Ended) {
            return;
        }
        let MethodId { class: class_id, method: method_id } = method;
        let (reply_code, reply_text) = (exception.code.code(), exception.reply_text());
        let reply_text = &reply_text[..];
        if channel == 0 || exception.code.is_hard() {
            let close = ConnectionClose {
                reply_code,
                reply_text,
                class_id,
                method_id,
                ..ConnectionClose::default()
            };
            self.output.method(0, close);
            self.phase = Phase::Closing;
            self.deadline = Some(Instant::now() + CLOSE_WITHIN);
            self.end.get_or_insert(SessionEnd::Exception(exception));
            self.abandon_channels();
        } else {
            tracing::debug!(peer = %self.peer, session = self.id.0, channel, %exception, "channel closed");
            let close = ChannelClose {
                reply_code,
                reply_text,
                class_id,
                method_id,
                ..ChannelClose::default()
            };
            self.output.method(channel, close);
            self.abandon_channel(channel);
        }
    }

    pub(crate) fn fail_frame(&mut self, error: &FrameError) {
        let exception = Exception::new(ReplyCode::FrameError, error.to_string());
        if self.phase == Phase::Running {
            self.fail(Failure { channel: 0, method: MethodId::default(), exception });
            // Frame boundaries are lost, so not even `connection.close_ok` can be awaited.
            self.phase = Phase::Ended;
        } else {
            self.finish(SessionEnd::Exception(exception));
        }
    }

    /// Stops reading; pending output is still sent.
    pub(crate) fn finish(&mut self, end: SessionEnd) {
        self.end.get_or_insert(end);
        self.phase = Phase::Ended;
    }

    /// The client has `connection.close_ok`, and must close the socket.
    pub(crate) fn await_socket_close(&mut self) {
        self.end.get_or_insert(SessionEnd::Closed);
        self.phase = Phase::Closed;
        self.deadline = Some(Instant::now() + SOCKET_CLOSE_WITHIN);
    }

    /// Closes the connection for a shutdown of the node, after work in flight.
    pub(crate) fn drain(&mut self) {
        let reason = "broker forced connection closure with reason 'shutdown'";
        self.force_close(reason.into(), SessionEnd::Drained);
    }

    /// Closes the connection for an operator, with the given reason if there is one.
    pub(crate) fn close_for_operator(&mut self, reason: Option<String>) {
        let reason = reason.map_or(Cow::Borrowed("closed by an operator"), Cow::Owned);
        self.force_close(reason, SessionEnd::ClosedByOperator);
    }

    /// Closes the connection because the client's certificate or token expired without renewal.
    pub(crate) fn close_for_end_of_login(&mut self) {
        self.force_close("the client's credentials have expired".into(), SessionEnd::LoginEnded);
    }

    fn force_close(&mut self, reason: Cow<'static, str>, end: SessionEnd) {
        match self.phase {
            Phase::Running => {
                let exception = Exception::new(ReplyCode::ConnectionForced, reason);
                self.fail(Failure { channel: 0, method: MethodId::default(), exception });
                self.end = Some(end);
            }
            Phase::Closing => {}
            _ => self.finish(end),
        }
    }
}
