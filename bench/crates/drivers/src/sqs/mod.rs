//! Amazon SQS and compatible servers (ElasticMQ): `SendMessageBatch`, `ReceiveMessage`,
//! `DeleteMessageBatch`.
//!
//! *Sent* means: the server listed the message as successful. For ElasticMQ that is T0, it is in
//! memory. Amazon states that a message is on several servers then, and not that it is synced: T2.
//! An entry that a batch lists as failed is an error of that message.
//!
//! *Hiding*: for the queue's visibility timeout, which is the lease; a release, and the end of a
//! receiver, end it (`ChangeMessageVisibilityBatch`). Settling deletes, and waits for it.
//!
//! A destination is a queue. Where the test requires order it is a FIFO queue, whose message groups
//! are the lanes: while a message of a lane is hidden, no receiver gets another one of it. A second
//! subscription would need another service (SNS), so there is none. Bodies are binary attributes,
//! since text does not allow all bytes.
//!
//! User and password are the two keys of Amazon's credentials; else they are taken from
//! `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`. Servers other than
//! Amazon's get a made-up pair without them. The client does not retry.
//!
//! Settings: `window`, `parallel` (concurrent requests of one sender or receiver, 10),
//! `group-batch` (messages of one lane in a request, 1: ElasticMQ stores those of a request in any
//! order; Amazon keeps it, so 10 is possible there), `poll-ms` (pause when none of several queues
//! has a message, 10), `region`.

mod access;
mod batches;
mod failure;
mod receiver;
mod sender;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName;
use driver::{
    About, Driver, Failure, Lanes, Receiver, Return, Sender, Style, Target, Tier, Topology,
};
use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::batching::BatchingSender;
use crate::pending::WINDOW;
use crate::told::{ms, named_values};
use access::Access;
use batches::ENTRIES_MAX;
use failure::{failure, is_called, unreached};

const SYSTEM: &str = "sqs";
/// Names of an error in Amazon's older protocol and in the newer one; servers use both.
const ABSENT: [&str; 2] = ["AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"];
const REMOVED_RECENTLY: [&str; 2] =
    ["AWS.SimpleQueueService.QueueDeletedRecently", "QueueDeletedRecently"];
/// Number of queues that are created or removed concurrently.
const QUEUES_AT_ONCE: usize = 16;
/// Time until the name of a removed queue can be reused: 60 seconds at Amazon.
const NAME_FREE_AFTER: Duration = Duration::from_secs(70);
const LEASE_SECONDS_MAX: u64 = 12 * 60 * 60;

#[derive(Debug)]
struct Sqs {
    client: Client,
    access: Access,
    window: u32,
    parallel: usize,
    group_batch: usize,
    poll: Duration,
}

pub(crate) fn connect(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    let mut settings = target.settings();
    let window = settings.take("window", WINDOW)?;
    let parallel: usize = settings.take("parallel", 10)?;
    let group_batch: usize = settings.take("group-batch", 1)?;
    let poll = Duration::from_millis(settings.take("poll-ms", 10)?);
    let region = settings.take("region", String::new())?;
    settings.done()?;
    if parallel == 0 || !(1..=ENTRIES_MAX).contains(&group_batch) {
        let name = if parallel == 0 { "parallel" } else { "group-batch" };
        let why =
            format!("{parallel} and {group_batch}: at least 1, and a batch holds {ENTRIES_MAX}");
        return Err(Failure::Setting { name: name.into(), why });
    }
    let access = Access::of(target, region)?;
    let client = Client::from_conf(access.config());
    Ok(Arc::new(Sqs { client, access, window, parallel, group_batch, poll }))
}

/// The queue of a destination.
fn queue(topology: &Topology, destination: u32) -> String {
    let ending = if topology.ordered { ".fifo" } else { "" };
    format!("{}{ending}", topology.destination(destination))
}

impl Sqs {
    /// URL of a queue, if it exists.
    async fn url(&self, queue: &str) -> Result<Option<String>, Failure> {
        match self.client.get_queue_url().queue_name(queue).send().await {
            Ok(found) => Ok(found.queue_url),
            Err(error) if is_called(&error, &ABSENT) => Ok(None),
            Err(error) => Err(failure(&error)),
        }
    }

    async fn urls(
        &self,
        topology: &Topology,
        destinations: impl Iterator<Item = u32>,
    ) -> Result<Vec<String>, Failure> {
        let names = destinations.map(|index| queue(topology, index));
        stream::iter(names)
            .map(|name| async move {
                let url = self.url(&name).await?;
                url.ok_or_else(|| Failure::refused(format!("there is no queue {name}")))
            })
            .buffered(QUEUES_AT_ONCE)
            .try_collect()
            .await
    }

