use async_trait::async_trait;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{MessageAttributeValue, SendMessageBatchRequestEntry};
use driver::{Failure, Message};
use futures_util::future::join_all;

use super::batches::{self, Chunk};
use super::failure::{entry_failure, failure};
use crate::batching::BatchWriter;

/// The attribute with the body; the server requires a text beside it.
pub(super) const BODY: &str = "body";
const TEXT: &str = "-";

#[derive(Debug)]
pub(super) struct Writer {
    client: Client,
    /// By destination.
    urls: Vec<String>,
    /// For FIFO queues: largest number of a lane's messages in one request.
    ordered: Option<usize>,
    parallel: usize,
    /// Together with the number of the message, unique to this sender.
    salt: u64,
    sent: u64,
}

type Outcome = Result<(), Failure>;

impl Writer {
    pub(super) fn new(
        client: Client,
        urls: Vec<String>,
        ordered: Option<usize>,
        parallel: usize,
    ) -> Self {
        Self { client, urls, ordered, parallel, salt: rand::random(), sent: 0 }
    }

    fn entry(
        &self,
        index: usize,
        message: &Message,
    ) -> Result<SendMessageBatchRequestEntry, Failure> {
        let body = MessageAttributeValue::builder()
            .data_type("Binary")
            .binary_value(Blob::new(message.body.as_ref()))
            .build()
            .map_err(Failure::refused)?;
        let entry = SendMessageBatchRequestEntry::builder()
            .id(index.to_string())
            .message_body(TEXT)
            .message_attributes(BODY, body);
        let entry = match self.ordered {
            None => entry,
            Some(_) => {
                let number = self.sent + index as u64;
                let unique = format!("{:016x}-{number}", self.salt);
                entry.message_group_id(message.key()).message_deduplication_id(unique)
            }
        };
        entry.build().map_err(Failure::refused)
    }

    async fn send(
        &self,
        chunk: &Chunk,
        batch: &[(u32, Message)],
    ) -> Result<Vec<(usize, Outcome)>, Failure> {
        let url = self.urls.get(chunk.destination as usize);
        let url = url.ok_or_else(|| Failure::refused("there is no such destination"))?;
        let entries = chunk.indexes.iter().map(|&index| self.entry(index, &batch[index].1));
        let entries = entries.collect::<Result<_, _>>()?;
        let request = self.client.send_message_batch().queue_url(url).set_entries(Some(entries));
        let answer = request.send().await.map_err(|error| failure(&error))?;
        let outcome = |index: usize| {
            let id = index.to_string();
            if answer.successful().iter().any(|entry| entry.id() == id) {
                return Ok(());
            }
            let failed = answer.failed().iter().find(|entry| entry.id() == id);
            Err(failed.map_or_else(
                || Failure::unknown("the server's answer leaves this message out"),
                entry_failure,
            ))
        };
        Ok(chunk.indexes.iter().map(|&index| (index, outcome(index))).collect())
    }

    /// Sends the requests one after the other.
    async fn send_row(&self, row: Vec<Chunk>, batch: &[(u32, Message)]) -> Vec<(usize, Outcome)> {
        let mut outcomes = Vec::new();
        for chunk in row {
            match self.send(&chunk, batch).await {
                Ok(some) => outcomes.extend(some),
                Err(failure) => outcomes
                    .extend(chunk.indexes.iter().map(|&index| (index, Err(failure.clone())))),
            }
        }
        outcomes
    }
}

#[async_trait]
impl BatchWriter for Writer {
    async fn write(&mut self, batch: &[(u32, Message)]) -> Result<Vec<Outcome>, Failure> {
        let rows = match self.ordered {
            None => batches::unordered(batch).into_iter().map(|chunk| vec![chunk]).collect(),
            Some(group_batch) => batches::ordered(batch, group_batch, self.parallel),
        };
        let rows = rows.into_iter().map(|row| self.send_row(row, batch));
        let mut outcomes: Vec<(usize, Outcome)> = join_all(rows).await.concat();
        outcomes.sort_unstable_by_key(|(index, _)| *index);
        self.sent += batch.len() as u64;
        Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
    }
}
