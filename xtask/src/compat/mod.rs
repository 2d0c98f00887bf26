//! `cargo xtask compat`: stock clients against the real binary. A family of clients is a folder of `tests/compat`
//! with a program `run`. It gets BOOTSTRAP or AMQP, and DEPS_DIR for the packages that it installs, and prints
//! `ok NAME ...` or `FAIL NAME reason` for each scenario. The family `amqp-pair` is no client: this program plays its
//! scripts ([`crate::pair`]).

mod family;
mod results;
mod servers;

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;

use self::family::Environment;
use self::results::AllowList;
use crate::failure::{Context, Failure, Outcome};
use crate::pair::{self, AnswerSource};
use crate::side_by_side::{at_once, side_by_side};
use crate::{paths, server};

#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// Families to run [default: all of tests/compat]
    families: Vec<String>,
    /// Run only scenarios whose name contains this
    #[arg(long)]
    name: Option<String>,
    /// Run so many families at once [default: 1]
    #[arg(long, value_name = "FAMILIES")]
    at_once: Option<NonZero<usize>>,
    /// The server's binary [default: a release build of this checkout]
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Start three nodes in place of one; clients are told of the first
    #[arg(long, conflicts_with_all = ["bootstrap", "endpoint"])]
    cluster: bool,
    /// Meanwhile move leaders every 5 s, and kill one of the nodes that clients were not told of and start it again;
    /// a scenario that fails is run once more
    #[arg(long, requires = "cluster")]
    unrest: bool,
    /// Use a broker that runs already, for example another brand's, instead of starting Postroad
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "bin")]
    bootstrap: Option<String>,
    /// The same for clients of AMQP
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "bin")]
    endpoint: Option<String>,
    /// Where amqp-pair has RabbitMQ's answers from
    #[arg(long, value_enum, default_value_t)]
    rabbitmq: AnswerSource,
    /// Further arguments of `postroad serve`, after `--`
    #[arg(last = true)]
    serve: Vec<String>,
}

impl Options {
    /// All families, or those of [`SHORT`]; as many at once as this machine can run.
    pub(crate) fn for_ci(server: PathBuf, all: bool) -> Options {
        let families = if all { &[][..] } else { &SHORT };
        Options {
            families: families.iter().map(|family| (*family).to_owned()).collect(),
            at_once: NonZero::new(at_once()),
            bin: Some(server),
            ..Options::default()
        }
    }
}

/// Number of scenarios of all families.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

/// Families that every change must pass: each client library once. The others start many processes of the same
/// libraries, or compile clients.
const SHORT: [&str; 9] =
    ["amqp-pair", "amqplib", "go", "java", "java-amqp", "librdkafka", "node", "pika", "prometheus"];

/// Families that take some minutes. They start first, so that none of them runs alone at the end.
const LONGEST: [&str; 2] = ["management", "security"];

/// Families that speak AMQP; the others speak Kafka's protocol.
const AMQP_FAMILIES: [&str; 5] = ["amqp-pair", "amqplib", "celery", "java-amqp", "pika"];

pub(crate) fn run(options: &Options) -> Outcome<Counts> {
    let folder = paths::root().join("tests/compat");
    let mut families = families(&folder, &options.families)?;
    let allowed = AllowList::read(&folder.join("allow.list"))?;
    let other = running_brokers(options);
    let binary = match &other {
        Some(_) => None,
        None => Some(server::binary(options.bin.as_deref())?),
    };
    if let (Some(other), true) = (&other, options.families.is_empty()) {
        // Only families that speak the other server's protocol.
        families.retain(|family| other.iter().any(|(name, _)| *name == address_variable(family)));
    }
    families.sort_by_key(|family| !LONGEST.contains(&&family[..]));
    let run_family = |family: String| {
        let begun = Instant::now();
        let results = match &binary {
            Some(binary) => family::on_fresh_servers(&folder, &family, binary, options),
            None => {
                family::scenarios(&folder, &family, other.as_deref().unwrap_or_default(), options)
            }
        };
        (family, results, begun.elapsed())
    };
    let mut counts = Counts::default();
    let mut broken = Vec::new();
    let at_once = options.at_once.map_or(1, NonZero::get);
    side_by_side(families, at_once, run_family, |(family, results, took)| {
        let results = match results {
            Ok(results) => results,
            // The results of the other families are still reported.
            Err(failure) => {
                println!("{family}: {failure}");
                broken.push(format!("{family}: {failure}"));
                return Ok(());
            }
        };
        counts.passed += (results.passed.len() + results.second.len()) as u64;
        let judged = allowed.judge(&results);
        // Failures of listed scenarios do not count.
        counts.failed += judged.len() as u64;
        let second = match results.second.len() {
            0 => String::new(),
            count => format!(", at the second try {count}"),
        };
        println!(
            "{family}: passed {}{second}, failed {}, may fail and did {}, in {took:.0?}",
            results.passed.len(),
            judged.len(),
            results.failed.len() - judged.len(),
        );
        broken.extend(judged);
        Ok(())
    })?;
    if broken.is_empty() {
        return Ok(counts);
    }
    let what = format!("real clients: {} failure(s)\n  {}", broken.len(), broken.join("\n  "));
    Err(Failure::new(what).remedy("one alone: cargo xtask compat FAMILY --name SCENARIO"))
}

/// The requested families, or every folder that has a program `run`.
fn families(folder: &Path, asked: &[String]) -> Outcome<Vec<String>> {
    let mut there = Vec::new();
    let entries = fs::read_dir(folder).context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().join("run").is_file() || name == pair::FAMILY {
            there.push(name);
        }
    }
    there.sort();
    if let Some(missing) = asked.iter().find(|name| !there.contains(name)) {
        return Err(Failure::new(format!("there is no family {missing}"))
            .remedy(format!("choose of: {}", there.join(", "))));
    }
    Ok(if asked.is_empty() { there } else { asked.to_vec() })
}

/// The variable that holds the address of a family's server.
fn address_variable(family: &str) -> &'static str {
    if AMQP_FAMILIES.contains(&family) { "AMQP" } else { "BOOTSTRAP" }
}

/// Addresses of running brokers that the options name.
fn running_brokers(options: &Options) -> Option<Environment> {
    let said = [("BOOTSTRAP", &options.bootstrap), ("AMQP", &options.endpoint)];
    let address = |(name, address): (_, &Option<String>)| Some((name, address.clone()?));
    let told: Environment = said.into_iter().filter_map(address).collect();
    (!told.is_empty()).then_some(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_of_a_running_broker_is_passed_to_families_of_its_protocol() {
        assert_eq!(running_brokers(&Options::default()), None);
        let endpoint = Some("127.0.0.1:5672".to_owned());
        let told = running_brokers(&Options { endpoint, ..Options::default() });
        assert_eq!(told, Some(vec![("AMQP", "127.0.0.1:5672".to_owned())]));
        assert_eq!(
            [address_variable("pika"), address_variable("librdkafka")],
            ["AMQP", "BOOTSTRAP"]
        );
    }
}
