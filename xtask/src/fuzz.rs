//! `cargo xtask fuzz`: feeds malformed bytes to the code that reads bytes of clients.
//!
//! The targets are in `fuzz/`, a workspace of its own that is built with LLVM's coverage instrumentation. The
//! compiler flags are those of cargo-fuzz without a sanitizer, which are stable: our code has no `unsafe` that a
//! sanitizer would check.

mod run;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use crate::command::output_of;
use crate::failure::{Context, Failure, Outcome};
use crate::paths;
use run::{FuzzRun, Run, RunEnd};

const WORKSPACE: &str = "fuzz";
pub(crate) const MANIFEST: &str = "fuzz/Cargo.toml";
/// Instrumentation that the compiler adds: a counter for each edge, and the operands of comparisons.
const FLAGS: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
];

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Only these targets
    targets: Vec<String>,
    /// For how long each is run
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// How many run at a time; as many as there are cores if it is not said
    #[arg(long)]
    jobs: Option<usize>,
    /// Tries this one input and nothing else; takes one target
    #[arg(long)]
    input: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Output {
    Table,
    Json,
}

/// The step of CI: long enough for a finding, and short enough for every change.
pub(crate) fn short(seconds: u64) -> Outcome<u64> {
    let (targets, jobs, input) = (Vec::new(), None, None);
    all(&Options { targets, seconds, jobs, input, output: Output::Table })
}

pub(crate) fn run(options: &Options) -> Outcome {
    all(options).map(drop)
}

/// Returns the number of targets that were run.
fn all(options: &Options) -> Outcome<u64> {
    let known = known()?;
    let unknown = options.targets.iter().find(|name| !known.contains(name));
    if let Some(unknown) = unknown {
        let remedy = format!("one of {}", known.join(", "));
        return Err(Failure::new(format!("there is no target {unknown}")).remedy(remedy));
    }
    let targets = if options.targets.is_empty() { known } else { options.targets.clone() };
    let begun = Instant::now();
    let built = build(&targets)?;
    eprintln!("built in {} s", begun.elapsed().as_secs());
    if let Some(input) = &options.input {
        return one(&targets, &built, input).map(|()| 1);
    }
    let kept_in = paths::target().join("xtask").join(WORKSPACE);
    let runs = targets.iter().map(|target| Run::of(target, &built, &kept_in, options.seconds));
    let runs: Vec<Run> = runs.collect::<Outcome<_>>()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let ran = run::together(runs, options.jobs.unwrap_or(cores).max(1))?;
    match options.output {
        Output::Table => println!("\n{}", table(&ran)),
        Output::Json => println!("{}", serde_json::to_string(&ran).context(|| "the report")?),
    }
    let failed: Vec<&FuzzRun> = ran.iter().filter(|ran| ran.ended != RunEnd::Well).collect();
    match failed.first() {
        None => Ok(ran.len() as u64),
        Some(first) => {
            let what =
                failed.iter().map(|ran| ran.describe_failure()).collect::<Vec<_>>().join("\n");
            Err(Failure::new(what).remedy(first.remedy()))
        }
    }
}

