//! `postroad`: one durable broker, a log and a queue at once, in one binary.
//!
//! * `arguments`: the command line
//! * `settings`, `cluster_settings`: settings of `serve`: flags, environment, file, defaults
//! * `security_settings`: login requirements of ports
//! * `tls_settings`, `tls_files`: ports with encryption, and the files with the certificate
//! * `serve`: the broker and its gateways, wired together
//! * `starting`: errors that prevent the start; `signals`: requests to stop
//! * `listeners`: the ports that clients connect to; `gate`: limits their connections
//! * `logging`: log output and its format
//! * `commands`: everything but `serve`, one file each
//! * `printable`: escapes text for a terminal
//! * `named_commands`: a test of the commands named in texts
//! * `output`, `progress`, `record_line`, `time`, `position`: printed and typed values

mod arguments;
mod cluster_settings;
mod commands;
mod gate;
mod http_settings;
mod levels;
mod limits;
mod listeners;
mod log_ins;
mod logging;
#[cfg(test)]
mod named_commands;
mod operator_token;
mod output;
mod position;
mod printable;
mod process;
mod progress;
mod record_line;
mod security_settings;
mod serve;
mod settings;
mod signals;
mod size;
mod starting;
mod time;
mod tls_files;
mod tls_settings;
mod token_settings;
mod trace_settings;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser};

use crate::arguments::{Arguments, Command, Completion};
use crate::commands::{
    CommandError, acl, backup, cluster, connection, consume, dead_letter, demo, doctor, group,
    journal, node, policy, produce, queue, quota, recover, restore, schedule, shard, tls, top,
    topic, trace, user, vhost,
};
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
        Command::Topic(arguments) => commands::run(topic::run(arguments)),
        Command::Produce(arguments) => commands::run(produce::run(arguments)),
        Command::Consume(arguments) => commands::run(consume::run(arguments)),
        Command::Group(arguments) => commands::run(group::run(arguments)),
        Command::Queue(arguments) => commands::run(queue::run(arguments)),
        Command::DeadLetter(arguments) => commands::run(dead_letter::run(arguments)),
        Command::Schedule(arguments) => commands::run(schedule::run(arguments)),
        Command::Trace(arguments) => commands::run(trace::run(arguments)),
        Command::Top(arguments) => commands::run(top::run(arguments)),
        Command::Connection(arguments) => commands::run(connection::run(arguments)),
        Command::Shard(arguments) => commands::run(shard::run(arguments)),
        Command::Cluster(arguments) => commands::run(cluster::run(arguments)),
        Command::Status(arguments) => commands::run(cluster::run_status(arguments)),
        Command::Node(arguments) => commands::run(node::run(arguments)),
        Command::Vhost(arguments) => commands::run(vhost::run(arguments)),
        Command::Policy(arguments) => commands::run(policy::run(arguments)),
        Command::User(arguments) => commands::run(user::run(arguments)),
        Command::Acl(arguments) => commands::run(acl::run(arguments)),
        Command::Access(arguments) => commands::run(acl::run_access(arguments)),
        Command::Quota(arguments) => commands::run(quota::run(arguments)),
        Command::Tls(arguments) => tls::run(arguments),
        Command::Demo(arguments) => commands::run(demo::run(arguments)),
        Command::Doctor(arguments) => commands::run(doctor::run(arguments)),
        Command::Backup(arguments) => commands::run(backup::run(arguments)),
        Command::Restore(arguments) => commands::run(restore::run(arguments)),
        Command::Recover(arguments) => commands::run(recover::run(arguments)),
        Command::Journal(arguments) => journal::run(&arguments),
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
