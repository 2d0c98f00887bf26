//! An overview in words: the lines above the table, and the table's columns and cells. The live view and the text
//! output share them. Clients choose the names in it: the caller escapes them with [`crate::printable`].

use std::time::Duration;

use operations::overview::{Member, Order, Overview, Rates, Rows, Table as Subject, Totals};
use operations::time::{human_duration, human_time};

use crate::output::{Table, behind, bytes, count, counted};
use crate::printable;

/// A column of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Column {
    /// Begins with `>` if the cells are aligned to the right.
    pub(super) heading: &'static str,
    /// Minimum width of the screen, in characters, for this column.
    pub(super) from_width: u16,
    /// Order in which the table may be sorted by it.
    pub(super) order: Option<Order>,
}

const fn column(heading: &'static str, from_width: u16, order: Option<Order>) -> Column {
    Column { heading, from_width, order }
}

const TOPICS: [Column; 7] = [
    column("TOPIC", 0, Some(Order::Name)),
    column(">IN/S", 0, Some(Order::Rate)),
    column(">BACKLOG", 0, Some(Order::Backlog)),
    column(">RECORDS", 60, None),
    column(">SIZE", 70, None),
    column(">PARTITIONS", 90, None),
    column(">GROUPS", 90, None),
];

const QUEUES: [Column; 11] = [
    column("QUEUE", 0, Some(Order::Name)),
    column("GROUP", 60, None),
    column("STATE", 110, None),
    column(">IN/S", 70, None),
    column(">SETTLED/S", 0, Some(Order::Rate)),
    column(">BACKLOG", 0, Some(Order::Backlog)),
    column(">READY", 80, None),
    column(">LEASED", 60, None),
    column(">DELAYED", 120, None),
    column(">CONSUMERS", 100, None),
    column(">OLDEST", 0, Some(Order::Age)),
];

const GROUPS: [Column; 8] = [
    column("GROUP", 0, Some(Order::Name)),
    column("TOPIC", 50, None),
    column(">IN/S", 70, None),
    column(">READ/S", 0, Some(Order::Rate)),
    column(">LAG", 0, Some(Order::Backlog)),
    column(">BEHIND", 0, Some(Order::Age)),
    column(">CAUGHT UP IN", 100, None),
    column(">PARTITIONS", 110, None),
];

pub(super) fn columns(table: Subject) -> &'static [Column] {
    match table {
        Subject::Topics => &TOPICS,
        Subject::Queues => &QUEUES,
        Subject::Groups => &GROUPS,
    }
}

/// Orders of a table, in the sequence of its columns.
pub(super) fn orders(table: Subject) -> impl Iterator<Item = Order> + Clone {
    columns(table).iter().filter_map(|column| column.order)
}

pub(super) fn name(table: Subject) -> &'static str {
    match table {
        Subject::Topics => "topics",
        Subject::Queues => "queues",
        Subject::Groups => "groups",
    }
}

pub(super) fn order_name(order: Order) -> &'static str {
    match order {
        Order::Rate => "rate",
        Order::Backlog => "backlog",
        Order::Age => "age",
        Order::Name => "name",
    }
}

/// A cell for each column of the table.
pub(super) fn cells(rows: &Rows) -> Vec<Vec<String>> {
    match rows {
        Rows::Topics(rows) => rows
            .iter()
            .map(|it| {
                vec![
                    it.topic.clone(),
                    rate(it.records_in),
                    count(it.backlog),
                    count(it.records),
                    bytes(it.bytes),
                    it.partitions.to_string(),
                    it.groups.to_string(),
                ]
            })
            .collect(),
        Rows::Queues(rows) => rows
            .iter()
            .map(|it| {
                vec![
                    it.topic.clone(),
                    it.group.clone(),
                    if it.paused { "paused" } else { "open" }.to_owned(),
                    rate(it.records_in),
                    rate(it.settled),
                    count(it.backlog),
                    known(it.ready),
                    known(it.leased),
                    known(it.delayed),
                    known(it.consumers.map(u64::from)),
                    behind(it.age_seconds),
                ]
            })
            .collect(),
        Rows::Groups(rows) => rows
            .iter()
            .map(|it| {
                vec![
                    it.group.clone(),
                    it.topic.clone(),
                    rate(it.records_in),
                    rate(it.committed),
                    count(it.backlog),
                    behind(it.age_seconds),
                    caught_up_in(it.backlog, it.records_in, it.committed),
                    it.partitions.to_string(),
                ]
            })
            .collect(),
    }
}

