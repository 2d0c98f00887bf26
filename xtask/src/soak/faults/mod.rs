//! `cargo xtask soak faults`: three nodes with faults, under workloads of all protocols, whose histories are checked.
//!
//! * [`site`]: processes, directories and disks; [`proxy`]: the network between the nodes
//! * [`nemesis`]: kinds of faults
//! * [`workloads`]: clients; the crate `histories`: rules for them
//! * [`report`]: verdicts, and how long writes stalled

mod nemesis;
mod proxy;
mod report;
mod site;
mod target;
mod workloads;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde::Serialize;

use self::nemesis::Nemesis;
use self::report::{Row, Run, Stall, Writer};
use self::site::Site;
use self::target::WorkloadContext;
use self::workloads::{Progress, RunningWorkload, Workload};
use crate::failure::{Context, Failure, Outcome};
use crate::figures::Output;
use crate::random::Random;
use crate::{paths, server};

const WHOLE_WITHIN: Duration = Duration::from_secs(60);
/// Time for replies that are in flight.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, Args)]
pub(crate) struct FaultsOptions {
    /// Kinds of faults, separated by commas: `all`, or `list` to print them [default: all]
    #[arg(long, value_delimiter = ',', default_value = "all")]
    nemesis: Vec<String>,
    /// Workloads, separated by commas: `all`, or `list` to print them [default: all]
    #[arg(long, value_delimiter = ',', default_value = "all")]
    workload: Vec<String>,
    /// Repeats the choices of an earlier run (its moments still depend on the machine)
    #[arg(long)]
    seed: Option<u64>,
    /// Length of each run, in seconds
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Runs of each nemesis
    #[arg(long, default_value_t = 1)]
    runs: u64,
    /// Fails also if writes stall longer than the nemesis allows
    #[arg(long)]
    judge_stalls: bool,
    /// Output format
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
    /// The server's binary [default: a release build of this checkout]
    #[arg(long)]
    bin: Option<PathBuf>,
    /// First of 25 ports that follow each other [default: any that are free]
    #[arg(long)]
    first_port: Option<u16>,
    /// Folder for data and logs [default: below target]
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Further arguments of `postroad serve`, after `--`
    #[arg(last = true, default_values = ["--segment-bytes", "4MiB", "--shards", "3"])]
    serve: Vec<String>,
}

#[derive(Serialize)]
struct Report {
    seed: u64,
    nemeses: Vec<Row>,
    runs: Vec<Run>,
}

/// Parses an option that names some values, or all of them. `None`: the values are to be listed.
fn chosen<V: ValueEnum>(names: &[String], kind: &str) -> Outcome<Option<Vec<V>>> {
    let mut chosen = Vec::new();
    for name in names {
        match name.as_str() {
            "list" => return Ok(None),
            "all" => chosen.extend_from_slice(V::value_variants()),
            name => chosen.push(V::from_str(name, false).map_err(|_| {
                Failure::new(format!("no {kind} is called {name}"))
                    .remedy(format!("cargo xtask soak faults --{kind} list prints them"))
            })?),
        }
    }
    Ok(Some(chosen))
}

fn list<V: ValueEnum>() -> Outcome {
    for value in V::value_variants().iter().filter_map(V::to_possible_value) {
        println!("{:<18} {}", value.get_name(), value.get_help().cloned().unwrap_or_default());
    }
    Ok(())
}

pub(super) fn run(options: &FaultsOptions) -> Outcome {
    let Some(nemeses) = chosen::<Nemesis>(&options.nemesis, "nemesis")? else {
        return list::<Nemesis>();
    };
    let Some(workloads) = chosen::<Workload>(&options.workload, "workload")? else {
        return list::<Workload>();
    };
    let first = options.seed.unwrap_or_else(Random::any_seed);
    let binary = server::binary(options.bin.as_deref())?;
    let folder = match &options.folder {
        Some(folder) => folder.clone(),
        None => paths::fresh("soak-faults")?,
    };
    let mut runs = Vec::new();
    for turn in 0..options.runs {
        for nemesis in &nemeses {
            let seed = first.wrapping_add(turn);
            let at = folder.join(format!("{}-{seed}", report::name(*nemesis)));
            let run = one(options, &workloads, *nemesis, seed, &binary, &at);
            eprintln!("{}", describe_run(&run));
            if run.failure.is_none() && run.violations.is_empty() {
                // Data of a run without findings is of no use.
                let _ = std::fs::remove_dir_all(&at);
            }
            runs.push(run);
        }
    }
    publish(options, first, runs)
}

