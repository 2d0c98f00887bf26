//! The command line: the commands of crate `cli`, and those of this one. Their order is that of the help.

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use cli::journal::JournalArguments;

use crate::recover::RecoverArguments;
use crate::restore::RestoreArguments;
use crate::settings::ServeFlags;

/// One durable message broker: a log and a queue at once.
///
/// Without a command it serves, with data in ./postroad-data and Kafka clients welcome at
/// 127.0.0.1:9092.
#[derive(Parser, Debug)]
#[command(name = "postroad", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run the broker
    Serve(Box<ServeFlags>),
    #[command(flatten)]
    Cli(Box<cli::Command>),
    Restore(RestoreArguments),
    Recover(RecoverArguments),
    /// Look into a journal on disk, without a broker
    Journal(JournalArguments),
    /// Print the version of this program
    Version,
    /// Print a completion script for a shell
    Completion(Completion),
}

#[derive(Args, Debug)]
pub(crate) struct Completion {
    pub(crate) shell: Shell,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn broker_address_is_accepted_before_and_after_the_subcommand() {
        for line in [
            &["postroad", "topic", "list", "-b", "a:1"][..],
            &["postroad", "topic", "-b", "a:1", "list"],
            &["postroad", "produce", "t", "--bootstrap", "a:1", "-z", "zstd"],
            &["postroad", "consume", "t", "--from", "-10", "-n", "5", "-o", "json"],
            &["postroad", "group", "reset", "g", "--to", "15m ago", "--dry-run"],
            &["postroad", "queue", "declare", "q", "--lease", "1m", "--single-active"],
            &["postroad", "queue", "seek", "q", "--to", "-10", "-g", "g"],
            &["postroad", "queue", "list", "--rates"],
            &["postroad", "queue", "list", "--rates=5s", "q"],
            &["postroad", "dead-letter", "redrive", "d", "--to", "t", "--max", "5"],
            &["postroad", "dead-letter", "delete", "d", "--reason", "expired"],
            &["postroad", "schedule", "cancel", "q", "--record", "0:5", "--record", "0:6"],
            &["postroad", "top", "--every", "1s", "--count", "3", "-o", "json", "-b", "a:1"],
            &[
                "postroad", "top", "--table", "groups", "--sort", "lag", "--filter", "a", "-o",
                "text",
            ],
            &["postroad", "connection", "list", "-o", "json"],
            &["postroad", "connection", "close", "17", "-b", "a:1"],
            &["postroad", "shard", "elect", "-b", "a:1"],
            &["postroad", "demo", "cluster", "--nodes", "3", "--restart-after", "5s"],
            &["postroad", "cluster", "status", "--watch", "-b", "a:1"],
            &["postroad", "node", "drain", "3", "-b", "a:1"],
            &["postroad", "node", "replace", "3", "--with", "4"],
            &["postroad", "node", "scrub", "--status", "-b", "a:1"],
            &["postroad", "backup", "/backups/today", "-b", "a:1"],
            &["postroad", "restore", "--data", "d", "--from", "/backups/today", "--dry-run"],
            &["postroad", "doctor", "--out", "/tmp/d", "--data", "d", "--http", "off", "-b", "a:1"],
            &["postroad", "quota", "set", "--user", "app", "producer_byte_rate=10MiB"],
            &["postroad", "quota", "set", "--ip-default", "connection_creation_rate=5"],
            &["postroad", "quota", "remove", "--user-default", "--client", "c", "-b", "a:1"],
            &["postroad", "vhost", "add", "shop", "-b", "a:1"],
            &["postroad", "policy", "set", "ttl", "^a", "{\"expires\":1}", "--priority", "-1"],
            &["postroad", "policy", "clear", "ttl", "--vhost", "shop"],
            &["postroad", "user", "add", "app", "secret"],
            &["postroad", "user", "allow", "app", "--vhost", "shop", "", "^app", ".*"],
        ] {
            if let Err(error) = Arguments::try_parse_from(line) {
                panic!("{line:?}: {error}");
            }
        }
    }

    #[test]
    fn inconsistent_arguments_are_rejected() {
        for line in [
            &["postroad", "topic", "create"][..],
            &["postroad", "topic", "create", "t", "-p", "0"],
            &["postroad", "topic", "alter", "t"],
            &["postroad", "produce", "t", "-z", "rar"],
            &["postroad", "consume", "t", "--from", "somewhere"],
            &["postroad", "consume", "t", "-g", "g", "-p", "1"],
            &["postroad", "group", "reset", "g"],
            &["postroad", "queue", "declare", "q", "--ordering", "none"],
            &["postroad", "queue", "declare", "q", "--priorities", "256"],
            &["postroad", "queue", "seek", "q"],
            &["postroad", "dead-letter", "delete", "d"],
            &["postroad", "dead-letter", "delete", "d", "--all", "--reason", "expired"],
            &["postroad", "schedule", "cancel", "q"],
            &["postroad", "schedule", "cancel", "q", "--record", "5"],
            &["postroad", "policy", "set", "ttl", "^a", "max-length: 5"],
            &["postroad", "policy", "set", "ttl", "^a", "[]"],
            &["postroad", "policy", "set", "ttl", "^a", "{}", "--apply-to", "topics"],
            &["postroad", "user", "allow", "app", ".*", ".*"],
            &["postroad", "node", "replace", "3"],
            &["postroad", "backup"],
            &["postroad", "restore", "--data", "d"],
            &["postroad", "node", "remove", "three"],
            &["postroad", "connection", "close"],
            &["postroad", "connection", "close", "127.0.0.1:5"],
        ] {
            assert!(Arguments::try_parse_from(line).is_err(), "{line:?}");
        }
    }
}
