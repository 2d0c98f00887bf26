//! `cargo xtask compat`: stock clients against the real binary. A family of clients is a folder of
//! `tests/compat` with a program `run`, which gets BOOTSTRAP, or AMQP, and DEPS_DIR, installs what
//! it needs into the latter, and prints `ok NAME ...` or `FAIL NAME reason` for each scenario. One
//! family, `amqp-pair`, is no client: its scripts are played by this program ([`crate::pair`]).

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;

use crate::cluster::unrest::Unrest;
use crate::cluster::{Cluster, Going, NODES};
use crate::command::output_of;
use crate::failure::{Context, Failure, Outcome};
use crate::pair::{self, Answers};
use crate::paths;
use crate::server::{self, Postroad, Server};

#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// Families to run [default: all of tests/compat]
    families: Vec<String>,
    /// Run only scenarios whose name contains this
    #[arg(long)]
    name: Option<String>,
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
    rabbitmq: Answers,
    /// Further arguments of `postroad serve`, after `--`
    #[arg(last = true)]
    serve: Vec<String>,
}

/// Scenarios of all families together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

/// What came of one family.
#[derive(Debug, Default)]
struct Results {
    passed: BTreeSet<String>,
    /// Those that passed when they were run once more.
    second: BTreeSet<String>,
    failed: BTreeSet<String>,
}

/// Families that speak AMQP; the others speak Kafka's protocol.
const AMQP_FAMILIES: [&str; 5] = ["amqp-pair", "amqplib", "celery", "java-amqp", "pika"];

/// What a suite is told, by environment variable.
type Environment = Vec<(&'static str, String)>;

const READY_WITHIN: Duration = Duration::from_secs(20);
const STOPS_WITHIN: Duration = Duration::from_secs(30);

pub(crate) fn run(options: &Options) -> Outcome<Counts> {
    let folder = paths::root().join("tests/compat");
    let mut families = families(&folder, &options.families)?;
    let allowed = AllowList::read(&folder.join("allow.list"))?;
    let other = other_brand(options);
    let binary = match &other {
        Some(_) => None,
        None => Some(server::binary(options.bin.as_deref())?),
    };
    if let (Some(other), true) = (&other, options.families.is_empty()) {
        // Only families that the other server speaks.
        families.retain(|family| other.iter().any(|(name, _)| *name == speaks(family)));
    }
    let mut counts = Counts::default();
    let mut broken = Vec::new();
    for family in &families {
        let begun = Instant::now();
        println!("{family}:");
        let results = match &binary {
            Some(binary) => fresh_server_for(&folder, family, binary, options),
            None => scenarios(&folder, family, other.as_deref().unwrap_or_default(), options),
        };
        // A family that breaks as a whole does not hide what the others have to tell.
        let results = match results {
            Ok(results) => results,
            Err(failure) => {
                broken.push(format!("{family}: {failure}"));
                continue;
            }
        };
        counts.passed += (results.passed.len() + results.second.len()) as u64;
        let judged = allowed.judge(family, &results);
        // What may fail is no failure, and was looked at.
        counts.failed += judged.len() as u64;
        let second = match results.second.len() {
            0 => String::new(),
            count => format!(", at the second try {count}"),
        };
        println!(
            "  {family}: passed {}{second}, failed {}, may fail and did {}, in {:.0?}",
            results.passed.len(),
            judged.len(),
            results.failed.len() - judged.len(),
            begun.elapsed()
        );
        broken.extend(judged);
    }
    if broken.is_empty() {
        return Ok(counts);
    }
    let what = format!("real clients: {} failure(s)\n  {}", broken.len(), broken.join("\n  "));
    Err(Failure::new(what).remedy("one alone: cargo xtask compat FAMILY --name SCENARIO"))
}

/// The families asked for, or every folder that has a program `run`.
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

/// Which variable tells a family where its server is.
fn speaks(family: &str) -> &'static str {
    if AMQP_FAMILIES.contains(&family) { "AMQP" } else { "BOOTSTRAP" }
}

/// Where brokers run already, if that was said.
fn other_brand(options: &Options) -> Option<Environment> {
    let said = [("BOOTSTRAP", &options.bootstrap), ("AMQP", &options.endpoint)];
    let address = |(name, address): (_, &Option<String>)| Some((name, address.clone()?));
    let told: Environment = said.into_iter().filter_map(address).collect();
    (!told.is_empty()).then_some(told)
}

