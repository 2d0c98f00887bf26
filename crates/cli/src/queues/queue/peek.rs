//! `postroad queue peek`.

use clap::Args;
use client::Client;
use operations::document::{Operation, QueuedRecord, RecordPage, RecordState};
use operations::time::{human_time, now_ms};

use super::{NamedQueue, label};
use crate::command_error::CommandError;
use crate::output::{OutputFormat, Table};
use crate::records::{RecordAddress, preview, until};

#[derive(Args, Debug)]
pub(super) struct Peek {
    #[command(flatten)]
    named: NamedQueue,
    /// At most so many records
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Only this partition
    #[arg(short, long, value_name = "N")]
    partition: Option<u32>,
    /// From this offset on, in the first partition that is shown
    #[arg(long, value_name = "OFFSET")]
    from: Option<u64>,
}

impl Peek {
    pub(super) async fn run(
        &self,
        client: &Client,
        output: OutputFormat,
    ) -> Result<(), CommandError> {
        let queue = self.named.queue();
        let mut records: Vec<QueuedRecord> = Vec::new();
        let partition = self.partition.unwrap_or(0);
        let mut from = self.from.map(|offset| RecordAddress { partition, offset }.into());
        loop {
            let records_max = self.count - records.len() as u32;
            let operation = Operation::PeekQueue {
                queue: queue.clone(),
                partition: self.partition,
                from,
                records_max,
            };
            let page: RecordPage = client.operate(&operation).await?;
            records.extend(page.records);
            if page.next.is_none() || records.len() >= self.count as usize {
                break;
            }
            from = page.next;
        }
        output.show(&records, |records| {
            if records.is_empty() {
                return format!("queue {} has no records waiting\n", label(&queue));
            }
            peek_table(records)
        })?;
        Ok(())
    }
}

fn peek_table(records: &[QueuedRecord]) -> String {
    let now = now_ms();
    let mut table =
        Table::new(&[">PARTITION", ">OFFSET", "STATE", ">ATTEMPTS", "TIME", "KEY", "VALUE"]);
    for QueuedRecord { state, until_ms, attempts, record } in records {
        let state = match (state, until_ms) {
            (RecordState::Ready, _) => "ready".to_owned(),
            (RecordState::Blocked, _) => "blocked".to_owned(),
            (RecordState::Leased, None) => "leased".to_owned(),
            (RecordState::Leased, Some(at)) => format!("leased for {}", until(*at, now)),
            (RecordState::Delayed, None) => "delayed".to_owned(),
            (RecordState::Delayed, Some(at)) => format!("delayed for {}", until(*at, now)),
            (RecordState::DeadLettering, _) => "dead-lettering".to_owned(),
        };
        table.row([
            record.partition.to_string(),
            record.offset.to_string(),
            state,
            attempts.to_string(),
            human_time(record.timestamp_ms),
            preview(record.key.as_ref(), 20),
            preview(record.value.as_ref(), 60),
        ]);
    }
    table.render()
}
