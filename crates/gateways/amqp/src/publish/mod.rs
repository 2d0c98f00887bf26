//! Publishing: the hot path in. All messages of one read of the socket become one append ([`rabbitmq::publisher`]).
//! It uses the session, and no other methods.
//!
//! * `content`: a message from its frames; `confirms`: the replies to the publisher

mod confirms;
mod content;

use std::fmt::Display;

use base::limits::ENTRY_ROW_BYTES;
use bytes::{Bytes, BytesMut};
use message::headers::BCC;
use rabbitmq::Body;
use rabbitmq::publisher::Parcel;
use rabbitmq::publishing::{copies, delay, expiration};
use routing::Message;
use topology::{RouteError, RoutedQueue};

use crate::channel::content::Content;
use crate::codec::fields::EncodedTable;
use crate::codec::methods::{BasicPublish, BasicReturn};
use crate::codec::properties::{Properties, WireProperties};
use crate::codec::table::{FieldTable, RawFields};
use crate::declarations::MessageHeaders;
use crate::errors::{Exception, ReplyCode};
use crate::gateway::replies::{REPLY_TO, REPLY_TO_PREFIX};
use crate::output::Output;
use crate::posted::Reply;
use crate::session::Session;
use crate::session::in_flight::RetainedMessage;
use crate::session::operation::{CopyFreshness, OperationResult};

/// Approximate memory of a message in a transaction besides its body.
const TRANSACTION_MESSAGE_BYTES: usize = 256;

impl Session {
    /// Publishes a complete message.
    pub(crate) fn publish(
        &mut self,
        number: u16,
        content: Content,
        copy: CopyFreshness,
    ) -> Result<(), Exception> {
        let Some((publish, encoded)) = content.read() else {
            return Err(Exception::new(ReplyCode::SyntaxError, "a message cannot be read"));
        };
        if copy == CopyFreshness::AsItIs && self.gateway.broker.may_lack_definitions() {
            self.publish_by_confirmed(number, content);
            return Ok(());
        }
        let each_queue = self.check_publish(publish.exchange, publish.routing_key)?;
        let mut properties = Properties::decode(encoded)
            .map_err(|malformed| Exception::new(ReplyCode::SyntaxError, malformed.to_string()))?;
        let mut reply_name = String::new();
        if properties.reply_to == Some(REPLY_TO.as_bytes()) {
            reply_name = self.reply_name(number)?;
            properties.reply_to = Some(reply_name.as_bytes());
        }
        let expires_ms = expiration(&properties)?;
        self.check_user(&properties)?;
        let copies = copies(&properties)?;
        let routed = self.route(&publish, &properties, &copies);
        let leads_nowhere = match &routed {
            Ok(targets) => targets.is_empty(),
            Err(error) => matches!(error, RouteError::NotFound(_)),
        };
        let is_reply =
            publish.exchange.is_empty() && publish.routing_key.starts_with(REPLY_TO_PREFIX);
        if leads_nowhere
            && !is_reply
            && matches!(copy, CopyFreshness::AsItIs | CopyFreshness::Awaited)
            && !self.gateway.broker.is_alone()
        {
            return self.publish_by_current(number, content);
        }
        if !is_reply && copy == CopyFreshness::Outdated && self.reject(number)? {
            return Ok(());
        }
        let targets = routed?;
        if each_queue {
            self.check_targets(&targets)?;
        }
        self.post_replies(&publish, &properties, &content.body, &copies);
        let parcel = Parcel {
            exchange: publish.exchange,
            routing_key: publish.routing_key,
            properties: &properties,
            body: &content.body,
            delay_ms: delay(&properties),
            expires_ms,
            now_ms: self.gateway.broker.clock().now_ms(),
        };
        // A direct reply is in no queue: RabbitMQ returns it if it is mandatory, delivered or not.
        let unroutable = targets.is_empty();
        let keeps = !unroutable && self.keeps(number);
        self.publisher.kept = keeps.then_some(self.kept.len() as u32);
        let collected = self.collect(number, &parcel, targets);
        self.publisher.kept = None;
        collected?;
        if unroutable && publish.mandatory {
            self.give_back(number, &publish, &properties, &content.body);
        }
        if keeps {
            let reply_name = (!reply_name.is_empty()).then_some(reply_name);
            self.keep(number, content, reply_name);
        }
        Ok(())
    }

