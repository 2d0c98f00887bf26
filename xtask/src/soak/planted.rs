//! `cargo xtask soak planted`: mutation testing of the simulation. Each fault is planted in a copy of the code, the
//! simulation is built, and seeds run until one fails. The faults are the patches in `crates/sim/planted`; those in
//! its folders need other profiles. A fault that no seed finds fails the run.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use clap::Args;

use crate::failure::{Context, Failure, Outcome};
use crate::paths;

const PATCHES: &str = "crates/sim/planted";
/// Folders of patches, each with its profile and the number of seeds that must suffice.
const FOLDERS: [(&str, &str, u64); 9] = [
    ("", "all", 200),
    ("cluster", "cluster", 500),
    ("relays", "relays", 500),
    ("members", "members", 500),
    ("damage", "damage", 500),
    ("registers", "registers", 200),
    ("queues", "queues", 200),
    ("images", "images", 200),
    ("stalls", "stalls", 200),
];
/// Length limit of a finding in the table.
const FOUND_CHARS_MAX: usize = 160;

#[derive(Debug, Args)]
pub(crate) struct PlantedOptions {
    /// A fault must be found within so many seeds [default: 200; 500 with several nodes]
    #[arg(long)]
    seeds: Option<u64>,
    /// Only faults whose name, in words, has this in it; may be given several times
    #[arg(long)]
    only: Vec<String>,
    /// Processes that run seeds at a time [default: one a core]
    #[arg(long)]
    jobs: Option<usize>,
}

/// A fault to plant.
struct PlantedFault {
    patch: PathBuf,
    profile: &'static str,
    seeds: u64,
}

/// A fault with its result.
struct Row {
    fault: String,
    found: Option<FoundViolation>,
    took: Duration,
}

#[derive(Debug, PartialEq, Eq)]
struct FoundViolation {
    seed: u64,
    /// The invariant that was violated.
    invariant: String,
    what: String,
}

pub(crate) fn run(options: &PlantedOptions) -> Outcome {
    let only = &options.only;
    let wanted = |name: &str| only.is_empty() || only.iter().any(|part| name.contains(part));
    let mut faults = faults()?;
    faults.retain(|fault| wanted(&fault.name()));
    if let Some(seeds) = options.seeds {
        faults.iter_mut().for_each(|fault| fault.seeds = seeds);
    }
    if faults.is_empty() {
        return Err(Failure::new(format!("no patch in {PATCHES} has such a name")));
    }
    let planter = Planter::new(options)?;
    planter.check_sound(&faults)?;
    let mut rows = Vec::new();
    for (index, fault) in faults.iter().enumerate() {
        println!("{}/{} {}", index + 1, faults.len(), fault.name());
        let row = planter.plant(fault)?;
        println!("  {}", describe(&row));
        rows.push(row);
    }
    println!("\n| fault | seed | checker | what it saw |\n|---|---|---|---|");
    for Row { fault, found, .. } in &rows {
        match found {
            Some(FoundViolation { seed, invariant, what }) => {
                println!("| {fault} | {seed} | `{invariant}` | {what} |");
            }
            None => println!("| {fault} | - | - | not found |"),
        }
    }
    let hidden = rows.iter().filter(|row| row.found.is_none()).count();
    match hidden {
        0 => Ok(()),
        _ => Err(Failure::new(format!("{hidden} of {} faults were not found", rows.len()))
            .remedy("write the client or the checker that would notice")),
    }
}

fn describe(row: &Row) -> String {
    let took = row.took.as_secs();
    match &row.found {
        Some(FoundViolation { seed, invariant, what }) => {
            format!("found by seed {seed}: {invariant}: {what} ({took} s)")
        }
        None => format!("not found ({took} s)"),
    }
}

fn faults() -> Outcome<Vec<PlantedFault>> {
    let mut faults = Vec::new();
    for (folder, profile, seeds) in FOLDERS {
        let folder = paths::root().join(PATCHES).join(folder);
        let listing = || format!("cannot list {}", folder.display());
        let entries = fs::read_dir(&folder).context(listing)?;
        let paths = entries.map(|entry| entry.map(|entry| entry.path()));
        let mut patches: Vec<PathBuf> = paths.collect::<Result<_, _>>().context(listing)?;
        patches.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
        patches.sort();
        faults.extend(patches.into_iter().map(|patch| PlantedFault { patch, profile, seeds }));
    }
    Ok(faults)
}

impl PlantedFault {
    /// The patch's file name, in words, describes the fault.
    fn name(&self) -> String {
        let stem = self.patch.file_stem().unwrap_or_default().to_string_lossy();
        stem.replace('-', " ")
    }
}

/// A copy of the last commit, in which faults are planted, so that the checkout is unchanged.
struct Planter<'a> {
    options: &'a PlantedOptions,
    copy: PathBuf,
    built: PathBuf,
}

