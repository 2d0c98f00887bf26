//! The common part of all comparisons: their options, the rounds in which each broker has a turn,
//! and the output of the report. A [`Contest`] adds the contenders and the workloads.

use std::fmt::Debug;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use host::probe;
use peers::{Peers, Progress};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::report::{Column, Report, Target, Turn};
use crate::stage::Stage;

/// A workload or a contender: an option of the command line and a row of the report.
pub(crate) trait Entry:
    ValueEnum + Copy + Debug + Ord + Serialize + Send + Sync + 'static
{
    fn title(self) -> &'static str;
}

/// One comparison of Postroad with a peer.
pub(crate) trait Contest: Sized {
    /// Name in file names.
    const NAME: &'static str;
    /// Title of the report.
    const TITLE: &'static str;
    /// The compared servers.
    type Contender: Entry;
    type Workload: Entry;
    /// Figures of one turn.
    type Figures: Serialize + 'static;
    const POSTROAD: Self::Contender;
    /// Columns of the table of turns, after workload and contender.
    const COLUMNS: &'static [Column<Self::Figures>];

    /// Installs the software for the legs, except for Postroad. Legs that cannot run here are
    /// removed with a message.
    fn prepare(stage: Stage, legs: &mut Vec<LegOf<Self>>) -> Outcome<Self>;

    /// Contenders of a workload.
    fn contenders(workload: Self::Workload) -> &'static [Self::Contender];

    /// Whether the targets of `asked` need this leg of another workload.
    fn is_reference_for(leg: LegOf<Self>, asked: Self::Workload) -> bool;

    fn stage(&self) -> &Stage;

    /// One turn of one contender, from an empty folder to a stopped server.
    fn turn(&self, leg: LegOf<Self>) -> Outcome<Self::Figures>;

    /// A turn's main figure, in a few words.
    fn main_figure(figures: &Self::Figures) -> String;

    /// Every target with available figures.
    fn targets(report: &ReportOf<Self>) -> Vec<Target>;
}

pub(crate) type LegOf<C> = (<C as Contest>::Workload, <C as Contest>::Contender);
pub(crate) type ReportOf<C> =
    Report<<C as Contest>::Workload, <C as Contest>::Contender, <C as Contest>::Figures>;

/// Arguments of the command line, without the folder of the brokers.
#[derive(Clone, Debug, Args)]
pub struct Options<W: ValueEnum + Send + Sync + 'static, C: ValueEnum + Send + Sync + 'static> {
    /// One short pair: does everything run?
    #[arg(long)]
    quick: bool,
    /// Rounds; in each round every broker has its turn
    #[arg(long, default_value_t = 3)]
    pairs: u32,
    /// Only these workloads
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<W>,
    /// Only these brokers
    #[arg(long, value_enum, value_delimiter = ',')]
    contenders: Vec<C>,
    /// Output format; both are written in any case
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Where JSON and Markdown are written
    #[arg(long, default_value = "bench-results/tools", value_name = "FOLDER")]
    out: PathBuf,
    /// Where the brokers keep their data: choose the disk to measure [default: where they are
    /// installed]
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    /// Fail if a target is missed
    #[arg(long)]
    strict: bool,
    /// Further arguments of `postroad serve`, after `--`
    #[arg(last = true)]
    serve: Vec<String>,
}