/// A server of its own for each family, so that one family's crash is not another's failure.
fn fresh_server_for(
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
        // For scenarios that kill their server, and those that not every server can do.
        ("POSTROAD", binary.display().to_string()),
        ("SERVER", folder.join("servers/postroad").display().to_string()),
        ("AMQP_ADMIN", folder.join("servers/postroad-admin").display().to_string()),
        ("NO_TRANSACTIONS", "yes".to_owned()),
        ("DELAYED_MESSAGES", "yes".to_owned()),
        ("ORDER_BY_KEY", "yes".to_owned()),
    ];
    if options.unrest {
        told.push(("LEADERS_MOVE", "yes".to_owned()));
    }
    let (servers, results) = match servers {
        Servers::Three(cluster) if options.unrest => {
            let unrest = Unrest::begin(cluster);
            let results = scenarios(folder, family, &told, options)
                .and_then(|results| again(folder, family, &told, options, results));
            let (cluster, done) = unrest.end()?;
            println!("  leaders moved {} times, {} kills", done.moves, done.kills);
            (Servers::Three(cluster), results?)
        }
        servers => (servers, scenarios(folder, family, &told, options)?),
    };
    servers.stop()?;
    // The log is kept when there is something to look up in it.
    if results.failed.is_empty() {
        paths::fresh(&format!("compat-{family}"))?;
    } else {
        println!("  the server's log: {}", place.display());
    }
    Ok(results)
}

