//! Errors of a client, each with the channel that it closes. The session closes it: `session::end`.

use rabbitmq::erlang;

use crate::codec::fields::EncodedTable;
use crate::codec::frame::{FrameError, FrameKind, Snippet};
use crate::codec::methods::{MethodError, MethodId};
use crate::codec::table::FieldTable;
use crate::errors::{Exception, ReplyCode};

/// Class and method.
const METHOD_NUMBER_BYTES: usize = 4;

/// A rejected request of a client; `channel` 0 closes the connection, as a hard error does.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) channel: u16,
    pub(crate) method: MethodId,
    pub(crate) exception: Exception,
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

/// Decodes a table of arguments.
pub(crate) fn table(encoded: EncodedTable<'_>) -> Result<FieldTable, Exception> {
    FieldTable::decode(encoded.0)
        .map_err(|malformed| Exception::new(ReplyCode::SyntaxError, malformed.to_string()))
}