impl<W: ValueEnum + Send + Sync + 'static, C: ValueEnum + Send + Sync + 'static> Options<W, C> {
    /// Applies these options to the folder of brokers.
    pub(crate) fn place(&self, peers: Peers) -> Outcome<Peers> {
        let peers = peers.with_postroad_arguments(self.serve.clone());
        match &self.data_dir {
            Some(folder) => Ok(peers.with_data_dir(folder)?),
            None => Ok(peers),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

pub(crate) fn run<C: Contest>(
    options: &Options<C::Workload, C::Contender>,
    peers: Peers,
    progress: &'static dyn Progress,
) -> Outcome {
    let mut legs = legs::<C>(options);
    let peers = options.place(peers)?;
    // Held to the end: a concurrent run would start the same servers, and disturb the figures.
    let _lock = peers.lock()?;
    if legs.iter().any(|&(_, contender)| contender == C::POSTROAD) {
        peers.install("postroad", progress)?;
    }
    let contest = C::prepare(Stage { peers, progress, quick: options.quick }, &mut legs)?;
    if legs.is_empty() {
        return Err(Failure::NoWorkload);
    }
    let mut report = rounds(options, &contest, &legs)?;
    report.targets = C::targets(&report);
    publish::<C>(options, &report)
}

/// Workloads and contenders of a round, in order.
fn legs<C: Contest>(options: &Options<C::Workload, C::Contender>) -> Vec<LegOf<C>> {
    let mut legs = Vec::new();
    for &workload in C::Workload::value_variants() {
        for &contender in C::contenders(workload) {
            let leg = (workload, contender);
            let asked = options.only.is_empty()
                || options.only.contains(&workload)
                || options.only.iter().any(|&asked| C::is_reference_for(leg, asked));
            let takes_part =
                options.contenders.is_empty() || options.contenders.contains(&contender);
            if asked && takes_part {
                legs.push(leg);
            }
        }
    }
    legs
}

/// Runs every leg once a round, so that each pair of brokers takes turns.
fn rounds<C: Contest>(
    options: &Options<C::Workload, C::Contender>,
    contest: &C,
    legs: &[LegOf<C>],
) -> Outcome<ReportOf<C>> {
    let pairs = if options.quick { 1 } else { options.pairs.max(1) };
    let (date, quick) = (date()?, options.quick);
    let mut report = Report { date, quick, pairs, machine: vec![], turns: vec![], targets: vec![] };
    let begun = Instant::now();
    for pair in 1..=pairs {
        let each = Duration::from_millis(if quick { 300 } else { 2_000 });
        report.machine.push(probe::machine(contest.stage().folder(), each)?);
        for (number, &(workload, contender)) in legs.iter().enumerate() {
            let figures = contest.turn((workload, contender)).map_err(|failure| Failure::Turn {
                workload: workload.title(),
                contender: contender.title(),
                why: Box::new(failure),
            })?;
            // On stderr, so that `--output json` stays JSON.
            eprintln!(
                "[{:>4.0?}] pair {pair}/{pairs}, turn {}/{}: {}, {}: {}",
                begun.elapsed(),
                number + 1,
                legs.len(),
                workload.title(),
                contender.title(),
                C::main_figure(&figures),
            );
            report.turns.push(Turn { pair, workload, contender, figures });
        }
    }
    Ok(report)
}

fn publish<C: Contest>(
    options: &Options<C::Workload, C::Contender>,
    report: &ReportOf<C>,
) -> Outcome {
    let folder = &options.out;
    fs::create_dir_all(folder).map_err(Failure::file("create", folder))?;
    // Text and numbers, with text as keys: this cannot fail.
    let json = serde_json::to_string_pretty(report).unwrap_or_default();
    let markdown = report.markdown(C::TITLE, C::COLUMNS);
    let file = |ending: &str| folder.join(format!("{}-{}.{ending}", C::NAME, report.date));
    for (ending, text) in [("json", &json), ("md", &markdown)] {
        let path = file(ending);
        fs::write(&path, text).map_err(Failure::file("write", &path))?;
    }
    match options.output {
        Output::Json => println!("{json}"),
        Output::Table => println!("\n{markdown}"),
    }
    eprintln!("written: {} and .md", file("json").display());
    let missed = report.targets.iter().filter(|target| target.met == Some(false)).count();
    if options.strict && missed > 0 {
        return Err(Failure::Missed { count: missed });
    }
    Ok(())
}

/// UTC time for a file name. The `date` program saves us a calendar.
fn date() -> Outcome<String> {
    let output = Command::new("date").args(["-u", "+%Y-%m-%dT%H%M%SZ"]).output();
    let output = output.map_err(|why| Failure::NotRun { program: "date", why })?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