/// Runs each scenario that failed once more, while the unrest goes on. A scenario that counts deliveries, or makes requests
/// that its client does not repeat, can fail because a node was killed in its middle, and then passes; a broken one fails
/// again. The output names them.
fn again(
    folder: &Path,
    family: &str,
    told: &[(&'static str, String)],
    options: &Options,
    mut results: Results,
) -> Outcome<Results> {
    for name in results.failed.clone() {
        println!("  again: {name}");
        let only =
            Options { name: Some(name.clone()), rabbitmq: options.rabbitmq, ..Options::default() };
        if scenarios(folder, family, told, &only)?.passed.contains(&name) {
            results.failed.remove(&name);
            results.second.insert(name);
        }
    }
    Ok(results)
}

/// What a family is run against.
enum Servers {
    One { server: Server, amqp: String, log: PathBuf },
    Three(Cluster),
}

impl Servers {
    fn one(binary: &Path, place: &Path, options: &Options) -> Outcome<Servers> {
        let amqp = format!("127.0.0.1:{}", server::free_port()?);
        let postroad = Postroad {
            binary: binary.to_owned(),
            data: place.join("data"),
            log: place.join("server.log"),
            port: server::free_port()?,
            arguments: [&["--amqp".to_owned(), amqp.clone()], &options.serve[..]].concat(),
        };
        let (server, _) = postroad.start(READY_WITHIN)?;
        Ok(Servers::One { server, amqp, log: postroad.log })
    }

    /// Each leads a shard, so that two thirds of what clients use is led elsewhere.
    fn three(binary: &Path, place: &Path, options: &Options) -> Outcome<Servers> {
        let shards = ["--shards".to_owned(), NODES.to_string()];
        // As one node that has no users when it starts: scenarios make some, and other clients go on.
        let open = ["--auth".to_owned(), "off".to_owned()];
        let serve = [&shards[..], &open, &options.serve].concat();
        let cluster = Cluster::found(binary, place, &serve, Going::Kill, true, READY_WITHIN)?;
        Ok(Servers::Three(cluster))
    }

    /// For clients of Kafka, and of AMQP.
    fn addresses(&self) -> (String, String) {
        match self {
            Servers::One { server, amqp, .. } => (server.address.to_string(), amqp.clone()),
            Servers::Three(cluster) => {
                (cluster.address(0).to_string(), cluster.amqp[0].to_string())
            }
        }
    }

    /// Fails if one has ended by itself, or does not end well now.
    fn stop(self) -> Outcome {
        match self {
            Servers::One { mut server, log, .. } => {
                server.still_runs()?;
                let status = server.stop(STOPS_WITHIN)?;
                if status.success() {
                    return Ok(());
                }
                Err(Failure::new(format!("postroad ended with {status} after SIGTERM"))
                    .remedy(format!("read {}", log.display())))
            }
            Servers::Three(mut cluster) => {
                cluster.still_runs()?;
                cluster.stop(STOPS_WITHIN)
            }
        }
    }
}

fn scenarios(
    folder: &Path,
    family: &str,
    told: &[(&'static str, String)],
    options: &Options,
) -> Outcome<Results> {
    if family == pair::FAMILY {
        return pair_scenarios(folder, told, options);
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
    let mut results = Results::default();
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

/// The scripts that this program plays itself.
fn pair_scenarios(
    folder: &Path,
    told: &[(&'static str, String)],
    options: &Options,
) -> Outcome<Results> {
    let of = |wanted: &str| {
        let found = told.iter().find(|(name, _)| *name == wanted).map(|(_, value)| &value[..]);
        found.ok_or_else(|| Failure::new(format!("{} needs {wanted}", pair::FAMILY)))
    };
    let address = of("AMQP")?;
    let address = address.parse().context(|| format!("{address} is no address"))?;
    let admin = |words: &[String]| {
        let mut command = Command::new(of("AMQP_ADMIN")?);
        command.args(words).envs(told.iter().map(|(name, value)| (name, value)));
        output_of(command, "AMQP_ADMIN").map(drop)
    };
    let place = folder.join(pair::FAMILY);
    let name = options.name.as_deref();
    let played = pair::run(&place, options.rabbitmq, name, address, &admin)?;
    if played.is_empty() {
        return Err(Failure::new(format!("{} has no such scenario", pair::FAMILY)));
    }
    let mut results = Results::default();
    for (name, passed) in played {
        match passed {
            true => results.passed.insert(name),
            false => results.failed.insert(name),
        };
    }
    Ok(results)
}

impl Results {
    /// Takes one line of a suite and shows it, but for the suite's own closing line: the chore has
    /// one closing line for all.
    fn take(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("ok"), Some(name)) => drop(self.passed.insert(name.to_owned())),
            (Some("FAIL"), Some(name)) => drop(self.failed.insert(name.to_owned())),
            (Some(_), Some("passed,")) => return,
            _ => {}
        }
        println!("  {line}");
    }
}

/// `tests/compat/allow.list`: scenarios that may fail, `FAMILY/NAME # why` a line. Every other one
/// must pass.
#[derive(Debug, Default)]
struct AllowList {
    scenarios: BTreeSet<String>,
}

impl AllowList {
    fn read(path: &Path) -> Outcome<AllowList> {
        if !path.exists() {
            return Ok(AllowList::default());
        }
        let text =
            fs::read_to_string(path).context(|| format!("cannot read {}", path.display()))?;
        AllowList::parse(&text)
    }

    fn parse(text: &str) -> Outcome<AllowList> {
        let mut scenarios = BTreeSet::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            match line.split_once('#').map(|(name, why)| (name.trim(), why.trim())) {
                Some(("", _)) => {}
                Some((name, why)) if !why.is_empty() => drop(scenarios.insert(name.to_owned())),
                _ => {
                    return Err(Failure::new(format!("allow.list does not say why: {line}"))
                        .remedy("FAMILY/NAME # the reason"));
                }
            }
        }
        Ok(AllowList { scenarios })
    }

    /// What is wrong with these results.
    fn judge(&self, family: &str, results: &Results) -> Vec<String> {
        let allowed = |name: &str| self.scenarios.contains(&format!("{family}/{name}"));
        for name in results.passed.iter().filter(|name| allowed(name)) {
            println!("  passes now, take it off allow.list: {family}/{name}");
        }
        let failed = results.failed.iter().filter(|name| !allowed(name));
        failed.map(|name| format!("{family}/{name} fails")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(lines: &[&str]) -> Results {
        let mut results = Results::default();
        lines.iter().for_each(|line| results.take(line));
        results
    }

    #[test]
    fn the_lines_of_a_suite_are_counted_and_its_closing_line_is_not_a_scenario() {
        let results =
            results(&["ok create 0.2s", "FAIL seek wanted 3, got 4", "1 passed, 1 failed"]);
        assert_eq!(results.passed, BTreeSet::from(["create".to_owned()]));
        assert_eq!(results.failed, BTreeSet::from(["seek".to_owned()]));
    }

    #[test]
    fn a_broker_that_runs_already_is_told_to_those_who_speak_its_protocol() {
        assert_eq!(other_brand(&Options::default()), None);
        let endpoint = Some("127.0.0.1:5672".to_owned());
        let told = other_brand(&Options { endpoint, ..Options::default() });
        assert_eq!(told, Some(vec![("AMQP", "127.0.0.1:5672".to_owned())]));
        assert_eq!([speaks("pika"), speaks("librdkafka")], ["AMQP", "BOOTSTRAP"]);
    }

    #[test]
    fn without_a_list_every_failure_counts() {
        let broken = AllowList::default().judge("go", &results(&["ok a", "FAIL b"]));
        assert_eq!(broken, ["go/b fails"]);
    }

    #[test]
    fn what_is_on_the_list_may_fail_and_nothing_else() {
        let list = "# gaps\n\ngo/a # slow\ngo/b # not built\n";
        let list = AllowList::parse(list).expect("reasons");
        let results = results(&["ok a", "FAIL b", "FAIL new"]);
        assert_eq!(list.judge("go", &results), ["go/new fails"]);
        assert_eq!(list.judge("node", &results), ["node/b fails", "node/new fails"]);
    }

    #[test]
    fn a_failure_is_allowed_for_a_reason() {
        assert!(AllowList::parse("go/a\n").is_err());
        assert!(AllowList::parse("go/a #\n").is_err());
    }
}
