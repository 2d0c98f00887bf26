//! Publishing and getting single messages.

use access::Operation;
use access_rules::quota::Quota;
use axum::Json;
use axum::response::IntoResponse;
use base::TopicId;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use broker::delivery::{PeekOptions, RecordState, Settle, Settlement, TakeOptions};
use broker::{AppendBatch, AppendError};
use bytes::{Bytes, BytesMut};
use message::{Properties, read_record};
use rabbitmq::Body;
use rabbitmq::declarations::{MessageHeaders, queues};
use rabbitmq::errors::{Exception, NamedEntity};
use rabbitmq::publisher::{Parcel, Publisher};
use rabbitmq::publishing::{copies, delay, expiration};
use rabbitmq::rerouting::{self, RerouteOutcome, View};
use record::RecordView;
use routing::Message;
use serde_json::{Map, Value, json};
use tokio::time::timeout;
use topology::{Queue, RouteError, RoutedQueue, VirtualHost};
use values::{EncodedTable, Table};

use crate::api::request::api_error::ApiError;
use crate::api::request::call::{Call, ObjectReader, Outcome, object};
use crate::api::request::values as typed;
use crate::limits::{
    HTTP_API_MESSAGE_LIMITS, HTTP_API_MESSAGES_MAX, HTTP_APPENDED_WITHIN, HTTP_READ_BYTES_MAX,
};

/// Messages that are peeked at a time.
const PEEKED_AT_ONCE: usize = 16;
/// Lease time, which covers writing the response.
const HELD_MS: i64 = 60_000;
const REPLY_PREFIX: &str = "amq.rabbitmq.reply-to";

/// Message properties, parsed from JSON.
#[derive(Default)]
struct ParsedProperties {
    texts: Vec<(&'static str, String)>,
    headers: Option<Bytes>,
    delivery_mode: Option<u8>,
    priority: Option<u8>,
    timestamp: Option<u64>,
}

const TEXTS: [&str; 10] = [
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
];

impl ParsedProperties {
    fn of(map: &Map<String, Value>) -> Result<Self, ApiError> {
        let (said, mut own) = (ObjectReader(map), Self::default());
        for name in map.keys() {
            let is_known = TEXTS.contains(&name.as_str())
                || ["headers", "delivery_mode", "priority", "timestamp"].contains(&name.as_str());
            if !is_known {
                return Err(ApiError::bad_request(format!("unknown property: {name}")));
            }
        }
        for name in TEXTS {
            if let Some(text) = said.text(name)? {
                if text.len() > usize::from(u8::MAX) {
                    return Err(ApiError::bad_request(format!("{name} is at most 255 bytes")));
                }
                own.texts.push((name, text.to_owned()));
            }
        }
        if let Some(headers) = said.object("headers")? {
            own.headers = Some(typed::table(headers)?.to_bytes());
        }
        let number = |name: &str| {
            let there = said.is_there(name);
            there.then(|| said.integer(name, 0)).transpose()
        };
        let octet = |name: &str| -> Result<Option<u8>, ApiError> {
            let wrong = |_| ApiError::bad_request(format!("{name} is a number of 8 bits"));
            number(name)?.map(u8::try_from).transpose().map_err(wrong)
        };
        own.delivery_mode = octet("delivery_mode")?;
        own.priority = octet("priority")?;
        let wrong = |_| ApiError::bad_request("timestamp is seconds since the epoch");
        own.timestamp = number("timestamp")?.map(u64::try_from).transpose().map_err(wrong)?;
        Ok(own)
    }

    fn text(&self, name: &str) -> Option<&[u8]> {
        let found = self.texts.iter().find(|(known, _)| *known == name);
        found.map(|(_, text)| text.as_bytes())
    }

    fn view(&self) -> Properties<'_> {
        Properties {
            content_type: self.text("content_type"),
            content_encoding: self.text("content_encoding"),
            headers: self.headers.as_deref().map(EncodedTable),
            delivery_mode: self.delivery_mode,
            priority: self.priority,
            correlation_id: self.text("correlation_id"),
            reply_to: self.text("reply_to"),
            expiration: self.text("expiration"),
            message_id: self.text("message_id"),
            timestamp: self.timestamp,
            kind: self.text("type"),
            user_id: self.text("user_id"),
            app_id: self.text("app_id"),
            cluster_id: self.text("cluster_id"),
        }
    }
}

