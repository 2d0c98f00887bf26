use std::path::Path;
use std::process::ExitCode;

use driver::Target;
use drivers::Support;
use drivers::conformance::{self, Check, Conformance, Outcome};

use crate::arguments::{ConformanceArguments, Output};
use crate::failure::CliError;
use crate::fleet::{self, Asked};

pub(crate) async fn run(arguments: ConformanceArguments) -> Result<ExitCode, CliError> {
    let asked: Vec<Asked> =
        arguments.on.iter().map(|text| Asked::parse(text)).collect::<Result<_, _>>()?;
    let mut all = Vec::new();
    let mut unreachable = false;
    for system in &asked {
        eprintln!("{}", system.system);
        match check(system, &arguments).await {
            Ok(found) => all.push(found),
            Err(failure) => {
                eprintln!("  {}: {failure}", system.system);
                unreachable = true;
            }
        }
    }
    if arguments.output == Output::Json {
        println!("{}", serde_json::to_string_pretty(&all).map_err(CliError::user)?);
    }
    if let Some(path) = &arguments.support_table {
        write_table(path, &all)?;
    }
    let well = !unreachable && all.iter().all(Conformance::passed);
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn check(asked: &Asked, arguments: &ConformanceArguments) -> Result<Conformance, CliError> {
    let place = &arguments.place;
    let station = fleet::station(asked, arguments.tier, 1, place, Target::default()).await?;
    let told = |check: &Check| {
        if arguments.output == Output::Table {
            print(check);
        }
    };
    let found = conformance::run(&station.target, Some(station.tier), told).await;
    let installed = station.version.clone();
    station.end().await?;
    let mut found = found?;
    found.version = installed.unwrap_or(found.version);
    Ok(found)
}

fn print(check: &Check) {
    let (word, why) = match &check.outcome {
        Outcome::Passed => ("ok", ""),
        Outcome::Skipped(why) => ("-", why.as_str()),
        Outcome::Failed(why) => ("FAILED", why.as_str()),
    };
    println!("  {word:<7} {:<6} {:<60} {why}", check.style, check.name);
}

/// Writes all systems of the suite, with the results of those that were checked now.
fn write_table(path: &Path, all: &[Conformance]) -> Result<(), CliError> {
    let mut table = String::from(
        "| system | client | server | checks passed | does not have | fails |\n|---|---|---|---|---|---|\n",
    );
    for system in drivers::all() {
        let Some(found) = all.iter().find(|found| found.system == system.name) else {
            let why = match system.support {
                Support::None { why } => format!("no driver: {why}"),
                Support::LeftOut { feature } => {
                    format!("not in this build: `--features {feature}` has it")
                }
                Support::Untried { why, .. } => format!("a driver, untried: {why}"),
                Support::Driver(_) => "a driver; its server was not there".to_owned(),
            };
            table += &format!("| `{}` {} | {why} | | | | |\n", system.name, system.title);
            continue;
        };
        let (passed, skipped, _) = found.counts();
        let failed: Vec<&str> = found.failures().map(|check| check.name.as_str()).collect();
        table += &format!(
            "| `{}` {} | {} | {} at {} | {passed} | {skipped} | {} |\n",
            found.system,
            found.title,
            found.client,
            found.version,
            found.tier,
            if failed.is_empty() { "-".to_owned() } else { failed.join("; ") },
        );
    }
    std::fs::write(path, table).map_err(CliError::io(path))
}
