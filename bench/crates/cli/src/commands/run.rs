//! `run`: systems one after the other, tests on each, results and the report.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use agents::Coordinator;
use driver::{Failure, Target};
use results::{Host, Run, Verdict};
use tokio::sync::watch;
use workloads::{Chosen, Context, Form, Problem};

use crate::arguments::RunArguments;
use crate::commands::agent::read_token;
use crate::failure::CliError;
use crate::fleet::{self, Asked, Station};
use crate::live::{Both, Live, Style};
use crate::metrics::{Exporter, Exposed};

pub(crate) async fn run(arguments: RunArguments) -> Result<ExitCode, CliError> {
    let tests = tests(&arguments.tests, arguments.form())?;
    let asked: Vec<Asked> =
        arguments.on.iter().map(|text| Asked::parse(text)).collect::<Result<_, _>>()?;
    let client = client(&arguments)?;
    let token = arguments.token_file.as_deref().map(read_token).transpose()?;
    let machines = machines(&arguments.agents, token.as_deref(), &asked).await?;
    let interrupt = interrupt();
    std::fs::create_dir_all(&arguments.out).map_err(CliError::io(&arguments.out))?;
    std::fs::create_dir_all(&arguments.place.peers_dir)
        .map_err(CliError::io(&arguments.place.peers_dir))?;
    let host = load::host::describe(&arguments.place.peers_dir);
    eprintln!("{}", introduction(&host, &tests, &asked, &arguments));
    for (address, machine) in arguments.agents.iter().zip(machines) {
        eprintln!("agent {address}: {} x {}", machine.cores, machine.cpu);
    }
    let exporter = match arguments.prometheus {
        Some(address) => {
            let bound = Exporter::bind(address).await;
            let failed = |why| CliError::user(format!("--prometheus {address}: {why}"));
            Some(bound.map_err(failed)?)
        }
        None => None,
    };
    let mut contest = Contest {
        exposed: exporter.as_ref().map(Exporter::exposed),
        arguments,
        tests,
        client,
        token,
        interrupt,
        host,
        rates: BTreeMap::new(),
        runs: Vec::new(),
        troubles: Vec::new(),
        begun: Instant::now(),
    };
    fleet::install(&asked, &contest.arguments.place).await?;
    for turn in 1..=contest.arguments.repeat {
        for (number, system) in asked.iter().enumerate() {
            if *contest.interrupt.borrow() {
                break;
            }
            let (systems, turns) = (asked.len(), contest.arguments.repeat);
            let of_turns =
                if turns > 1 { format!(", turn {turn} of {turns}") } else { String::new() };
            let minutes = contest.begun.elapsed().as_secs() / 60;
            eprintln!(
                "\n{} ({} of {systems}{of_turns}; {minutes} min so far)",
                system.system,
                number + 1
            );
            contest.system(system).await?;
        }
    }
    let ended = contest.end();
    if let Some(exporter) = exporter {
        exporter.end().await;
    }
    ended
}

fn tests(words: &[String], form: Form) -> Result<Vec<Chosen>, CliError> {
    let mut tests: Vec<Chosen> = Vec::new();
    for word in words {
        let chosen = if word.ends_with(".yaml") || word.ends_with(".yml") {
            vec![Chosen::from_file(Path::new(word)).map_err(CliError::user)?]
        } else if word == "first" {
            workloads::first_set(form)
        } else {
            workloads::choose(word).ok_or_else(|| {
                let why = format!("no test is named {word:?}; `postroad-bench list` shows them");
                CliError::user(why)
            })?
        };
        for test in chosen {
            if !tests.contains(&test) {
                tests.push(test);
            }
        }
    }
    Ok(tests)
}

fn client(arguments: &RunArguments) -> Result<Target, CliError> {
    let mut client = Target {
        user: arguments.user.clone(),
        password: arguments.password.clone(),
        ..Target::default()
    };
    for setting in &arguments.settings {
        let (name, value) = setting.split_once('=').ok_or_else(|| {
            CliError::user(format!("--set {setting:?} has no value: --set NAME=VALUE"))
        })?;
        client.settings.insert(name.to_owned(), value.to_owned());
    }
    Ok(client)
}