/// Decodes the payload of a message.
fn payload(said: &Map<String, Value>) -> Result<Bytes, ApiError> {
    let text = ObjectReader(said).needed("payload")?;
    match ObjectReader(said).needed("payload_encoding")? {
        "string" => Ok(Bytes::copy_from_slice(text.as_bytes())),
        "base64" => {
            let wrong = |_| ApiError::bad_request("the payload is no base64");
            Ok(Bytes::from(BASE64.decode(text).map_err(wrong)?))
        }
        other => Err(ApiError::bad_request(format!("payload_encoding: {other} is not known"))),
    }
}

pub(in crate::api) async fn publish(call: &Call) -> Outcome {
    let text = call.body().clone();
    let read = move || {
        let said = object(&text, &HTTP_API_MESSAGE_LIMITS)?;
        payload(&said).map(|body| (said, body))
    };
    let (said, body) = call.front.parse(call.body().len(), read).await?;
    let reader = ObjectReader(&said);
    let key = reader.needed("routing_key")?;
    if !reader.is_there("properties") {
        return Err(ApiError::bad_request("key_missing: properties"));
    }
    let none = Map::new();
    let own = ParsedProperties::of(reader.object("properties")?.unwrap_or(&none))?;
    let properties = own.view();
    let (vhost, exchange) = (call.vhost().await?, call.exchange_arg("name"));
    if properties.reply_to == Some(REPLY_PREFIX.as_bytes()) || key.starts_with(REPLY_PREFIX) {
        return Err(ApiError::bad_request("a direct reply takes a connection that waits for it"));
    }
    let rights = call.rights();
    let writable = rights.writable(exchange, vhost.name())?;
    let each_queue = rights.check_key(&writable, key, vhost.name())?;
    if properties.user_id.is_some_and(|user| user != call.user_name().as_bytes()) {
        let user = call.user_name();
        return Err(ApiError::bad_request(format!("user_id differs from the user, '{user}'")));
    }
    let spending = call.spends(Quota::ProducerByteRate)?;
    spending.charge(body.len() as u64);
    let expires_ms = expiration(&properties)?;
    let copies = copies(&properties)?;
    let targets = route(&vhost, exchange, key, &copies, &properties).await?;
    if each_queue {
        rights.check_targets(Some(&writable), &targets)?;
    }
    let mut routed = !targets.is_empty();
    let (mut publisher, body) = (Publisher::default(), Body::from(body));
    publisher.targets = targets;
    let parcel = Parcel {
        exchange,
        routing_key: key,
        properties: &properties,
        body: &body,
        delay_ms: delay(&properties),
        expires_ms,
        now_ms: call.broker().clock().now_ms(),
    };
    publisher.kept = Some(0);
    publisher.add(call.broker(), &parcel, None)?;
    let (batches, confirms) = publisher.take();
    call.peer.connection.traffic().received(1, body.bytes() as u64);
    if !batches.is_empty() {
        let partitions = batches.iter().flat_map(AppendBatch::partitions);
        let topics: Vec<TopicId> = partitions.map(|partition| partition.topic).collect();
        let appending = call.broker().append_at_leaders(batches);
        let unknown = |_| ApiError::unavailable("no node answered whether it was published");
        let appended = timeout(HTTP_APPENDED_WITHIN, appending).await.map_err(unknown)?;
        let sent = MessageToPublish { exchange, key, properties: &properties, body: &body };
        let lost = rerouting::lost(&confirms, &topics, vec![sent], &appended);
        let fates = rerouting::route_again(call.broker(), &vhost, &rights, lost).await;
        match fates.first() {
            Some((_, RerouteOutcome::Refused)) => {
                let why = "a queue is gone, and the message cannot be routed again";
                return Err(ApiError::unavailable(why));
            }
            Some((_, RerouteOutcome::Unroutable)) => routed = false,
            Some((_, RerouteOutcome::Taken)) | None => {}
        }
        for answer in appended {
            match answer {
                // The message was routed again.
                Ok(_) | Err(AppendError::UnknownPartition(_)) => {}
                Err(AppendError::Unavailable(error)) => return Err(error.into()),
                Err(error) => return Err(ApiError::bad_request(format!("rejected: {error}"))),
            }
        }
    }
    Ok(Json(json!({ "routed": routed })).into_response())
}

/// The message of a request.
struct MessageToPublish<'a> {
    exchange: &'a str,
    key: &'a str,
    properties: &'a Properties<'a>,
    body: &'a Body,
}