fn describe_run(run: &Run) -> String {
    let verdict = match (&run.failure, run.violations.len()) {
        (Some(failure), _) => format!("FAILED: {failure}"),
        (None, 0) => "no violation".to_owned(),
        (None, count) => format!("{count} VIOLATIONS"),
    };
    let mut words = format!("soak faults: {} seed {}: {verdict}", run.nemesis, run.seed);
    if let Some(Stall { length, begun, workload }) = run.stalls.iter().max() {
        let workload = report::name(*workload);
        words.push_str(&format!(", longest stall {length:.1?} ({workload}, at {begun:.1?})"));
    }
    for violation in &run.violations {
        words.push_str(&format!("\n    {violation}"));
    }
    words
}

fn publish(options: &FaultsOptions, seed: u64, runs: Vec<Run>) -> Outcome {
    let report = Report { seed, nemeses: report::rows(&runs), runs };
    match options.output {
        Output::Table => print!("{}", report::table(&report.nemeses)),
        Output::Json => {
            let json = serde_json::to_string_pretty(&report).context(|| "cannot write JSON")?;
            println!("{json}");
        }
    }
    let bad = report.runs.iter().find(|run| run.failure.is_some() || !run.violations.is_empty());
    if let Some(run) = bad {
        let (nemesis, seed) = (&run.nemesis, run.seed);
        return Err(Failure::new(format!("{nemesis}, seed {seed}: {}", describe_run(run))).remedy(
            format!("its data and logs are kept; again: cargo xtask soak faults --nemesis {nemesis} --seed {seed}"),
        ));
    }
    let stalled = report.nemeses.iter().find(|row| {
        options.judge_stalls && row.stall_ms_p99_max.is_some_and(|max| row.stall_ms_p99 > max)
    });
    match stalled {
        Some(row) => Err(Failure::new(format!("{}: writes stalled too long", row.nemesis))),
        None => Ok(()),
    }
}

/// One run on a cluster of its own. A failure becomes part of the verdict.
fn one(
    options: &FaultsOptions,
    workloads: &[Workload],
    nemesis: Nemesis,
    seed: u64,
    binary: &Path,
    folder: &Path,
) -> Run {
    let mut run = Run {
        nemesis: report::name(nemesis),
        seed,
        faults: 0,
        violations: Vec::new(),
        failure: None,
        counts: Default::default(),
        stalls: Vec::new(),
    };
    if let Err(failure) = attempt(options, workloads, nemesis, seed, binary, folder, &mut run) {
        run.failure = Some(failure.to_string());
    }
    run
}

fn attempt(
    options: &FaultsOptions,
    workloads: &[Workload],
    nemesis: Nemesis,
    seed: u64,
    binary: &Path,
    folder: &Path,
    run: &mut Run,
) -> Outcome {
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder).context(|| format!("cannot create {}", folder.display()))?;
    eprintln!("soak faults: {} seed {seed}, data in {}", report::name(nemesis), folder.display());
    let mut site = Site::found(binary, folder, options.first_port, &options.serve)?;
    let done = under_load(options, workloads, nemesis, seed, &mut site, run);
    site.kill_all();
    done
}

fn under_load(
    options: &FaultsOptions,
    workloads: &[Workload],
    nemesis: Nemesis,
    seed: u64,
    site: &mut Site,
    run: &mut Run,
) -> Outcome {
    site.wait_until_whole(WHOLE_WITHIN)?;
    let target = WorkloadContext::new(site.addresses.clone());
    workloads::prepare(&target, workloads)?;
    let progress = Arc::<Progress>::default();
    let start = |workload: &Workload| {
        workloads::start(*workload, &target, &progress, seed, nemesis.isolates())
    };
    let running: Vec<RunningWorkload> = workloads.iter().map(start).collect();

    let deadline = Instant::now() + Duration::from_secs(options.seconds);
    let faults = nemesis::run(nemesis, site, &target, &mut Random::new(seed), deadline);
    // Clients end in any case, and the histories are checked even after a failed fault.
    let healed = site.heal().and_then(|()| site.start_all(&[0, 1, 2]));
    let whole = healed.and_then(|()| site.wait_until_whole(WHOLE_WITHIN));
    std::thread::sleep(SETTLED_AFTER);
    target.stop();
    let ended = target.now();
    let faults = faults.unwrap_or_else(|failure| {
        run.failure = Some(failure.to_string());
        Vec::new()
    });
    whole?;
    let mut writers = Vec::new();
    for (workload, running) in workloads.iter().zip(running) {
        match running.check(&target) {
            Ok(found) => {
                run.violations.extend(found.violations);
                run.counts.extend(found.counts);
                let writer = |writes| Writer { workload: *workload, writes };
                writers.extend(found.writes.into_iter().map(writer));
            }
            Err(failure) => run.failure = Some(failure.to_string()),
        }
    }
    run.faults = faults.len();
    run.stalls = report::stalls(&writers, &faults, ended);
    Ok(())
}
