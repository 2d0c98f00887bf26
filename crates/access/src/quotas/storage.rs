//! Storage of quotas: one document, so that the changes of a request are one entry of the log.

use access_rules::quota::{Entity, Values};
use broker::Broker;
use documents::store::{put, read};
use documents::{StoreError, WritePrecondition};
use serde::{Deserialize, Serialize};

use super::Table;
use crate::error::OpenError;

pub(super) const SPACE: &str = "access.quotas";
const DOCUMENT: &str = "kafka";

#[derive(Default, Serialize, Deserialize)]
struct QuotasDocument {
    quotas: Vec<StoredQuota>,
}

#[derive(Serialize, Deserialize)]
struct StoredQuota {
    entity: Entity,
    values: Values,
}

/// The quotas in the document, and its version.
pub(super) fn current(broker: &Broker) -> Result<(u64, Table), OpenError> {
    let Some(found) = read::<QuotasDocument>(broker, SPACE, DOCUMENT)? else {
        return Ok((0, Table::new()));
    };
    let quotas = found.body.quotas.into_iter();
    Ok((found.stored.version, quotas.map(|it| (it.entity, it.values)).collect()))
}

pub(super) async fn write(broker: &Broker, table: &Table, version: u64) -> Result<(), StoreError> {
    let quotas = table
        .iter()
        .map(|(entity, values)| StoredQuota { entity: entity.clone(), values: values.clone() })
        .collect();
    let (name, body) = (DOCUMENT.to_owned(), QuotasDocument { quotas });
    put(broker, SPACE, name, &body, WritePrecondition::Version(version)).await.map(drop)
}