    /// Returns whether a message is kept until its queues have replied. A node that is alone knows all queues, and a
    /// transaction fails as a whole, so neither keeps messages.
    fn keeps(&self, number: u16) -> bool {
        let known = self.channels.get(&number);
        !self.gateway.broker.is_alone() && known.is_some_and(|it| it.transaction.is_none())
    }

    fn keep(&mut self, channel: u16, content: Content, reply_name: Option<String>) {
        let Some(known) = self.channels.get(&channel) else { return };
        let number = known.confirms.as_ref().map(|confirms| confirms.published);
        let generation = known.generation;
        self.kept.push(RetainedMessage { channel, generation, number, content, reply_name });
    }

    /// Routes the message once this node has all confirmed declarations.
    fn publish_by_confirmed(&mut self, number: u16, content: Content) {
        let broker = self.gateway.broker.clone();
        let awaited = async move { broker.definitions_are_current().await };
        self.publish_after(number, content, awaited, CopyFreshness::Awaited);
    }

    /// Routes the message again once this node has all declarations of the cluster.
    fn publish_by_current(&mut self, number: u16, content: Content) -> Result<(), Exception> {
        let (_, vhost, _) = self.at_hand()?;
        let refreshed = async move { vhost.refresh().await };
        self.publish_after(number, content, refreshed, CopyFreshness::Current);
        Ok(())
    }

    /// Routes the message after `wait`, which makes the copy this fresh. No further frame of the client is handled
    /// before.
    fn publish_after<E: Display>(
        &mut self,
        number: u16,
        content: Content,
        wait: impl Future<Output = Result<(), E>> + Send + 'static,
        fresh: CopyFreshness,
    ) {
        let routed_later = async move {
            let copy = match wait.await {
                Ok(()) => fresh,
                Err(error) => {
                    tracing::debug!(%error, "a message cannot be routed by all declarations");
                    CopyFreshness::Outdated
                }
            };
            Ok(OperationResult::MayRoute { content: Box::new(content), copy })
        };
        self.begin(number, BasicPublish::ID, routed_later);
    }

    /// Rejects a message that may belong to a queue declared on another node: with a nack on a channel that confirms,
    /// with an exception in a transaction. Returns false on other channels, which have no reply for a single message.
    fn reject(&mut self, number: u16) -> Result<bool, Exception> {
        let Some(channel) = self.channels.get_mut(&number) else { return Ok(false) };
        if channel.transaction.is_some() {
            let text = "a message cannot be routed while the catalog has no leader";
            return Err(Exception::precondition_failed(text));
        }
        let Some(confirms) = &mut channel.confirms else { return Ok(false) };
        confirms.published += 1;
        let sequence = confirms.published;
        self.publisher.confirms.note(number, channel.generation, sequence);
        self.publisher.confirms.rejected.push((number, sequence));
        Ok(true)
    }

    /// Adds a message to the current append, or to the open transaction of its channel.
    fn collect(
        &mut self,
        number: u16,
        parcel: &Parcel<'_>,
        targets: Vec<RoutedQueue>,
    ) -> Result<(), Exception> {
        let Some(channel) = self.channels.get_mut(&number) else { return Ok(()) };
        if let Some(transaction) = &mut channel.transaction {
            let rows = targets.len() * ENTRY_ROW_BYTES;
            let bytes = parcel.body.bytes() + rows + TRANSACTION_MESSAGE_BYTES;
            transaction.reserve(&self.gateway.transactions, bytes)?;
            transaction.publisher.targets = targets;
            transaction.publisher.is_transaction = true;
            return transaction.publisher.add(&self.gateway.broker, parcel, None);
        }
        let confirm = channel.confirms.as_mut().map(|confirms| {
            confirms.published += 1;
            confirms.published
        });
        if let Some(sequence) = confirm {
            self.publisher.confirms.note(number, channel.generation, sequence);
        }
        self.publisher.targets = targets;
        let confirm = confirm.map(|sequence| (number, sequence));
        self.publisher.add(&self.gateway.broker, parcel, confirm)
    }