/// Hosts of the agents. All agents must be reachable before anything begins, and must be able to
/// reach the systems under test.
async fn machines(
    addresses: &[String],
    token: Option<&str>,
    asked: &[Asked],
) -> Result<Vec<Host>, CliError> {
    for (place, address) in addresses.iter().enumerate() {
        if addresses[..place].contains(address) {
            return Err(CliError::user(format!("agent {address} is named twice")));
        }
    }
    let token = token.map(str::to_owned);
    let met = Coordinator::new(addresses.to_vec(), token, Target::default()).greet().await;
    let (mut machines, mut missing) = (Vec::new(), Vec::new());
    for met in met {
        match met {
            Ok(machine) => machines.push(machine),
            Err(gone) => missing.push(gone.to_string()),
        }
    }
    if !missing.is_empty() {
        return Err(CliError::user(missing.join("\npostroad-bench: ")));
    }
    let brought_up = asked.iter().find(|asked| asked.served_by().is_some());
    if let Some(Asked { system, .. }) = brought_up
        && let Some(far) = addresses.iter().find(|address| !is_here(address))
    {
        return Err(CliError::user(format!(
            "{system} would be brought up for this machine only, and the agent at {far} could not \
             reach it: say where it runs, {system}=HOST:PORT"
        )));
    }
    Ok(machines)
}

/// Whether the address is a loopback address, which each machine resolves to itself.
fn is_here(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Turns true at the first Ctrl-C; the second one ends the process.
fn interrupt() -> watch::Receiver<bool> {
    let (tell, told) = watch::channel(false);
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            eprintln!("\nends after what is under way; again to end at once");
            tell.send_replace(true);
            let _ = tokio::signal::ctrl_c().await;
            std::process::exit(130);
        }
    });
    told
}

fn introduction(
    host: &Host,
    tests: &[Chosen],
    asked: &[Asked],
    arguments: &RunArguments,
) -> String {
    let sync = host.sync_4k.map_or("unknown".to_owned(), |delay| {
        format!("{} us p50, {} us p99", delay.p50, delay.p99)
    });
    format!(
        "{} tests on {} systems, {} form, tier {} where there is one\n\
         {} x {}, {:.0} GB; {}; sync of 4 KiB: {sync}\n\
         results: {}",
        tests.len(),
        asked.len(),
        arguments.form().name(),
        arguments.tier,
        host.cores,
        host.cpu,
        host.memory_bytes as f64 / 1e9,
        host.disk,
        arguments.out.display(),
    )
}

struct Contest {
    exposed: Option<Exposed>,
    arguments: RunArguments,
    tests: Vec<Chosen>,
    client: Target,
    /// Token for the agents.
    token: Option<String>,
    interrupt: watch::Receiver<bool>,
    host: Host,
    /// Highest rates found, by system.
    rates: BTreeMap<String, BTreeMap<usize, f64>>,
    runs: Vec<Run>,
    /// Systems and tests without a result, with the reason.
    troubles: Vec<String>,
    begun: Instant,
}

impl Contest {
    /// Runs all tests on one system. Its failure does not stop the tests of the others.
    async fn system(&mut self, asked: &Asked) -> Result<(), CliError> {
        let RunArguments { tier, nodes, ref place, .. } = self.arguments;
        let station = match fleet::station(asked, tier, nodes, place, self.client.clone()).await {
            Ok(station) => station,
            Err(failure) => {
                self.trouble(&format!("{}: {failure}", asked.system));
                return Ok(());
            }
        };
        match self.context(&station).await {
            Ok(mut context) => {
                for test in self.tests.clone() {
                    if *self.interrupt.borrow() {
                        break;
                    }
                    self.test(&test, &mut context).await?;
                }
                self.rates.insert(asked.system.clone(), context.max_rates);
            }
            Err(failure) => self.trouble(&format!("{}: {failure}", asked.system)),
        }
        if let Err(failure) = station.end().await {
            self.trouble(&format!("{}: {failure}", asked.system));
        }
        Ok(())
    }

    async fn context(&self, station: &Station) -> Result<Context, Failure> {
        let driver = drivers::connect(&station.target)?;
        let told = driver.version().await?;
        let version = station.version.clone().unwrap_or(told);
        let form = self.arguments.form();
        let mut context = Context::new(Arc::clone(&driver), version, station.tier, form);
        context.host = self.host.clone();
        context.settings = station.settings.clone();
        context.settings.extend(self.client.settings.clone());
        context.faults = station.faults.clone();
        if !self.arguments.agents.is_empty() {
            let (agents, token) = (self.arguments.agents.clone(), self.token.clone());
            context.recruiter = Arc::new(Coordinator::new(agents, token, station.target.clone()));
        }
        context.replicas = self.arguments.nodes.min(3);
        context.interrupt = self.interrupt.clone();
        context.max_rates = self.rates.get(&station.target.system).cloned().unwrap_or_default();
        let (style, system) = (Style::choose(self.arguments.quiet), station.target.system.clone());
        let exposed = self.exposed.clone();
        let run = format!("{system}-{}-{}", station.tier, seconds_since_1970());
        let host = host_name();
        context.watch = Box::new(move |test| {
            let live = Live::new(style, format!("{test} on {system}"));
            match &exposed {
                Some(exposed) => Box::new(Both(live, exposed.show(test, &run, &host))),
                None => Box::new(live),
            }
        });
        Ok(context)
    }

