//! One private request, `Operate`: operations on lease groups, dead letters and scheduled records, which
//! Kafka's protocol has no requests for. The command line sends it.
//!
//! Its api key is far away from Kafka's own, and its body is a JSON document: another operation is another
//! variant, and needs no codec. The version of the request is that of the document. ApiVersions lists it to
//! the command line only, so stock clients never send it.
//!
//! Its layout, its numbers and its documents are in the crate [`operations`](::operations), which clients
//! share. The crate [`admin`](::admin) carries the operations out. Every request gets a response, with an error if it is
//! invalid.
//!
//! * [`access`]: rights of the caller

pub(crate) mod access;

use std::sync::Arc;

use ::operations::document::WithToken;
use ::operations::{VERSION, VERSION_WITH_TOKEN};
use base::json;
use base::limits::{OPERATION_BYTES_MAX, PARSED_INLINE_BYTES_MAX};
use bytes::BufMut;
use kafka_protocol::error::ResponseError;

use crate::errors::Fault;
use crate::limits::OPERATION_LIMITS;
use crate::messages::frames::Frame;
use crate::messages::{Preamble, RequestError, Response};
use crate::state::{Gateway, Session};
use kafka_wire::primitives::{Cursor, MalformedValue, PutPrimitives};

const PREAMBLE_LEN: usize = 8;

/// Handles a request whose preamble was read.
pub(crate) async fn handle(
    gateway: Arc<Gateway>,
    session: Arc<Session>,
    preamble: Preamble,
    frame: Frame,
) -> Result<Response, RequestError> {
    let asked = match frame.bytes.len() > PARSED_INLINE_BYTES_MAX {
        true => {
            let (version, bytes) = (preamble.version, frame.bytes);
            gateway.broker.cpu().run(move || parse(version, &bytes)).await
        }
        false => parse(preamble.version, &frame.bytes),
    };
    let answer = match asked {
        Ok(asked) => carry_out(&gateway, &session, asked).await,
        Err(fault) => Err(fault),
    };
    Ok(respond(preamble.correlation, answer))
}

/// The document of a response.
type DocumentResult = Result<Vec<u8>, Fault>;

async fn carry_out(gateway: &Gateway, session: &Session, asked: WithToken) -> DocumentResult {
    let WithToken { token, operation } = asked;
    let refused = |fault: Fault| {
        let peer = session.connection.peer().ip();
        tracing::warn!(%peer, %fault, "an operation was refused");
        fault
    };
    let caller = access::check(gateway, session, token.as_deref()).map_err(refused)?;
    let caller = access::audited_as_command(gateway, session, caller);
    let authorized = gateway.options.admin.authorize(&caller, operation);
    let operation = authorized.map_err(|error| refused(error.into()))?;
    Ok(operation.carry_out().await?)
}

fn invalid(message: String) -> Fault {
    Fault::new(ResponseError::InvalidRequest, message)
}

pub(crate) fn parse(version: i16, frame: &[u8]) -> Result<WithToken, Fault> {
    if !(VERSION..=VERSION_WITH_TOKEN).contains(&version) {
        return Err(Fault::new(
            ResponseError::UnsupportedVersion,
            format!("Operate has versions {VERSION} to {VERSION_WITH_TOKEN} here, not {version}"),
        ));
    }
    let body = body(frame).map_err(|malformed| invalid(format!("the request is {malformed}")))?;
    if body.len() > OPERATION_BYTES_MAX {
        let bytes = body.len();
        return Err(invalid(format!(
            "an operation has at most {OPERATION_BYTES_MAX} bytes, not {bytes}"
        )));
    }
    json::examine(body, &OPERATION_LIMITS).map_err(|error| invalid(error.to_string()))?;
    let parsed = match version {
        VERSION => {
            serde_json::from_slice(body).map(|operation| WithToken { token: None, operation })
        }
        _ => serde_json::from_slice(body),
    };
    parsed.map_err(|error| invalid(format!("the document is no operation: {error}")))
}

fn body(frame: &[u8]) -> Result<&[u8], MalformedValue> {
    let mut cursor = Cursor::new(frame);
    cursor.skip(PREAMBLE_LEN)?;
    cursor.nullable_text(false)?;
    let body = cursor.nullable_blob(false)?.ok_or(MalformedValue::Null)?;
    match cursor.left() {
        0 => Ok(body),
        left => Err(MalformedValue::Length { length: (body.len() + left) as i64 }),
    }
}

fn respond(correlation: i32, answer: DocumentResult) -> Response {
    let (code, message, body) = match &answer {
        Ok(body) => (0, None, body.as_slice()),
        Err(fault) => (fault.code(), fault.message(), &[][..]),
    };
    let mut frame = Response::begin(correlation, false, body.len() + 1100);
    frame.put_i16(code);
    frame.put_nullable_text(message, false);
    frame.put_count(body.len(), false);
    frame.put_slice(body);
    Response::finish(frame)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_frame_makes_parsing_panic(frame: Vec<u8>) {
            let _ = parse(VERSION, &frame);
        }
    }
}