impl rerouting::ReroutableMessage for MessageToPublish<'_> {
    fn view<R>(&self, look: impl FnOnce(&View<'_>) -> R) -> Option<R> {
        let Self { exchange, key: routing_key, properties, body } = *self;
        Some(look(&View { exchange, routing_key, properties, body }))
    }
}

/// Routes a message. If it has no target by this node's catalog, the catalog is refreshed and the message routed once
/// more.
async fn route(
    vhost: &VirtualHost,
    exchange: &str,
    key: &str,
    copies: &[String],
    properties: &Properties<'_>,
) -> Result<Vec<RoutedQueue>, ApiError> {
    let find = || -> Result<Vec<RoutedQueue>, RouteError> {
        let headers = MessageHeaders(properties);
        let keys: Vec<&str> =
            std::iter::once(key).chain(copies.iter().map(String::as_str)).collect();
        let deferred = delay(properties).is_some();
        let message = Message { keys: &keys, headers: &headers, deferred };
        let mut targets = Vec::new();
        vhost.routes().route(exchange, &message, &mut targets)?;
        Ok(targets)
    };
    match find() {
        Ok(targets) if !targets.is_empty() => return Ok(targets),
        Err(error @ RouteError::Internal(_)) => return Err(rabbitmq::Exception::from(error).into()),
        _ => {}
    }
    vhost.refresh().await?;
    find().map_err(|error| rabbitmq::Exception::from(error).into())
}

// ----------------------------------------------------------------------------------------- getting

/// Effect of a get on the returned messages.
#[derive(Clone, Copy)]
enum Mode {
    /// None: they are not delivered.
    Look,
    End(Settlement),
}

struct MessageFormat<'a> {
    queue: &'a Queue,
    base64: bool,
    truncate: Option<usize>,
}

pub(in crate::api) async fn get(call: &Call) -> Outcome {
    let said = call.object()?;
    let reader = ObjectReader(&said);
    let mode = match reader.needed("ackmode")? {
        "ack_requeue_true" => Mode::Look,
        "ack_requeue_false" => Mode::End(Settlement::Accept),
        "reject_requeue_true" => Mode::End(Settlement::Release { delay_ms: None, count: true }),
        "reject_requeue_false" => Mode::End(Settlement::Reject),
        other => return Err(ApiError::bad_request(format!("ackmode: {other} is not known"))),
    };
    let base64 = match reader.needed("encoding")? {
        "auto" => false,
        "base64" => true,
        other => return Err(ApiError::bad_request(format!("encoding: {other} is not known"))),
    };
    let count = usize::try_from(reader.integer("count", 0)?).ok();
    let count = count.filter(|count| (1..=HTTP_API_MESSAGES_MAX).contains(count));
    let count = count
        .ok_or_else(|| ApiError::bad_request(format!("count is 1 to {HTTP_API_MESSAGES_MAX}")))?;
    let truncate =
        reader.is_there("truncate").then(|| reader.integer("truncate", 0)).transpose()?;
    let wrong = |_| ApiError::bad_request("truncate is a number of bytes");
    let truncate = truncate.map(usize::try_from).transpose().map_err(wrong)?;
    let (vhost, name) = (call.vhost().await?, call.arg("name"));
    let rights = call.rights();
    rights.check_queue(Operation::Consume, name, vhost.name())?;
    let queue = queues::gettable(&vhost, call.owner(), name, &rights).await?;
    let group = queue.group().ok_or_else(|| Exception::not_found(queue.resource()))?;
    vhost.use_queue(&queue).await?;
    call.broker().acknowledged_is_readable(queue.topic).await;
    let spending = call.spends(Quota::ConsumerByteRate)?;
    let shown = MessageFormat { queue: &queue, base64, truncate };
    let mut rows = match mode {
        Mode::Look => look(call, &shown, group, count).await?,
        Mode::End(settlement) => take(call, &shown, group, count, settlement).await?,
    };
    spending.charge(rows.iter().filter_map(|row| row["payload_bytes"].as_u64()).sum());
    // Counts behind each message, as if they were fetched one by one.
    let left = vhost.message_count(&queue).await?;
    let all = rows.len() as u64;
    for (place, row) in rows.iter_mut().enumerate() {
        let behind = match mode {
            Mode::Look => left.saturating_sub(place as u64 + 1),
            Mode::End(_) => left + all - (place as u64 + 1),
        };
        row["message_count"] = u32::try_from(behind).unwrap_or(u32::MAX).into();
    }
    Ok(Json(rows).into_response())
}

