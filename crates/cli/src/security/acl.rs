//! `postroad acl`: authorization rules of Kafka's protocol. `postroad access`: explains their result.

use std::net::IpAddr;

use access_rules::acl::{Action, CLUSTER, Pattern, Resource, Verdict};
use clap::{Args, Subcommand};
use client::{BrokerRejection, Client, ClientError};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::{CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest};
use kafka_protocol::protocol::StrBytes;
use operations::amqp::{AccessExplanation, Operation};
use serde::Serialize;

use crate::client_options::ClientOptions;
use crate::command_error::CommandError;
use crate::output::{OutputFormat, Table};
use crate::vhosts::amqp;

/// Kafka's code of a filter that matches everything.
const ANY: i8 = 1;

#[derive(Args, Debug)]
pub struct AclArguments {
    #[command(flatten)]
    client: ClientOptions,
    #[command(subcommand)]
    command: AclCommand,
}

#[derive(Subcommand, Debug)]
enum AclCommand {
    /// Let a user do something, or keep it from that
    Add(Add),
    /// List rules
    List(Filter),
    /// Take rules away
    Remove(Remove),
}

#[derive(Args, Debug)]
struct Add {
    /// The user, or '*' for everybody
    user: String,
    /// Operation: read, write, create, delete, alter, describe, describe-configs, alter-configs,
    /// idempotent-write, cluster-action or all
    #[arg(value_parser = action)]
    action: Action,
    /// Type of resource: topic, group, cluster or transactional-id
    #[arg(value_parser = resource)]
    resource: Resource,
    /// Its name, or '*' for all; the cluster needs none
    name: Option<String>,
    /// All whose names begin so
    #[arg(long)]
    prefixed: bool,
    /// Keep the user from it, whatever else allows it
    #[arg(long)]
    deny: bool,
    /// Only from this address
    #[arg(long, value_name = "ADDRESS", default_value = "*")]
    host: String,
}

/// Which rules are meant: those that fit all that is given.
#[derive(Args, Debug)]
struct Filter {
    /// Only this user's
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Only those about such a thing: topic, group, cluster or transactional-id
    #[arg(long, value_name = "KIND", value_parser = resource)]
    resource: Option<Resource>,
    /// Only those written for this name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

#[derive(Args, Debug)]
#[group(skip)]
struct Remove {
    #[command(flatten)]
    filter: Filter,
    /// All rules
    #[arg(long, conflicts_with_all = ["user", "resource", "name"])]
    all: bool,
}

#[derive(Args, Debug)]
pub struct AccessArguments {
    #[command(flatten)]
    client: ClientOptions,
    #[command(subcommand)]
    command: AccessCommand,
}

#[derive(Subcommand, Debug)]
enum AccessCommand {
    /// Say whether a user may do something by Kafka's protocol, and why
    Explain(Explain),
}

#[derive(Args, Debug)]
struct Explain {
    /// The user
    user: String,
    /// Operation, as for 'acl add'
    #[arg(value_parser = action)]
    action: Action,
    /// Type of resource, as for 'acl add'
    #[arg(value_parser = resource)]
    resource: Resource,
    /// Its name; the cluster needs none
    name: Option<String>,
    /// Where the user comes from
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
}

fn action(word: &str) -> Result<Action, String> {
    Action::from_word(word).ok_or_else(|| one_of(Action::ALL.iter().map(|it| it.word())))
}

fn resource(word: &str) -> Result<Resource, String> {
    Resource::from_word(word).ok_or_else(|| one_of(Resource::ALL.iter().map(|it| it.word())))
}

fn one_of<'a>(words: impl Iterator<Item = &'a str>) -> String {
    format!("it is one of {}", words.collect::<Vec<_>>().join(", "))
}

/// A rule, as printed.
#[derive(Serialize)]
struct PrintedRule {
    user: String,
    verdict: &'static str,
    action: &'static str,
    resource: &'static str,
    name: String,
    pattern: &'static str,
    host: String,
}

/// The resource name of a rule. Only the cluster resource has a name by default.
fn named(resource: Resource, name: Option<String>) -> Result<String, CommandError> {
    match (resource, name) {
        (_, Some(name)) => Ok(name),
        (Resource::Cluster, None) => Ok(CLUSTER.to_owned()),
        (resource, None) => Err(CommandError::user(format!(
            "the name of the {} is missing: give it after '{}', or '*' for all of them",
            resource.word().replace('-', " "),
            resource.word()
        ))),
    }
}

pub(crate) async fn run(arguments: AclArguments) -> Result<(), CommandError> {
    // An impossible command fails without a broker.
    if let AclCommand::Add(add) = &arguments.command {
        named(add.resource, add.name.clone())?;
    }
    let client = arguments.client.connect().await?;
    let output = arguments.client.output();
    match arguments.command {
        AclCommand::Add(add) => add.run(&client, output).await,
        AclCommand::List(filter) => list(&client, output, filter).await,
        AclCommand::Remove(remove) => remove.run(&client, output).await,
    }
}

pub(crate) async fn run_access(arguments: AccessArguments) -> Result<(), CommandError> {
    let AccessCommand::Explain(asked) = arguments.command;
    let Explain { user, action, resource, name, host } = asked;
    let name = named(resource, name)?;
    let client = arguments.client.connect().await?;
    let operation = Operation::Explain { user, host, action, resource, name };
    let explained: AccessExplanation = amqp::operate(&client, &operation).await?;
    arguments.client.output().show(&explained, |explained| {
        let verdict = if explained.allowed { "allowed" } else { "not allowed" };
        format!("{verdict}: {}\n", explained.why)
    })?;
    Ok(())
}

fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}

fn principal(user: &str) -> StrBytes {
    text(format!("User:{user}"))
}

fn accepted(what: &str, code: i16, message: Option<&StrBytes>) -> Result<(), CommandError> {
    match ResponseError::try_from_code(code) {
        None => Ok(()),
        Some(code) => {
            let message = message.map(|message| message.to_string());
            let refused = BrokerRejection { what: what.to_owned(), code, message };
            Err(ClientError::from(refused).into())
        }
    }
}

impl Add {
    async fn run(self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let pattern = if self.prefixed { Pattern::Prefixed } else { Pattern::Literal };
        let verdict = if self.deny { Verdict::Deny } else { Verdict::Allow };
        let name = named(self.resource, self.name)?;
        let creation = AclCreation::default()
            .with_resource_type(self.resource.code())
            .with_resource_name(text(&*name))
            .with_resource_pattern_type(pattern.code())
            .with_principal(principal(&self.user))
            .with_host(text(&*self.host))
            .with_operation(self.action.code())
            .with_permission_type(verdict.code());
        let request = CreateAclsRequest::default().with_creations(vec![creation]);
        let answer = client.any().await.call(&request, 1..=3).await?;
        for result in &answer.results {
            accepted("cannot add the rule", result.error_code, result.error_message.as_ref())?;
        }
        let added = PrintedRule {
            user: self.user,
            verdict: verdict.word(),
            action: self.action.word(),
            resource: self.resource.word(),
            name,
            pattern: pattern.word(),
            host: self.host,
        };
        output.show(&added, |_| "added the rule\n".to_owned())?;
        Ok(())
    }
}

async fn list(client: &Client, output: OutputFormat, filter: Filter) -> Result<(), CommandError> {
    let request = DescribeAclsRequest::default()
        .with_resource_type_filter(filter.resource.map_or(ANY, Resource::code))
        .with_resource_name_filter(filter.name.map(text))
        .with_pattern_type_filter(ANY)
        .with_principal_filter(filter.user.as_deref().map(principal))
        .with_host_filter(None)
        .with_operation(ANY)
        .with_permission_type(ANY);
    let answer = client.any().await.call(&request, 1..=3).await?;
    accepted("cannot list rules", answer.error_code, answer.error_message.as_ref())?;
    let rules: Vec<PrintedRule> = answer
        .resources
        .iter()
        .flat_map(|resource| {
            resource.acls.iter().map(|acl| PrintedRule {
                user: acl.principal.trim_start_matches("User:").to_owned(),
                verdict: Verdict::from_code(acl.permission_type).map_or("?", Verdict::word),
                action: Action::from_code(acl.operation).map_or("?", Action::word),
                resource: Resource::from_code(resource.resource_type).map_or("?", Resource::word),
                name: resource.resource_name.to_string(),
                pattern: Pattern::from_code(resource.pattern_type).map_or("?", Pattern::word),
                host: acl.host.to_string(),
            })
        })
        .collect();
    output.show(&rules, |rules| {
        let mut table =
            Table::new(&["USER", "VERDICT", "ACTION", "RESOURCE", "NAME", "PATTERN", "FROM"]);
        for rule in rules {
            table.row([
                rule.user.clone(),
                rule.verdict.to_owned(),
                rule.action.to_owned(),
                rule.resource.to_owned(),
                rule.name.clone(),
                rule.pattern.to_owned(),
                rule.host.clone(),
            ]);
        }
        if rules.is_empty() { "no rules\n".to_owned() } else { table.render() }
    })?;
    Ok(())
}

#[derive(Serialize)]
struct RemovedRules {
    removed: usize,
}

impl Remove {
    async fn run(self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let Filter { user, resource, name } = self.filter;
        if !self.all && user.is_none() && resource.is_none() && name.is_none() {
            return Err(CommandError::user(
                "say which rules: --user, --resource, --name, or --all for all of them",
            ));
        }
        let filter = DeleteAclsFilter::default()
            .with_resource_type_filter(resource.map_or(ANY, Resource::code))
            .with_resource_name_filter(name.map(text))
            .with_pattern_type_filter(ANY)
            .with_principal_filter(user.as_deref().map(principal))
            .with_host_filter(None)
            .with_operation(ANY)
            .with_permission_type(ANY);
        let request = DeleteAclsRequest::default().with_filters(vec![filter]);
        let answer = client.any().await.call(&request, 1..=3).await?;
        let mut removed = RemovedRules { removed: 0 };
        for result in &answer.filter_results {
            accepted("cannot remove rules", result.error_code, result.error_message.as_ref())?;
            removed.removed += result.matching_acls.len();
        }
        output.show(&removed, |removed| format!("removed {} rules\n", removed.removed))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_name_stands_for_the_cluster_and_for_nothing_else() {
        assert_eq!(named(Resource::Cluster, None).expect("a name"), CLUSTER);
        assert_eq!(named(Resource::Topic, Some("t".to_owned())).expect("a name"), "t");
        for resource in Resource::ALL.iter().filter(|it| **it != Resource::Cluster) {
            let error = named(*resource, None).expect_err("is refused");
            assert!(format!("{error:?}").contains("name of the"), "{error:?}");
        }
    }
}
