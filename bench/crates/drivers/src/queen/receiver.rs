use std::time::{Duration, Instant};

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use driver::{DeliveryId, Failure, RECEIVE_WAIT, Received, Receiver, Settle};
use serde::Deserialize;
use serde_json::{Value, json};

use super::http::Http;
use super::leases::{Acknowledgement, Lease, Leases};

#[derive(Debug)]
pub(super) struct QueenReceiver {
    http: Http,
    queues: Vec<String>,
    group: Option<String>,
    partitions: u32,
    poll: Duration,
    /// Index of the queue to read first, so that none starves.
    next: usize,
    leases: Leases,
}

/// Reply to a pop.
#[derive(Deserialize)]
struct Popped {
    #[serde(default)]
    messages: Vec<Message>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    transaction_id: String,
    partition_id: String,
    lease_id: String,
    /// The payload.
    data: String,
}

/// Outcome of one acknowledgement.
#[derive(Deserialize)]
struct Acknowledged {
    success: bool,
    error: Option<String>,
}

impl QueenReceiver {
    pub(super) fn new(
        http: Http,
        queues: Vec<String>,
        group: Option<String>,
        partitions: u32,
        poll: Duration,
    ) -> Self {
        Self { http, queues, group, partitions, poll, next: 0, leases: Leases::default() }
    }

    async fn pop(
        &mut self,
        queue: usize,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Received>, Failure> {
        let mut path = format!(
            "/api/v1/pop/queue/{}?batch={max}&partitions={}&wait={}",
            self.queues[queue],
            self.partitions,
            !wait.is_zero()
        );
        if !wait.is_zero() {
            path += &format!("&timeout={}", wait.as_millis());
        }
        if let Some(group) = &self.group {
            path += &format!("&consumerGroup={group}&subscriptionMode=all");
        }
        let Some(popped) = self.http.get::<Popped>(&path).await? else { return Ok(Vec::new()) };
        let mut received = Vec::with_capacity(popped.messages.len());
        for Message { transaction_id, partition_id, lease_id, data } in popped.messages {
            let lease = Lease { partition: partition_id, lease: lease_id };
            let body = STANDARD.decode(data);
            let body = body.map_err(|why| Failure::refused(format!("a payload: {why}")))?;
            if let Some(delivery) = self.leases.came(&lease, transaction_id) {
                let id = DeliveryId(delivery);
                received.push(Received { id, body: Bytes::from(body), redelivered: None });
            }
        }
        Ok(received)
    }

    /// Sends acknowledgements. Returns the error of the first one that the server rejected.
    async fn acknowledge(&self, told: Vec<Acknowledgement>) -> Result<Option<String>, Failure> {
        if told.is_empty() {
            return Ok(None);
        }
        let asked: Vec<Value> = told.iter().map(acknowledgement).collect();
        let count = asked.len();
        let mut body = json!({ "acknowledgments": asked });
        if let Some(group) = &self.group {
            body["consumerGroup"] = json!(group);
        }
        let answer: Vec<Acknowledged> = self.http.post("/api/v1/ack/batch", &body).await?;
        if answer.len() != count {
            let why = format!("{} of {count} acknowledgements were answered", answer.len());
            return Err(Failure::Unknown(why));
        }
        let failed = answer.into_iter().find(|one| !one.success);
        Ok(failed.map(|one| one.error.unwrap_or_else(|| "no reason was given".into())))
    }
}

fn acknowledgement(told: &Acknowledgement) -> Value {
    json!({
        "transactionId": told.transaction,
        "partitionId": told.lease.partition,
        "leaseId": told.lease.lease,
        "status": match told.settle {
            Settle::Accept => "completed",
            Settle::Release => "retry",
        },
    })
}

#[async_trait]
impl Receiver for QueenReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        if max == 0 || self.queues.is_empty() {
            return Ok(Vec::new());
        }
        // The call waits on a single queue only: a cancelled call may have leased messages.
        let waits = self.queues.len() == 1;
        let deadline = Instant::now() + RECEIVE_WAIT;
        let mut received = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = if waits { left } else { Duration::ZERO };
            for turn in 0..self.queues.len() {
                let queue = (self.next + turn) % self.queues.len();
                received.extend(self.pop(queue, max - received.len(), wait).await?);
                if received.len() == max {
                    break;
                }
            }
            self.next += 1;
            // All received messages may have been settled before; their lease must end now.
            let told = self.leases.take_due();
            if let Some(why) = self.acknowledge(told).await? {
                return Err(Failure::Refused(why));
            }
            if !received.is_empty() || Instant::now() >= deadline {
                return Ok(received);
            }
            if !waits {
                tokio::time::sleep(self.poll).await;
            }
        }
    }

    async fn settle(&mut self, settles: &[(DeliveryId, Settle)]) -> Result<(), Failure> {
        for &(DeliveryId(delivery), settle) in settles {
            if !self.leases.settle(delivery, settle) {
                return Err(Failure::refused(format!("delivery {delivery} is not open")));
            }
        }
        let told = self.leases.take_due();
        match self.acknowledge(told).await? {
            None => Ok(()),
            Some(why) => Err(Failure::Refused(why)),
        }
    }

    async fn close(mut self: Box<Self>) -> Result<(), Failure> {
        let told = self.leases.give_back();
        // Acknowledgements that the server rejects concern leases that have expired.
        self.acknowledge(told).await.map(drop)
    }
}
