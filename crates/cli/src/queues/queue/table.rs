//! Queues in human-readable form.

use std::fmt::Write as _;

use operations::document::{QueueName, QueueSummary};
use operations::time::{human_ms, human_time, now_ms};

use super::describe::DescribedQueue;
use super::label;
use crate::output::{Table, behind, bytes, count, counted};
use crate::records::until;

pub(super) fn list(queues: &[QueueSummary], with_rates: bool) -> String {
    if queues.is_empty() {
        return "no queues yet; make one with 'postroad queue declare NAME', or consume a topic by \
                AMQP or as a share group\n"
            .into();
    }
    let mut headings = vec![
        "QUEUE",
        "GROUP",
        "STATE",
        ">DEPTH",
        ">READY",
        ">LEASED",
        ">DELAYED",
        ">CONSUMERS",
        ">BEHIND",
    ];
    if with_rates {
        headings.extend([">PUBLISHED/S", ">DELIVERED/S", ">SETTLED/S"]);
    }
    let mut table = Table::new(&headings);
    for summary in queues {
        let mut row = vec![
            summary.topic.clone(),
            summary.group.clone(),
            if summary.paused { "paused".into() } else { "open".into() },
            count(summary.depth),
            count(summary.ready),
            count(summary.leased),
            count(summary.delayed),
            count(summary.consumers.into()),
            behind(summary.lag_seconds),
        ];
        if with_rates {
            let rates = summary.rates;
            row.extend([rates.published, rates.delivered, rates.settled].map(rate));
        }
        table.row(row);
    }
    table.render()
}

fn rate(per_second: f64) -> String {
    if per_second < 10.0 { format!("{per_second:.1}") } else { count(per_second as u64) }
}

pub(super) fn description(queue: &DescribedQueue) -> String {
    let mut text = headline(&queue.report.summary);
    let rates = queue.report.summary.rates;
    let _ = writeln!(
        text,
        "now: {} published, {} delivered, {} settled a second",
        rate(rates.published),
        rate(rates.delivered),
        rate(rates.settled)
    );
    text.push('\n');
    text += &partitions(queue);
    text.push('\n');
    text += &configuration(queue);
    if !queue.report.leases.is_empty() {
        text.push('\n');
        text += &leases(queue);
    }
    text
}

fn headline(summary: &QueueSummary) -> String {
    let queue = QueueName { topic: summary.topic.clone(), group: summary.group.clone() };
    let mut text = format!(
        "{}: {} waiting ({} ready, {} leased, {} delayed), {}",
        label(&queue),
        counted(summary.depth, "record"),
        count(summary.ready),
        count(summary.leased),
        count(summary.delayed),
        counted(summary.consumers.into(), "consumer"),
    );
    if summary.depth > 0 && summary.lag_seconds.is_some() {
        let _ = write!(text, ", the oldest is {} old", behind(summary.lag_seconds));
    }
    if summary.paused {
        text += ", paused";
    }
    let _ = write!(
        text,
        "\nsince the broker started: {} delivered, {} of them again, {} settled, {}\n",
        count(summary.delivered),
        count(summary.redelivered),
        count(summary.settled),
        counted(summary.dead_letters, "dead letter"),
    );
    text
}

fn partitions(queue: &DescribedQueue) -> String {
    let mut table =
        Table::new(&[">PARTITION", ">SETTLED TO", ">END", ">SETTLED ABOVE", ">RETRIED", ">DEPTH"]);
    for it in &queue.report.progress {
        table.row([
            it.partition.to_string(),
            count(it.floor),
            count(it.end),
            count(it.settled_above),
            count(it.retried),
            count((it.end - it.floor.min(it.end)).saturating_sub(it.settled_above)),
        ]);
    }
    table.render()
}

fn configuration(queue: &DescribedQueue) -> String {
    let mut table = Table::new(&["CONFIG", "VALUE", "", "OF"]);
    for config in &queue.report.config {
        // A value that is neither set nor has a default needs no line.
        if config.value.is_empty() {
            continue;
        }
        let of = if config.own { "queue" } else { "default" };
        let meaning = meaning(&config.name, &config.value);
        table.row([config.name.clone(), config.value.clone(), meaning, of.into()]);
    }
    for (name, value) in &queue.topic_config {
        table.row([name.clone(), value.clone(), meaning(name, value), "topic".into()]);
    }
    table.render()
}

/// A number in words or larger units.
fn meaning(name: &str, value: &str) -> String {
    let Ok(number) = value.parse::<i64>() else { return String::new() };
    match (name, number) {
        ("lease.ms", 0) => "(as long as the consumer is connected)".into(),
        ("dedup.window.ms", 0) => "(off)".into(),
        ("attempts.max", 0) | ("limit.records" | "limit.bytes", -1) => "(no limit)".into(),
        ("priorities.max", 0) => "(none)".into(),
        ("limit.bytes", _) => format!("({})", bytes(number as u64)),
        (name, _) if name.ends_with(".ms") => format!("({})", human_ms(number)),
        _ => String::new(),
    }
}

fn leases(queue: &DescribedQueue) -> String {
    let now = now_ms();
    let mut table = Table::new(&[">PARTITION", ">OFFSET", ">ATTEMPT", ">SESSION", "LEASED UNTIL"]);
    for lease in &queue.report.leases {
        let ends = match lease.expires_ms {
            Some(at) => format!("{} (for {})", human_time(at), until(at, now)),
            None => "its session ends".into(),
        };
        table.row([
            lease.partition.to_string(),
            lease.offset.to_string(),
            lease.attempt.to_string(),
            lease.session.to_string(),
            ends,
        ]);
    }
    let mut text = table.render();
    let shown = queue.report.leases.len() as u64;
    if queue.report.summary.leased > shown {
        let _ = writeln!(text, "and {} more", count(queue.report.summary.leased - shown));
    }
    text
}
