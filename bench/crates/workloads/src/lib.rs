//! The published tests, and the suite's own, as loads for any driver.
//!
//! * [`tests`]: all tests, by family: their questions and requirements
//! * [`Context`]: the system, the tier and the form (local, quick, full) of a test
//! * [`Test::run`]: runs one; leaves a [`results::Run`] for each system and parameter
//!
//! A family is a file. It begins with the original harness and its traps, and the differences of
//! this one with their reasons.

mod bmq;
mod compatibility;
mod context;
mod failover;
mod judge;
mod lowlat;
mod max_rate;
mod mqperf;
mod omb;
mod omb_file;
mod outage;
mod queen;
#[cfg(test)]
mod rehearsal;
mod verify;
mod zmq;

pub use context::{Context, Faults, Form, Problem, Watch};

pub use omb_file::FileError;

use std::path::Path;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use results::Run;

use omb_file::OmbFile;

/// One test.
#[derive(Clone, Copy)]
pub struct Test {
    /// `omb/topics`; with a parameter, `omb/topics-1000`.
    pub name: &'static str,
    /// The question that the test answers, in a sentence.
    pub asks: &'static str,
    /// The parameters of its local form; empty if it has none.
    pub parameters: &'static [u32],
    /// Parameters in the first set, which is the most informative for its time; 0 for a test
    /// without parameters.
    pub(crate) first_set: &'static [u32],
    pub(crate) procedure: Procedure,
}

pub(crate) type Procedure =
    for<'a> fn(&'a mut Context, &'a str, u32) -> BoxFuture<'a, Result<Run, Problem>>;

impl std::fmt::Debug for Test {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Test").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A test with a chosen parameter.
#[derive(Clone, PartialEq, Debug)]
pub struct Chosen {
    /// `omb/topics-1000`.
    pub name: String,
    source: Source,
}

#[derive(Clone, PartialEq, Debug)]
enum Source {
    Table { test: &'static str, parameter: u32 },
    File(Arc<OmbFile>),
}

/// Every test, family by family.
pub fn tests() -> impl Iterator<Item = &'static Test> {
    let families: [&'static [Test]; 8] = [
        &mqperf::TESTS,
        &omb::TESTS,
        &queen::TESTS,
        &lowlat::TESTS,
        &bmq::TESTS,
        &zmq::TESTS,
        &verify::TESTS,
        &failover::TESTS,
    ];
    families.into_iter().flatten()
}

impl Test {
    /// The test with each of its parameters, or without one.
    pub fn chosen(&self) -> Vec<Chosen> {
        match self.parameters {
            [] => vec![self.with(0)],
            some => some.iter().map(|parameter| self.with(*parameter)).collect(),
        }
    }

    fn with(&self, parameter: u32) -> Chosen {
        let name = match self.parameters {
            [] => self.name.to_owned(),
            _ => format!("{}-{parameter}", self.name),
        };
        Chosen { name, source: Source::Table { test: self.name, parameter } }
    }
}

/// The most informative tests for their time.
pub fn first_set(form: Form) -> Vec<Chosen> {
    let parameters = |test: &Test| match form {
        // Creating a thousand topics takes some systems longer than a whole quick form.
        Form::Quick if test.name == "omb/topics" => &[100],
        _ => test.first_set,
    };
    tests().flat_map(|test| parameters(test).iter().map(|of| test.with(*of))).collect()
}

/// The tests named by a word: a family (`omb`), a test with all its parameters (`omb/topics`), or
/// with one of them (`omb/topics-250`), `first` for the first set, `all`.
pub fn choose(word: &str) -> Option<Vec<Chosen>> {
    let all_of = |wanted: &dyn Fn(&Test) -> bool| -> Vec<Chosen> {
        tests().filter(|test| wanted(test)).flat_map(Test::chosen).collect()
    };
    let found = match word {
        "all" => all_of(&|_| true),
        "first" => first_set(Form::Local),
        _ => all_of(&|test| {
            test.name == word || test.name.split_once('/').is_some_and(|(family, _)| family == word)
        }),
    };
    if !found.is_empty() {
        return Some(found);
    }
    let (name, parameter) = word.rsplit_once('-')?;
    let test = tests().find(|test| test.name == name && !test.parameters.is_empty())?;
    let parameter = parameter.parse().ok().filter(|parameter| *parameter > 0)?;
    Some(vec![test.with(parameter)])
}

impl Chosen {
    /// A workload file of OpenMessaging Benchmark.
    pub fn from_file(path: &Path) -> Result<Self, FileError> {
        let file = OmbFile::read(path)?;
        Ok(Self { name: file.test_name(), source: Source::File(Arc::new(file)) })
    }

    pub fn question(&self) -> &'static str {
        question(&self.name)
    }

    /// Runs the test. A failed run is a result; a [`Problem`] means that there is none.
    pub async fn run(&self, context: &mut Context) -> Result<Run, Problem> {
        match &self.source {
            Source::Table { test, parameter } => {
                (find(test).procedure)(context, &self.name, *parameter).await
            }
            Source::File(file) => file.run(context, &self.name).await,
        }
    }
}

/// The question of a test, by its name with a parameter.
pub(crate) fn question(name: &str) -> &'static str {
    let named = |test: &&Test| match name.strip_prefix(test.name) {
        Some(rest) => rest.is_empty() || (rest.starts_with('-') && !test.parameters.is_empty()),
        None => false,
    };
    tests().find(named).map_or("What its workload file says.", |test| test.asks)
}

fn find(name: &str) -> &'static Test {
    tests().find(|test| test.name == name).expect("it was chosen from them")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_selectable() {
        let names: Vec<&str> = tests().map(|test| test.name).collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        for name in names {
            assert!(choose(name).is_some_and(|chosen| !chosen.is_empty()), "{name}");
            let test = find(name);
            assert!(test.chosen().iter().all(|chosen| chosen.question() == test.asks), "{name}");
            let family = name.split('/').next().expect("a family");
            assert!(choose(family).is_some());
        }
        assert!(choose("first").is_some_and(|chosen| chosen.len() > 10));
        assert!(choose("omb/topics-17").is_some_and(|chosen| chosen[0].name == "omb/topics-17"));
        for nothing in ["", "omp", "omb/topics-x", "omb/topics-0", "mqperf/base-3"] {
            assert_eq!(choose(nothing), None, "{nothing}");
        }
    }
}
