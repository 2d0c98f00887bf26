//! `postroad queue describe`.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use client::Client;
use operations::document::{Operation, QueueReport};
use operations::time::parse_duration;
use serde::Serialize;

use super::list::rates_between;
use super::{NamedQueue, table};
use crate::command_error::CommandError;
use crate::output::OutputFormat;

#[derive(Args, Debug)]
pub(super) struct Describe {
    #[command(flatten)]
    named: NamedQueue,
    /// Count records a second from now on for so long, not over the last ten seconds
    #[arg(long, value_name = "DURATION", require_equals = true, value_parser = parse_duration)]
    rates: Option<Duration>,
}

#[derive(Serialize)]
pub(super) struct DescribedQueue {
    #[serde(flatten)]
    pub(super) report: QueueReport,
    pub(super) topic_config: BTreeMap<String, String>,
}

/// Topic settings that make the topic a queue of a certain kind.
const TOPIC_CONFIGS: [&str; 8] = [
    "retention.settled",
    "retention.ms",
    "priorities.max",
    "priorities.order",
    "limit.records",
    "limit.bytes",
    "limit.overflow",
    "dedup.window.ms",
];

impl Describe {
    pub(super) async fn run(
        &self,
        client: &Client,
        output: OutputFormat,
    ) -> Result<(), CommandError> {
        let queue = self.named.queue();
        let report = || async {
            let operation = Operation::DescribeQueue { queue: queue.clone() };
            client.operate::<QueueReport>(&operation).await
        };
        let mut latest = report().await?;
        if let Some(interval) = self.rates {
            tokio::time::sleep(interval).await;
            let before = std::mem::replace(&mut latest, report().await?);
            latest.summary.rates = rates_between(&before.summary, &latest.summary);
        }
        let topic = &*queue.topic;
        let configs = client.topic_configs(&[topic]).await?.remove(topic).unwrap_or_default();
        let wanted = configs.into_iter().filter(|config| TOPIC_CONFIGS.contains(&&*config.name));
        let topic_config =
            wanted.map(|config| (config.name, config.value.unwrap_or_default())).collect();
        let described = DescribedQueue { report: latest, topic_config };
        output.show(&described, table::description)?;
        Ok(())
    }
}
