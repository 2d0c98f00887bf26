//! `cargo xtask compat amqp-pair`: plays one script of methods on RabbitMQ and on Postroad, and compares every
//! reply. RabbitMQ's replies are recorded beside the scripts, so that a comparison needs no RabbitMQ.
//! `--rabbitmq live` plays on a real one instead, and `--rabbitmq record` updates the recording.

mod differences;
mod methods;
mod peer;
mod player;
mod script;
mod transcript;
mod value;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::ValueEnum;

use crate::failure::{Context, Failure, Outcome};
use crate::paths;
use crate::rabbitmq::RabbitMq;
use differences::KnownDifferences;
use player::{Admin, Stage};
use script::Scenario;

/// The name of the family.
pub(crate) const FAMILY: &str = "amqp-pair";

/// Where RabbitMQ's answers come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum AnswerSource {
    /// Those that were written down
    #[default]
    Recorded,
    /// A RabbitMQ 4, installed and started for this
    Live,
    /// The same, and its answers are written down
    Record,
}

/// A script with its selected scenarios.
#[derive(Debug)]
struct Script {
    path: PathBuf,
    scenarios: Vec<Scenario>,
}

type Transcripts = BTreeMap<String, Vec<String>>;

/// Success of each scenario, by name; failures are printed.
pub(crate) type ScenarioResults = Vec<(String, bool)>;

/// Plays all scenarios whose name contains `part` on the broker at `address` and on RabbitMQ, and compares the
/// transcripts.
pub(crate) fn run(
    folder: &Path,
    answers: AnswerSource,
    part: Option<&str>,
    address: SocketAddr,
    admin: &Admin<'_>,
) -> Outcome<ScenarioResults> {
    let part = part.unwrap_or_default();
    let scripts = scripts(folder)?;
    let all: Vec<String> = scripts
        .iter()
        .flat_map(|script| script.scenarios.iter().map(|scenario| scenario.name.clone()))
        .collect();
    if let Some(name) = all.iter().find(|name| all.iter().filter(|other| other == name).count() > 1)
    {
        return Err(Failure::new(format!("two scenarios are called {name}")));
    }
    let list = folder.join("differences.list");
    let text = fs::read_to_string(&list).context(|| format!("cannot read {}", list.display()))?;
    let mut known = KnownDifferences::parse(&text)?;
    if let Some(stranger) = known.unknown_scenarios(&all).first() {
        return Err(Failure::new(format!("differences.list: there is no scenario {stranger}")));
    }
    let expected = match answers {
        AnswerSource::Recorded => recorded(&scripts)?,
        AnswerSource::Live | AnswerSource::Record => {
            let expected = play_on_rabbitmq(&scripts, part)?;
            if answers == AnswerSource::Record {
                record(&scripts, &expected)?;
            }
            expected
        }
    };
    let stage = Stage { address, admin };
    let mut results = vec![];
    for scenario in scripts.iter().flat_map(|script| &script.scenarios) {
        let name = &scenario.name;
        if !name.contains(part) {
            continue;
        }
        let begun = Instant::now();
        let judged = player::play(scenario, &stage).and_then(|said| {
            let expected = expected.get(name).ok_or_else(|| {
                Failure::new("RabbitMQ's answers are not recorded")
                    .remedy("cargo xtask compat amqp-pair --rabbitmq record")
            })?;
            judge(name, expected, &said, &mut known)
        });
        let seconds = begun.elapsed().as_secs_f64();
        match &judged {
            Ok(()) => println!("{FAMILY}: ok {name} {seconds:.1}"),
            Err(failure) => println!("{FAMILY}: FAIL {name} {failure}"),
        }
        results.push((name.clone(), judged.is_ok()));
    }
    Ok(results)
}

fn judge(
    name: &str,
    expected: &[String],
    said: &[String],
    known: &mut KnownDifferences,
) -> Outcome {
    let mut wrong = String::new();
    for difference in differences::between(expected, said) {
        if !known.find(name, &difference) {
            let _ = write!(wrong, "\n{difference}\n");
        }
    }
    for gone in known.gone(name) {
        let _ = write!(wrong, "\nin differences.list and not there any more:\n{gone}\n");
    }
    if wrong.is_empty() { Ok(()) } else { Err(Failure::new(wrong)) }
}