    fn route(
        &mut self,
        publish: &BasicPublish<'_>,
        properties: &Properties<'_>,
        copies: &[String],
    ) -> Result<Vec<RoutedQueue>, RouteError> {
        let mut targets = std::mem::take(&mut self.publisher.targets);
        let Some(vhost) = &self.vhost else { return Ok(targets) };
        let mut routes = vhost.routes();
        let headers = MessageHeaders(properties);
        let deferred = delay(properties).is_some();
        if copies.is_empty() {
            let keys = [publish.routing_key];
            let message = Message { keys: &keys, headers: &headers, deferred };
            routes.route(publish.exchange, &message, &mut targets)?;
        } else {
            let keys: Vec<&str> = std::iter::once(publish.routing_key)
                .chain(copies.iter().map(String::as_str))
                .collect();
            let message = Message { keys: &keys, headers: &headers, deferred };
            routes.route(publish.exchange, &message, &mut targets)?;
        }
        Ok(targets)
    }

    /// Returns the name that replaces `amq.rabbitmq.reply-to` in messages of this channel.
    fn reply_name(&self, number: u16) -> Result<String, Exception> {
        let name = self.channels.get(&number).and_then(|channel| channel.reply_name.as_ref());
        let missing = || Exception::precondition_failed("fast reply consumer does not exist");
        name.map(|name| name.as_str().to_owned()).ok_or_else(missing)
    }

    /// Sends a message to receivers of direct replies, past all queues.
    fn post_replies(
        &self,
        publish: &BasicPublish<'_>,
        properties: &Properties<'_>,
        body: &Body,
        copies: &[String],
    ) {
        if !publish.exchange.is_empty() {
            return;
        }
        let keys = std::iter::once(publish.routing_key).chain(copies.iter().map(String::as_str));
        for key in keys.filter(|key| key.starts_with(REPLY_TO_PREFIX)) {
            let mut encoded = BytesMut::new();
            properties.encode(&mut encoded);
            let reply = Reply {
                exchange: publish.exchange.into(),
                routing_key: publish.routing_key.into(),
                properties: encoded.freeze(),
                body: body.clone(),
                permit: None,
            };
            self.gateway.post_reply(key, reply);
        }
    }

    /// Returns a mandatory message that could not be routed.
    pub(crate) fn give_back(
        &mut self,
        number: u16,
        publish: &BasicPublish<'_>,
        properties: &Properties<'_>,
        body: &Body,
    ) {
        let payload_bytes_max = self.negotiated.payload_bytes_max;
        // Blind copies (BCC) must not be visible in a returned message either.
        let visible = without_blind_copies(properties);
        let headers = visible.as_ref().map(|table| EncodedTable(table)).or(properties.headers);
        let properties = &Properties { headers, ..*properties };
        let transaction =
            self.channels.get_mut(&number).and_then(|channel| channel.transaction.as_mut());
        let output = match transaction {
            Some(transaction) => &mut transaction.returns,
            None => &mut self.output,
        };
        put_return(number, publish, properties, body, payload_bytes_max, output);
    }

    fn check_user(&self, properties: &Properties<'_>) -> Result<(), Exception> {
        match properties.user_id {
            Some(user) if user != self.user().as_bytes() => {
                Err(Exception::precondition_failed(format!(
                    "user_id property set to '{}' but authenticated user was '{}'",
                    String::from_utf8_lossy(user),
                    self.user()
                )))
            }
            _ => Ok(()),
        }
    }
}

fn put_return(
    number: u16,
    publish: &BasicPublish<'_>,
    properties: &Properties<'_>,
    body: &Body,
    payload_bytes_max: usize,
    output: &mut Output,
) {
    let code = ReplyCode::NoRoute;
    output.method(
        number,
        BasicReturn {
            reply_code: code.code(),
            reply_text: code.name(),
            exchange: publish.exchange,
            routing_key: publish.routing_key,
            ..BasicReturn::default()
        },
    );
    output.content(number, properties, body.slices(), payload_bytes_max);
}

/// The headers without BCC, if they contain BCC.
fn without_blind_copies(properties: &Properties<'_>) -> Option<Bytes> {
    let EncodedTable(table) = properties.headers?;
    let is_blind = |name: &[u8]| name == BCC;
    if !RawFields::new(table).filter_map(Result::ok).any(|field| is_blind(field.name)) {
        return None;
    }
    let mut headers = FieldTable::decode(table).ok()?;
    headers.0.retain(|(name, _)| !is_blind(name.as_bytes()));
    Some(headers.to_bytes())
}