pub(super) fn table_of(rows: &Rows) -> Subject {
    match rows {
        Rows::Topics(_) => Subject::Topics,
        Rows::Queues(_) => Subject::Queues,
        Rows::Groups(_) => Subject::Groups,
    }
}

fn known(number: Option<u64>) -> String {
    number.map_or_else(|| "-".into(), count)
}

fn rate(a_second: Option<f64>) -> String {
    match a_second {
        None => "-".into(),
        Some(a_second) if a_second <= 0.0 => "0".into(),
        Some(a_second) if a_second < 10.0 => format!("{a_second:.1}"),
        Some(a_second) => count(a_second.round() as u64),
    }
}

/// Time until the group has read everything, at the current rates.
fn caught_up_in(backlog: u64, records_in: Option<f64>, committed: Option<f64>) -> String {
    if backlog == 0 {
        return "0s".into();
    }
    let gains = match (records_in, committed) {
        (Some(records_in), Some(committed)) => committed - records_in,
        _ => return "-".into(),
    };
    // Longer than a year counts as never.
    let seconds = backlog as f64 / gains;
    match gains > 0.0 && seconds < 31_536_000.0 {
        true => human_duration(Duration::from_secs(seconds.ceil() as u64)),
        false => "never".into(),
    }
}

/// The lines above the table.
pub(super) fn lines(overview: &Overview) -> Vec<String> {
    let node = &overview.node;
    let up = human_duration(Duration::from_secs(node.up_ms / 1_000));
    let mut lines = vec![format!(
        "postroad {}   node {} of cluster {}   up {up}   {}",
        node.version,
        node.node,
        node.cluster,
        human_time(overview.at_ms)
    )];
    lines.push(format!("{}   {}", members(&overview.nodes), objects(&overview.totals)));
    let mut machine = Vec::new();
    if let Some(processors) = node.processors {
        machine.push(format!("cpu {:.0}%", processors * 100.0));
    }
    if let Some(resident) = node.resident_bytes {
        machine.push(format!("memory {}", bytes(resident)));
    }
    if let (Some(free), Some(size)) = (node.disk_free_bytes, node.disk_bytes) {
        machine.push(format!("disk {} free of {}", bytes(free), bytes(size)));
    }
    let connections = node.connections.iter().filter(|it| it.connections > 0);
    let connections: Vec<String> =
        connections.map(|it| format!("{} {}", it.protocol, it.connections)).collect();
    if !connections.is_empty() {
        machine.push(format!("connections: {}", connections.join(", ")));
    }
    lines.push(machine.join("   "));
    lines.extend(rates(overview.rates.as_ref()));
    lines.push(waiting(&overview.totals, node.unconfirmed_bytes));
    lines
}

fn members(nodes: &[Member]) -> String {
    let said = nodes.iter().map(|it| {
        let leads: Vec<String> = it.leads.iter().map(u32::to_string).collect();
        let gone = if it.live { "" } else { ", gone" };
        match leads.as_slice() {
            [] => format!("{} leads nothing{gone}", it.node),
            [shard] => format!("{} leads shard {shard}{gone}", it.node),
            shards => format!("{} leads shards {}{gone}", it.node, shards.join(" ")),
        }
    });
    let said: Vec<String> = said.collect();
    format!("{}: {}", counted(nodes.len() as u64, "node"), said.join("; "))
}