async fn take(
    call: &Call,
    shown: &MessageFormat<'_>,
    group: base::LeaseGroupId,
    count: usize,
    settlement: Settlement,
) -> Result<Vec<Value>, ApiError> {
    let options = TakeOptions {
        records_max: count as u32,
        bytes_max: HTTP_READ_BYTES_MAX as u64,
        lease_ms: Some(HELD_MS),
        ..TakeOptions::default()
    };
    let session = call.front.leases(call.broker());
    let taken = session.take(group, options).await;
    let taken = taken.map_err(|error| ApiError::unavailable(error.to_string()))?;
    let bytes: usize = taken.iter().map(|delivery| delivery.record.encoded_len()).sum();
    let _room = call.front.answer_room(bytes).await;
    let row = |delivery: &broker::delivery::Delivery| {
        let value = delivery.value().unwrap_or_default();
        shown.row(&delivery.view(), &value, delivery.attempt > 1)
    };
    let rows = taken.iter().map(row).collect();
    let settles = taken.iter().map(|delivery| Settle { group, what: delivery.lease(), settlement });
    let settled = session.settle(settles.collect()).await;
    if let Some(error) = settled.into_iter().find_map(Result::err) {
        return Err(ApiError::unavailable(error.to_string()));
    }
    call.peer.connection.traffic().delivered(bytes as u64);
    Ok(rows)
}

async fn look(
    call: &Call,
    shown: &MessageFormat<'_>,
    group: base::LeaseGroupId,
    count: usize,
) -> Result<Vec<Value>, ApiError> {
    let (mut rows, mut bytes) = (Vec::new(), 0);
    for partition in 0..shown.queue.partition_count() {
        let mut from = 0;
        loop {
            let options =
                PeekOptions { partition: Some(partition), from, records_max: PEEKED_AT_ONCE };
            let peeked = call.broker().peek(group, options).await;
            let peeked = peeked.map_err(|error| ApiError::unavailable(error.to_string()))?;
            let Some(last) = peeked.last() else { break };
            from = last.offset + 1;
            for one in peeked.iter().filter(|one| one.state == RecordState::Ready) {
                if rows.len() >= count || bytes >= HTTP_READ_BYTES_MAX {
                    return Ok(rows);
                }
                let value = one.record.value().unwrap_or_default();
                bytes += value.len();
                rows.push(shown.row(&one.record.view(), &value, one.attempts > 0));
            }
        }
    }
    Ok(rows)
}

impl MessageFormat<'_> {
    fn row(&self, view: &RecordView<'_>, value: &[u8], redelivered: bool) -> Value {
        let mut table = BytesMut::new();
        let message = read_record(view, &mut table);
        let cut = &value[..self.truncate.map_or(value.len(), |most| most.min(value.len()))];
        let (payload, encoding) = match std::str::from_utf8(cut) {
            Ok(text) if !self.base64 => (text.to_owned(), "string"),
            _ => (BASE64.encode(cut), "base64"),
        };
        json!({
            "payload_bytes": value.len(),
            "redelivered": redelivered,
            "exchange": message.exchange,
            "routing_key": message.routing_key.unwrap_or(&self.queue.name),
            "properties": properties_row(&message.properties_with(&table)),
            "payload": payload,
            "payload_encoding": encoding,
        })
    }
}

fn properties_row(properties: &Properties<'_>) -> Value {
    let mut row = Map::new();
    for (name, bytes) in [
        ("content_type", properties.content_type),
        ("content_encoding", properties.content_encoding),
        ("correlation_id", properties.correlation_id),
        ("reply_to", properties.reply_to),
        ("expiration", properties.expiration),
        ("message_id", properties.message_id),
        ("type", properties.kind),
        ("user_id", properties.user_id),
        ("app_id", properties.app_id),
        ("cluster_id", properties.cluster_id),
    ] {
        if let Some(bytes) = bytes {
            row.insert(name.to_owned(), String::from_utf8_lossy(bytes).into_owned().into());
        }
    }
    for (name, number) in [
        ("delivery_mode", properties.delivery_mode.map(u64::from)),
        ("priority", properties.priority.map(u64::from)),
        ("timestamp", properties.timestamp),
    ] {
        if let Some(number) = number {
            row.insert(name.to_owned(), number.into());
        }
    }
    if let Some(EncodedTable(headers)) = properties.headers {
        let headers = Table::decode(headers).unwrap_or_default();
        row.insert("headers".to_owned(), typed::json(&headers));
    }
    Value::Object(row)
}
