//! What all comparisons have in common: their options, the rounds in which each broker has a turn,
//! and what becomes of the report. A [`Contest`] adds who takes part and what is measured.

use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::report::{Column, Report, Target, Turn};
use super::stage::Stage;
use crate::failure::{Context, Failure, Outcome};
use crate::{paths, probe, server};

/// A workload or a contender: an option of the command line and a row of the report.
pub(super) trait Entry:
    ValueEnum + Copy + Debug + Ord + Serialize + Send + Sync + 'static
{
    fn title(self) -> &'static str;
}

/// One comparison of Postroad with a peer.
pub(super) trait Contest: Sized {
    /// In the names of files.
    const NAME: &'static str;
    /// Over the report.
    const TITLE: &'static str;
    /// The servers that are compared.
    type Contender: Entry;
    type Workload: Entry;
    /// What one turn gives.
    type Figures: Serialize + 'static;
    const POSTROAD: Self::Contender;
    /// Of the table of turns, after workload and contender.
    const COLUMNS: &'static [Column<Self::Figures>];

    /// Installs what is needed for the legs, below `peers`; leaves out those that cannot run here,
    /// and says so.
    fn prepare(stage: Stage, peers: &Path, legs: &mut Vec<LegOf<Self>>) -> Outcome<Self>;

    /// Who takes part in a workload.
    fn contenders(workload: Self::Workload) -> &'static [Self::Contender];

    /// Whether the targets of `asked` need this leg of another workload.
    fn is_held_against(leg: LegOf<Self>, asked: Self::Workload) -> bool;

    fn stage(&self) -> &Stage;

    /// One turn of one contender, from an empty folder to a stopped server.
    fn turn(&self, leg: LegOf<Self>) -> Outcome<Self::Figures>;

    /// A turn's main figure, in a few words.
    fn main_figure(figures: &Self::Figures) -> String;

    /// Every target whose figures are there.
    fn targets(report: &ReportOf<Self>) -> Vec<Target>;
}

pub(super) type LegOf<C> = (<C as Contest>::Workload, <C as Contest>::Contender);
pub(super) type ReportOf<C> =
    Report<<C as Contest>::Workload, <C as Contest>::Contender, <C as Contest>::Figures>;

#[derive(Debug, Args)]
pub(crate) struct Options<
    W: ValueEnum + Send + Sync + 'static,
    C: ValueEnum + Send + Sync + 'static,
> {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

pub(super) fn run<C: Contest>(options: &Options<C::Workload, C::Contender>) -> Outcome {
    let mut legs = legs::<C>(options);
    let postroad = match legs.iter().any(|&(_, contender)| contender == C::POSTROAD) {
        true => server::binary(options.bin.as_deref())?,
        false => PathBuf::new(),
    };
    let folder = paths::root().join(&options.data_dir);
    fs::create_dir_all(&folder).context(|| format!("cannot create {}", folder.display()))?;
    let stage = Stage { postroad, folder, arguments: options.serve.clone(), quick: options.quick };
    let peers = paths::root().join(&options.peers_dir);
    let contest = C::prepare(stage, &peers, &mut legs)?;
    if legs.is_empty() {
        return Err(Failure::new("no workload is left to run")
            .remedy("choose workloads that the chosen brokers take part in"));
    }
    let mut report = rounds(options, &contest, &legs)?;
    report.targets = C::targets(&report);
    publish::<C>(options, &report)
}

/// Who runs what in a round, in that order.
fn legs<C: Contest>(options: &Options<C::Workload, C::Contender>) -> Vec<LegOf<C>> {
    let mut legs = Vec::new();
    for &workload in C::Workload::value_variants() {
        for &contender in C::contenders(workload) {
            let leg = (workload, contender);
            let asked = options.only.is_empty()
                || options.only.contains(&workload)
                || options.only.iter().any(|&asked| C::is_held_against(leg, asked));
            let takes_part =
                options.contenders.is_empty() || options.contenders.contains(&contender);
            if asked && takes_part {
                legs.push(leg);
            }
        }
    }
    legs
}

/// Every leg once a round, so that each pair of brokers takes turns.
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
        report.machine.push(probe::machine(&contest.stage().folder, each)?);
        for (number, &(workload, contender)) in legs.iter().enumerate() {
            let figures = contest.turn((workload, contender)).map_err(|failure| {
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
    let folder = paths::target().join("bench");
    fs::create_dir_all(&folder).context(|| format!("cannot create {}", folder.display()))?;
    let json = serde_json::to_string_pretty(report).context(|| "cannot write JSON")?;
    let markdown = report.markdown(C::TITLE, C::COLUMNS);
    let file = |ending: &str| folder.join(format!("{}-{}.{ending}", C::NAME, report.date));
    fs::write(file("json"), &json).context(|| "cannot write the result")?;
    fs::write(file("md"), &markdown).context(|| "cannot write the result")?;
    match options.output {
        Output::Json => println!("{json}"),
        Output::Table => println!("\n{markdown}"),
    }
    eprintln!("written: {} and .md", file("json").display());
    let missed = report.targets.iter().filter(|target| target.met == Some(false)).count();
    if options.strict && missed > 0 {
        return Err(Failure::new(format!("{missed} target(s) missed")));
    }
    Ok(())
}

/// UTC, as it goes into a file's name. `date` knows the calendar, so we need not.
fn date() -> Outcome<String> {
    let output = Command::new("date").args(["-u", "+%Y-%m-%dT%H%M%SZ"]).output();
    let output = output.context(|| "cannot run date")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
