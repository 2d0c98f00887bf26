//! `cargo xtask bench kafka`: Postroad and Apache Kafka in turns on this machine, with Kafka's own
//! tools as the client of both. The result is the ratio: the machine's mood is in both halves.

mod kafka;
mod report;
mod workload;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};

use crate::failure::{Context, Failure, Outcome};
use crate::{paths, probe, server};
use kafka::Distribution;
use report::{Report, Turn};
use workload::{Contender, Stage, Workload};

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Against Apache Kafka, with Kafka's own performance tools: pairs, medians, ratios, targets
    Kafka(KafkaOptions),
}

#[derive(Debug, Args)]
pub(crate) struct KafkaOptions {
    /// One pair with a tenth of the records: does everything run?
    #[arg(long)]
    quick: bool,
    /// Rounds; in each round every broker has its turn
    #[arg(long, default_value_t = 3)]
    pairs: u32,
    /// Only these workloads
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Workload>,
    /// Only these brokers
    #[arg(long, value_enum, value_delimiter = ',')]
    contenders: Vec<Contender>,
    /// What to print; both are written to target/bench in any case
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// The server's binary [default: a release build of this checkout]
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Where peers are installed
    #[arg(long, default_value = "target/peers")]
    peers_dir: PathBuf,
    /// Where the brokers keep their data: choose the disk to measure
    #[arg(long, default_value = "target/xtask/bench")]
    data_dir: PathBuf,
    /// Fail if a target is missed
    #[arg(long)]
    strict: bool,
    /// Further arguments of `postroad serve`, after `--`
    #[arg(last = true)]
    serve: Vec<String>,
}

impl KafkaOptions {
    fn takes_part(&self, contender: Contender) -> bool {
        self.contenders.is_empty() || self.contenders.contains(&contender)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

pub(crate) fn run(bench: &Bench) -> Outcome {
    match bench {
        Bench::Kafka(options) => against_kafka(options),
    }
}

fn against_kafka(options: &KafkaOptions) -> Outcome {
    let peer = Distribution::install(options.peers_dir.clone())?;
    let postroad = match options.takes_part(Contender::Postroad) {
        true => server::binary(options.bin.as_deref())?,
        false => PathBuf::new(),
    };
    let folder = paths::root().join(&options.data_dir);
    fs::create_dir_all(&folder).context(|| format!("cannot create {}", folder.display()))?;
    let payload = folder.join("payload1k.txt");
    fs::write(&payload, payload_line()).context(|| "cannot write the payload")?;
    let stage = Stage {
        kafka: &peer,
        postroad: &postroad,
        folder: &folder,
        payload: &payload,
        arguments: &options.serve,
        scale_down: if options.quick { 10 } else { 1 },
    };
    let legs = legs(options);
    if legs.is_empty() {
        return Err(Failure::new("no workload is left to run")
            .remedy("choose workloads that the chosen brokers take part in"));
    }
    let mut report = rounds(options, &stage, &legs)?;
    report.judge();
    publish(options, &report)
}

/// Who runs what in a round, in that order.
fn legs(options: &KafkaOptions) -> Vec<(Workload, Contender)> {
    let asked = |workload| options.only.is_empty() || options.only.contains(&workload);
    let mut legs = Vec::new();
    for &workload in Workload::value_variants() {
        for &contender in workload.contenders() {
            // Postroad at 10,000 partitions is held against these two.
            let is_held_against = matches!(
                (workload, contender),
                (Workload::Produce16, Contender::Postroad)
                    | (Workload::Produce1000, Contender::Kafka)
            );
            let wanted = asked(workload) || is_held_against && asked(Workload::Produce10000);
            if wanted && options.takes_part(contender) {
                legs.push((workload, contender));
            }
        }
    }
    legs
}

/// Every leg once a round, so that each pair of brokers takes turns.
fn rounds(
    options: &KafkaOptions,
    stage: &Stage<'_>,
    legs: &[(Workload, Contender)],
) -> Outcome<Report> {
    let pairs = if options.quick { 1 } else { options.pairs.max(1) };
    let (date, quick) = (date()?, options.quick);
    let mut report = Report { date, quick, pairs, machine: vec![], turns: vec![], targets: vec![] };
    let begun = Instant::now();
    for pair in 1..=pairs {
        let each = Duration::from_millis(if quick { 300 } else { 2_000 });
        report.machine.push(probe::machine(stage.folder, each)?);
        for (number, &(workload, contender)) in legs.iter().enumerate() {
            let figures = stage.turn(workload, contender).map_err(|failure| {
                Failure::new(format!("{}, {}: {failure}", workload.title(), contender.title()))
            })?;
            // On stderr, so that `--output json` stays JSON.
            eprintln!(
                "[{:>4.0?}] pair {pair}/{pairs}, turn {}/{}: {}, {}: {}",
                begun.elapsed(),
                number + 1,
                legs.len(),
                workload.title(),
                contender.title(),
                brief(&figures),
            );
            report.turns.push(Turn { pair, workload, contender, figures });
        }
    }
    Ok(report)
}

fn brief(figures: &workload::Figures) -> String {
    let main = match (figures.records_per_second, figures.consumed_p50_us) {
        (Some(rate), _) => format!("{rate:.0} records/s"),
        (None, Some(p50)) => format!("p50 {p50:.0} us"),
        (None, None) => String::new(),
    };
    let (cpu, peak) = (figures.cpu_seconds_per_million, figures.peak_mb);
    format!("{main}, {cpu:.2} CPU s per million, peak {peak:.0} MB")
}

fn publish(options: &KafkaOptions, report: &Report) -> Outcome {
    let folder = paths::target().join("bench");
    fs::create_dir_all(&folder).context(|| format!("cannot create {}", folder.display()))?;
    let json = serde_json::to_string_pretty(report).context(|| "cannot write JSON")?;
    let file = |ending: &str| folder.join(format!("kafka-{}.{ending}", report.date));
    fs::write(file("json"), &json).context(|| "cannot write the result")?;
    fs::write(file("md"), report.markdown()).context(|| "cannot write the result")?;
    match options.output {
        Output::Json => println!("{json}"),
        Output::Table => println!("\n{}", report.markdown()),
    }
    eprintln!("written: {} and .md", file("json").display());
    let missed = report.targets.iter().filter(|target| target.met == Some(false)).count();
    if options.strict && missed > 0 {
        return Err(Failure::new(format!("{missed} target(s) missed")));
    }
    Ok(())
}

/// One line of 1,024 letters: the tool reads a record a line.
fn payload_line() -> Vec<u8> {
    (0..1024_u32).map(|i| b'a' + (i * 7 % 26) as u8).collect()
}

/// UTC, as it goes into a file's name. `date` knows the calendar, so we need not.
fn date() -> Outcome<String> {
    let output = Command::new("date").args(["-u", "+%Y-%m-%dT%H%M%SZ"]).output();
    let output = output.context(|| "cannot run date")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
