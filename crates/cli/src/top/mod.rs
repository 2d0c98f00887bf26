//! `postroad top`: repeated summaries of a running node: on a terminal as a live view, else as text or lines of JSON.
//!
//! * `words`: a summary as lines and as a table, the same in the live view and in the text
//! * `view`: state of the live view, and the effect of keys on it
//! * `screen`: draws the live view
//! * `live`: handles the terminal, the keys and the node in turn

mod live;
mod screen;
mod view;
mod words;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use base::limits::OVERVIEW_ROWS_MAX;
use clap::{Args, ValueEnum};
use client::{Client, ClientError};
use operations::overview::{FAMILY, Operation, Order, Overview, Table, TableQuery};
use operations::time::parse_duration;
use world::Instant;

use crate::client_options::ClientOptions;
use crate::command_error::CommandError;
use crate::output::OutputFormat;
use crate::printable;

/// Watch a broker at work: its rates, and its busiest topics, queues and groups
///
/// On a terminal it is a live view; press '?' there for its keys. With --count or --output json, or where the output is no
/// terminal, it prints one text or one line of JSON after the other.
#[derive(Args, Debug)]
pub struct TopArguments {
    #[command(flatten)]
    client: ClientOptions,
    /// Kind of rows
    #[arg(long, value_enum, value_name = "WHAT", default_value = "topics")]
    table: TableName,
    /// Order of the rows
    #[arg(long, value_enum, value_name = "BY", default_value = "rate")]
    sort: Sort,
    /// Only what has this in its name, in whatever case
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Time between two looks, at least 500ms
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    every: Duration,
    /// Print so many looks and end
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Rows of the table where it is printed; the live view has as many as fit
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = rows())]
    rows: u32,
}

fn rows() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=OVERVIEW_ROWS_MAX as i64)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum TableName {
    Topics,
    /// Groups that settle records one by one
    Queues,
    /// Groups that commit offsets
    Groups,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Sort {
    /// Records a second: into topics, settled by queues, committed by groups
    Rate,
    /// Records that are not settled, or not read
    #[value(alias = "lag")]
    Backlog,
    /// How old the oldest of them is; not of topics
    Age,
    Name,
}

/// The shortest interval: a node counts no more often.
const EVERY_MIN: Duration = Duration::from_millis(500);
const EVERY_MAX: Duration = Duration::from_secs(3_600);
/// Delay between the look that rates are counted from and the first one shown.
const FIRST_AFTER: Duration = Duration::from_secs(1);

fn interval(text: &str) -> Result<Duration, String> {
    let every = parse_duration(text).map_err(|error| error.to_string())?;
    match (EVERY_MIN..=EVERY_MAX).contains(&every) {
        true => Ok(every),
        false => Err("it is 500ms to 1h".to_owned()),
    }
}

pub(crate) async fn run(arguments: TopArguments) -> Result<(), CommandError> {
    let order = match arguments.sort {
        Sort::Rate => Order::Rate,
        Sort::Backlog => Order::Backlog,
        Sort::Age => Order::Age,
        Sort::Name => Order::Name,
    };
    let table = match arguments.table {
        TableName::Topics => Table::Topics,
        TableName::Queues => Table::Queues,
        TableName::Groups => Table::Groups,
    };
    if table == Table::Topics && order == Order::Age {
        return Err(CommandError::user(
            "topics have no age to be sorted by: --table queues or --table groups",
        ));
    }
    let options = arguments.client;
    let output = options.output();
    let client = options.connect().await?;
    let filter = arguments.filter;
    let look = TableQuery { table, order, filter, rows_max: arguments.rows };
    let is_live = output == OutputFormat::Table
        && arguments.count.is_none()
        && io::stdout().is_terminal()
        && io::stdin().is_terminal();
    match is_live {
        true => live::run(options, client, look, arguments.every).await,
        false => print(&client, look, output, arguments.every, arguments.count).await,
    }
}

async fn ask(client: &Client, look: TableQuery) -> Result<Overview, ClientError> {
    client.operate_family(FAMILY, &Operation::Look(look)).await
}

/// Prints one look after the other.
async fn print(
    client: &Client,
    look: TableQuery,
    output: OutputFormat,
    every: Duration,
    count: Option<u64>,
) -> Result<(), CommandError> {
    ask(client, TableQuery { rows_max: 1, ..look.clone() }).await?;
    let mut next = Instant::now() + every.min(FIRST_AFTER);
    let mut printed = 0;
    loop {
        tokio::time::sleep_until(next).await;
        // A slow look is not made up for.
        next = Instant::now() + every;
        let overview = ask(client, look.clone()).await?;
        let text = match output {
            OutputFormat::Json => {
                let json = serde_json::to_string(&overview)
                    .map_err(|error| CommandError::server(error.to_string()))?;
                printable::json(&json) + "\n"
            }
            OutputFormat::Table => {
                let between = if printed == 0 { "" } else { "\n" };
                format!("{between}{}", words::text(&overview))
            }
        };
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()?;
        printed += 1;
        if count == Some(printed) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_neither_too_short_nor_too_long() {
        assert_eq!(interval("500ms"), Ok(EVERY_MIN));
        assert_eq!(interval("2s"), Ok(Duration::from_secs(2)));
        for wrong in ["499ms", "0", "2h", "x", ""] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