impl<'a> Planter<'a> {
    fn new(options: &'a PlantedOptions) -> Outcome<Self> {
        let copy = paths::fresh("planted")?.join("copy");
        let mut clone = Command::new("git");
        clone.args(["clone", "--quiet", "--shared"]).arg(paths::root()).arg(&copy);
        run_to_end(&mut clone, "cannot copy the last commit")?;
        // Kept, so that the next run compiles less.
        let built = paths::target().join("planted");
        Ok(Self { options, copy, built })
    }

    /// Checks that no seed fails without a fault; otherwise every fault would count as found.
    fn check_sound(&self, faults: &[PlantedFault]) -> Outcome {
        self.build()?;
        let profiles: BTreeSet<&str> = faults.iter().map(|fault| fault.profile).collect();
        for profile in profiles {
            if let Some(found) = self.search(profile, 20)? {
                let repeat = format!(
                    "cargo run --release -p sim -- run --seed SEED --profile {profile} repeats it"
                );
                let what = format!("a seed fails without a fault: {found:?}");
                return Err(Failure::new(what).remedy(repeat));
            }
        }
        Ok(())
    }

    fn plant(&self, fault: &PlantedFault) -> Outcome<Row> {
        let begun = Instant::now();
        self.apply(&fault.patch, &[])?;
        let found = self.build().and_then(|()| self.search(fault.profile, fault.seeds));
        self.apply(&fault.patch, &["--reverse"])?;
        Ok(Row { fault: fault.name(), found: found?, took: begun.elapsed() })
    }

    fn apply(&self, patch: &Path, how: &[&str]) -> Outcome {
        let mut git = Command::new("git");
        git.current_dir(&self.copy).args(["apply", "--recount"]).args(how).arg(patch);
        run_to_end(&mut git, &format!("the patch does not fit: {}", patch.display()))?;
        Ok(())
    }

    fn build(&self) -> Outcome {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(&self.copy).env("CARGO_TARGET_DIR", &self.built);
        // A fault may leave an item unused.
        cargo.args(["build", "--quiet", "--locked", "--release", "--package", "sim"]);
        // The crates are built often and run for seconds only.
        cargo.env("CARGO_PROFILE_RELEASE_INCREMENTAL", "true");
        cargo.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
        cargo.env("CARGO_PROFILE_RELEASE_DEBUG", "false");
        run_to_end(&mut cargo, "the simulation does not build")?;
        Ok(())
    }

    /// Finds the first failing seed.
    fn search(&self, profile: &str, seeds: u64) -> Outcome<Option<FoundViolation>> {
        let mut search = Command::new(self.built.join("release/sim"));
        search.args(["search", "--failures", "1", "--profile", profile]);
        search.args(["--seeds", &seeds.to_string()]);
        if let Some(jobs) = self.options.jobs {
            search.args(["--jobs", &jobs.to_string()]);
        }
        let output = search.output().context(|| "cannot run the simulation")?;
        let printed = String::from_utf8_lossy(&output.stdout);
        match printed.lines().find_map(found_in) {
            Some(found) => Ok(Some(found)),
            None if output.status.success() => Ok(None),
            None => Err(Failure::new(format!("the simulation says nothing of a seed: {printed}"))),
        }
    }
}

/// Parses a line such as `seed 7: Durable does not hold: ...`.
fn found_in(line: &str) -> Option<FoundViolation> {
    let (seed, told) = line.strip_prefix("seed ")?.split_once(": ")?;
    let (invariant, what) = told.split_once(" does not hold: ")?;
    // The text becomes a cell of a table.
    let what = what.replace('|', "/").chars().take(FOUND_CHARS_MAX).collect();
    Some(FoundViolation { seed: seed.parse().ok()?, invariant: invariant.to_owned(), what })
}

fn run_to_end(command: &mut Command, failed: &str) -> Outcome<Output> {
    let output = command.output().context(|| failed.to_owned())?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::new(format!("{failed}: {}", why.trim_end())));
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_of_a_seed_is_parsed_from_its_output() {
        let line = "seed 12: Durable does not hold: a record | is gone";
        let found = found_in(line).expect("a violation");
        assert_eq!(
            (found.seed, &*found.invariant, &*found.what),
            (12, "Durable", "a record / is gone")
        );
        assert_eq!(found_in("seed 12: ok, trace 00"), None);
        assert_eq!(found_in("repeat: cargo run"), None);
    }

    /// A patch that no longer applies would only be noticed by the next long run.
    #[test]
    fn every_patch_applies_to_the_code() {
        for fault in faults().expect("there are patches") {
            let mut git = Command::new("git");
            git.current_dir(paths::root()).args(["apply", "--check", "--recount"]);
            let fits = run_to_end(git.arg(&fault.patch), "the patch does not fit");
            assert!(fits.is_ok(), "{}: {fits:?}", fault.name());
        }
    }
}
