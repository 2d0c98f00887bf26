//! Runs of fuzz targets, some at a time, and their results.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use serde::Serialize;

use super::{WORKSPACE, progress, seconds, statistics};
use crate::failure::{Context, Failure, Outcome};
use crate::paths;

/// Maximum length of an input. Code before the log-in reads no more in one piece, and short inputs are explored
/// faster.
const INPUT_BYTES_MAX: u32 = 4 << 10;
/// Time limit of one input; most take some microseconds.
const INPUT_SECONDS_MAX: u32 = 10;
/// Memory limit of the process, for C libraries. Rust's memory has a limit for each input (`fuzz/src/lib.rs`).
const PROCESS_MEGABYTES_MAX: u32 = 1_024;

/// One target and its folders.
#[derive(Debug)]
pub(super) struct Run {
    target: String,
    program: PathBuf,
    /// Findings of earlier runs; this run adds its own.
    found: PathBuf,
    kept: PathBuf,
    crashes: PathBuf,
    log: PathBuf,
    seconds: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RunEnd {
    Well,
    Failed,
}

/// Result of a run.
#[derive(Debug, Serialize)]
pub(super) struct FuzzRun {
    pub(super) target: String,
    pub(super) seconds: u64,
    pub(super) executions: u64,
    pub(super) executions_a_second: u64,
    /// Edges with their execution counts, as the fuzzer distinguishes them.
    pub(super) features: u64,
    /// Features that the inputs of earlier runs cover.
    pub(super) features_before: u64,
    pub(super) inputs: u64,
    pub(super) inputs_new: u64,
    pub(super) peak_megabytes: u64,
    pub(super) ended: RunEnd,
    /// The input of the failure, if the fuzzer wrote one.
    pub(super) crash: Option<PathBuf>,
    log: PathBuf,
}

impl RunEnd {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Failed => "FAILED",
        }
    }
}

impl FuzzRun {
    pub(super) fn describe_failure(&self) -> String {
        match &self.crash {
            Some(crash) => format!("{} fails with {}", self.target, crash.display()),
            None => format!("{} ended without a word: {}", self.target, self.log.display()),
        }
    }

    pub(super) fn remedy(&self) -> String {
        let log = self.log.display();
        match &self.crash {
            Some(crash) => format!(
                "cargo xtask fuzz {target} --input {crash} repeats it (its first report: {log}); mend it, and keep the input \
                 in fuzz/corpus/{target}",
                target = self.target,
                crash = crash.display(),
            ),
            None => format!("look into {log}"),
        }
    }
}

impl Run {
    pub(super) fn of(target: &str, built: &Path, kept_in: &Path, seconds: u64) -> Outcome<Self> {
        let folder = |of: &str| {
            let path = kept_in.join(of).join(target);
            fs::create_dir_all(&path).context(|| format!("cannot create {}", path.display()))?;
            Ok::<_, Failure>(path)
        };
        let (found, crashes) = (folder("corpus")?, folder("crashes")?);
        Ok(Self {
            target: target.to_owned(),
            program: built.join(target),
            found,
            kept: paths::root().join(WORKSPACE).join("corpus").join(target),
            log: crashes.join("log"),
            crashes,
            seconds,
        })
    }

    fn run(&self) -> Outcome<FuzzRun> {
        let begun = Instant::now();
        let before = self.crashed();
        let log = File::create(&self.log).context(|| self.log.display().to_string())?;
        let mut command = Command::new(&self.program);
        command.arg(format!("-max_total_time={}", self.seconds));
        command.arg(format!("-max_len={INPUT_BYTES_MAX}"));
        command.arg(format!("-timeout={INPUT_SECONDS_MAX}"));
        command.arg(format!("-rss_limit_mb={PROCESS_MEGABYTES_MAX}"));
        command.arg(format!("-artifact_prefix={}/", self.crashes.display()));
        command.arg("-print_final_stats=1");
        let words = paths::root().join(WORKSPACE).join("dictionaries").join(&self.target);
        if words.exists() {
            command.arg(format!("-dict={}", words.display()));
        }
        command.arg(&self.found).arg(&self.kept);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let status = command.status().context(|| format!("cannot run {}", self.target))?;
        let log = fs::read(&self.log).context(|| self.log.display().to_string())?;
        let log = String::from_utf8_lossy(&log);
        let statistics = statistics(&log);
        let statistic = |name| statistics.get(name).copied().unwrap_or_default();
        let told = |name: &'static str| log.lines().filter_map(move |line| progress(line, name));
        Ok(FuzzRun {
            target: self.target.clone(),
            seconds: begun.elapsed().as_secs(),
            executions: statistic("number_of_executed_units"),
            executions_a_second: statistic("average_exec_per_sec"),
            features: told("ft").next_back().unwrap_or_default(),
            features_before: told("ft").next().unwrap_or_default(),
            inputs: told("corp").next_back().unwrap_or_default(),
            inputs_new: statistic("new_units_added"),
            peak_megabytes: statistic("peak_rss_mb"),
            ended: if status.success() { RunEnd::Well } else { RunEnd::Failed },
            crash: self.crashed().into_iter().find(|path| !before.contains(path)),
            log: self.log.clone(),
        })
    }

    /// Failing inputs of this run and of earlier ones.
    fn crashed(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(&self.crashes).into_iter().flatten().flatten();
        files.map(|file| file.path()).filter(|path| *path != self.log).collect()
    }
}

/// Runs all of them, `jobs` at a time. The results keep the order.
pub(super) fn together(runs: Vec<Run>, jobs: usize) -> Outcome<Vec<FuzzRun>> {
    let count = runs.len();
    let waiting: Mutex<VecDeque<(usize, Run)>> = Mutex::new(runs.into_iter().enumerate().collect());
    let done: Mutex<Vec<(usize, Outcome<FuzzRun>)>> = Mutex::new(Vec::new());
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(count) {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().expect("no thread panics").pop_front();
                    let Some((place, run)) = next else { return };
                    let ran = run.run();
                    let mut done = done.lock().expect("no thread panics");
                    done.push((place, ran));
                    let (at, of, time) = (done.len(), count, seconds(begun.elapsed()));
                    eprintln!("{time}  {at}/{of} {}", run.target);
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no thread panics");
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, ran)| ran).collect()
}
