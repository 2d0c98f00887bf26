//! Policies and operator policies.

use axum::http::StatusCode;
use axum::response::IntoResponse;
use operations::amqp::PolicyDefinition;
use serde_json::{Map, Value, json};
use topology::{Policy, PolicyScope, VirtualHost};

use crate::api::request::api_error::ApiError;
use crate::api::request::call::{Call, ObjectReader, Outcome};
use crate::api::request::list;

const NAME_BYTES_MAX: usize = 255;

pub(in crate::api) fn row(vhost: &VirtualHost, policy: &Policy) -> Value {
    let PolicyDefinition { pattern, apply_to, priority, definition } = &policy.set;
    json!({
        "vhost": vhost.name(), "name": &*policy.name, "pattern": pattern, "apply-to": apply_to,
        "priority": priority, "definition": definition,
    })
}

fn rows(call: &Call, vhosts: &[VirtualHost], scope: PolicyScope) -> Outcome {
    let mut all = Vec::new();
    for vhost in vhosts.iter().filter(|it| call.looks() || call.may_open(it.name())) {
        let mut policies = vhost.policies(scope);
        policies.sort_by(|a, b| a.name.cmp(&b.name));
        all.extend(policies.into_iter().map(|policy| (vhost.clone(), policy)));
    }
    let (all, chosen) = list::choose(&call.query, all, |(_, policy)| &policy.name)?;
    chosen.answer(all.iter().map(|(vhost, policy)| row(vhost, policy)).collect())
}

pub(in crate::api) async fn list(call: &Call) -> Outcome {
    rows(call, &call.vhosts().await?, PolicyScope::User)
}

pub(in crate::api) async fn list_operators(call: &Call) -> Outcome {
    rows(call, &call.vhosts().await?, PolicyScope::Operator)
}

async fn find(call: &Call, scope: PolicyScope) -> Outcome {
    let vhost = call.vhost().await?;
    if !call.looks() && !call.may_open(vhost.name()) {
        return Err(ApiError::not_authorised("User not authorised to access virtual host"));
    }
    let found = vhost.policies(scope).into_iter().find(|it| *it.name == *call.arg("name"));
    Ok(list::one(&call.query, row(&vhost, &found.ok_or_else(ApiError::not_found)?)))
}

pub(in crate::api) async fn one(call: &Call) -> Outcome {
    find(call, PolicyScope::User).await
}

pub(in crate::api) async fn one_operators(call: &Call) -> Outcome {
    find(call, PolicyScope::Operator).await
}

pub(in crate::api) fn parse(said: &Map<String, Value>) -> Result<PolicyDefinition, ApiError> {
    let reader = ObjectReader(said);
    let definition = reader.object("definition")?;
    let definition = definition.ok_or_else(|| ApiError::bad_request("key_missing: definition"))?;
    let apply_to = match reader.text("apply-to")? {
        None => operations::amqp::ApplyTo::default(),
        Some(text) => serde_json::from_value(text.into())
            .map_err(|_| ApiError::bad_request(format!("apply-to: {text} is not known")))?,
    };
    Ok(PolicyDefinition {
        pattern: reader.needed("pattern")?.to_owned(),
        apply_to,
        priority: reader.integer("priority", 0)?,
        definition: definition.iter().map(|(name, it)| (name.clone(), it.clone())).collect(),
    })
}

pub(in crate::api) async fn set(
    vhost: &VirtualHost,
    scope: PolicyScope,
    name: &str,
    policy: PolicyDefinition,
) -> Result<StatusCode, ApiError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let reason = format!("a policy has a name of 1 to {NAME_BYTES_MAX} bytes");
        return Err(ApiError::bad_request(reason));
    }
    let is_known = vhost.policies(scope).iter().any(|known| *known.name == *name);
    vhost.set_policy(scope, name, policy).await?;
    tracing::info!("policy {name:?} of vhost {:?} is set", vhost.name());
    Ok(if is_known { StatusCode::NO_CONTENT } else { StatusCode::CREATED })
}

async fn put_in(call: &Call, scope: PolicyScope) -> Outcome {
    let policy = parse(&call.object()?)?;
    Ok(set(&call.vhost().await?, scope, call.arg("name"), policy).await?.into_response())
}

pub(in crate::api) async fn put(call: &Call) -> Outcome {
    put_in(call, PolicyScope::User).await
}

pub(in crate::api) async fn put_operators(call: &Call) -> Outcome {
    put_in(call, PolicyScope::Operator).await
}

async fn delete_in(call: &Call, scope: PolicyScope) -> Outcome {
    let (vhost, name) = (call.vhost().await?, call.arg("name"));
    vhost.delete_policy(scope, name).await?;
    tracing::info!(by = call.user_name(), "policy {name:?} of vhost {:?} is cleared", vhost.name());
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(in crate::api) async fn delete(call: &Call) -> Outcome {
    delete_in(call, PolicyScope::User).await
}

pub(in crate::api) async fn delete_operators(call: &Call) -> Outcome {
    delete_in(call, PolicyScope::Operator).await
}
