use std::collections::HashMap;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{
    BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry,
    DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName,
};
use bytes::Bytes;
use driver::{DeliveryId, Failure, RECEIVE_WAIT, Received, Receiver, Settle};
use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::batches::ENTRIES_MAX;
use super::failure::{entry_failure, failure};
use super::sender::BODY;

#[derive(Debug)]
pub(super) struct SqsReceiver {
    client: Client,
    urls: Vec<String>,
    parallel: usize,
    poll: Duration,
    /// Index of the queue to read first, so that none starves.
    next: usize,
    /// By delivery: the queue, and the receipt handle.
    open: HashMap<u64, (usize, String)>,
    deliveries: u64,
}

impl SqsReceiver {
    pub(super) fn new(client: Client, urls: Vec<String>, parallel: usize, poll: Duration) -> Self {
        Self { client, urls, parallel, poll, next: 0, open: HashMap::new(), deliveries: 0 }
    }

    async fn request(
        &self,
        queue: usize,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Message>, Failure> {
        let request = self
            .client
            .receive_message()
            .queue_url(&self.urls[queue])
            .max_number_of_messages(max.min(ENTRIES_MAX) as i32)
            .wait_time_seconds(wait.as_secs() as i32)
            .message_attribute_names(BODY)
            .message_system_attribute_names(MessageSystemAttributeName::ApproximateReceiveCount);
        let answer = request.send().await.map_err(|error| failure(&error))?;
        Ok(answer.messages.unwrap_or_default())
    }

    /// Receives messages of one queue. If one full request is not enough, others are sent
    /// concurrently.
    async fn take(
        &self,
        queue: usize,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Message>, Failure> {
        let mut taken = self.request(queue, max, wait).await?;
        let left = max.saturating_sub(ENTRIES_MAX);
        if taken.len() == ENTRIES_MAX && left > 0 {
            let requests = left.div_ceil(ENTRIES_MAX).min(self.parallel);
            let share = |number: usize| (left - number * ENTRIES_MAX).min(ENTRIES_MAX);
            let more =
                (0..requests).map(|number| self.request(queue, share(number), Duration::ZERO));
            taken.extend(try_join_all(more).await?.into_iter().flatten());
        }
        Ok(taken)
    }

    fn received(&mut self, queue: usize, message: Message) -> Result<Received, Failure> {
        let counted = MessageSystemAttributeName::ApproximateReceiveCount;
        let count = message.attributes.as_ref().and_then(|all| all.get(&counted));
        let redelivered = count.and_then(|count| count.parse::<u32>().ok()).map(|count| count > 1);
        let mut attributes = message.message_attributes.unwrap_or_default();
        let body = attributes.remove(BODY).and_then(|body| body.binary_value);
        let (Some(body), Some(receipt)) = (body, message.receipt_handle) else {
            return Err(Failure::refused("a message without a body or a receipt came"));
        };
        self.deliveries += 1;
        self.open.insert(self.deliveries, (queue, receipt));
        let body = Bytes::from(body.into_inner());
        Ok(Received { id: DeliveryId(self.deliveries), body, redelivered })
    }

    async fn delete(
        &self,
        queue: usize,
        receipts: &[String],
    ) -> Result<Vec<BatchResultErrorEntry>, Failure> {
        let entry = |(number, receipt): (usize, &String)| {
            let entry = DeleteMessageBatchRequestEntry::builder().id(number.to_string());
            entry.receipt_handle(receipt).build().map_err(Failure::refused)
        };
        let entries = receipts.iter().enumerate().map(entry).collect::<Result<_, _>>()?;
        let request = self.client.delete_message_batch().queue_url(&self.urls[queue]);
        let answer = request.set_entries(Some(entries)).send().await;
        Ok(answer.map_err(|error| failure(&error))?.failed)
    }

    async fn show(
        &self,
        queue: usize,
        receipts: &[String],
    ) -> Result<Vec<BatchResultErrorEntry>, Failure> {
        let entry = |(number, receipt): (usize, &String)| {
            let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(number.to_string());
            let entry = entry.receipt_handle(receipt).visibility_timeout(0);
            entry.build().map_err(Failure::refused)
        };
        let entries = receipts.iter().enumerate().map(entry).collect::<Result<_, _>>()?;
        let request = self.client.change_message_visibility_batch().queue_url(&self.urls[queue]);
        let answer = request.set_entries(Some(entries)).send().await;
        Ok(answer.map_err(|error| failure(&error))?.failed)
    }

    /// Settles the entries of one request.
    async fn settle_some(
        &self,
        queue: usize,
        settle: Settle,
        receipts: &[String],
    ) -> Result<Vec<BatchResultErrorEntry>, Failure> {
        match settle {
            Settle::Accept => self.delete(queue, receipts).await,
            Settle::Release => self.show(queue, receipts).await,
        }
    }

    /// Returns the entries that the server did not settle.
    async fn settle_all(
        &self,
        settles: Vec<((usize, String), Settle)>,
    ) -> Result<Vec<BatchResultErrorEntry>, Failure> {
        let mut by_queue: HashMap<(usize, Settle), Vec<String>> = HashMap::new();
        for ((queue, receipt), settle) in settles {
            by_queue.entry((queue, settle)).or_default().push(receipt);
        }
        let mut requests = Vec::new();
        for ((queue, settle), receipts) in &by_queue {
            for receipts in receipts.chunks(ENTRIES_MAX) {
                requests.push(self.settle_some(*queue, *settle, receipts));
            }
        }
        let failed = stream::iter(requests).buffer_unordered(self.parallel);
        Ok(failed.try_collect::<Vec<_>>().await?.concat())
    }
}

#[async_trait]
impl Receiver for SqsReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        if max == 0 || self.urls.is_empty() {
            return Ok(Vec::new());
        }
        // The request waits on a single queue only: a cancelled request may have received messages.
        let wait = if self.urls.len() == 1 { RECEIVE_WAIT } else { Duration::ZERO };
        let deadline = Instant::now() + RECEIVE_WAIT;
        let mut received = Vec::new();
        loop {
            for turn in 0..self.urls.len() {
                let queue = (self.next + turn) % self.urls.len();
                for message in self.take(queue, max - received.len(), wait).await? {
                    received.push(self.received(queue, message)?);
                }
                if received.len() == max {
                    break;
                }
            }
            self.next += 1;
            if !received.is_empty() || !wait.is_zero() || Instant::now() >= deadline {
                return Ok(received);
            }
            tokio::time::sleep(self.poll).await;
        }
    }

    async fn settle(&mut self, settles: &[(DeliveryId, Settle)]) -> Result<(), Failure> {
        let mut known = Vec::with_capacity(settles.len());
        for &(DeliveryId(delivery), settle) in settles {
            let Some(place) = self.open.remove(&delivery) else {
                return Err(Failure::refused(format!("delivery {delivery} is not open")));
            };
            known.push((place, settle));
        }
        match self.settle_all(known).await?.first() {
            None => Ok(()),
            Some(entry) => Err(entry_failure(entry)),
        }
    }

    async fn close(mut self: Box<Self>) -> Result<(), Failure> {
        let open = std::mem::take(&mut self.open).into_values();
        let settles = open.map(|place| (place, Settle::Release)).collect();
        // Entries that the server no longer knows have returned after their lease.
        self.settle_all(settles).await.map(drop)
    }
}