fn rates(rates: Option<&Rates>) -> Vec<String> {
    let Some(rates) = rates else { return vec!["rates: at the next look".to_owned()] };
    let of_bytes = |a_second: f64| format!("{}/s", bytes(a_second.round() as u64));
    let sync = match rates.sync_micros {
        Some(micros) => format!("   syncs {}/s of {:.2} ms", rate(Some(rates.syncs)), micros / 1e3),
        None => String::new(),
    };
    vec![
        format!(
            "in {}/s, {}   out {}{sync}",
            rate(Some(rates.records_in)),
            of_bytes(rates.bytes_in),
            of_bytes(rates.bytes_out),
        ),
        format!(
            "queues: delivered {}/s, again {}/s   settled {}/s   dead letters {}/s",
            rate(Some(rates.delivered)),
            rate(Some(rates.redelivered)),
            rate(Some(rates.settled)),
            rate(Some(rates.dead_letters)),
        ),
    ]
}

fn objects(totals: &Totals) -> String {
    format!(
        "{}, {}, {}, {}",
        counted(totals.topics, "topic"),
        counted(totals.partitions, "partition"),
        counted(totals.queues, "queue"),
        counted(totals.groups, "group"),
    )
}

fn waiting(totals: &Totals, unconfirmed: u64) -> String {
    format!(
        "waiting {} (ready {}, leased {}, delayed {})   unconfirmed {}",
        count(totals.waiting),
        known(totals.ready),
        known(totals.leased),
        known(totals.delayed),
        bytes(unconfirmed),
    )
}

/// The line between the lines and the table: the shown rows, of how many.
pub(super) fn shown(overview: &Overview, shown: usize) -> String {
    let one = match table_of(&overview.rows) {
        Subject::Topics => "topic",
        Subject::Queues => "queue",
        Subject::Groups => "group",
    };
    let all = counted(overview.matching, one);
    let mut words = match shown as u64 == overview.matching {
        true => all,
        false => format!("{} of {all}", count(shown as u64)),
    };
    if overview.cut {
        words += ", not all: there are more committed offsets than are counted";
    }
    words
}

/// A whole look, as text.
pub(super) fn text(overview: &Overview) -> String {
    let mut text = String::new();
    let alarms = overview.alarms.iter().map(|alarm| format!("alarm: {alarm}"));
    for line in lines(overview).into_iter().chain(alarms) {
        text += &printable::text(&line);
        text.push('\n');
    }
    let rows = cells(&overview.rows);
    text += &format!("\n{}\n", shown(overview, rows.len()));
    if rows.is_empty() {
        return text;
    }
    let headings = columns(table_of(&overview.rows)).iter().map(|column| column.heading);
    let mut table = Table::new(&headings.collect::<Vec<_>>());
    for row in rows {
        table.row(row);
    }
    text + &table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_faster_than_its_topic_catches_up_and_a_slower_one_never_does() {
        assert_eq!(caught_up_in(0, None, None), "0s");
        assert_eq!(caught_up_in(100, None, Some(5.0)), "-");
        assert_eq!(caught_up_in(100, Some(5.0), Some(15.0)), "10s");
        assert_eq!(caught_up_in(100, Some(5.0), Some(5.0)), "never");
        assert_eq!(caught_up_in(u64::MAX, Some(0.0), Some(1.0)), "never");
    }

    #[test]
    fn rates_have_a_digit_after_the_point_while_they_are_small() {
        assert_eq!(rate(None), "-");
        assert_eq!(rate(Some(0.0)), "0");
        assert_eq!(rate(Some(0.25)), "0.2");
        assert_eq!(rate(Some(12_345.6)), "12,346");
    }

    #[test]
    fn each_table_can_be_sorted_by_its_columns() {
        let names = |table| orders(table).map(order_name).collect::<Vec<_>>();
        assert_eq!(names(Subject::Topics), ["name", "rate", "backlog"]);
        assert_eq!(names(Subject::Queues), ["name", "rate", "backlog", "age"]);
        assert_eq!(names(Subject::Groups), ["name", "rate", "backlog", "age"]);
    }
}
