//! Closes a channel or the whole connection after an error of the client.

use tokio::time::Instant;

use crate::codec::frame::{FrameError, FrameKind, Snippet};
use crate::codec::methods::{ChannelClose, ConnectionClose, MethodError, MethodId};
use crate::errors::{Exception, ReplyCode};
use crate::session::{Phase, Session};
use crate::session_end::{CLOSE_WITHIN, SessionEnd};
use rabbitmq::erlang;

/// Class and method.
const METHOD_NUMBER_BYTES: usize = 4;

/// A rejected request of a client; `channel` 0 closes the connection, as a hard error does.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) channel: u16,
    pub(crate) method: MethodId,
    pub(crate) exception: Exception,
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
}

/// `505`: a frame that is not allowed at this point.
pub(crate) fn unexpected_frame(kind: FrameKind, payload: &[u8]) -> Failure {
    let text = format!("type {}, {}", kind.octet(), Snippet::of(payload));
    let exception = Exception::new(ReplyCode::UnexpectedFrame, text);
    Failure { channel: 0, method: MethodId::default(), exception }
}

/// `501`: a frame whose payload does not match its type.
pub(crate) fn unknown_frame(kind: FrameKind, payload: &[u8]) -> Failure {
    let error = FrameError::UnknownKind { octet: kind.octet(), snippet: Snippet::of(payload) };
    let exception = Exception::new(ReplyCode::FrameError, error.to_string());
    Failure { channel: 0, method: MethodId::default(), exception }
}

/// Failure for a method frame that cannot be decoded.
pub(crate) fn bad_method(error: &MethodError, payload: &[u8]) -> Failure {
    let (code, method, text) = match error {
        MethodError::Unknown(method) => (ReplyCode::CommandInvalid, *method, error.to_string()),
        MethodError::Malformed { id, .. } => {
            tracing::debug!(%error, "a method cannot be read");
            // A reply text cannot hold more.
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
