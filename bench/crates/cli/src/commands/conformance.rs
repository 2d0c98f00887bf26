use std::path::Path;
use std::process::ExitCode;

use driver::Target;
use drivers::conformance::{self, Conformance, Outcome};

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
            Ok(found) => {
                if arguments.output == Output::Table {
                    print(&found);
                }
                all.push(found);
            }
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
    let found = conformance::run(&station.target, station.tier).await;
    station.end().await?;
    Ok(found?)
}

fn print(found: &Conformance) {
    println!("{} {} ({}), {}", found.title, found.version, found.client, found.tier);
    for check in &found.checks {
        let (word, why) = match &check.outcome {
            Outcome::Passed => ("ok", ""),
            Outcome::Skipped(why) => ("-", why.as_str()),
            Outcome::Failed(why) => ("FAILED", why.as_str()),
        };
        println!("  {word:<7} {:<6} {:<60} {why}", check.style, check.name);
    }
}

fn write_table(path: &Path, all: &[Conformance]) -> Result<(), CliError> {
    std::fs::write(path, conformance::markdown(all)).map_err(CliError::io(path))
}
