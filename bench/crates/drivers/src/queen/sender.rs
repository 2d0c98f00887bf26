use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use driver::{Failure, Message};
use serde::Deserialize;
use serde_json::{Value, json};

use super::http::Http;
use crate::batching::BatchWriter;

/// Pushes the messages of a batch in one call.
#[derive(Debug)]
pub(super) struct Writer {
    http: Http,
    /// By destination.
    queues: Vec<String>,
    /// Together with the number of the message, unique to this sender.
    salt: u64,
    sent: u64,
}

/// Outcome of one message.
#[derive(Deserialize)]
struct Pushed {
    index: Option<usize>,
    status: String,
    error: Option<String>,
}

impl Writer {
    pub(super) fn new(http: Http, queues: Vec<String>) -> Self {
        Self { http, queues, salt: rand::random(), sent: 0 }
    }

    fn item(
        &self,
        index: usize,
        (destination, message): &(u32, Message),
    ) -> Result<Value, Failure> {
        let queue = self.queues.get(*destination as usize);
        let queue = queue.ok_or_else(|| Failure::refused("there is no such destination"))?;
        Ok(json!({
            "queue": queue,
            "partition": message.key(),
            "payload": STANDARD.encode(&message.body),
            "transactionId": format!("{:016x}-{}", self.salt, self.sent + index as u64),
        }))
    }
}

impl Pushed {
    fn outcome(self) -> Result<(), Failure> {
        match self.status.as_str() {
            "queued" | "duplicate" => Ok(()),
            "buffered" => {
                Err(Failure::unknown("the server put it into a file, since its database was away"))
            }
            other => {
                let why = self.error.unwrap_or_default();
                Err(Failure::refused(format!("the push was answered with {other}: {why}")))
            }
        }
    }
}

#[async_trait]
impl BatchWriter for Writer {
    async fn write(
        &mut self,
        batch: &[(u32, Message)],
    ) -> Result<Vec<Result<(), Failure>>, Failure> {
        let items = batch.iter().enumerate().map(|(index, entry)| self.item(index, entry));
        let items = Value::Array(items.collect::<Result<_, _>>()?);
        // Counted even if the call fails, since the outcome of these ids is unknown.
        self.sent += batch.len() as u64;
        let pushed: Vec<Pushed> =
            self.http.post("/api/v1/push", &json!({ "items": items })).await?;
        let left_out = || Err(Failure::unknown("the server's answer leaves this message out"));
        let mut outcomes: Vec<_> = batch.iter().map(|_| left_out()).collect();
        for (place, pushed) in pushed.into_iter().enumerate() {
            if let Some(outcome) = outcomes.get_mut(pushed.index.unwrap_or(place)) {
                *outcome = pushed.outcome();
            }
        }
        Ok(outcomes)
    }
}
