//! Export of all definitions, as one document in RabbitMQ's format. It contains password hashes, so it requires an
//! administrator, and the log has the user's name.

pub(super) mod import;

use access::user_limits::LimitTarget;
use axum::Json;
use axum::response::IntoResponse;
use passwords::Verifiers;
use serde_json::{Map, Value, json};
use topology::{PolicyScope, VirtualHost};

use crate::api::administration::limits::values;
use crate::api::administration::users::ARGON2ID;
use crate::api::administration::{parameters, permissions, policies, vhosts};
use crate::api::messaging::{bindings, exchanges, queues};
use crate::api::node::overview::RABBITMQ_VERSION;
use crate::api::request::api_error::ApiError;
use crate::api::request::call::{Call, Outcome};

/// The members that RabbitMQ's file has.
fn only(row: &Value, names: &[&str], with_vhost: bool) -> Value {
    let mut out = Map::new();
    for name in names.iter().filter(|name| with_vhost || **name != "vhost") {
        out.insert((*name).to_owned(), row[*name].clone());
    }
    Value::Object(out)
}

pub(super) async fn export(call: &Call) -> Outcome {
    let of_one = !call.arg("vhost").is_empty();
    let of_vhosts = match of_one {
        true => vec![call.vhost().await?],
        false => call.topology.vhosts(),
    };
    let mut document = Map::new();
    document.insert("rabbit_version".to_owned(), RABBITMQ_VERSION.into());
    document.insert("rabbitmq_version".to_owned(), RABBITMQ_VERSION.into());
    document.insert("product_name".to_owned(), "Postroad".into());
    document.insert("product_version".to_owned(), call.node()?.version.into());
    let kind = match of_one {
        true => ("vhost", call.arg("vhost").to_owned()),
        false => ("cluster", call.broker().cluster_id().to_string()),
    };
    document.insert("rabbitmq_definition_format".to_owned(), kind.0.into());
    document
        .insert("original_cluster_name".to_owned(), call.broker().cluster_id().to_string().into());
    if !of_one {
        let (users, granted) = users(call)?;
        document.insert("users".to_owned(), users.into());
        document.insert("permissions".to_owned(), granted.into());
        let rows = of_vhosts.iter().map(vhosts::declared);
        document.insert("vhosts".to_owned(), rows.collect::<Vec<_>>().into());
        document.insert("topic_permissions".to_owned(), json!([]));
        let globals = parameters::globals(call).to_vec();
        document.insert("global_parameters".to_owned(), globals.into());
    } else {
        document.insert("original_vhost_name".to_owned(), kind.1.into());
    }
    document.insert("parameters".to_owned(), limits(call, &of_vhosts, !of_one)?.into());
    for (name, rows) in in_vhosts(&of_vhosts, !of_one) {
        document.insert(name.to_owned(), rows.into());
    }
    tracing::info!(by = call.user_name(), "definitions are exported");
    Ok(Json(Value::Object(document)).into_response())
}

/// Limits of virtual hosts, in RabbitMQ's format.
fn limits(call: &Call, vhosts: &[VirtualHost], with_vhost: bool) -> Result<Vec<Value>, ApiError> {
    let limits = call.users()?.limits();
    let rows = vhosts.iter().filter_map(|vhost| {
        let set = limits.of(LimitTarget::VirtualHost(vhost.name()))?;
        let mut row =
            json!({"component": "vhost-limits", "name": "limits", "value": values(Some(set))});
        if with_vhost {
            row["vhost"] = vhost.name().into();
        }
        Some(row)
    });
    Ok(rows.collect())
}

fn users(call: &Call) -> Result<(Vec<Value>, Vec<Value>), ApiError> {
    let store = call.users()?;
    let (mut rows, mut granted, limits) = (Vec::new(), Vec::new(), store.limits());
    // Users of the node's settings are not exported: they exist wherever the settings do.
    for user in store.list().iter().filter(|user| !user.of_settings) {
        let (hash, algorithm) = match store.verifiers(&user.name) {
            Some(Verifiers { password_hash: Some(hash), .. }) => (hash, ARGON2ID),
            Some(Verifiers { rabbitmq: Some(known), .. }) => (known.hash, known.algorithm.name()),
            _ => (String::new(), ARGON2ID),
        };
        rows.push(json!({
            "name": &*user.name, "password_hash": hash, "hashing_algorithm": algorithm,
            "tags": user.tags.names(), "limits": values(limits.of(LimitTarget::User(&user.name))),
        }));
        let set = user.permissions.iter();
        granted.extend(set.map(|(vhost, set)| permissions::row(&user.name, vhost, set)));
    }
    Ok((rows, granted))
}

/// Durable definitions only: no exclusive or transient ones.
fn in_vhosts(vhosts: &[VirtualHost], with_vhost: bool) -> [(&'static str, Vec<Value>); 4] {
    let [mut all_exchanges, mut all_queues, mut all_bindings, mut all_policies] =
        [const { Vec::new() }; 4];
    for vhost in vhosts {
        let exchanges = vhost.exchanges().into_iter();
        let kept = exchanges
            .filter(|it| it.durable && !it.name.is_empty() && !it.name.starts_with("amq."));
        let names = ["name", "vhost", "type", "durable", "auto_delete", "internal", "arguments"];
        all_exchanges.extend(kept.map(|it| only(&exchanges::row(&it), &names, with_vhost)));
        let queues: Vec<_> =
            vhost.queues().into_iter().filter(|it| it.declared && it.durable).collect();
        let names = ["name", "vhost", "durable", "auto_delete", "arguments"];
        all_queues.extend(queues.iter().map(|it| only(&queues::declared(it), &names, with_vhost)));
        let names =
            ["source", "vhost", "destination", "destination_type", "routing_key", "arguments"];
        let row =
            |it: &topology::Binding| only(&bindings::row(vhost.name(), it), &names, with_vhost);
        let leads = |end: &topology::Destination| match end {
            topology::Destination::Queue(name) => queues.iter().any(|queue| queue.name == *name),
            topology::Destination::Exchange(_) => true,
        };
        let kept = vhost.bindings().into_iter().filter(|it| leads(&it.destination));
        all_bindings.extend(kept.map(|it| row(&it)));
        let names = ["vhost", "name", "pattern", "apply-to", "definition", "priority"];
        let mut known = vhost.policies(PolicyScope::User);
        known.sort_by(|a, b| a.name.cmp(&b.name));
        all_policies
            .extend(known.iter().map(|it| only(&policies::row(vhost, it), &names, with_vhost)));
    }
    [
        ("policies", all_policies),
        ("queues", all_queues),
        ("exchanges", all_exchanges),
        ("bindings", all_bindings),
    ]
}
