//! One private request, `Operate`: operations on lease groups, dead letters and scheduled records, which
//! Kafka's protocol has no requests for. The command line sends it.
//!
//! Its api key is far away from Kafka's own, and its body is a JSON document: another operation is another
//! variant, and needs no codec. The version of the request is that of the document. ApiVersions lists it to
//! the command line only, so stock clients never send it.
//!
//! Its layout, its numbers and its documents are in the crate [`operations`](::operations), which clients
//! share. Operations create users and purge queues, so each needs a right of its own.
//!
//! Every request gets a response, with an error if it is invalid. Each response is bounded, and says where
//! the next one continues.
//!
//! * [`access`]: rights of the caller; `rights`: rights that operations need; [`permits`]: bounds their
//!   concurrency
//! * `queues`, `dead_letters`, `schedule`, `shards`: the operations, thin over the broker
//! * `connections`: the live connections of all gateways
//! * `offset_groups`: groups that commit offsets
//! * [`service`]: the operations for other gateways
//! * `families`: operations of other gateways, passed on unread
//! * `browse`: reads records for operators; `find`: finds them; `history`: the history of one

pub mod access;
mod browse;
mod connections;
mod dead_letters;
mod families;
mod find;
mod history;
mod offset_groups;
pub(crate) mod permits;
mod queues;
mod rights;
mod schedule;
pub mod service;
mod shards;

use std::sync::Arc;

use crate::limits::OPERATION_LIMITS;
use ::access::Rights;
use base::json;
use base::limits::{OPERATION_BYTES_MAX, PARSED_INLINE_BYTES_MAX};
use bytes::BufMut;
use kafka_protocol::error::ResponseError;
use serde::Serialize;

use crate::dispatch::AcceptedRequest;
use crate::errors::Fault;
use crate::frames::Frame;
use crate::gateway::{Gateway, Session};
use crate::request::{Preamble, RequestError};
use crate::response::Response;
use crate::wire::primitives::{Cursor, MalformedValue, PutPrimitives};

use ::operations::document::{Operation, WithToken};
use ::operations::{VERSION, VERSION_WITH_TOKEN};

const PREAMBLE_LEN: usize = 8;

