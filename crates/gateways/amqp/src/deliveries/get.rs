//! `basic.get`: one message from a queue, or the reply that it is empty.

use std::sync::Arc;

use access::Operation;
use broker::Broker;
use broker::delivery::{Delivery, LeaseSession, Settle, Settlement, TakeError, TakeOptions};
use topology::{Queue, VirtualHost};

use crate::channel::UnackedDelivery;
use crate::channel::consumer::answer_within;
use crate::codec::methods::BasicGet;
use crate::declarations::queues::{self, QueueRetry};
use crate::deliveries::answer_timeout::due;
use crate::deliveries::outgoing::{ContentMethod, OutgoingDelivery, Writer};
use crate::errors::{Exception, NamedEntity, ReplyCode};
use crate::session::Session;
use crate::session::operation::OperationResult;

impl Session {
    pub(crate) fn get(&mut self, number: u16, get: &BasicGet<'_>) -> Result<(), Exception> {
        let (gateway, vhost, id) = self.at_hand()?;
        let name = self.queue_name(number, get.queue)?;
        self.check_queue(Operation::Consume, &name)?;
        let (no_ack, rights) = (get.no_ack, self.rights()?);
        let Some(leases) = self.leases(number) else { return Ok(()) };
        let future = async move {
            let mut attempts = QueueRetry::default();
            let (queue, delivery) = loop {
                let queue = queues::gettable(&vhost, id, &name, &rights).await?;
                match take_one(&gateway.broker, &leases, &vhost, &queue).await {
                    Ok(taken) => break (queue, taken.map(Box::new)),
                    Err(refused) if attempts.is_outdated(&vhost, &queue, &refused).await? => {}
                    Err(refused) => return Err(refused),
                }
            };
            if let Some(delivery) = delivery.as_ref().filter(|_| no_ack) {
                // Settled before the reply: a client that has the message can rely on its place in the queue being
                // free.
                let (group, what) = (delivery.group, delivery.lease());
                let settle = Settle { group, what, settlement: Settlement::Accept };
                leases.settle(vec![settle]).await;
            }
            let ready = match delivery {
                Some(_) => vhost.message_count(&queue).await?,
                None => 0,
            };
            Ok(OperationResult::Got { queue, delivery, no_ack, ready })
        };
        self.begin(number, BasicGet::ID, future);
        Ok(())
    }

    pub(crate) fn got(
        &mut self,
        number: u16,
        queue: &Queue,
        delivery: &Delivery,
        no_ack: bool,
        ready: u64,
    ) {
        let before = self.output.bytes();
        let Some(channel) = self.channels.get_mut(&number) else { return };
        let delivery_tag = channel.next_tag;
        channel.next_tag += 1;
        let mut writer = Writer {
            channel: number,
            payload_bytes_max: self.negotiated.payload_bytes_max,
            table: &mut self.table,
            output: &mut self.output,
        };
        let message_count = u32::try_from(ready).unwrap_or(u32::MAX);
        writer.put(
            &OutgoingDelivery::from_lease(queue, delivery, delivery_tag),
            ContentMethod::Got { message_count },
        );
        if !no_ack {
            let Delivery { group, partition, token, .. } = *delivery;
            let due = due(answer_within(queue), &mut self.answers_due);
            channel
                .unacked
                .push(delivery_tag, UnackedDelivery::Lease { group, partition, token, due });
        }
        self.connection.traffic().delivered(delivery.record.encoded_len() as u64);
        self.charge_got(self.output.bytes().saturating_sub(before));
    }
}

async fn take_one(
    broker: &Broker,
    leases: &LeaseSession,
    vhost: &VirtualHost,
    queue: &Arc<Queue>,
) -> Result<Option<Delivery>, Exception> {
    let group = queue.group().ok_or_else(|| Exception::not_found(queue.resource()))?;
    vhost.use_queue(queue).await?;
    // A message that was confirmed before must be found.
    broker.acknowledged_is_readable(queue.topic).await;
    let options = TakeOptions { records_max: 1, ..TakeOptions::default() };
    let taken = leases.take(group, options).await;
    Ok(taken.map_err(|error| cannot_take(&error, queue))?.pop())
}

fn cannot_take(error: &TakeError, queue: &Queue) -> Exception {
    match error {
        TakeError::UnknownGroup(_) => Exception::not_found(queue.resource()),
        TakeError::Unavailable(error) => {
            Exception::new(ReplyCode::InternalError, error.to_string())
        }
    }
}
