//! Changes of quotas, and their validation.

use std::net::IpAddr;

use access_rules::quota::{Entity, EntityType, Quota};

use super::{QuotaError, Table};
use crate::limits::QUOTA_NAME_BYTES_MAX;

/// Kafka's quota of thread time. Not supported: requests share the threads of a node, and their cost is not measured.
const REQUEST_PERCENTAGE: &str = "request_percentage";

/// Change of an entity's quotas, by Kafka's names; `None` removes a quota.
#[derive(Clone, PartialEq, Debug)]
pub struct Alteration {
    pub entity: Entity,
    pub values: Vec<(String, Option<f64>)>,
}

impl Alteration {
    pub(super) fn check(&self) -> Result<(), QuotaError> {
        check_entity(&self.entity)?;
        for (key, value) in &self.values {
            self.check_value(key, *value).map_err(QuotaError::Invalid)?;
        }
        Ok(())
    }

    fn check_value(&self, key: &str, value: Option<f64>) -> Result<(), String> {
        let Some(quota) = Quota::from_word(key) else {
            return match (key, value) {
                // Removing it is allowed: it is never set.
                (REQUEST_PERCENTAGE, None) => Ok(()),
                (REQUEST_PERCENTAGE, Some(_)) => Err(format!(
                    "{REQUEST_PERCENTAGE} is not offered: clients share this broker's threads, and the time that \
                     one of them takes is not measured"
                )),
                _ => Err(format!("there is no quota {key:?}")),
            };
        };
        if quota.is_of_address() != self.entity.is_of_address() {
            let of = if quota.is_of_address() { "an ip" } else { "a user or a client-id" };
            return Err(format!("{key} is a quota of {of}"));
        }
        let Some(value) = value else { return Ok(()) };
        if !value.is_finite() || value <= 0.0 {
            return Err(format!("{key} must be greater than 0"));
        }
        if quota.is_whole() && value.fract() != 0.0 {
            return Err(format!("{key} is a whole number"));
        }
        let max = if quota.is_of_address() { f64::from(i32::MAX) } else { i64::MAX as f64 };
        if value > max {
            return Err(format!("{key} is {max} at most"));
        }
        Ok(())
    }

    pub(super) fn apply(&self, table: &mut Table) {
        let values = table.entry(self.entity.clone()).or_default();
        for (key, value) in &self.values {
            let Some(quota) = Quota::from_word(key) else { continue };
            match value {
                Some(value) => values.insert(quota, *value),
                None => values.remove(&quota),
            };
        }
        if values.is_empty() {
            table.remove(&self.entity);
        }
    }
}

fn check_entity(entity: &Entity) -> Result<(), QuotaError> {
    let invalid = |text: String| Err(QuotaError::Invalid(text));
    if entity.0.is_empty() {
        return invalid("a quota is of a user, a client-id or an ip".to_owned());
    }
    if entity.is_of_address() && entity.0.len() > 1 {
        return invalid("an ip goes with neither a user nor a client-id".to_owned());
    }
    for (of, name) in &entity.0 {
        let Some(name) = name else { continue };
        let word = of.word();
        if name.is_empty() || name.len() > QUOTA_NAME_BYTES_MAX {
            return invalid(format!("a {word} has 1 to {QUOTA_NAME_BYTES_MAX} bytes"));
        }
        if *of == EntityType::Address && name.parse::<IpAddr>().is_err() {
            return invalid(format!("{name:?} is no address"));
        }
    }
    Ok(())
}