/// The names of all targets, which are those of their files.
fn known() -> Outcome<Vec<String>> {
    let folder = paths::root().join(WORKSPACE).join("targets");
    let files = fs::read_dir(&folder).context(|| format!("cannot read {}", folder.display()))?;
    let mut names = Vec::new();
    for file in files {
        let path = file?.path();
        if let Some(name) = path.file_stem().and_then(|name| name.to_str()) {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// The command that builds all targets.
pub(crate) fn build_all() -> Outcome<Command> {
    Ok(building(&known()?, &machine()?))
}

/// Builds targets in one cargo command, and returns the folder of their binaries.
fn build(targets: &[String]) -> Outcome<PathBuf> {
    let machine = machine()?;
    let status = building(targets, &machine).status().context(|| "cannot run cargo")?;
    if !status.success() {
        let remedy = "a C++ compiler is needed (apt-get install g++), and what cargo names above";
        return Err(Failure::new("the targets cannot be built").remedy(remedy));
    }
    Ok(built_in().join(machine).join("debug"))
}

fn built_in() -> PathBuf {
    paths::target().join("xtask").join(WORKSPACE).join("build")
}

fn building(targets: &[String], machine: &str) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(paths::root().join(WORKSPACE)).stdin(Stdio::null());
    // With an explicit target the flags do not apply to build scripts and macros, which are not fuzzed.
    command.args(["build", "--locked", "--target", machine]).arg("--target-dir").arg(built_in());
    for target in targets {
        command.args(["--bin", target]);
    }
    command.env("RUSTFLAGS", [&FLAGS[..], &["--cfg", "fuzzing"]].concat().join(" "));
    command.env("CARGO_INCREMENTAL", "0");
    for inherited in ["CARGO_ENCODED_RUSTFLAGS", "CARGO_PROFILE_DEV_DEBUG"] {
        command.env_remove(inherited);
    }
    command
}

/// The compiler's name for this machine (the host triple).
fn machine() -> Outcome<String> {
    let mut rustc = Command::new("rustc");
    rustc.arg("-vV").current_dir(paths::root());
    let told = output_of(rustc, "rustc -vV")?;
    let line = told.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_owned).ok_or_else(|| Failure::new("rustc -vV does not say the host"))
}

/// Runs a target on one input, with its output shown.
fn one(targets: &[String], built: &Path, input: &Path) -> Outcome {
    let [target] = targets else {
        return Err(Failure::new("--input is for one target").remedy("name it"));
    };
    let status = Command::new(built.join(target)).arg(input).status();
    match status.context(|| format!("cannot run {target}"))?.success() {
        true => Ok(()),
        false => Err(Failure::new(format!("{target} fails with {}", input.display()))),
    }
}

fn table(ran: &[FuzzRun]) -> String {
    let mut lines = vec![format!(
        "{:<20} {:>12} {:>9} {:>9} {:>9} {:>7} {:>7}  {}",
        "TARGET", "RUNS", "RUNS/S", "FEATURES", "NEW", "INPUTS", "NEW", "ENDED"
    )];
    for ran in ran {
        lines.push(format!(
            "{:<20} {:>12} {:>9} {:>9} {:>9} {:>7} {:>7}  {}",
            ran.target,
            ran.executions,
            ran.executions_a_second,
            ran.features,
            ran.features - ran.features_before.min(ran.features),
            ran.inputs,
            ran.inputs_new,
            ran.ended.word(),
        ));
    }
    lines.join("\n")
}

/// The statistics that a run prints at its end, by name.
fn statistics(log: &str) -> BTreeMap<&str, u64> {
    let lines = log.lines().filter_map(|line| line.strip_prefix("stat::"));
    let pairs = lines.filter_map(|line| line.split_once(':'));
    pairs.filter_map(|(name, value)| Some((name, value.trim().parse().ok()?))).collect()
}

/// The number behind a name in a progress line: `#8 INITED cov: 5 ft: 6 corp: 2/9b`.
fn progress(line: &str, name: &str) -> Option<u64> {
    let (_, rest) = line.split_once(&format!(" {name}: "))?;
    let digits = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok()
}

fn seconds(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_and_statistics_of_the_fuzzer_are_parsed() {
        let line = "#1048576\tREDUCE cov: 512 ft: 1024 corp: 77/9Kb lim: 4096 exec/s: 524288";
        assert_eq!(progress(line, "ft"), Some(1024));
        assert_eq!(progress(line, "corp"), Some(77));
        assert_eq!(progress("Loaded 3 PCs", "ft"), None);
        let log = "Done\nstat::number_of_executed_units: 12\nstat::peak_rss_mb:            64\n";
        assert_eq!(statistics(log).get("peak_rss_mb"), Some(&64));
    }

    #[test]
    fn every_target_is_declared_and_has_kept_inputs() {
        let folder = paths::root().join(WORKSPACE);
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        let names = known().expect("targets");
        assert!(!names.is_empty());
        for name in names {
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
            let kept = fs::read_dir(folder.join("corpus").join(&name)).expect("kept inputs");
            assert!(kept.count() > 0, "{name}");
        }
    }
}
