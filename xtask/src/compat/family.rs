//! Runs the scenarios of one family.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use super::Options;
use super::results::Results;
use super::servers::Servers;
use crate::cluster::NODES;
use crate::cluster::unrest::FaultInjection;
use crate::command::output_of;
use crate::failure::{Context, Failure, Outcome};
use crate::{pair, paths};

/// Environment variables for a suite.
pub(super) type Environment = Vec<(&'static str, String)>;

/// Each family has a server of its own, so that a crash affects one family.
pub(super) fn on_fresh_servers(
    folder: &Path,
    family: &str,
    binary: &Path,
    options: &Options,
) -> Outcome<Results> {
    let place = paths::fresh(&format!("compat-{family}"))?;
    let servers = match options.cluster {
        true => Servers::three(binary, &place, options)?,
        false => Servers::one(binary, &place, options)?,
    };
    let (kafka, amqp) = servers.addresses();
    let mut told = vec![
        ("BOOTSTRAP", kafka),
        ("AMQP", amqp),
        ("BROKERS", if options.cluster { NODES } else { 1 }.to_string()),
        // For scenarios that kill their server, and for features that not every broker has.
        ("POSTROAD", binary.display().to_string()),
        ("SERVER", folder.join("servers/postroad").display().to_string()),
        ("AMQP_ADMIN", folder.join("servers/postroad-admin").display().to_string()),
        ("DELAYED_MESSAGES", "yes".to_owned()),
        ("ORDER_BY_KEY", "yes".to_owned()),
    ];
    if options.unrest {
        told.push(("LEADERS_MOVE", "yes".to_owned()));
    }
    let (servers, results) = match servers {
        Servers::Three(cluster) if options.unrest => {
            let unrest = FaultInjection::begin(cluster);
            let results = scenarios(folder, family, &told, options)
                .and_then(|results| retry_failed(folder, family, &told, options, results));
            let (cluster, done) = unrest.end()?;
            println!("{family}: leaders moved {} times, {} kills", done.moves, done.kills);
            (Servers::Three(cluster), results?)
        }
        servers => (servers, scenarios(folder, family, &told, options)?),
    };
    servers.stop()?;
    // The log is kept only after a failure.
    if results.failed.is_empty() {
        paths::fresh(&format!("compat-{family}"))?;
    } else {
        println!("{family}: the server's log: {}", place.display());
    }
    Ok(results)
}

/// Runs each failed scenario once more, still with faults. A scenario that counts deliveries, or makes requests
/// that its client does not retry, can fail because a node was killed in its middle. Such a scenario passes the
/// second time, and a broken one fails again. The output lists them.
fn retry_failed(
    folder: &Path,
    family: &str,
    told: &[(&'static str, String)],
    options: &Options,
    mut results: Results,
) -> Outcome<Results> {
    for name in results.failed.clone() {
        println!("{family}: again: {name}");
        let only =
            Options { name: Some(name.clone()), rabbitmq: options.rabbitmq, ..Options::default() };
        if scenarios(folder, family, told, &only)?.passed.contains(&name) {
            results.failed.remove(&name);
            results.second.insert(name);
        }
    }
    Ok(results)
}

pub(super) fn scenarios(
    folder: &Path,
    family: &str,
    told: &[(&'static str, String)],
    options: &Options,
) -> Outcome<Results> {
    if family == pair::FAMILY {
        return pair_scenarios(folder, family, told, options);
    }
    let dependencies = paths::target().join("compat");
    fs::create_dir_all(&dependencies)
        .context(|| format!("cannot create {}", dependencies.display()))?;
    let mut child = Command::new(folder.join(family).join("run"))
        .args(&options.name)
        .env_remove("BOOTSTRAP")
        .env_remove("AMQP")
        .envs(told.iter().map(|(name, value)| (name, value)))
        .env("DEPS_DIR", &dependencies)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context(|| format!("cannot run the suite of {family}"))?;
    let stdout = child.stdout.take().expect("stdout is piped");
    let mut results = Results::of(family);
    for line in BufReader::new(stdout).lines() {
        results.take(line.context(|| format!("cannot read what {family} prints"))?.trim_end());
    }
    let status = child.wait()?;
    if status.success() != results.failed.is_empty() {
        return Err(Failure::new(format!(
            "the suite of {family} ended with {status}, but {} scenario(s) failed",
            results.failed.len()
        )));
    }
    if results.passed.is_empty() && results.failed.is_empty() {
        return Err(Failure::new(format!("the suite of {family} ran no scenario")));
    }
    Ok(results)
}

/// Scenarios of `amqp-pair`, which this program plays itself.
fn pair_scenarios(
    folder: &Path,
    family: &str,
    told: &[(&'static str, String)],
    options: &Options,
) -> Outcome<Results> {
    let of = |wanted: &str| {
        let found = told.iter().find(|(name, _)| *name == wanted).map(|(_, value)| &value[..]);
        found.ok_or_else(|| Failure::new(format!("{family} needs {wanted}")))
    };
    let address = of("AMQP")?;
    let address = address.parse().context(|| format!("{address} is no address"))?;
    let admin = |words: &[String]| {
        let mut command = Command::new(of("AMQP_ADMIN")?);
        command.args(words).envs(told.iter().map(|(name, value)| (name, value)));
        output_of(command, "AMQP_ADMIN").map(drop)
    };
    let place = folder.join(family);
    let name = options.name.as_deref();
    let played = pair::run(&place, options.rabbitmq, name, address, &admin)?;
    if played.is_empty() {
        return Err(Failure::new(format!("{family} has no such scenario")));
    }
    let mut results = Results::of(family);
    for (name, passed) in played {
        match passed {
            true => results.passed.insert(name),
            false => results.failed.insert(name),
        };
    }
    Ok(results)
}
