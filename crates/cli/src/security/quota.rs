//! `postroad quota`: limits on the bytes and changes of clients a second.

use std::collections::BTreeMap;

use access_rules::quota::{Entity, EntityType, Quota};
use clap::{Args, Subcommand};
use client::{BrokerRejection, Client, ClientError};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_client_quotas_request::{EntityData, EntryData, OpData};
use kafka_protocol::messages::describe_client_quotas_request::ComponentData;
use kafka_protocol::messages::{AlterClientQuotasRequest, DescribeClientQuotasRequest};
use kafka_protocol::protocol::StrBytes;
use serde::Serialize;

use crate::client_options::ClientOptions;
use crate::command_error::CommandError;
use crate::output::{OutputFormat, Table};
use crate::size::size_in_bytes;

/// Kafka's match types for the parts of an entity.
const MATCH_NAME: i8 = 0;
const MATCH_DEFAULT: i8 = 1;

#[derive(Args, Debug)]
pub struct QuotaArguments {
    #[command(flatten)]
    client: ClientOptions,
    #[command(subcommand)]
    command: QuotaCommand,
}

#[derive(Subcommand, Debug)]
enum QuotaCommand {
    /// List quotas
    List(QuotaEntity),
    /// Set quotas; those that are not named stay
    Set(Set),
    /// Take quotas away
    Remove(Remove),
}

/// Entity that a quota applies to.
#[derive(Args, Debug)]
struct QuotaEntity {
    /// A user
    #[arg(long, value_name = "NAME", conflicts_with = "ip")]
    user: Option<String>,
    /// Every user that has none of its own
    #[arg(long, conflicts_with_all = ["user", "ip"])]
    user_default: bool,
    /// A client, by what it calls itself
    #[arg(long, value_name = "NAME", conflicts_with = "ip")]
    client: Option<String>,
    /// Every client that has none of its own
    #[arg(long, conflicts_with_all = ["client", "ip"])]
    client_default: bool,
    /// An address that clients connect from
    #[arg(long, value_name = "ADDRESS")]
    ip: Option<String>,
    /// Every address that has none of its own
    #[arg(long, conflicts_with_all = ["ip", "user", "user_default", "client", "client_default"])]
    ip_default: bool,
}

#[derive(Args, Debug)]
#[group(skip)]
struct Set {
    #[command(flatten)]
    of: QuotaEntity,
    /// Limits per second on each node: producer_byte_rate, consumer_byte_rate (such as 10MiB),
    /// controller_mutation_rate (partitions made and deleted), or of an address connection_creation_rate
    #[arg(required = true, value_name = "QUOTA=VALUE", value_parser = assignment)]
    quotas: Vec<(Quota, f64)>,
}

#[derive(Args, Debug)]
#[group(skip)]
struct Remove {
    #[command(flatten)]
    of: QuotaEntity,
    /// Which; all of them where none is named
    #[arg(value_name = "QUOTA", value_parser = quota)]
    quotas: Vec<Quota>,
}

fn quota(word: &str) -> Result<Quota, String> {
    Quota::from_word(word).ok_or_else(|| {
        let known: Vec<_> = Quota::ALL.iter().map(|quota| quota.word()).collect();
        format!("it is one of {}", known.join(", "))
    })
}

fn assignment(text: &str) -> Result<(Quota, f64), String> {
    let (word, value) = text.split_once('=').ok_or("say it as QUOTA=VALUE")?;
    let quota = quota(word)?;
    let number = match quota {
        Quota::ProducerByteRate | Quota::ConsumerByteRate => {
            size_in_bytes(value).map_err(|problem| format!("{value:?} {problem}"))? as f64
        }
        _ => value.parse().map_err(|_| format!("{value:?} is no number"))?,
    };
    Ok((quota, number))
}

impl QuotaEntity {
    fn entity(&self) -> Entity {
        let part = |of, name: &Option<String>, is_default: bool| {
            (name.is_some() || is_default).then(|| (of, name.clone()))
        };
        let parts = [
            part(EntityType::User, &self.user, self.user_default),
            part(EntityType::ClientId, &self.client, self.client_default),
            part(EntityType::Address, &self.ip, self.ip_default),
        ];
        Entity::of(parts.into_iter().flatten())
    }

    fn named(&self) -> Result<Entity, CommandError> {
        let entity = self.entity();
        match entity.0.is_empty() {
            true => Err(CommandError::user(
                "name the entity: --user, --client (or both), --ip, or --user-default, --client-default, --ip-default",
            )),
            false => Ok(entity),
        }
    }
}

