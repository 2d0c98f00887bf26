//! Postroad's own request: operations that Kafka's protocol does not have.
//!
//! The documents are those of the crate `operations`. This module sends them, and splits long work into pieces,
//! because each reply is bounded.

use std::time::Duration;

use kafka_protocol::ResponseError;
use operations::document::{
    ConnectionPage, ConnectionSummary, DeadLetterCount, DeadLetterCounts, DeadLettersMoved,
    Operation, QueueName, QueuePage, QueueSummary, RecordPosition, Span, WithToken,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cluster::Client;
use crate::error::{Api, ClientError};
use crate::requests::code_name;

/// Some operations read a whole queue.
const OPERATED_WITHIN: Duration = Duration::from_secs(600);
const QUEUES_PER_PAGE: u32 = 1_000;
const CONNECTIONS_PER_PAGE: u32 = 1_000;
const MOVED_PER_REQUEST: u32 = 1_000;

impl Client {
    /// Requests an operation, with the client's token, if any.
    pub async fn operate<A: DeserializeOwned>(
        &self,
        operation: &Operation,
    ) -> Result<A, ClientError> {
        let connection = self.any().await;
        let unreadable = |reason: String| ClientError::Unreadable {
            address: connection.address().to_owned(),
            api: Api::Operate,
            reason,
        };
        let (version, document) = match &self.token {
            Some(token) => {
                let (token, operation) = (Some(token.clone()), operation.clone());
                let asked = WithToken { token, operation };
                (operations::VERSION_WITH_TOKEN, serde_json::to_vec(&asked))
            }
            None => (operations::VERSION, serde_json::to_vec(operation)),
        };
        let document = document.map_err(|error| unreadable(error.to_string()))?;
        let answer = connection.operate(version, &document, OPERATED_WITHIN).await?;
        if let Some(code) = ResponseError::try_from_code(answer.code) {
            let message = answer.message.unwrap_or_else(|| code_name(answer.code));
            return Err(ClientError::Operation { code, message });
        }
        serde_json::from_slice(&answer.document).map_err(|error| unreadable(error.to_string()))
    }

    /// Requests an operation of another gateway, by the name of its family and in its documents.
    pub async fn operate_family<O: Serialize, A: DeserializeOwned>(
        &self,
        family: &str,
        operation: &O,
    ) -> Result<A, ClientError> {
        let operation = serde_json::to_value(operation).map_err(|error| {
            ClientError::Unsendable { api: Api::Operate, reason: error.to_string() }
        })?;
        let family = family.to_owned();
        self.operate(&Operation::Family { family, operation }).await
    }

    /// All queues, by topic and group.
    pub async fn queues(&self) -> Result<Vec<QueueSummary>, ClientError> {
        let mut queues: Vec<QueueSummary> = Vec::new();
        loop {
            let after = queues
                .last()
                .map(|last| QueueName { topic: last.topic.clone(), group: last.group.clone() });
            let operation = Operation::ListQueues { after, queues_max: QUEUES_PER_PAGE };
            let page: QueuePage = self.operate(&operation).await?;
            let more = page.more && !page.queues.is_empty();
            queues.extend(page.queues);
            if !more {
                return Ok(queues);
            }
        }
    }

    /// All connections, by number.
    pub async fn connections(&self) -> Result<Vec<ConnectionSummary>, ClientError> {
        let mut connections: Vec<ConnectionSummary> = Vec::new();
        loop {
            let after = connections.last().map(|last| last.id);
            let connections_max = CONNECTIONS_PER_PAGE;
            let operation = Operation::ListConnections { after, connections_max };
            let page: ConnectionPage = self.operate(&operation).await?;
            let more = page.more && !page.connections.is_empty();
            connections.extend(page.connections);
            if !more {
                return Ok(connections);
            }
        }
    }

    /// Counts the dead letters of a topic, by source and reason. `progress` receives the count so far.
    pub async fn dead_letter_counts(
        &self,
        topic: &str,
        mut progress: impl FnMut(u64),
    ) -> Result<Vec<DeadLetterCount>, ClientError> {
        let mut counts: Vec<DeadLetterCount> = Vec::new();
        let mut from = None;
        loop {
            let operation = Operation::CountDeadLetters { topic: topic.to_owned(), from };
            let page: DeadLetterCounts = self.operate(&operation).await?;
            for more in page.counts {
                add(&mut counts, more);
            }
            progress(counts.iter().map(|count| count.records).sum());
            if page.next.is_none() {
                return Ok(counts);
            }
            from = page.next;
        }
    }

    /// Repeats an operation that moves dead letters until all are moved, or `records_max`.
    pub async fn move_dead_letters(
        &self,
        records_max: Option<u64>,
        operation: impl Fn(Span) -> Operation,
        mut progress: impl FnMut(u64),
    ) -> Result<(u64, u64), ClientError> {
        let (mut moved, mut left) = (0, 0);
        let mut from: Option<RecordPosition> = None;
        let mut until = None;
        loop {
            let rest = records_max.map_or(u64::MAX, |most| most.saturating_sub(moved));
            if rest == 0 {
                return Ok((moved, left));
            }
            let records_max = rest.min(MOVED_PER_REQUEST.into()) as u32;
            let span = Span { from, until, records_max };
            let done: DeadLettersMoved = self.operate(&operation(span)).await?;
            moved += done.records;
            left += done.left;
            progress(moved);
            if done.next.is_none() {
                return Ok((moved, left));
            }
            (from, until) = (done.next, Some(done.until));
        }
    }
}

fn add(counts: &mut Vec<DeadLetterCount>, more: DeadLetterCount) {
    let same = |known: &&mut DeadLetterCount| {
        (&known.source, &known.group, &known.reason) == (&more.source, &more.group, &more.reason)
    };
    match counts.iter_mut().find(same) {
        Some(known) => {
            known.records += more.records;
            known.first_ms = [known.first_ms, more.first_ms].into_iter().flatten().min();
            known.last_ms = known.last_ms.max(more.last_ms);
        }
        None => counts.push(more),
    }
}
