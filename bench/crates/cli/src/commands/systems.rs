use std::process::ExitCode;

use driver::Target;
use drivers::{Support, System};

use crate::arguments::{ListArguments, Output};
use crate::failure::CliError;
use crate::table;

pub(crate) fn run(arguments: &ListArguments) -> Result<ExitCode, CliError> {
    match arguments.output {
        Output::Table => {
            let rows: Vec<Vec<String>> = drivers::all().iter().map(row).collect();
            print!("{}", table::render(&["system", "client", "tiers", "sent means"], &rows));
        }
        Output::Json => {
            let all: Vec<_> = drivers::all().iter().map(json).collect();
            println!("{}", serde_json::Value::Array(all));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn about(system: &System) -> Result<driver::About, String> {
    match system.support {
        Support::Driver(connect) | Support::Untried { connect, .. } => {
            connect(&Target::of(system.name)).map(|it| it.about()).map_err(|why| why.to_string())
        }
        Support::LeftOut { feature } => {
            Err(format!("not in this build: --features {feature} has it"))
        }
        Support::None { why } => Err(why.to_owned()),
    }
}

fn tiers(about: &driver::About) -> Vec<String> {
    about.tiers.iter().map(ToString::to_string).collect()
}

fn row(system: &System) -> Vec<String> {
    match about(system) {
        Ok(about) => vec![
            system.name.to_owned(),
            about.client.to_owned(),
            tiers(&about).join(" "),
            about.sent_means.to_owned(),
        ],
        Err(why) => vec![system.name.to_owned(), "-".to_owned(), "-".to_owned(), why],
    }
}

fn json(system: &System) -> serde_json::Value {
    match about(system) {
        Ok(about) => serde_json::json!({
            "system": system.name,
            "title": system.title,
            "client": about.client,
            "tiers": tiers(&about),
            "sent_means": about.sent_means,
            "hidden_means": about.hidden_means,
        }),
        Err(why) => serde_json::json!({ "system": system.name, "title": system.title, "why": why }),
    }
}