/// Quotas, as printed.
#[derive(Serialize)]
struct PrintedQuota {
    /// Null: the default, for all entities without their own quota.
    entity: BTreeMap<String, Option<String>>,
    quotas: BTreeMap<String, f64>,
}

pub(crate) async fn run(arguments: QuotaArguments) -> Result<(), CommandError> {
    let client = arguments.client.connect().await?;
    let output = arguments.client.output();
    match arguments.command {
        QuotaCommand::List(of) => list(&client, output, &of.entity()).await,
        QuotaCommand::Set(set) => {
            let entity = set.of.named()?;
            let values = set.quotas.iter().map(|(quota, value)| (*quota, Some(*value))).collect();
            alter(&client, &entity, values).await?;
            Ok(output.show(&found(&client, &entity).await?, |_| "set the quotas\n".to_owned())?)
        }
        QuotaCommand::Remove(Remove { of, quotas }) => {
            let entity = of.named()?;
            let all = || {
                let of_address = entity.name(EntityType::Address).is_some();
                let is_of = |quota: &Quota| (*quota == Quota::ConnectionCreationRate) == of_address;
                Quota::ALL.into_iter().filter(is_of).collect()
            };
            let quotas = if quotas.is_empty() { all() } else { quotas };
            alter(&client, &entity, quotas.into_iter().map(|quota| (quota, None)).collect())
                .await?;
            Ok(output
                .show(&found(&client, &entity).await?, |_| "removed the quotas\n".to_owned())?)
        }
    }
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
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

async fn alter(
    client: &Client,
    entity: &Entity,
    values: Vec<(Quota, Option<f64>)>,
) -> Result<(), CommandError> {
    let parts = entity.0.iter().map(|(of, name)| {
        EntityData::default()
            .with_entity_type(text(of.word()))
            .with_entity_name(name.as_deref().map(text))
    });
    let ops = values.into_iter().map(|(quota, value)| {
        OpData::default()
            .with_key(text(quota.word()))
            .with_value(value.unwrap_or_default())
            .with_remove(value.is_none())
    });
    let entry = EntryData::default().with_entity(parts.collect()).with_ops(ops.collect());
    let request = AlterClientQuotasRequest::default().with_entries(vec![entry]);
    let answer = client.any().await.call(&request, 0..=1).await?;
    for entry in &answer.entries {
        accepted("cannot change the quotas", entry.error_code, entry.error_message.as_ref())?;
    }
    Ok(())
}

/// Quotas of all entities with these parts.
async fn found(client: &Client, entity: &Entity) -> Result<Vec<PrintedQuota>, CommandError> {
    let components = entity.0.iter().map(|(of, name)| {
        let mut component = ComponentData::default()
            .with_entity_type(text(of.word()))
            .with_match_type(if name.is_some() { MATCH_NAME } else { MATCH_DEFAULT });
        component._match = name.as_deref().map(text);
        component
    });
    let request = DescribeClientQuotasRequest::default().with_components(components.collect());
    let answer = client.any().await.call(&request, 0..=1).await?;
    accepted("cannot list quotas", answer.error_code, answer.error_message.as_ref())?;
    let shown = answer.entries.unwrap_or_default().into_iter().map(|entry| {
        let parts = entry.entity.into_iter();
        let values = entry.values.into_iter();
        PrintedQuota {
            entity: parts
                .map(|part| {
                    let name = part.entity_name.map(|name| name.to_string());
                    (part.entity_type.to_string(), name)
                })
                .collect(),
            quotas: values.map(|value| (value.key.to_string(), value.value)).collect(),
        }
    });
    Ok(shown.collect())
}

async fn list(client: &Client, output: OutputFormat, of: &Entity) -> Result<(), CommandError> {
    let found = found(client, of).await?;
    output.show(&found, |found| {
        let mut table = Table::new(&["USER", "CLIENT", "IP", "QUOTA", ">PER SECOND"]);
        for shown in found {
            let part = |of: EntityType| match shown.entity.get(of.word()) {
                None => "-".to_owned(),
                Some(None) => "(default)".to_owned(),
                Some(Some(name)) => name.clone(),
            };
            for (quota, value) in &shown.quotas {
                table.row([
                    part(EntityType::User),
                    part(EntityType::ClientId),
                    part(EntityType::Address),
                    quota.clone(),
                    value.to_string(),
                ]);
            }
        }
        if found.is_empty() { "no quotas\n".to_owned() } else { table.render() }
    })?;
    Ok(())
}
