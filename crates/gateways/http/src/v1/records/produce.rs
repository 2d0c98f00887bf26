//! Appending of records: JSON documents, JSON lines, or a single raw value.

use access_rules::quota::Quota;
use axum::extract::{Path, Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use broker::config::TopicConfig;
use operations::payload::Payload;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::connection::Peer;
use crate::front::FrontEnd;
use crate::limits::{HTTP_BODY_BYTES_MAX, HTTP_TRANSACTION_BYTES_MAX};
use crate::login::RequestClient;
use crate::problem::{Document, Kind, Problem};
use crate::quotas::RequestCharges;
use crate::request_input;
use crate::v1::records::appending::{
    Built, Placed, append, append_together, build, build_expecting, not_appended,
};
use crate::v1::records::document::{NewHeader, NewRecord};
use crate::v1::records::new_records::{NewRecords, records_of};
use crate::v1::topics::find;

pub(in crate::v1) const IDEMPOTENCY_KEY: &str = "idempotency-key";
const TRACE: &str = "traceparent";
/// Valid only together with `traceparent`.
const TRACE_STATE: &str = "tracestate";

/// Result of each record, in order.
#[derive(Serialize, ToSchema)]
pub(in crate::v1) struct Produced {
    items: Vec<Item>,
}

#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum Item {
    Placed(Placed),
    /// It is not appended.
    Refused {
        problem: Document,
    },
}

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::v1) struct ProduceQuery {
    /// Append all records together, and only if the first of them gets this offset. They are of one partition.
    expect_offset: Option<u64>,
}

/// Append records. Answered once they are as durable as the topic wants them: by default when a majority has synced
/// them. A body of another type than JSON or lines of JSON is the value of one record, whose key and headers are
/// `Postroad-Key` and `Postroad-Header-NAME`. Where there is one record the answer has its status; otherwise each item
/// says what became of its record.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/records",
    tag = "records",
    params(
        ("topic" = String, Path),
        ProduceQuery,
        ("Idempotency-Key" = Option<String>, Header, description = "the same key again appends nothing again, in a topic with dedup.window.ms"),
    ),
    request_body(
        content = NewRecords,
        description = "or lines of records (application/x-ndjson), or a value of any other type",
    ),
    responses((status = 200, body = Produced))
)]
pub(in crate::v1) async fn produce(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Extension(peer): Extension<Peer>,
    Path(topic): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let node = front.opened()?;
    let broker = &node.broker;
    let topic = find(broker, &caller, access::Operation::Append, &topic)?;
    let spending = RequestCharges::begin(node, &caller, Quota::ProducerByteRate)?;
    let (head, body) = request.into_parts();
    let ProduceQuery { expect_offset } = request_input::query(&head.uri)?;
    let bytes_max = match expect_offset {
        Some(_) => HTTP_TRANSACTION_BYTES_MAX,
        None => HTTP_BODY_BYTES_MAX,
    };
    let body = request_input::whole(&front, body, bytes_max).await?;
    spending.charge(body.len() as u64);
    // Byte budget shared by producers of all protocols, until the records are on disk.
    let _permit = broker.admit(body.len()).await;
    let bytes = body.len();
    let (of_node, headers, name) = (broker.clone(), head.headers, topic.name.clone());
    let prepare = move || -> Result<Built, Problem> {
        let mut records = records_of(&headers, body)?;
        add_ids(&headers, &topic.config, &mut records)?;
        add_trace(&headers, &mut records);
        match expect_offset {
            Some(offset) => build_expecting(&of_node, &topic, &records, offset),
            None => build(&of_node, &topic, &records),
        }
    };
    let built = front.parse(bytes, prepare).await?;
    if expect_offset.is_some() {
        let together = append_together(&peer, front.leases(broker), Vec::new(), vec![built]).await;
        return match together {
            Ok(placed) => answer(placed.into_iter().flatten().map(Ok).collect()),
            Err(error) => Err(not_appended(broker, &error).await),
        };
    }
    let items = append(broker, &peer, &name, built).await?;
    answer(items)
}

fn answer(mut items: Vec<Result<Placed, Problem>>) -> Result<Response, Problem> {
    if items.len() == 1 {
        let placed = items.swap_remove(0)?;
        return Ok(Json(Produced { items: vec![Item::Placed(placed)] }).into_response());
    }
    let items = items.into_iter().map(|item| match item {
        Ok(placed) => Item::Placed(placed),
        Err(problem) => Item::Refused { problem: problem.as_item() },
    });
    Ok(Json(Produced { items: items.collect() }).into_response())
}

/// Derives record ids from the Idempotency-Key, by which retries are detected.
fn add_ids(
    headers: &HeaderMap,
    config: &TopicConfig,
    records: &mut [NewRecord],
) -> Result<(), Problem> {
    let Some(key) = headers.get(IDEMPOTENCY_KEY) else { return Ok(()) };
    let key = key.to_str().ok().filter(|key| !key.is_empty());
    let key =
        key.ok_or_else(|| Problem::new(Kind::BadRequest, "the Idempotency-Key is no text"))?;
    if config.dedup_window_ms <= 0 {
        return Err(Problem::new(
            Kind::NoWindow,
            "the topic keeps no ids of records, by which a second try would be found: set its \
             dedup.window.ms, such as to 600000",
        ));
    }
    if records.iter().any(|record| record.id.is_some()) {
        let detail = "a record has an id of its own, beside the Idempotency-Key of the request";
        return Err(Problem::new(Kind::BadRequest, detail));
    }
    for (place, record) in records.iter_mut().enumerate() {
        record.id = Some(format!("{key}/{place}"));
    }
    Ok(())
}

/// Passes the request's trace context to its records (W3C Trace Context).
fn add_trace(headers: &HeaderMap, records: &mut [NewRecord]) {
    if !headers.contains_key(TRACE) {
        return;
    }
    let names = [TRACE, TRACE_STATE];
    for record in records.iter_mut().filter(|record| !names.iter().any(|it| record.has_header(it)))
    {
        for name in names {
            // The state may be split over several headers, whose order matters.
            let parts: Vec<&[u8]> = headers.get_all(name).iter().map(|it| it.as_bytes()).collect();
            if !parts.is_empty() {
                let value = Some(Payload::copied(&parts.join(&b","[..])));
                record.headers.push(NewHeader { name: name.to_owned(), value });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::new_records::tests::headers;
    use super::*;

    #[test]
    fn idempotency_key_gives_each_record_an_id() {
        let said = headers(&[("idempotency-key", "abc")]);
        let mut records = vec![NewRecord::default(), NewRecord::default()];
        let without = TopicConfig::default();
        assert!(add_ids(&said, &without, &mut records).is_err(), "nobody would look");
        let with = TopicConfig { dedup_window_ms: 1, ..without };
        add_ids(&said, &with, &mut records).expect("ids");
        assert_eq!(records[1].id.as_deref(), Some("abc/1"));
        assert!(add_ids(&said, &with, &mut records).is_err(), "they have ids");
    }
}
