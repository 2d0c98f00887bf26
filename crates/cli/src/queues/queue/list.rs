//! `postroad queue list`.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use client::Client;
use operations::document::{QueueRates, QueueSummary};
use operations::time::parse_duration;

use super::table;
use crate::command_error::CommandError;
use crate::output::OutputFormat;

#[derive(Args, Debug)]
pub(super) struct List {
    /// Only queues of these topics
    #[arg(value_name = "TOPIC")]
    topics: Vec<String>,
    /// Also records a second, over the last ten seconds or counted from now on for so long
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true,
          value_parser = parse_duration)]
    rates: Option<Option<Duration>>,
}

pub(super) fn rates_between(before: &QueueSummary, after: &QueueSummary) -> QueueRates {
    let seconds = (after.at_ms - before.at_ms).max(1) as f64 / 1000.0;
    let rate = |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds;
    QueueRates {
        published: rate(before.published, after.published),
        delivered: rate(before.delivered, after.delivered),
        settled: rate(before.settled, after.settled),
    }
}

impl List {
    pub(super) async fn run(
        &self,
        client: &Client,
        output: OutputFormat,
    ) -> Result<(), CommandError> {
        let mut before = BTreeMap::new();
        if let Some(Some(interval)) = self.rates {
            for queue in client.queues().await? {
                before.insert((queue.topic.clone(), queue.group.clone()), queue);
            }
            tokio::time::sleep(interval).await;
        }
        let mut queues = client.queues().await?;
        queues.retain(|queue| self.topics.is_empty() || self.topics.contains(&queue.topic));
        if let Some(missing) =
            self.topics.iter().find(|topic| queues.iter().all(|queue| queue.topic != **topic))
        {
            return Err(CommandError::user(format!(
                "there is no queue {missing}; 'postroad queue list' names those there are"
            )));
        }
        for queue in &mut queues {
            if let Some(before) = before.get(&(queue.topic.clone(), queue.group.clone())) {
                queue.rates = rates_between(before, queue);
            }
        }
        output.show(&queues, |queues| table::list(queues, self.rates.is_some()))?;
        Ok(())
    }
}
