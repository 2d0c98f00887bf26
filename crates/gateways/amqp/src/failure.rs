//! What a client did wrong, and how it is told: its channel is closed, or the whole connection.

use tokio::time::Instant;

use crate::codec::frame::{FrameError, FrameKind, Snippet};
use crate::codec::methods::{ChannelClose, ConnectionClose, MethodError, MethodId};
use crate::errors::{Exception, ReplyCode};
use crate::session::{Phase, Session};
use crate::session_end::{CLOSE_WITHIN, SessionEnd};
use rabbitmq::erlang;

/// Class and method.
const METHOD_NUMBER_BYTES: usize = 4;

/// Something a client did is refused; `channel` 0 closes the connection, as a hard error does.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) channel: u16,
    pub(crate) method: MethodId,
    pub(crate) exception: Exception,
}

impl Session {
    /// Tells the client what it did wrong, and closes what has to be closed.
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
            // What follows cannot be told apart: not even an answer is waited for.
            self.phase = Phase::Ended;
        } else {
            self.finish(SessionEnd::Exception(exception));
        }
    }
}

/// `505`: a frame that has no place where it came.
pub(crate) fn unexpected_frame(kind: FrameKind, payload: &[u8]) -> Failure {
    let text = format!("type {}, {}", kind.octet(), Snippet::of(payload));
    let exception = Exception::new(ReplyCode::UnexpectedFrame, text);
    Failure { channel: 0, method: MethodId::default(), exception }
}

/// `501`: a frame that holds what its type cannot.
pub(crate) fn unknown_frame(kind: FrameKind, payload: &[u8]) -> Failure {
    let error = FrameError::UnknownKind { octet: kind.octet(), snippet: Snippet::of(payload) };
    let exception = Exception::new(ReplyCode::FrameError, error.to_string());
    Failure { channel: 0, method: MethodId::default(), exception }
}

/// What a method frame that cannot be read is answered with.
pub(crate) fn bad_method(error: &MethodError, payload: &[u8]) -> Failure {
    let (code, method, text) = match error {
        MethodError::Unknown(method) => (ReplyCode::CommandInvalid, *method, error.to_string()),
        MethodError::Malformed { id, .. } => {
            tracing::debug!(%error, "a method cannot be read");
            // A reply has no room for more.
            let arguments = payload.get(METHOD_NUMBER_BYTES..).unwrap_or_default();
            let shown = &arguments[..arguments.len().min(usize::from(u8::MAX))];
            let text = format!("cannot decode {}", erlang::binary(shown));
            (ReplyCode::FrameError, *id, text)
        }
        MethodError::Truncated => {
            return unknown_frame(FrameKind::Method, payload);
        }
    };
    Failure { channel: 0, method, exception: Exception::new(code, text) }
}
