//! Kafka's requests about quotas: describes and alters them (KIP-546).

use access::quotas::{Alteration, Component, Filter, Match, QuotaError};
use access_rules::quota::{Entity, EntityType};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::alter_client_quotas_request::EntryData;
use kafka_protocol::messages::describe_client_quotas_request::ComponentData;
use kafka_protocol::messages::{
    AlterClientQuotasRequest, AlterClientQuotasResponse, DescribeClientQuotasRequest,
    DescribeClientQuotasResponse, alter_client_quotas_response, describe_client_quotas_response,
};
use kafka_protocol::protocol::StrBytes;

use crate::errors::Fault;
use crate::messages::{RequestError, Response};
use crate::request::Request;
use crate::state::Gateway;

const MATCH_NAME: i8 = 0;
const MATCH_DEFAULT: i8 = 1;
const MATCH_ANY: i8 = 2;

fn invalid(message: String) -> Fault {
    Fault::new(ResponseError::InvalidRequest, message)
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub(crate) fn describe(gateway: &Gateway, mut request: Request) -> Result<Response, RequestError> {
    let message: DescribeClientQuotasRequest = request.decode()?;
    let filter = request.caller.cluster().and_then(|()| filter(&message));
    let response = DescribeClientQuotasResponse::default();
    let response = match filter {
        Ok(filter) => {
            let table = gateway.options.quotas.table();
            response.with_entries(Some(filter.of(&table).map(entry).collect()))
        }
        Err(fault) => response
            .with_error_code(fault.code())
            .with_error_message(fault.message_bytes())
            .with_entries(None),
    };
    Response::encode(&request.head, &response)
}

fn entry(
    (entity, values): (&Entity, &access_rules::quota::Values),
) -> describe_client_quotas_response::EntryData {
    let parts = entity.0.iter().map(|(of, name)| {
        describe_client_quotas_response::EntityData::default()
            .with_entity_type(text(of.word()))
            .with_entity_name(name.as_deref().map(text))
    });
    let values = values.iter().map(|(quota, value)| {
        describe_client_quotas_response::ValueData::default()
            .with_key(text(quota.word()))
            .with_value(*value)
    });
    describe_client_quotas_response::EntryData::default()
        .with_entity(parts.collect())
        .with_values(values.collect())
}

fn filter(message: &DescribeClientQuotasRequest) -> Result<Filter, Fault> {
    let mut filter = Filter { components: Vec::new(), strict: message.strict };
    for asked in &message.components {
        let component = component(asked)?;
        if filter.components.iter().any(|known| known.of == component.of) {
            let word = component.of.word();
            return Err(invalid(format!("the filter has {word} more than once")));
        }
        filter.components.push(component);
    }
    let of_address = filter.components.iter().any(|it| it.of == EntityType::Address);
    if of_address && filter.components.len() > 1 {
        return Err(invalid("a filter of an ip has neither a user nor a client-id".to_owned()));
    }
    Ok(filter)
}

fn component(asked: &ComponentData) -> Result<Component, Fault> {
    let word = &*asked.entity_type;
    let of = EntityType::from_word(word).ok_or_else(|| {
        let message = format!("quotas are of a user, a client-id or an ip, not of {word:?}");
        match word {
            "" => invalid(message),
            _ => Fault::new(ResponseError::UnsupportedVersion, message),
        }
    })?;
    let matches = match (asked.match_type, &asked._match) {
        (MATCH_NAME, Some(name)) => Match::Name(name.to_string()),
        (MATCH_DEFAULT, None) => Match::Default,
        (MATCH_ANY, None) => Match::Any,
        (MATCH_NAME, None) => return Err(invalid(format!("the filter names no {word}"))),
        (MATCH_DEFAULT | MATCH_ANY, Some(_)) => {
            return Err(invalid(format!("the filter names a {word} and asks for others")));
        }
        (other, _) => return Err(invalid(format!("there is no match type {other}"))),
    };
    Ok(Component { of, matches })
}

pub(crate) async fn alter(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: AlterClientQuotasRequest = request.decode()?;
    let read = |entry: &EntryData| {
        let read = alteration(entry);
        let entity = read.as_ref().map(|read| format!("quotas of {}", read.entity));
        request.caller.cluster_about(&entity.unwrap_or_default())?;
        read
    };
    let read: Vec<Result<Alteration, Fault>> = message.entries.iter().map(read).collect();
    let good: Vec<Alteration> = read.iter().flatten().cloned().collect();
    let altered = gateway.options.quotas.alter(&good, message.validate_only).await;
    let mut altered = altered.into_iter();
    let outcomes = read.into_iter().map(|read| {
        read.and_then(|_| altered.next().map_or(Ok(()), |altered| altered.map_err(refused)))
    });
    let entries = message.entries.into_iter().zip(outcomes).map(|(entry, outcome)| {
        let parts = entry.entity.into_iter().map(|part| {
            alter_client_quotas_response::EntityData::default()
                .with_entity_type(part.entity_type)
                .with_entity_name(part.entity_name)
        });
        let answer = alter_client_quotas_response::EntryData::default()
            .with_error_message(None)
            .with_entity(parts.collect());
        match outcome {
            Ok(()) => answer,
            Err(fault) => {
                answer.with_error_code(fault.code()).with_error_message(fault.message_bytes())
            }
        }
    });
    let response = AlterClientQuotasResponse::default().with_entries(entries.collect());
    Response::encode(&request.head, &response)
}

fn alteration(entry: &EntryData) -> Result<Alteration, Fault> {
    let mut entity = Entity::default();
    for part in &entry.entity {
        let word = &*part.entity_type;
        let of = EntityType::from_word(word).ok_or_else(|| {
            invalid(format!("quotas are of a user, a client-id or an ip, not of {word:?}"))
        })?;
        let name = part.entity_name.as_ref().map(|name| name.to_string());
        if entity.0.insert(of, name).is_some() {
            return Err(invalid(format!("the entity has {word} more than once")));
        }
    }
    let values = entry.ops.iter();
    let values = values.map(|op| (op.key.to_string(), (!op.remove).then_some(op.value)));
    Ok(Alteration { entity, values: values.collect() })
}

fn refused(error: QuotaError) -> Fault {
    let code = match &error {
        QuotaError::Invalid(_) => ResponseError::InvalidRequest,
        QuotaError::TooMany => ResponseError::PolicyViolation,
        QuotaError::NotKept => ResponseError::UnsupportedVersion,
        QuotaError::Storage(_) | QuotaError::Unreadable(_) => ResponseError::UnknownServerError,
    };
    Fault::new(code, error.to_string())
}
