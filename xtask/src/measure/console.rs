//! `cargo xtask measure console`: loading times of the console's pages in a real browser with an empty cache, on a
//! node with many topics, sessions and a load.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use serde::Deserialize;

use crate::command::output_of;
use crate::console;
use crate::failure::{Context, Outcome};
use crate::figures::{Figures, Output, median};
use crate::server;

#[derive(Debug, Args)]
pub(crate) struct ConsoleOptions {
    /// Topics of one partition each
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(16..))]
    topics: u32,
    /// Connections of Kafka clients that are open
    #[arg(long, default_value_t = 1_000)]
    sessions: u32,
    /// Times that each page is opened
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    looks: u32,
    /// Output format
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// The server's binary [default: a release build of this checkout]
    #[arg(long)]
    bin: Option<PathBuf>,
}

const FIRST_VIEW_MAX_MS: f64 = 1_000.0;

/// Results of the browser's script.
#[derive(Deserialize)]
struct BrowserTimings {
    milliseconds: BTreeMap<String, Vec<f64>>,
}

pub(super) fn run(options: &ConsoleOptions) -> Outcome {
    let binary = server::binary(options.bin.as_deref())?;
    let folder = console::prepared()?;
    let browser = console::browser()?;
    let mut node = Command::new("node");
    node.current_dir(folder).arg("test/scale.mjs").arg(binary).arg(browser);
    node.args([options.topics, options.sessions, options.looks].map(|count| count.to_string()));
    let told = output_of(node, "node test/scale.mjs")?;
    let looked: BrowserTimings = serde_json::from_str(told.trim())
        .context(|| format!("the browser's script told no figures: {told}"))?;
    let (topics, sessions) = (options.topics, options.sessions);
    let mut figures =
        Figures::new(format!("measure console: {topics} topics, {sessions} sessions"));
    for (page, took) in looked.milliseconds {
        let worst = took.iter().copied().fold(0.0, f64::max);
        let (middle, target) = (median(&took), format!("< {FIRST_VIEW_MAX_MS} ms"));
        figures.judge(format!("{page}, p50"), middle, "ms", target, middle < FIRST_VIEW_MAX_MS);
        figures.add(format!("{page}, worst"), worst, "ms");
    }
    figures.publish(options.output)
}
