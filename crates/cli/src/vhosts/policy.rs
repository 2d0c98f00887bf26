//! `postroad policy`: settings for all of AMQP's queues or exchanges whose names match a pattern, existing and future
//! ones.

use clap::{Args, Subcommand, ValueEnum};
use client::Client;
use operations::amqp::{
    ApplyTo, CreateResult, Definition, EmptyDocument, NamedPolicy, Operation, PolicyDefinition,
};
use serde::Serialize;

use super::amqp;
use super::vhost::VhostOption;
use crate::client_options::ClientOptions;
use crate::command_error::CommandError;
use crate::output::{OutputFormat, Table};

#[derive(Args, Debug)]
pub struct PolicyArguments {
    #[command(flatten)]
    client: ClientOptions,
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Subcommand, Debug)]
enum PolicyCommand {
    /// Make a policy, or replace it; it holds when this returns
    Set(Set),
    /// List policies, those that go before others first
    List(List),
    /// Delete a policy; what it had set is as it was before
    Clear(Clear),
}

pub(crate) async fn run(arguments: PolicyArguments) -> Result<(), CommandError> {
    let client = arguments.client.connect().await?;
    let output = arguments.client.output();
    match arguments.command {
        PolicyCommand::Set(set) => set.run(&client, output).await,
        PolicyCommand::List(list) => list.run(&client, output).await,
        PolicyCommand::Clear(clear) => clear.run(&client, output).await,
    }
}

// ------------------------------------------------------------------------------------------- set

#[derive(Args, Debug)]
struct Set {
    /// The policy
    name: String,
    /// Regular expression that is found in the names of what it holds for
    pattern: String,
    /// Definition, as JSON: '{"max-length": 1000, "overflow": "reject-publish"}'
    #[arg(value_parser = definition)]
    definition: PolicyText,
    #[command(flatten)]
    vhost: VhostOption,
    /// Kind of object that it applies to
    #[arg(long, value_enum, default_value = "all")]
    apply_to: PolicyTarget,
    /// Priority: the policy with the highest number that matches a name applies, and no other
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: i64,
}

/// A definition from the command line, parsed.
#[derive(Clone, Debug)]
struct PolicyText(Definition);

fn definition(text: &str) -> Result<PolicyText, String> {
    serde_json::from_str(text).map(PolicyText).map_err(|error| {
        format!("{error}; write a JSON object, such as '{{\"message-ttl\": 60000}}'")
    })
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum PolicyTarget {
    All,
    Queues,
    ClassicQueues,
    QuorumQueues,
    Streams,
    Exchanges,
}

impl From<PolicyTarget> for ApplyTo {
    fn from(target: PolicyTarget) -> Self {
        match target {
            PolicyTarget::All => Self::All,
            PolicyTarget::Queues => Self::Queues,
            PolicyTarget::ClassicQueues => Self::ClassicQueues,
            PolicyTarget::QuorumQueues => Self::QuorumQueues,
            PolicyTarget::Streams => Self::Streams,
            PolicyTarget::Exchanges => Self::Exchanges,
        }
    }
}

#[derive(Serialize)]
struct SetPolicy {
    vhost: String,
    policy: String,
    created: bool,
}

impl Set {
    async fn run(self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let policy = PolicyDefinition {
            pattern: self.pattern,
            apply_to: self.apply_to.into(),
            priority: self.priority,
            definition: self.definition.0,
        };
        let (vhost, name) = (self.vhost.vhost, self.name);
        let operation = Operation::SetPolicy { vhost: vhost.clone(), name: name.clone(), policy };
        let made: CreateResult = amqp::operate(client, &operation).await?;
        let set = SetPolicy { vhost, policy: name, created: made.created };
        output.show(&set, |set| {
            let did = if set.created { "created" } else { "changed" };
            format!("{did} policy {} of vhost {}\n", set.policy, set.vhost)
        })?;
        Ok(())
    }
}

// ------------------------------------------------------------------------------------------ list

#[derive(Args, Debug)]
struct List {
    /// Only those of this vhost
    #[arg(long, value_name = "VHOST")]
    vhost: Option<String>,
}

impl List {
    async fn run(self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let mut policies = amqp::policies(client, self.vhost.as_deref()).await?;
        let rank = |named: &NamedPolicy| std::cmp::Reverse(named.policy.priority);
        policies.sort_by(|a, b| (&a.vhost, rank(a), &a.name).cmp(&(&b.vhost, rank(b), &b.name)));
        output.show(&policies, |policies| match policies.is_empty() {
            true => "no policies\n".into(),
            false => table(policies),
        })?;
        Ok(())
    }
}

fn table(policies: &[NamedPolicy]) -> String {
    let headings = ["VHOST", "POLICY", "PATTERN", "APPLIES TO", ">PRIORITY", "DEFINITION"];
    let mut table = Table::new(&headings);
    for NamedPolicy { vhost, name, policy } in policies {
        table.row([
            vhost.clone(),
            name.clone(),
            policy.pattern.clone(),
            text(&policy.apply_to),
            policy.priority.to_string(),
            text(&policy.definition),
        ]);
    }
    table.render()
}

/// Its JSON form; a text without its quotes.
fn text(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(other) => other.to_string(),
        Err(error) => error.to_string(),
    }
}

// ----------------------------------------------------------------------------------------- clear

#[derive(Args, Debug)]
struct Clear {
    /// The policy
    name: String,
    #[command(flatten)]
    vhost: VhostOption,
}

#[derive(Serialize)]
struct ClearedPolicy {
    vhost: String,
    policy: String,
}

impl Clear {
    async fn run(self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let (vhost, name) = (self.vhost.vhost, self.name);
        let operation = Operation::ClearPolicy { vhost: vhost.clone(), name: name.clone() };
        let _: EmptyDocument = amqp::operate(client, &operation).await?;
        output.show(&ClearedPolicy { vhost, policy: name }, |cleared| {
            format!("cleared policy {} of vhost {}\n", cleared.policy, cleared.vhost)
        })?;
        Ok(())
    }
}
