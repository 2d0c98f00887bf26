//! Refusals of the topology, in RabbitMQ's codes and words.

use broker::ExecuteError;
use broker::Refusal;
use documents::StoreError;
use topology::{BindingError, ChangeError, Entity, EntityKind, RouteError};

use super::values::{binary, term};
use crate::errors::{Exception, ReplyCode, Resource};
use crate::table::kind_name;

impl<'a> From<&'a Entity> for Resource<'a> {
    fn from(entity: &'a Entity) -> Self {
        match entity.kind {
            EntityKind::Exchange => Self::exchange(&entity.name, &entity.vhost),
            EntityKind::Queue => Self::queue(&entity.name, &entity.vhost),
        }
    }
}

impl From<ChangeError> for Exception {
    fn from(error: ChangeError) -> Self {
        let refused = |text| Self::new(ReplyCode::AccessRefused, text);
        match &error {
            ChangeError::DefaultExchange => refused(error.to_string()),
            ChangeError::ReservedName(entity) => {
                let Resource { kind, name, .. } = entity.into();
                refused(format!("{kind} name '{name}' contains reserved prefix 'amq.*'"))
            }
            ChangeError::SystemExchange(_) => refused(error.to_string()),
            ChangeError::NotFound(entity) => Self::not_found(entity.into()),
            ChangeError::VirtualHostGone(_) => {
                Self::new(ReplyCode::ConnectionForced, error.to_string())
            }
            ChangeError::Locked(entity) => Self::resource_locked(&entity.name, &entity.vhost),
            ChangeError::DefaultVirtualHost
            | ChangeError::ProtectedVirtualHost(_)
            | ChangeError::InUse(_)
            | ChangeError::NotEmpty(_) => Self::precondition_failed(error.to_string()),
            ChangeError::Binding(error) => Self::precondition_failed(binding_text(error)),
            ChangeError::Store(error) => store_exception(error),
        }
    }
}

impl From<StoreError> for Exception {
    fn from(error: StoreError) -> Self {
        store_exception(&error)
    }
}

impl From<RouteError> for Exception {
    fn from(error: RouteError) -> Self {
        match &error {
            RouteError::NotFound(entity) => Self::not_found(entity.into()),
            RouteError::Internal(_) => Self::new(ReplyCode::AccessRefused, error.to_string()),
        }
    }
}

/// The reply for a failed change of the broker's state.
fn store_exception(error: &StoreError) -> Exception {
    let code = match error {
        StoreError::Execute(ExecuteError::Refused(
            Refusal::TooManyDocuments { .. }
            | Refusal::TooManyPartitions { .. }
            | Refusal::TooManyLeaseGroups { .. }
            | Refusal::TooManyLeaseGroupPartitions { .. }
            | Refusal::DocumentTooLarge { .. },
        )) => ReplyCode::ResourceError,
        _ => ReplyCode::InternalError,
    };
    Exception::new(code, error.to_string())
}

fn binding_text(error: &BindingError) -> String {
    match error {
        BindingError::MatchValue(value) => format!(
            "Invalid x-match field value {}; expected all, any, all-with-x, or any-with-x",
            binary(value)
        ),
        BindingError::MatchType(value) => format!(
            "Invalid x-match field type {} (value {}); expected longstr",
            kind_name(value),
            term(value)
        ),
        BindingError::KeyNotEmpty(key) => {
            format!("Non empty binding '{key}' key not permitted")
        }
        BindingError::WeightNotInteger(key) => {
            format!("The binding key must be an integer: {}", binary(key.as_bytes()))
        }
        BindingError::WeightNotPositive => "The binding key must be greater than 0".to_owned(),
        BindingError::WeightTooLarge(key) => {
            format!("The binding key must be less than 4294967296: {key}")
        }
        BindingError::QueuesOnly => "Destination not found".to_owned(),
    }
}
