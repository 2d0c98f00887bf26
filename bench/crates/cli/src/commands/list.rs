use std::process::ExitCode;

use crate::arguments::{ListArguments, Output};
use crate::failure::CliError;
use crate::table;

pub(crate) fn run(arguments: &ListArguments) -> Result<ExitCode, CliError> {
    let first: Vec<String> =
        workloads::choose("first").unwrap_or_default().into_iter().map(|it| it.name).collect();
    let chosen = workloads::tests().flat_map(workloads::Test::chosen);
    let tests: Vec<(String, bool, &str)> = chosen
        .map(|test| (test.name.clone(), first.contains(&test.name), test.question()))
        .collect();
    match arguments.output {
        Output::Json => {
            let tests: Vec<_> = tests
                .iter()
                .map(|(name, first, asks)| {
                    serde_json::json!({ "name": name, "first": first, "asks": asks })
                })
                .collect();
            println!("{}", serde_json::Value::Array(tests));
        }
        Output::Table => {
            let row = |(name, first, asks): &(String, bool, &str)| {
                let first = if *first { "first" } else { "" };
                vec![name.clone(), first.to_owned(), (*asks).to_owned()]
            };
            let rows: Vec<Vec<String>> = tests.iter().map(row).collect();
            print!("{}", table::render(&["test", "set", "asks"], &rows));
        }
    }
    Ok(ExitCode::SUCCESS)
}
