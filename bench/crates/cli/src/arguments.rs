//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use driver::Tier;
use workloads::Form;

/// Runs the published broker tests on any of the brokers, audits every message, draws the report
#[derive(Debug, Parser)]
#[command(name = "postroad-bench", version, max_term_width = 100)]
pub(crate) struct Arguments {
    /// Threads of the suite itself: one leaves the rest to a broker on the same machine
    #[arg(long, global = true, value_name = "NUMBER")]
    pub(crate) threads: Option<usize>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Brings systems up, one after the other, runs tests on each and writes results and report
    Run(RunArguments),
    /// Sends and receives on this machine for a coordinator on another (`run --agents`)
    Agent(AgentArguments),
    /// The tests: what each asks
    List(ListArguments),
    /// The systems: client, tiers, what "sent" means
    Systems(ListArguments),
    /// Installs, starts and stops brokers, in a folder of their own
    Peers(PeersArguments),
    /// Checks that a system does what its driver says
    Conformance(ConformanceArguments),
    /// Postroad and a rival in turns, with the rival's own tools: pairs, medians, ratios, targets
    #[command(subcommand)]
    Tools(ToolsCommand),
    /// Draws the report of results
    Report(ReportArguments),
    /// Puts results side by side, and says which differences are noise
    Compare(CompareArguments),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Output {
    Table,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Output,
}

/// Default systems of `run`: those that it can bring up by itself on most machines.
pub(crate) const USUAL_SYSTEMS: &str =
    "postroad-kafka,postroad-amqp,kafka,rabbitmq-quorum,nats-jetstream,redis,postgres";

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Tests, families, `first` or `all` (see `postroad-bench list`); workload files of OpenMessaging
    /// Benchmark (`.yaml`)
    #[arg(default_value = "first", value_name = "TEST")]
    pub(crate) tests: Vec<String>,
    /// Systems to be brought up and tested; `SYSTEM=HOST:PORT` is one that runs already, which is
    /// used and neither started nor stopped
    #[arg(long, value_delimiter = ',', default_value = USUAL_SYSTEMS, value_name = "SYSTEM")]
    pub(crate) on: Vec<String>,
    /// A few seconds a test: does everything run, and roughly how?
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,
    /// As long and as large as published; for a cluster
    #[arg(long)]
    pub(crate) full: bool,
    /// Guarantee that a message has before it counts as sent; a system that cannot do it is run
    /// at the highest tier it has
    #[arg(long, default_value = "T3")]
    pub(crate) tier: Tier,
    /// Nodes of each system that is brought up
    #[arg(long, default_value_t = 1)]
    pub(crate) nodes: u32,
    /// Each test so many times, the systems in turns
    #[arg(long, default_value_t = 1)]
    pub(crate) repeat: u32,
    /// Settings of drivers, for all systems that have them: `window=500`
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) settings: Vec<String>,
    #[arg(long, env = "POSTROAD_BENCH_USER")]
    pub(crate) user: Option<String>,
    #[arg(long, env = "POSTROAD_BENCH_PASSWORD", hide_env_values = true)]
    pub(crate) password: Option<String>,
    /// Client machines that send and receive, each running `postroad-bench agent`; this one conducts
    #[arg(long, value_delimiter = ',', value_name = "HOST:PORT")]
    pub(crate) agents: Vec<String>,
    /// A file with the token that the agents ask for
    #[arg(long, value_name = "FILE", requires = "agents")]
    pub(crate) token_file: Option<PathBuf>,
    /// Where results and the report go
    #[arg(long, default_value = "bench-results", value_name = "FOLDER")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Shows the run to Prometheus while it goes, by mqperf's names (its port is 9193)
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) prometheus: Option<SocketAddr>,
    /// One line a test, for CI
    #[arg(long)]
    pub(crate) quiet: bool,
}

impl RunArguments {
    pub(crate) fn form(&self) -> Form {
        match (self.quick, self.full) {
            (true, _) => Form::Quick,
            (_, true) => Form::Full,
            _ => Form::Local,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct AgentArguments {
    /// Where the coordinator reaches it; what other machines can reach needs a token
    #[arg(long, default_value = "127.0.0.1:7070", value_name = "HOST:PORT")]
    pub(crate) listen: String,
    /// A file with the token that a coordinator must know
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// Where brokers are installed, and which Postroad is meant.
#[derive(Clone, Debug, Args)]
pub(crate) struct Place {
    /// Where brokers are installed and keep their data: choose the disk to measure
    #[arg(
        long,
        default_value = "bench-peers",
        value_name = "FOLDER",
        env = "POSTROAD_BENCH_PEERS"
    )]
    pub(crate) peers_dir: PathBuf,
    /// The Postroad to test [default: a release build of this repository]
    #[arg(long, value_name = "FILE")]
    pub(crate) postroad: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PeersArguments {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(subcommand)]
    pub(crate) action: PeersAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PeersAction {
    /// Installs and starts brokers
    Up {
        #[arg(required = true)]
        names: Vec<String>,
        /// Guarantee that a message has before it counts as sent
        #[arg(long, default_value = "T3")]
        tier: Tier,
        #[arg(long, default_value_t = 1)]
        nodes: u32,
    },
    /// Stops brokers that were started here; all of them if none is named
    Down { names: Vec<String> },
    /// Brokers that are installed, and the place where each runs
    Status {
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
    },
    /// Removes data and logs of brokers that do not run
    Wipe {
        #[arg(required = true)]
        names: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ToolsCommand {
    /// Beside Apache Kafka, with Kafka's own performance tools
    Kafka {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        options: tools::Options<tools::kafka::Workload, tools::kafka::Contender>,
    },
    /// Beside RabbitMQ, with RabbitMQ's PerfTest
    Amqp {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        options: tools::Options<tools::amqp::Workload, tools::amqp::Contender>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ConformanceArguments {
    /// Systems to be brought up and checked, or `SYSTEM=HOST:PORT`
    #[arg(required = true, value_delimiter = ',', value_name = "SYSTEM")]
    pub(crate) on: Vec<String>,
    #[arg(long, default_value = "T3")]
    pub(crate) tier: Tier,
    #[command(flatten)]
    pub(crate) place: Place,
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Output,
    /// Writes the support table of README, as Markdown, here
    #[arg(long, value_name = "FILE")]
    pub(crate) support_table: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// Folders or files of results
    #[arg(required = true)]
    pub(crate) results: Vec<PathBuf>,
    /// The page [default: report.html]
    #[arg(long, default_value = "report.html", value_name = "FILE")]
    pub(crate) html: PathBuf,
    /// Tables for a README
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArguments {
    /// A folder or file of results
    pub(crate) before: PathBuf,
    pub(crate) after: PathBuf,
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: CompareOutput,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum CompareOutput {
    Table,
    Markdown,
    Json,
}
