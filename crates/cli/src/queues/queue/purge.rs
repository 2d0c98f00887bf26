//! `postroad queue purge`.

use clap::Args;
use client::Client;
use operations::document::{Operation, RecordCount, RemovedRecords};
use serde::Serialize;

use super::{NamedQueue, label};
use crate::command_error::CommandError;
use crate::output::{OutputFormat, counted};
use crate::records::{self, RecordAddress};

#[derive(Args, Debug)]
pub(super) struct Purge {
    #[command(flatten)]
    named: NamedQueue,
    /// Only this record; may be repeated
    #[arg(short, long, value_name = "PARTITION:OFFSET")]
    record: Vec<RecordAddress>,
}

#[derive(Serialize)]
struct PurgeOutput<'a> {
    topic: &'a str,
    group: &'a str,
    records: u64,
}

impl Purge {
    pub(super) async fn run(
        &self,
        client: &Client,
        output: OutputFormat,
    ) -> Result<(), CommandError> {
        let queue = self.named.queue();
        let mut outcome = Ok(());
        let records = if self.record.is_empty() {
            let operation = Operation::PurgeQueue { queue: queue.clone() };
            client.operate::<RecordCount>(&operation).await?.records
        } else {
            let records = records::places(&self.record);
            let operation = Operation::RemoveRecords { queue: queue.clone(), records };
            let removed: RemovedRecords = client.operate(&operation).await?;
            outcome = records::all_removed(&removed);
            removed.removed
        };
        let purged = PurgeOutput { topic: &queue.topic, group: &queue.group, records };
        output.show(&purged, |purged| {
            format!("purged {} from queue {}\n", counted(purged.records, "record"), label(&queue))
        })?;
        outcome
    }
}
