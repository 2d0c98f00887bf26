//! All commands of this crate, in the order of the help.

use clap::Subcommand;

use crate::cluster::backup::{self, BackupArguments};
use crate::cluster::connection::{self, ConnectionArguments};
use crate::cluster::demo::{self, DemoArguments};
use crate::cluster::node::{self, NodeArguments};
use crate::cluster::shard::{self, ShardArguments};
use crate::cluster::status::{self, ClusterArguments, StatusArguments};
use crate::command_error::CommandError;
use crate::doctor::{self, DoctorArguments, KnownSetting};
use crate::groups::{self, GroupArguments};
use crate::queues::dead_letter::{self, DeadLetterArguments};
use crate::queues::queue::{self, QueueArguments};
use crate::queues::schedule::{self, ScheduleArguments};
use crate::records::consume::{self, ConsumeArguments};
use crate::records::produce::{self, ProduceArguments};
use crate::records::trace::{self, TraceArguments};
use crate::runtime;
use crate::security::acl::{self, AccessArguments, AclArguments};
use crate::security::quota::{self, QuotaArguments};
use crate::security::tls::{self, TlsArguments};
use crate::security::user::{self, UserArguments};
use crate::top::{self, TopArguments};
use crate::topics::{self, TopicArguments};
use crate::vhosts::policy::{self, PolicyArguments};
use crate::vhosts::vhost::{self, VhostArguments};

#[derive(Subcommand, Debug)]
pub enum Command {
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
    /// Shards and their leaders: list, move, balance and elect
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
}

impl Command {
    /// `settings`: all settings of `postroad serve`, which `doctor` looks for.
    pub fn run(self, settings: fn() -> Vec<KnownSetting>) -> Result<(), CommandError> {
        match self {
            Self::Topic(arguments) => runtime::run(topics::run(arguments)),
            Self::Produce(arguments) => runtime::run(produce::run(arguments)),
            Self::Consume(arguments) => runtime::run(consume::run(arguments)),
            Self::Group(arguments) => runtime::run(groups::run(arguments)),
            Self::Queue(arguments) => runtime::run(queue::run(arguments)),
            Self::DeadLetter(arguments) => runtime::run(dead_letter::run(arguments)),
            Self::Schedule(arguments) => runtime::run(schedule::run(arguments)),
            Self::Trace(arguments) => runtime::run(trace::run(arguments)),
            Self::Top(arguments) => runtime::run(top::run(arguments)),
            Self::Connection(arguments) => runtime::run(connection::run(arguments)),
            Self::Shard(arguments) => runtime::run(shard::run(arguments)),
            Self::Status(arguments) => runtime::run(status::run_status(arguments)),
            Self::Cluster(arguments) => runtime::run(status::run(arguments)),
            Self::Node(arguments) => runtime::run(node::run(arguments)),
            Self::Vhost(arguments) => runtime::run(vhost::run(arguments)),
            Self::Policy(arguments) => runtime::run(policy::run(arguments)),
            Self::User(arguments) => runtime::run(user::run(arguments)),
            Self::Acl(arguments) => runtime::run(acl::run(arguments)),
            Self::Access(arguments) => runtime::run(acl::run_access(arguments)),
            Self::Quota(arguments) => runtime::run(quota::run(arguments)),
            Self::Tls(arguments) => tls::run(arguments),
            Self::Demo(arguments) => runtime::run(demo::run(arguments)),
            Self::Doctor(arguments) => runtime::run(doctor::run(arguments, settings())),
            Self::Backup(arguments) => runtime::run(backup::run(arguments)),
        }
    }
}
