use std::path::Path;
use std::process::ExitCode;

use results::Run;

use crate::arguments::{CompareArguments, CompareOutput, ReportArguments};
use crate::failure::CliError;

fn read(path: &Path) -> Result<Vec<Run>, CliError> {
    let runs = if path.is_dir() { results::read_all(path)? } else { vec![results::read(path)?] };
    match runs.is_empty() {
        true => Err(CliError::user(format!("{} holds no results", path.display()))),
        false => Ok(runs),
    }
}

fn write(path: &Path, text: &str) -> Result<(), CliError> {
    std::fs::write(path, text).map_err(CliError::io(path))?;
    println!("{}", path.display());
    Ok(())
}

pub(crate) fn run(arguments: &ReportArguments) -> Result<ExitCode, CliError> {
    let mut runs = Vec::new();
    for path in &arguments.results {
        runs.extend(read(path)?);
    }
    write(&arguments.html, &::report::html(&runs))?;
    if let Some(path) = &arguments.markdown {
        write(path, &::report::markdown(&runs))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn compare(arguments: &CompareArguments) -> Result<ExitCode, CliError> {
    let comparison = ::report::compare(&read(&arguments.before)?, &read(&arguments.after)?);
    match arguments.output {
        CompareOutput::Table => print!("{}", comparison.terminal()),
        CompareOutput::Markdown => print!("{}", comparison.markdown()),
        CompareOutput::Json => println!("{}", comparison.json()),
    }
    Ok(ExitCode::SUCCESS)
}
