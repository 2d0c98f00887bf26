//! Postroad's own request: what operators do that Kafka's protocol has no words for.
//!
//! The documents are the gateway's types; here is how one is sent, and how long work is taken in
//! pieces, because each answer is bounded.

use std::time::Duration;

use bytes::{Buf, Bytes};
use gateway_amqp::operations as amqp;
use gateway_amqp::operations::document::{
    NamedPolicy, PolicyPage, UserPage, UserSummary, VhostPage, VhostSummary,
};
use operations::document::{
    DeadLetterCount, DeadLetterCounts, DeadLettersMoved, Operation, Place, QueueName, QueuePage,
    QueueSummary, Span, WithToken,
};
use kafka_protocol::ResponseError;
use serde::de::DeserializeOwned;

use super::cluster::Client;
use super::error::{Api, ClientError};

/// Some operations read all that a queue holds.
const OPERATED_WITHIN: Duration = Duration::from_secs(600);
const QUEUES_PER_PAGE: u32 = 1_000;
const MOVED_PER_REQUEST: u32 = 1_000;

impl Client {
    pub(crate) async fn operate<A: DeserializeOwned>(
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
        let (code, message, body) =
            parts(answer).ok_or_else(|| unreadable("it is cut off".to_owned()))?;
        if let Some(code) = ResponseError::try_from_code(code) {
            let message = message.unwrap_or_else(|| format!("{code:?} ({})", code.code()));
            return Err(ClientError::Operation { code, message });
        }
        serde_json::from_slice(&body).map_err(|error| unreadable(error.to_string()))
    }

    /// Asks for an operation of the AMQP gateway.
    pub(crate) async fn operate_amqp<A: DeserializeOwned>(
        &self,
        operation: &amqp::document::Operation,
    ) -> Result<A, ClientError> {
        let operation = serde_json::to_value(operation).map_err(|error| {
            ClientError::Unsendable { api: Api::Operate, reason: error.to_string() }
        })?;
        let family = amqp::FAMILY.to_owned();
        self.operate(&Operation::Family { family, operation }).await
    }

    /// All vhosts, by name.
    pub(crate) async fn vhosts(&self) -> Result<Vec<VhostSummary>, ClientError> {
        let mut vhosts: Vec<VhostSummary> = Vec::new();
        loop {
            let after = vhosts.last().map(|last| last.name.clone());
            let operation = amqp::document::Operation::ListVhosts { after };
            let page: VhostPage = self.operate_amqp(&operation).await?;
            let more = page.more && !page.vhosts.is_empty();
            vhosts.extend(page.vhosts);
            if !more {
                return Ok(vhosts);
            }
        }
    }

    /// All policies of a vhost, or of all, by vhost and name.
    pub(crate) async fn policies(
        &self,
        vhost: Option<&str>,
    ) -> Result<Vec<NamedPolicy>, ClientError> {
        let mut policies: Vec<NamedPolicy> = Vec::new();
        loop {
            let after = policies.last().map(|last| (last.vhost.clone(), last.name.clone()));
            let vhost = vhost.map(str::to_owned);
            let operation = amqp::document::Operation::ListPolicies { vhost, after };
            let page: PolicyPage = self.operate_amqp(&operation).await?;
            let more = page.more && !page.policies.is_empty();
            policies.extend(page.policies);
            if !more {
                return Ok(policies);
            }
        }
    }

    /// All users, by name.
    pub(crate) async fn users(&self) -> Result<Vec<UserSummary>, ClientError> {
        let mut users: Vec<UserSummary> = Vec::new();
        loop {
            let after = users.last().map(|last| last.name.clone());
            let operation = amqp::document::Operation::ListUsers { after };
            let page: UserPage = self.operate_amqp(&operation).await?;
            let more = page.more && !page.users.is_empty();
            users.extend(page.users);
            if !more {
                return Ok(users);
            }
        }
    }

    /// All queues, by topic and group.
    pub(crate) async fn queues(&self) -> Result<Vec<QueueSummary>, ClientError> {
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

    /// How many dead letters a topic has, by where they came from and why. `progress` hears how
    /// many were counted so far.
    pub(crate) async fn dead_letter_counts(
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

    /// Repeats an operation that moves dead letters until all are, or `records_max`.
    pub(crate) async fn move_dead_letters(
        &self,
        records_max: Option<u64>,
        operation: impl Fn(Span) -> Operation,
        mut progress: impl FnMut(u64),
    ) -> Result<(u64, u64), ClientError> {
        let (mut moved, mut left) = (0, 0);
        let mut from: Option<Place> = None;
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

/// Error code, message and document. `None`: there is less than that.
fn parts(mut answer: Bytes) -> Option<(i16, Option<String>, Bytes)> {
    let code = answer.try_get_i16().ok()?;
    let message = match answer.try_get_i16().ok()? {
        length if length < 0 => None,
        length => {
            let length = length as usize;
            (answer.len() >= length).then_some(())?;
            Some(String::from_utf8_lossy(&answer.split_to(length)).into_owned())
        }
    };
    let length = usize::try_from(answer.try_get_i32().ok()?).ok()?;
    (answer.len() == length).then_some((code, message, answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_code_a_message_and_a_document() {
        let whole = Bytes::from_static(b"\0\x23\0\x02no\0\0\0\x02{}");
        let read = parts(whole.clone()).expect("whole");
        assert_eq!(read, (35, Some("no".to_owned()), Bytes::from_static(b"{}")));
        for cut in 0..whole.len() {
            assert_eq!(parts(whole.slice(..cut)), None, "{cut}");
        }
        let silent = parts(Bytes::from_static(b"\0\0\xff\xff\0\0\0\0")).expect("whole");
        assert_eq!(silent, (0, None, Bytes::new()));
    }
}
