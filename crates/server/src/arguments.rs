//! The command line.

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::commands::acl::{AccessArguments, AclArguments};
use crate::commands::backup::BackupArguments;
use crate::commands::cluster::{ClusterArguments, StatusArguments};
use crate::commands::connection::ConnectionArguments;
use crate::commands::consume::ConsumeArguments;
use crate::commands::dead_letter::DeadLetterArguments;
use crate::commands::demo::DemoArguments;
use crate::commands::doctor::DoctorArguments;
use crate::commands::group::GroupArguments;
use crate::commands::journal::JournalArguments;
use crate::commands::node::NodeArguments;
use crate::commands::policy::PolicyArguments;
use crate::commands::produce::ProduceArguments;
use crate::commands::queue::QueueArguments;
use crate::commands::quota::QuotaArguments;
use crate::commands::recover::RecoverArguments;
use crate::commands::restore::RestoreArguments;
use crate::commands::schedule::ScheduleArguments;
use crate::commands::shard::ShardArguments;
use crate::commands::tls::TlsArguments;
use crate::commands::top::TopArguments;
use crate::commands::topic::TopicArguments;
use crate::commands::trace::TraceArguments;
use crate::commands::user::UserArguments;
use crate::commands::vhost::VhostArguments;
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
    /// Make, list, describe, alter and delete topics
    Topic(TopicArguments),
    Produce(ProduceArguments),
    Consume(ConsumeArguments),
    /// List, describe, reset and delete groups
    Group(GroupArguments),
    /// Topics as queues: declare, look at, empty, pause and delete them
    Queue(QueueArguments),
    /// Records that queues gave up: count, show, send back and delete them
    DeadLetter(DeadLetterArguments),
    /// Records to be delivered later: list and cancel them
    Schedule(ScheduleArguments),
    /// Where a record is, and what became of it: by its place, key, id, trace or header
    Trace(TraceArguments),
    Top(TopArguments),
    /// Clients' connections: list and close them
    Connection(ConnectionArguments),
    /// Elect a new leader
    Shard(ShardArguments),
    /// State of the nodes and shards: short for 'cluster status'
    Status(StatusArguments),
    /// How a cluster stands: its nodes and shards, and what is at risk
    Cluster(ClusterArguments),
    /// Nodes of a cluster: drain, resume, remove and replace them
    Node(NodeArguments),
    /// AMQP's virtual hosts: add, list and delete them
    Vhost(VhostArguments),
    /// AMQP's policies: settings for all queues or exchanges whose names fit a pattern
    Policy(PolicyArguments),
    /// Users: add, list and delete them, set passwords and permissions
    User(UserArguments),
    /// Rules about who may do what by Kafka's protocol: add, list and remove them
    Acl(AclArguments),
    /// Explain why a user may do something, or may not
    Access(AccessArguments),
    /// How much clients may send, take and change in a second: list, set and remove quotas
    Quota(QuotaArguments),
    /// Certificates to try encryption with
    Tls(TlsArguments),
    /// Run a cluster on this machine, to try it out
    Demo(DemoArguments),
    Doctor(DoctorArguments),
    Backup(BackupArguments),
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