/// Starts a request whose preamble was read.
pub(crate) fn start(
    gateway: &Arc<Gateway>,
    session: &Arc<Session>,
    preamble: &Preamble,
    frame: Frame,
) -> AcceptedRequest {
    let (gateway, preamble) = (Arc::clone(gateway), preamble.clone());
    let session = Arc::clone(session);
    AcceptedRequest::Later(Box::pin(async move {
        let asked = match frame.bytes.len() > PARSED_INLINE_BYTES_MAX {
            true => {
                let (version, bytes) = (preamble.version, frame.bytes);
                gateway.broker.cpu().run(move || parse(version, &bytes)).await
            }
            false => parse(preamble.version, &frame.bytes),
        };
        let answer = match asked {
            Ok(asked) => {
                let peer = session.connection.peer().ip();
                let asker = access::check(&gateway, &session, asked.token.as_deref());
                let asker =
                    asker.map(|asker| access::audited_as_command(&gateway, &session, asker));
                let allowed = asker.and_then(|asker| {
                    let effect =
                        |family: &str, operation: &_| families::effect(&gateway, family, operation);
                    rights::check(&asker, &asked.operation, effect).map(|()| asker)
                });
                match allowed {
                    Ok(asker) => carry_out(&gateway, &asker, asked.operation).await,
                    Err(fault) => {
                        tracing::warn!(%peer, %fault, "an operation was refused");
                        Err(fault)
                    }
                }
            }
            Err(fault) => Err(fault),
        };
        Ok::<_, RequestError>(respond(preamble.correlation, answer))
    }))
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

/// The document of a response.
type DocumentResult = Result<Vec<u8>, Fault>;

async fn carry_out(gateway: &Gateway, asker: &Rights, operation: Operation) -> DocumentResult {
    let _permit = permits::wait(gateway, &operation).await?;
    if reads_the_catalog(&operation) {
        gateway.broker.catalog_is_current().await?;
    }
    match operation {
        Operation::DeclareQueue { queue, from, config } => {
            document(queues::declare(gateway, &queue, from, config).await)
        }
        Operation::ListQueues { after, queues_max } => {
            document(queues::list(gateway, asker, after.as_ref(), queues_max).await)
        }
        Operation::DescribeQueue { queue } => document(queues::describe(gateway, &queue).await),
        Operation::PeekQueue { queue, partition, from, records_max } => {
            document(queues::peek(gateway, &queue, partition, from, records_max).await)
        }
        Operation::PurgeQueue { queue } => document(queues::purge(gateway, &queue).await),
        Operation::RemoveRecords { queue, records } => {
            document(queues::remove(gateway, &queue, &records).await)
        }
        Operation::PauseQueue { queue, paused } => {
            document(queues::pause(gateway, &queue, paused).await)
        }
        Operation::SeekQueue { queue, to } => document(queues::seek(gateway, &queue, &to).await),
        Operation::DeleteQueue { queue, force } => {
            document(queues::delete(gateway, &queue, force).await)
        }
        Operation::ListDeadLetterTopics {} => document(dead_letters::topics(gateway, asker).await),
        Operation::CountDeadLetters { topic, from } => {
            document(dead_letters::count(gateway, &topic, from).await)
        }
        Operation::ShowDeadLetters { topic, only, from, records_max } => {
            document(dead_letters::show(gateway, &topic, &only, from, records_max).await)
        }
        Operation::RedriveDeadLetters { topic, only, to, span } => document(
            dead_letters::redrive(gateway, asker, &topic, &only, to.as_deref(), &span).await,
        ),
        Operation::DeleteDeadLetters { topic, only, span } => {
            document(dead_letters::delete(gateway, asker, &topic, &only, &span).await)
        }
        Operation::ListScheduled { queue, after, records_max } => {
            document(schedule::list(gateway, &queue, after, records_max).await)
        }
        Operation::CancelScheduled { queue, what } => {
            document(schedule::cancel(gateway, &queue, &what).await)
        }
        Operation::ListShards {} => document(Ok(shards::list(gateway))),
        Operation::ElectLeader {} => document(shards::elect(gateway).await),
        Operation::ListConnections { after, connections_max } => {
            document(connections::list(gateway, after, connections_max))
        }
        Operation::CloseConnection { connection } => {
            document(connections::close(gateway, connection))
        }
        Operation::ListOffsetGroups { after, groups_max } => {
            document(offset_groups::list(gateway, asker, after.as_deref(), groups_max).await)
        }
        Operation::DescribeOffsetGroup { group, after, members_max } => {
            let after = after.as_deref();
            document(offset_groups::describe(gateway, asker, &group, after, members_max).await)
        }
        Operation::SeekOffsetGroup { group, to, dry_run } => {
            document(offset_groups::seek(gateway, &group, &to, dry_run).await)
        }
        Operation::DeleteOffsetGroup { group, dry_run } => {
            document(offset_groups::delete(gateway, asker, &group, dry_run).await)
        }
        Operation::DescribeRecord { topic, place } => {
            document(history::describe(gateway, asker, &topic, place).await)
        }
        Operation::FindRecords { topic, by, from_ms, after, records_max } => {
            let topic = topic.as_deref();
            document(find::find(gateway, asker, topic, &by, from_ms, after, records_max).await)
        }
        Operation::Family { family, operation } => {
            families::carry_out(gateway, &family, &operation).await
        }
    }
}

/// Whether an operation reads the node's copy of the catalog, which then must be current. Families check that
/// themselves.
fn reads_the_catalog(operation: &Operation) -> bool {
    !matches!(
        operation,
        Operation::ListShards {}
            | Operation::ElectLeader {}
            | Operation::ListConnections { .. }
            | Operation::CloseConnection { .. }
            | Operation::Family { .. }
    )
}

fn document<T: Serialize>(answer: Result<T, Fault>) -> DocumentResult {
    serde_json::to_vec(&answer?).map_err(|error| {
        Fault::new(ResponseError::UnknownServerError, format!("the answer is no JSON: {error}"))
    })
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
