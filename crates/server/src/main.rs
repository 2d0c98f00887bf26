//! `postroad`: one durable broker, a log and a queue at once, in one binary.
//!
//! * `arguments`: the command line; crate `cli` has most commands
//! * `serve`: the broker and its gateways, wired together
//! * `serve_error`: errors that prevent the start or end a node; `starting`: conditions for the start
//! * `restore`, `recover`: the other commands that open a broker
//! * `settings`: settings of `serve`: flags, environment, file, defaults
//! * `listeners`: the ports that clients connect to; `gate`: limits their connections
//! * `log_ins`: login requirements of ports
//! * `tls_files`: the files with the certificate
//! * `operator`: operators' requests over HTTP
//! * `logging`: log output and its format
//! * `signals`: requests to stop; `process`: resource usage; `levels`: feature levels
//! * `named_commands`: a test of the commands named in texts

mod arguments;
mod gate;
mod levels;
mod limits;
mod listeners;
mod log_ins;
mod logging;
#[cfg(test)]
mod named_commands;
mod process;
mod recover;
mod restore;
mod serve;
mod serve_error;
mod settings;
mod signals;
mod starting;
mod tls_files;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser};
use cli::{CommandError, runtime};

use crate::arguments::{Arguments, Command, Completion};
use crate::settings::source;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let command = match parse() {
        Ok(command) => command,
        Err(code) => return code,
    };
    let outcome = match command {
        Command::Serve(flags) => serve::run(*flags).map_err(CommandError::from),
        Command::Cli(command) => command.run(source::known_settings),
        Command::Restore(arguments) => runtime::run(restore::run(arguments)),
        Command::Recover(arguments) => runtime::run(recover::run(arguments)),
        Command::Journal(arguments) => cli::journal::run(&arguments),
        Command::Version => version(),
        Command::Completion(completion) => complete(&completion),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}

/// Without a command it serves, with settings from the environment.
fn parse() -> Result<Command, ExitCode> {
    let serve = || Arguments::try_parse_from(["postroad", "serve"]);
    let parsed = Arguments::try_parse().and_then(|arguments| match arguments.command {
        Some(command) => Ok(command),
        None => Ok(serve()?.command.expect("it was just named")),
    });
    parsed.map_err(|error| {
        match error.use_stderr() {
            true => eprint!("{}", in_our_form(&error)),
            // Help goes to standard output, which may be closed.
            false => drop(error.print()),
        }
        if let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg)
            && let Some(variable) = source::variable_of_wrong_flag(argument)
        {
            eprintln!("postroad: the value is that of the variable {variable}");
        }
        ExitCode::from(u8::from(error.use_stderr()))
    })
}

/// Clap's message with the beginning that all errors of the program have.
fn in_our_form(error: &clap::Error) -> String {
    let rendered = error.render();
    let is_coloured = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let text = if is_coloured { rendered.ansi().to_string() } else { rendered.to_string() };
    text.replacen("error:", "postroad:", 1)
}

fn complete(completion: &Completion) -> Result<(), CommandError> {
    let mut script = Vec::new();
    let mut command = Arguments::command();
    clap_complete::generate(completion.shell, &mut command, "postroad", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(())
}

fn version() -> Result<(), CommandError> {
    std::io::stdout().write_all(Arguments::command().render_version().as_bytes())?;
    Ok(())
}