    async fn test(&mut self, test: &Chosen, context: &mut Context) -> Result<(), CliError> {
        let begun = Instant::now();
        match test.run(context).await {
            Ok(run) => {
                results::write(&run, &self.arguments.out)?;
                eprintln!("{}", line(&run, begun.elapsed()));
                self.runs.push(run);
            }
            Err(Problem::Skipped(why)) => {
                eprintln!("  {:<24} -  {why}", test.name);
                results::write(&context.not_supported(&test.name, why), &self.arguments.out)?;
            }
            Err(Problem::Interrupted) => {}
            Err(problem @ (Problem::Load(_) | Problem::Servers(_) | Problem::Cut(_))) => {
                let system = context.driver.about().system;
                self.trouble(&format!("{} on {system}: {problem}", test.name));
            }
        }
        Ok(())
    }

    fn trouble(&mut self, what: &str) {
        eprintln!("  {what}");
        self.troubles.push(what.to_owned());
    }

    /// Writes the report, and returns whether all tests passed.
    fn end(self) -> Result<ExitCode, CliError> {
        let page = self.arguments.out.join("report.html");
        // Includes results of earlier runs in the folder.
        let runs = results::read_all(&self.arguments.out)?;
        write(&page, &report::html(&runs))?;
        write(&self.arguments.out.join("report.md"), &report::markdown(&runs))?;
        let interrupted = *self.interrupt.borrow();
        // Without a Ctrl-C an interruption means that an agent was lost.
        let failed: BTreeSet<String> = self
            .runs
            .iter()
            .filter(|run| match run.verdict {
                Verdict::Passed | Verdict::NotSupported(_) => false,
                Verdict::Failed(_) => true,
                Verdict::Interrupted(_) => !interrupted,
            })
            .map(|run| format!("{} on {}", run.test.name, run.system.name))
            .collect();
        let minutes = self.begun.elapsed().as_secs_f64() / 60.0;
        eprintln!("\n{} runs in {minutes:.1} minutes: {}", self.runs.len(), page.display());
        for trouble in &self.troubles {
            eprintln!("no result: {trouble}");
        }
        for failed in &failed {
            eprintln!("FAILED: {failed}");
        }
        let well = failed.is_empty() && self.troubles.is_empty() && !interrupted;
        Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn seconds_since_1970() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

fn write(path: &Path, text: &str) -> Result<(), CliError> {
    std::fs::write(path, text).map_err(CliError::io(path))
}

/// Summary of a run in one line.
fn line(run: &Run, took: Duration) -> String {
    let figures: Vec<String> = run
        .measures
        .iter()
        .take(3)
        .map(|it| format!("{} {} {}", it.name, digits(it.value), it.unit).trim_end().to_owned())
        .collect();
    let verdict = match &run.verdict {
        Verdict::Passed => "ok".to_owned(),
        Verdict::Failed(why) => format!("FAILED: {}", why.join("; ")),
        Verdict::Interrupted(why) => format!("interrupted: {why}"),
        Verdict::NotSupported(why) => format!("not supported: {why}"),
    };
    let seconds = took.as_secs();
    format!(
        "  {:<24} {:<3} {verdict}  {}  ({seconds} s)",
        run.test.name,
        run.system.tier,
        figures.join(", ")
    )
}

fn digits(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_are_this_machine() {
        for here in ["127.0.0.1:7070", "[::1]:7070", "localhost:7070", "127.1.2.3:1"] {
            assert!(is_here(here), "{here}");
        }
        for elsewhere in ["10.0.0.5:7070", "client-1:7070", "localhost.example:7070", "[fe80::1]:1"]
        {
            assert!(!is_here(elsewhere), "{elsewhere}");
        }
    }

    #[tokio::test]
    async fn each_unreachable_agent_is_reported_in_a_line() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let free = listener.local_addr().expect("has one").to_string();
        drop(listener);
        let agents = [free.clone(), "no-port".to_owned()];
        let failure = machines(&agents, None, &[]).await.expect_err("nobody is there").to_string();
        assert_eq!(failure.lines().count(), 2, "{failure}");
        assert!(
            failure.contains(&free) && failure.contains("no-port: cannot be reached"),
            "{failure}"
        );
        let twice = [free.clone(), free];
        let failure = machines(&twice, None, &[]).await.expect_err("is refused").to_string();
        assert!(failure.contains("twice"), "{failure}");
    }
}
