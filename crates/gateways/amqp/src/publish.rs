//! Publishing: the hot path in. All messages of one read of the socket become one append ([`crate::publisher`]); its
//! confirms are one reply per channel.

use base::limits::ENTRY_ROW_BYTES;
use broker::{AppendError, AppendedBatch};
use bytes::{Bytes, BytesMut};
use message::headers::BCC;
use rabbitmq::publishing::{copies, delay, expiration};
use routing::Message;
use topology::{RouteError, RoutedQueue};

use crate::channel::ConfirmMode;
use crate::codec::fields::EncodedTable;
use crate::codec::methods::{BasicAck, BasicNack, BasicPublish, BasicReturn};
use crate::codec::properties::{Properties, WireProperties};
use crate::codec::table::{FieldTable, RawFields};
use crate::content::Content;
use crate::declarations::MessageHeaders;
use crate::errors::{Exception, ReplyCode};
use crate::in_flight::RetainedMessage;
use crate::operation::OperationResult;
use crate::output::Output;
use crate::replies::{REPLY_TO, REPLY_TO_PREFIX, Reply};
use crate::session::Session;
use rabbitmq::Body;
use rabbitmq::publisher::{Confirms, Parcel};

/// Freshness of this node's copy of the declarations by which a message is routed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CopyFreshness {
    /// A missing entity may have been declared on another node a moment ago.
    AsItIs,
    /// It was refreshed after the message arrived.
    Current,
    /// The refresh failed: this node may lack declarations.
    Outdated,
}

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
            && copy == CopyFreshness::AsItIs
            && !self.gateway.broker.is_alone()
        {
            return self.publish_by_current(number, content);
        }
        if leads_nowhere && !is_reply && copy == CopyFreshness::Outdated && self.reject(number)? {
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

    /// Routes the message again once this node has all declarations of the cluster. No further frame of the client is
    /// handled before.
    fn publish_by_current(&mut self, number: u16, content: Content) -> Result<(), Exception> {
        let (_, vhost, _) = self.at_hand()?;
        let refreshed = async move {
            let copy = match vhost.refresh().await {
                Ok(()) => CopyFreshness::Current,
                Err(error) => {
                    tracing::debug!(%error, "a message cannot be routed by current declarations");
                    CopyFreshness::Outdated
                }
            };
            Ok(OperationResult::MayRoute { content: Box::new(content), copy })
        };
        self.begin(number, BasicPublish::ID, refreshed);
        Ok(())
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
            transaction.take_room(&self.gateway.transactions, bytes)?;
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

    /// Confirms messages to their publishers: one cumulative ack per channel, and a nack for each rejected message.
    /// `rerouted`: channel and number of messages that were rejected after rerouting.
    pub(crate) fn confirm(
        &mut self,
        confirms: &Confirms,
        answers: &[Result<AppendedBatch, AppendError>],
        rerouted: &[(u16, u64)],
    ) {
        let refused_rows: Vec<bool> = answers.iter().map(is_refused).collect();
        let any_refused = refused_rows.contains(&true);
        let refused = |batch: u32| refused_rows[confirms.rows_of(batch)].contains(&true);
        for error in answers.iter().filter_map(|answer| answer.as_ref().err()) {
            self.gateway.note_refused(error);
        }
        let mut refused_parts = [rerouted, &confirms.rejected].concat();
        if any_refused {
            let parts = confirms.parts.iter().filter(|part| refused(part.batch));
            refused_parts.extend(parts.map(|part| (part.channel, part.number)));
        }
        refused_parts.sort_unstable();
        refused_parts.dedup();
        for confirmed in &confirms.channels {
            let Some(channel) = self.channels.get_mut(&confirmed.channel) else { continue };
            if channel.generation != confirmed.generation || channel.is_closing {
                continue;
            }
            let Some(mode) = &mut channel.confirms else { continue };
            let nacked = channel_parts(confirmed.channel, &refused_parts);
            answer(confirmed.channel, mode, confirmed.last, nacked, &mut self.output);
        }
    }
}

/// A message for a deleted queue was rerouted, or the queue was deleted while the message was in flight; neither is a
/// rejection.
fn is_refused(answer: &Result<AppendedBatch, AppendError>) -> bool {
    !matches!(answer, Ok(_) | Err(AppendError::UnknownPartition(_)))
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

/// Confirms all messages up to `last`. Rejected messages, in ascending order, are nacked first, so that the
/// cumulative ack that follows does not cover them.
fn answer(
    number: u16,
    mode: &mut ConfirmMode,
    last: u64,
    nacked: &[(u16, u64)],
    output: &mut Output,
) {
    for &(_, delivery_tag) in nacked {
        let nack = BasicNack { delivery_tag, ..BasicNack::default() };
        output.method(number, nack);
    }
    let delivery_tag = last_taken(last, nacked);
    if delivery_tag > mode.answered {
        let multiple = delivery_tag > mode.answered + 1;
        output.method(number, BasicAck { delivery_tag, multiple, ..BasicAck::default() });
    }
    mode.answered = last;
}

/// The greatest number up to `last` that is not rejected. `nacked` is in ascending order.
fn last_taken(last: u64, nacked: &[(u16, u64)]) -> u64 {
    let numbers = nacked.iter().rev().map(|(_, number)| *number);
    let refused_at_the_end =
        numbers.zip((1..=last).rev()).take_while(|(nacked, tag)| nacked == tag);
    last - refused_at_the_end.count() as u64
}

/// The parts of one channel. `parts` is in ascending order.
fn channel_parts(channel: u16, parts: &[(u16, u64)]) -> &[(u16, u64)] {
    let from = parts.partition_point(|(of, _)| *of < channel);
    let count = parts[from..].partition_point(|(of, _)| *of == channel);
    &parts[from..from + count]
}

/// Approximate memory of a message in a transaction besides its body.
const TRANSACTION_MESSAGE_BYTES: usize = 256;

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn cumulative_ack_goes_up_to_the_last_number_that_was_not_refused(
            last in 0u64..40,
            mut numbers in proptest::collection::btree_set((0u16..3, 1u64..40), 0..60),
        ) {
            numbers.retain(|(_, number)| *number <= last);
            let parts: Vec<(u16, u64)> = numbers.iter().copied().collect();
            for channel in 0..4 {
                let refused = |tag: u64| numbers.contains(&(channel, tag));
                let expected = (1..=last).rev().find(|tag| !refused(*tag)).unwrap_or(0);
                prop_assert_eq!(last_taken(last, channel_parts(channel, &parts)), expected);
            }
        }
    }

    /// Quadratic time would take minutes.
    #[test]
    fn refusal_of_a_million_messages_is_answered_in_linear_time() {
        let parts: Vec<(u16, u64)> = (1..=1_000_000).map(|number| (1, number)).collect();
        assert_eq!(last_taken(1_000_000, channel_parts(1, &parts)), 0);
        assert_eq!(last_taken(1_000_001, channel_parts(1, &parts)), 1_000_001);
    }
}