    async fn create_queue(&self, topology: &Topology, name: &str) -> Result<(), Failure> {
        let lease = topology.lease_seconds();
        if lease > LEASE_SECONDS_MAX {
            let what = format!("lease of {lease} seconds");
            return Err(Failure::Unsupported { system: SYSTEM, what });
        }
        let create = || {
            let request = self.client.create_queue().queue_name(name);
            let request =
                request.attributes(QueueAttributeName::VisibilityTimeout, lease.to_string());
            if topology.ordered {
                request.attributes(QueueAttributeName::FifoQueue, "true")
            } else {
                request
            }
        };
        let started = tokio::time::Instant::now();
        loop {
            let Err(error) = create().send().await else { return Ok(()) };
            let recently = is_called(&error, &REMOVED_RECENTLY);
            if !recently || started.elapsed() > NAME_FREE_AFTER {
                return Err(failure(&error));
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    }

    async fn remove_queue(&self, name: &str) -> Result<(), Failure> {
        let Some(url) = self.url(name).await? else { return Ok(()) };
        self.client.delete_queue().queue_url(url).send().await.map_err(|error| failure(&error))?;
        Ok(())
    }
}

#[async_trait]
impl Driver for Sqs {
    fn about(&self) -> About {
        About {
            system: SYSTEM,
            title: "Amazon SQS and what speaks like it",
            client: "aws-sdk-sqs 1.119",
            sent_means: "the server listed it as successful",
            hidden_means: "for the queue's visibility timeout, unless that is ended",
            tiers: if self.access.is_amazon() { &[Tier::T2] } else { &[Tier::T0] },
            styles: &[Style::Queue],
            lanes: Lanes::Ordered,
            returns: Return::LeaseOrConnection,
            subscriptions: false,
            tells_redelivery: true,
            settles_confirmed: true,
            pipelined: true,
        }
    }

    fn settings(&self, topology: &Topology) -> BTreeMap<String, String> {
        named_values(&[
            ("window", &self.window),
            ("parallel", &self.parallel),
            ("group-batch", &self.group_batch),
            ("poll-ms", &self.poll.as_millis()),
            ("connect timeout", &ms(access::CONNECT_PATIENCE)),
            ("operation timeout", &ms(access::PATIENCE)),
            ("retries", &"disabled"),
            ("stalled stream protection", &"disabled"),
            ("VisibilityTimeout", &format!("{} s", topology.lease_seconds())),
            ("FifoQueue", &topology.ordered),
        ])
    }

    async fn version(&self) -> Result<String, Failure> {
        let listed = self.client.list_queues().send().await;
        listed.map_err(|error| unreached(&error, &self.access))?;
        Ok("not told by the protocol".to_owned())
    }

    async fn create(&self, topology: &Topology) -> Result<(), Failure> {
        self.about().offers(topology)?;
        self.version().await?;
        stream::iter((0..topology.destinations).map(|index| queue(topology, index)))
            .map(Ok)
            .try_for_each_concurrent(QUEUES_AT_ONCE, |name| async move {
                self.remove_queue(&name).await?;
                self.create_queue(topology, &name).await
            })
            .await
    }

    async fn remove(&self, topology: &Topology) -> Result<(), Failure> {
        stream::iter((0..topology.destinations).map(|index| queue(topology, index)))
            .map(Ok)
            .try_for_each_concurrent(QUEUES_AT_ONCE, |name| async move {
                self.remove_queue(&name).await
            })
            .await
    }

    async fn sender(&self, topology: &Topology) -> Result<Box<dyn Sender>, Failure> {
        let urls = self.urls(topology, 0..topology.destinations).await?;
        let ordered = topology.ordered.then_some(self.group_batch);
        let writer = sender::Writer::new(self.client.clone(), urls, ordered, self.parallel);
        Ok(Box::new(BatchingSender::spawn(writer, self.window, ENTRIES_MAX * self.parallel)))
    }

    async fn receiver(
        &self,
        topology: &Topology,
        destinations: &[u32],
        _subscription: u32,
    ) -> Result<Box<dyn Receiver>, Failure> {
        let urls = self.urls(topology, destinations.iter().copied()).await?;
        let client = self.client.clone();
        Ok(Box::new(receiver::SqsReceiver::new(client, urls, self.parallel, self.poll)))
    }
}
