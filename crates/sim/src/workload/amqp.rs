//! Publishers and consumers of a queue with AMQP 0-9-1: confirms, and settles in transactions.

use std::time::Duration;

use client_amqp::{AmqpError, Channel, Delivery, Mode, TimedStream};
use world::net::Stream;

use super::{Client, LifeEnded, number, value};
use crate::checkers::messages::MessageId;
use crate::network;

const QUEUE: &str = "messages";
pub const PUBLISHERS: u64 = 1;
pub const CONSUMERS: u64 = 2;

type Link = Channel<TimedStream<Stream>>;

pub async fn publish(mut client: Client) -> LifeEnded {
    loop {
        let ended = publish_on_one(&mut client).await;
        client.trace.note(format_args!("publisher is cut off: {ended:?}"));
        client.think(500).await;
    }
}

async fn publish_on_one(client: &mut Client) -> Result<(), AmqpError> {
    let mut channel = network::amqp(Mode::Confirms).await?;
    channel.declare(&[QUEUE.to_owned()], &[]).await?;
    loop {
        let mut waiting: Vec<(u64, MessageId)> = Vec::new();
        for _ in 0..client.random.between(1, 4) {
            let padding = client.random.below(800) as usize;
            let id = client.knowledge.lock().messages.publish();
            waiting.push((channel.publish("", QUEUE, &value(id, padding)), id));
        }
        while channel.unconfirmed() > 0 {
            for confirm in client.due("a confirm", channel.confirms()).await? {
                let id = waiting.iter().find(|(tag, _)| *tag == confirm.tag).map(|(_, id)| *id);
                client.trace.note(format_args!("message {id:?} is confirmed: {}", confirm.taken));
                if let Some(id) = id.filter(|_| confirm.taken) {
                    client.knowledge.lock().messages.confirm(id);
                }
            }
        }
        client.think(100).await;
    }
}

/// Consumes, over one connection after another.
pub async fn consume(mut client: Client) -> LifeEnded {
    loop {
        let lasts = Duration::from_millis(client.random.between(200, 5_000));
        let connection = client.random.number();
        let mut consumer = Consumer { client: client.fork(), connection, idle: None };
        let ended = tokio::time::timeout(lasts, consumer.run()).await;
        client.trace.note(format_args!("consumer {connection:x} goes: {ended:?}"));
        client.knowledge.lock().messages.close(connection);
        client.think(300).await;
    }
}

/// Settles all remaining messages. Ends once none arrives for a while.
pub async fn drain(client: Client) -> Result<(), AmqpError> {
    let idle = Some(Duration::from_secs(2));
    let mut consumer = Consumer { client, connection: 1, idle };
    consumer.run().await
}

struct Consumer {
    client: Client,
    connection: u64,
    /// Ends when no message arrives for this long; `None`: it does not end.
    idle: Option<Duration>,
}

impl Consumer {
    async fn run(&mut self) -> Result<(), AmqpError> {
        let mut channel = network::amqp(Mode::Transactions).await?;
        channel.declare(&[QUEUE.to_owned()], &[]).await?;
        channel.consume(QUEUE, self.client.random.between(1, 6) as u16).await?;
        let wait = self.idle.unwrap_or(Duration::from_millis(200));
        loop {
            match channel.delivery(wait).await? {
                Some(delivery) => self.settle(&mut channel, delivery).await?,
                None if self.idle.is_some() => return Ok(()),
                None => {}
            }
        }
    }

    async fn settle(&mut self, channel: &mut Link, delivery: Delivery) -> Result<(), AmqpError> {
        let Self { client, connection, idle } = self;
        let Some(id) = number(&delivery.body) else {
            let what = "a message was changed";
            client.verdict.violated(crate::verdict::Invariant::Once, what);
            return Ok(());
        };
        client.trace.note(format_args!("message {id} to consumer {connection:x}"));
        client.knowledge.lock().messages.deliver(id, *connection, &client.verdict);
        if idle.is_none() && client.random.once_in(8) {
            client.knowledge.lock().messages.give_back(id);
            channel.nack(delivery.tag, true);
            return channel.commit().await;
        }
        client.knowledge.lock().messages.acknowledge(id);
        channel.ack(delivery.tag);
        client.due("a transaction", channel.commit()).await?;
        client.trace.note(format_args!("message {id} is settled"));
        client.knowledge.lock().messages.settle(id);
        Ok(())
    }
}
