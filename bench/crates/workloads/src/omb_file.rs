//! Workload files of OpenMessaging Benchmark, in their original format.
//!
//! Every field is supported or rejected. Two differences remain. Many producers and consumers share
//! connections, as the original's objects did. The rate finder behind `producerRate: 0` is the
//! exact search of `omb/max-rate`, since the original's misreads fan-out.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use load::search::PRECISION;
use load::{Content, Entropy, Pace, Phase, Plan, Receivers, STAMP_BYTES, Until};
use results::Run;
use serde::Deserialize;
use thiserror::Error;

use crate::context::{Context, Form, Problem};
use crate::judge::{self, Facts, confirmed_rate, higher, lower, ms, received_rate};
use crate::max_rate::{self, Found};
use crate::omb::WINDOW;

/// Number of keys of the original's distributors.
const KEYS: u32 = 10_000;
/// Largest number of tasks with their own connections; more producers or consumers share them.
const TASKS_MAX: u32 = 64;
const SECONDS_OF_A_TRY: Duration = Duration::from_secs(8);

#[derive(Debug, Error)]
pub enum FileError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{path} is no workload: {why}")]
    Malformed { path: PathBuf, why: String },
    #[error("{path}: {field} {why}")]
    Field { path: PathBuf, field: &'static str, why: String },
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Fields {
    name: String,
    topics: u32,
    #[serde(default = "one")]
    partitions_per_topic: u32,
    #[serde(default)]
    key_distributor: KeyDistributor,
    message_size: usize,
    #[serde(default)]
    use_randomized_payloads: bool,
    #[serde(default)]
    random_bytes_ratio: f64,
    #[serde(default)]
    randomized_payload_pool_size: u32,
    payload_file: Option<PathBuf>,
    #[serde(default = "one")]
    subscriptions_per_topic: u32,
    #[serde(default = "one")]
    consumer_per_subscription: u32,
    #[serde(default = "one")]
    producers_per_topic: u32,
    #[serde(default)]
    producer_rate: f64,
    #[serde(default, rename = "consumerBacklogSizeGB")]
    consumer_backlog_size_gb: u64,
    #[serde(default = "all_of_it")]
    backlog_drain_ratio: f64,
    test_duration_minutes: f64,
    #[serde(default = "one_minute")]
    warmup_duration_minutes: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum KeyDistributor {
    #[default]
    NoKey,
    KeyRoundRobin,
    RandomNano,
}

fn one() -> u32 {
    1
}

fn one_minute() -> f64 {
    1.0
}

fn all_of_it() -> f64 {
    1.0
}

/// A workload file, with the files that it refers to.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct OmbFile {
    fields: Fields,
    content: Content,
}

impl OmbFile {
    pub(crate) fn read(path: &Path) -> Result<Self, FileError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| FileError::Io { path: path.into(), source })?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, FileError> {
        let fields: Fields = serde_saphyr::from_str(text).map_err(|error| {
            // The first line names the error and its location; a code excerpt follows.
            let text = error.to_string();
            let why =
                text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            FileError::Malformed { path: path.into(), why }
        })?;
        let field = |field, why: String| FileError::Field { path: path.into(), field, why };
        let counts = [
            ("topics", fields.topics),
            ("partitionsPerTopic", fields.partitions_per_topic),
            ("producersPerTopic", fields.producers_per_topic),
        ];
        if let Some((name, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(field(name, "must be one or more".to_owned()));
        }
        if fields.message_size < STAMP_BYTES {
            let why = format!("must be {STAMP_BYTES} or more: the audit needs so many bytes");
            return Err(field("messageSize", why));
        }
        let minutes = [
            ("testDurationMinutes", fields.test_duration_minutes),
            ("warmupDurationMinutes", fields.warmup_duration_minutes),
        ];
        let absurd = |minutes: f64| !(0.0..=60.0 * 24.0 * 365.0).contains(&minutes);
        if let Some((name, _)) = minutes.into_iter().find(|(_, minutes)| absurd(*minutes)) {
            return Err(field(name, "must be a number of minutes".to_owned()));
        }
        if !fields.producer_rate.is_finite() || fields.producer_rate < 0.0 {
            return Err(field("producerRate", "must be zero (find it) or more".to_owned()));
        }
        let content = fields.content(path)?;
        Ok(Self { fields, content })
    }

    /// Name of the test.
    pub(crate) fn test_name(&self) -> String {
        let word = |letter: char| if letter.is_alphanumeric() { letter } else { '-' };
        format!("omb-file/{}", self.fields.name.chars().map(word).collect::<String>())
    }

    pub(crate) async fn run(&self, context: &mut Context, name: &str) -> Result<Run, Problem> {
        if self.fields.subscriptions_per_topic > 1 {
            context.needs_subscriptions()?;
        }
        if self.fields.producer_rate > 0.0 {
            return self.at(context, name, self.fields.producer_rate).await;
        }
        let found = max_rate::find(context, name, PRECISION, |context, rate| {
            let mut plan = self.plan(context, rate)?;
            plan.phases = vec![
                Phase::warm_up(Duration::from_secs(2)),
                Phase::measured("load", SECONDS_OF_A_TRY),
            ];
            Ok(plan)
        });
        let Found { rate, steps, limit, best } = found.await?;
        let mut run = match (rate, best) {
            (Some(rate), _) => self.at(context, name, rate).await?,
            // The search ended at a fault, or no rate passed: the result is that of the last try.
            (None, Some((facts, outcome))) => {
                let headline = vec![higher("published", 0.0, "messages/s")];
                judge::run(context, name, facts, outcome, headline)
            }
            (None, None) => return Err(Problem::Interrupted),
        };
        run.steps = steps;
        run.remarks.extend(limit.map(|why| format!("at a higher rate: {why}")));
        Ok(run)
    }

    async fn at(&self, context: &mut Context, name: &str, rate: f64) -> Result<Run, Problem> {
        let plan = self.plan(context, rate)?;
        let facts = Facts::of(&plan);
        let shares = u32::from(plan.senders) < self.fields.topics * self.fields.producers_per_topic;
        let outcome = context.load(name, plan).await?;
        let latencies = &outcome.latencies;
        let headline = vec![
            higher("published", confirmed_rate(&outcome), "messages/s"),
            higher("consumed", received_rate(&outcome), "messages/s"),
            lower("publish p99", ms(latencies.send.quantile_us(0.99)), "ms"),
            lower("end to end p99", ms(latencies.receive.quantile_us(0.99)), "ms"),
        ];
        let mut run = judge::run(context, name, facts, outcome, headline);
        if shares {
            let remark = format!("producers and consumers share at most {TASKS_MAX} connections");
            run.remarks.push(remark);
        }
        Ok(run)
    }

    fn plan(&self, context: &mut Context, per_second: f64) -> Result<Plan, Problem> {
        let fields = &self.fields;
        let mut topology = context.stream()?;
        topology.destinations = fields.topics;
        topology.partitions = fields.partitions_per_topic;
        topology.subscriptions = fields.subscriptions_per_topic;
        let mut plan = Plan::new(topology, fields.message_size, Duration::ZERO);
        let producers = fields.topics.saturating_mul(fields.producers_per_topic);
        let consumers = fields.topics.saturating_mul(fields.consumer_per_subscription);
        plan.senders = producers.min(TASKS_MAX) as u16;
        plan.receivers = consumers.min(TASKS_MAX);
        plan.pace = Pace::Open { per_second, window: WINDOW };
        plan.receive_max = 1000;
        plan.lanes = match fields.key_distributor {
            KeyDistributor::NoKey => fields.partitions_per_topic,
            KeyDistributor::KeyRoundRobin | KeyDistributor::RandomNano => KEYS,
        };
        plan.content = self.content.clone();
        plan.phases = fields.phases(context.form);
        Ok(plan)
    }
}

impl Fields {
    fn content(&self, path: &Path) -> Result<Content, FileError> {
        let field = |field, why: String| FileError::Field { path: path.into(), field, why };
        if self.use_randomized_payloads {
            if !(0.0..=1.0).contains(&self.random_bytes_ratio) {
                return Err(field("randomBytesRatio", "must be between 0 and 1".to_owned()));
            }
            let pool = u16::try_from(self.randomized_payload_pool_size.max(1));
            let pool = pool.map_err(|_| {
                field("randomizedPayloadPoolSize", format!("must be at most {}", u16::MAX))
            })?;
            return Ok(Content::Random(Entropy { random_ratio: self.random_bytes_ratio, pool }));
        }
        let Some(file) = &self.payload_file else {
            let why = "or useRandomizedPayloads must be given".to_owned();
            return Err(field("payloadFile", why));
        };
        // Relative to the working directory, as in the original; or beside the workload file, since
        // both files may be moved together.
        let beside = path.parent().map(|folder| folder.join(file));
        let found = [Some(file.clone()), beside].into_iter().flatten().find(|it| it.exists());
        let found = found.unwrap_or_else(|| file.clone());
        let body = std::fs::read(&found)
            .map_err(|why| field("payloadFile", format!("{}: {why}", found.display())))?;
        if body.len() != self.message_size {
            let why = format!("has {} bytes, not {} (messageSize)", body.len(), self.message_size);
            return Err(field("payloadFile", why));
        }
        Ok(Content::Fixed(Bytes::from(body)))
    }

    fn phases(&self, form: Form) -> Vec<Phase> {
        // The quick form of a file has a twentieth of its time.
        let scale = if form == Form::Quick { 0.05 } else { 1.0 };
        let minutes = |minutes: f64| Duration::from_secs_f64(minutes * 60.0 * scale);
        let mut phases = vec![Phase::warm_up(minutes(self.warmup_duration_minutes))];
        if self.consumer_backlog_size_gb > 0 {
            let hours = Duration::from_secs(12 * 3600);
            let bytes = self.consumer_backlog_size_gb * (1 << 30);
            let build = Until::Backlog { bytes, at_most: hours };
            let drain = Until::Drained { share: 1.0 - self.backlog_drain_ratio, at_most: hours };
            phases.push(Phase {
                until: build,
                receivers: Receivers::Paused,
                ..Phase::measured("building", hours)
            });
            phases.push(Phase { until: drain, ..Phase::measured("draining", hours) });
        }
        phases.push(Phase::measured("load", minutes(self.test_duration_minutes)));
        phases
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of the original's repository.
    const FILE: &str = "
name: 1 topic / 16 partitions / 1Kb

topics: 1
partitionsPerTopic: 16
keyDistributor: \"NO_KEY\"
messageSize: 1024
useRandomizedPayloads: true
randomBytesRatio: 0.5
randomizedPayloadPoolSize: 1000
subscriptionsPerTopic: 1
consumerPerSubscription: 1
producersPerTopic: 1
producerRate: 50000
consumerBacklogSizeGB: 0
testDurationMinutes: 15
";

    fn parse(text: &str) -> Result<OmbFile, FileError> {
        OmbFile::parse(Path::new("w.yaml"), text)
    }

    #[test]
    fn workload_file_is_parsed() {
        let file = parse(FILE).expect("reads");
        assert_eq!(file.test_name(), "omb-file/1-topic---16-partitions---1Kb");
        assert_eq!(file.fields.partitions_per_topic, 16);
        assert_eq!(file.fields.producer_rate, 50_000.0);
        assert_eq!(file.content, Content::Random(Entropy { random_ratio: 0.5, pool: 1000 }));
        let phases = file.fields.phases(Form::Full);
        let time: Duration = phases.iter().map(|phase| phase.until.at_most()).sum();
        assert_eq!(time, Duration::from_secs(16 * 60));
    }

    #[test]
    fn errors_name_the_fault_in_one_line() {
        let cases = [
            ("topics: 1", "topics: 0", "topics"),
            ("topics: 1", "topics: many", "line 4"),
            ("messageSize: 1024", "messageSize: 10", "messageSize"),
            ("producerRate: 50000", "producerRate: -1", "producerRate"),
            ("randomBytesRatio: 0.5", "randomBytesRatio: 2", "randomBytesRatio"),
            ("useRandomizedPayloads: true", "payloadFile: nowhere.data", "nowhere.data"),
            ("useRandomizedPayloads: true", "useRandomizedPayloads: false", "payloadFile"),
            ("producersPerTopic: 1", "producersPerTopics: 1", "producersPerTopics"),
            ("testDurationMinutes: 15", "", "testDurationMinutes"),
            ("name: 1 topic", "name: [", "w.yaml"),
        ];
        for (from, to, named) in cases {
            let error = parse(&FILE.replace(from, to)).expect_err(to).to_string();
            assert!(error.contains(named), "{to:?}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn payload_file_must_have_the_message_size() {
        let folder = std::env::temp_dir().join(format!("omb-file-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("makes a folder");
        std::fs::write(folder.join("payload.data"), [7; 1000]).expect("writes");
        let text = FILE.replace("useRandomizedPayloads: true", "payloadFile: payload.data");
        let path = folder.join("w.yaml");
        let error = OmbFile::parse(&path, &text).expect_err("is too short").to_string();
        assert!(error.contains("1000 bytes"), "{error}");
        let text = text.replace("messageSize: 1024", "messageSize: 1000");
        let file = OmbFile::parse(&path, &text).expect("fits");
        assert_eq!(file.content, Content::Fixed(Bytes::from(vec![7; 1000])));
        std::fs::remove_dir_all(folder).expect("removes");
    }
}
