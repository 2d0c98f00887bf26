//! Channels and consumers of this node's connections, as reported by their sessions.

use rabbitmq::live::{ChannelSeen, ConsumerSeen, SessionSeen};
use serde_json::{Value, json};

use crate::api::node::connections::{self, LiveConnection, details};
use crate::api::request::api_error::ApiError;
use crate::api::request::call::{Call, Outcome, node_name};
use crate::api::request::list;
use crate::api::request::values as typed;

/// A channel with its session and connection.
struct FoundChannel<'a> {
    name: String,
    live: &'a LiveConnection,
    session: &'a SessionSeen,
    channel: &'a ChannelSeen,
}

/// A connection's name has no parenthesis.
fn name(live: &LiveConnection, channel: &ChannelSeen) -> String {
    format!("{} ({})", live.name, channel.number)
}

fn vhost(session: &SessionSeen) -> &str {
    session.virtual_host.as_deref().unwrap_or_default()
}

fn channels<'a>(sessions: &'a [LiveConnection]) -> Vec<FoundChannel<'a>> {
    let of = |live: &'a LiveConnection| {
        let session = live.seen.as_deref();
        let channels = session
            .into_iter()
            .flat_map(|session| session.channels.iter().map(move |channel| (session, channel)));
        channels.map(move |(session, channel)| {
            let name = name(live, channel);
            FoundChannel { name, live, session, channel }
        })
    };
    sessions.iter().flat_map(of).collect()
}

fn row(call: &Call, found: &FoundChannel<'_>) -> Value {
    let FoundChannel { name, live, session, channel } = found;
    json!({
        "name": name,
        "number": channel.number,
        "node": node_name(call.broker()),
        "user": live.connection.user(),
        "vhost": vhost(session),
        "state": "running",
        "connection_details": details(live),
        "confirm": channel.confirms,
        "transactional": channel.is_transactional,
        "prefetch_count": channel.prefetch,
        "global_prefetch_count": channel.prefetch_together,
        "messages_unacknowledged": channel.unacknowledged,
        "messages_unconfirmed": channel.unconfirmed,
        "consumer_count": channel.consumers.len(),
    })
}

fn answer(call: &Call, found: Vec<FoundChannel<'_>>) -> Outcome {
    let (found, chosen) = list::choose(&call.query, found, |found| &found.name)?;
    chosen.answer(found.iter().map(|found| row(call, found)).collect())
}

pub(in crate::api) async fn list(call: &Call) -> Outcome {
    answer(call, channels(&connections::sessions(call).await))
}

pub(in crate::api) async fn list_of_vhost(call: &Call) -> Outcome {
    let wanted = call.vhost().await?;
    let sessions = connections::sessions(call).await;
    let found = channels(&sessions).into_iter();
    answer(call, found.filter(|found| vhost(found.session) == wanted.name()).collect())
}

pub(in crate::api) async fn list_of_connection(call: &Call) -> Outcome {
    let live = connections::found(call).await?;
    answer(call, channels(std::slice::from_ref(&live)))
}

pub(in crate::api) async fn one(call: &Call) -> Outcome {
    let sessions = connections::sessions(call).await;
    let found = channels(&sessions).into_iter().find(|found| found.name == call.arg("name"));
    let found = found.ok_or_else(ApiError::not_found)?;
    let mut shown = row(call, &found);
    let consumers = found.channel.consumers.iter();
    let consumers = consumers.filter_map(|consumer| consumer_row(call, &found, consumer));
    shown["consumer_details"] = consumers.map(|(_, row)| row).collect::<Vec<_>>().into();
    Ok(list::one(&call.query, shown))
}

// -------------------------------------------------------------------------------------- consumers

/// Row of a queue's consumer, with its tag; `None` for consumers of direct replies.
fn consumer_row(
    call: &Call,
    found: &FoundChannel<'_>,
    consumer: &ConsumerSeen,
) -> Option<(String, Value)> {
    let FoundChannel { name, live, session, channel } = found;
    let peer = live.connection.peer();
    // Tools expect a number. 0: unlimited while connected, as everywhere here.
    let timeout = consumer.timeout.map_or(0, |timeout| timeout.as_millis() as u64);
    let row = json!({
        "consumer_tag": &*consumer.tag,
        "queue": {"name": consumer.queue.as_deref()?, "vhost": vhost(session)},
        "ack_required": consumer.needs_ack,
        "exclusive": consumer.is_exclusive,
        "active": consumer.is_active,
        "activity_status": activity(consumer),
        "prefetch_count": consumer.prefetch,
        "arguments": typed::json(&consumer.arguments),
        "consumer_timeout": timeout,
        "channel_details": {
            "name": name, "number": channel.number, "node": node_name(call.broker()),
            "connection_name": live.name, "user": live.connection.user(),
            "peer_host": peer.ip().to_string(), "peer_port": peer.port(),
        },
    });
    Some((consumer.tag.to_string(), row))
}

/// RabbitMQ's activity status.
fn activity(consumer: &ConsumerSeen) -> &'static str {
    match (consumer.is_single, consumer.is_active) {
        (_, false) => "waiting",
        (true, true) => "single_active",
        (false, true) => "up",
    }
}

fn consumers(
    call: &Call,
    sessions: &[LiveConnection],
    fits: impl Fn(&FoundChannel<'_>) -> bool,
) -> Outcome {
    let found = channels(sessions);
    let fitting = found.iter().filter(|found| fits(found));
    let rows: Vec<(String, Value)> = fitting
        .flat_map(|found| found.channel.consumers.iter().map(move |consumer| (found, consumer)))
        .filter_map(|(found, consumer)| consumer_row(call, found, consumer))
        .collect();
    let (rows, chosen) = list::choose(&call.query, rows, |(tag, _)| tag)?;
    chosen.answer(rows.into_iter().map(|(_, row)| row).collect())
}

pub(in crate::api) async fn all_consumers(call: &Call) -> Outcome {
    consumers(call, &connections::sessions(call).await, |_| true)
}

pub(in crate::api) async fn consumers_of_vhost(call: &Call) -> Outcome {
    let wanted = call.vhost().await?;
    let sessions = connections::sessions(call).await;
    consumers(call, &sessions, |found| vhost(found.session) == wanted.name())
}