/// The scripts of the folder, by name.
fn scripts(folder: &Path) -> Outcome<Vec<Script>> {
    let mut scripts = vec![];
    let entries = fs::read_dir(folder).context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "script") {
            continue;
        }
        let text =
            fs::read_to_string(&path).context(|| format!("cannot read {}", path.display()))?;
        let scenarios = script::scenarios(&text).context(|| path.display().to_string())?;
        scripts.push(Script { path, scenarios });
    }
    scripts.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(scripts)
}

// -------------------------------------------------------------------------------- RabbitMQ's

/// Plays the scenarios on a RabbitMQ that is started for this.
fn play_on_rabbitmq(scripts: &[Script], part: &str) -> Outcome<Transcripts> {
    let rabbitmq = RabbitMq::start(&paths::target().join("peers"))?;
    println!("{FAMILY}: playing on RabbitMQ {}", rabbitmq.version);
    let admin = |words: &[String]| rabbitmq.administer(words);
    let stage = Stage { address: rabbitmq.address, admin: &admin };
    let mut transcripts = Transcripts::new();
    for scenario in scripts.iter().flat_map(|script| &script.scenarios) {
        if scenario.name.contains(part) {
            let said = player::play(scenario, &stage)
                .map_err(|failure| Failure::new(format!("on RabbitMQ: {failure}")))?;
            transcripts.insert(scenario.name.clone(), said);
        }
    }
    rabbitmq.stop()?;
    Ok(transcripts)
}

fn recording(script: &Script) -> PathBuf {
    script.path.with_extension("rabbitmq")
}

fn recorded(scripts: &[Script]) -> Outcome<Transcripts> {
    let mut transcripts = Transcripts::new();
    for script in scripts {
        let path = recording(script);
        if !path.exists() {
            continue;
        }
        let text =
            fs::read_to_string(&path).context(|| format!("cannot read {}", path.display()))?;
        read_recording(&text, &mut transcripts);
    }
    Ok(transcripts)
}

fn read_recording(text: &str, transcripts: &mut Transcripts) {
    let mut current: Option<&mut Vec<String>> = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("== ") {
            current = Some(transcripts.entry(name.to_owned()).or_default());
        } else if let Some(lines) = current.as_mut().filter(|_| !line.is_empty()) {
            lines.push(line.to_owned());
        }
    }
}

/// Writes the recordings; scenarios that were not played keep their old ones.
fn record(scripts: &[Script], said: &Transcripts) -> Outcome {
    let before = recorded(scripts)?;
    for script in scripts {
        let mut text = String::from("# What RabbitMQ 4.0 answers; see README.md.\n");
        for scenario in &script.scenarios {
            let lines = said.get(&scenario.name).or_else(|| before.get(&scenario.name));
            let Some(lines) = lines else { continue };
            let _ = write!(text, "\n== {}\n{}\n", scenario.name, lines.join("\n"));
        }
        let path = recording(script);
        fs::write(&path, text).context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recording_is_parsed_as_it_was_written() {
        let mut transcripts = Transcripts::new();
        read_recording("# title\n\n== a\n> x\n< y\n\n== b\n", &mut transcripts);
        assert_eq!(transcripts["a"], ["> x", "< y"]);
        assert!(transcripts["b"].is_empty());
    }

    #[test]
    fn every_script_parses_and_has_a_recording() {
        let scripts = scripts(&paths::root().join("tests/compat").join(FAMILY)).expect("reads");
        let recorded = recorded(&scripts).expect("reads");
        assert!(!scripts.is_empty());
        for scenario in scripts.iter().flat_map(|script| &script.scenarios) {
            assert!(recorded.contains_key(&scenario.name), "{}", scenario.name);
            for (number, line) in &scenario.steps {
                let step = script::Step::parse(line);
                assert!(step.is_ok(), "{} line {number}: {step:?}", scenario.name);
            }
        }
    }
}
