//! The OpenAPI document: paths and schemas are generated from the routes, and errors, limits and log-ins are added to
//! all of them. A test compares it with its copy, docs/user/openapi.json.

use std::sync::LazyLock;

use crate::limits::{
    HTTP_APPENDS_MAX, HTTP_LEASE_MAX, HTTP_LEASE_MIN, HTTP_READ_BYTES_MAX, HTTP_RECORD_HEADERS_MAX,
    HTTP_RECORDS_MAX, HTTP_SEARCH_BYTES_MAX, HTTP_SEARCH_MATCHES_MAX, HTTP_SETTLES_MAX,
    HTTP_TRACED_MAX, HTTP_WAIT_MAX,
};
use axum::Json;
use base::limits::{
    AMQP_PASSWORD_BYTES_MAX, HTTP_PAGE_MAX, NEW_TOPIC_PARTITIONS_MAX, TOPIC_NAME_BYTES_MAX,
};
use serde_json::{Map, Value, json};
use utoipa::openapi::{InfoBuilder, OpenApi, OpenApiBuilder};

use crate::problem::Kind;

const METHODS: [&str; 5] = ["get", "put", "post", "patch", "delete"];
const PROBLEM: &str = "application/problem+json";
/// Public: browsers log in and out by it.
const SESSION: &str = "/v1/session";
/// Its limit is lower, because its rows are more expensive.
const TRACE: &str = "/v1/trace";

pub(super) fn about() -> OpenApi {
    let info = InfoBuilder::new()
        .title("Postroad")
        .version("1")
        .description(Some(
            "Topics, records and leases. Problems are documents of RFC 9457; docs/user/http.md has more.",
        ))
        .build();
    OpenApiBuilder::new().info(info).build()
}

/// The complete document.
pub(crate) fn document() -> &'static Value {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
        let routes = super::documented().merge(super::documented_public()).into_openapi();
        // All keys are strings and all numbers integers, so serialization succeeds.
        let mut document = serde_json::to_value(routes).unwrap_or_default();
        complete(&mut document);
        document
    });
    &DOCUMENT
}

pub(super) async fn serve() -> Json<&'static Value> {
    Json(document())
}

fn complete(document: &mut Value) {
    document["servers"] =
        json!([{"url": "/", "description": "the node that serves this document"}]);
    document["components"]["securitySchemes"] = json!({
        "basic": {"type": "http", "scheme": "basic"},
        "token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
        "session": {"type": "apiKey", "in": "cookie", "name": "postroad", "description": "of a browser"},
    });
    // The empty entry: a node without users requires no log-in.
    document["security"] = json!([{"basic": []}, {"token": []}, {"session": []}, {}]);
    let responses = Kind::ALL.iter().map(|kind| (kind.status().as_u16().to_string(), *kind));
    let mut problems = Map::new();
    for (status, kind) in responses {
        problems.entry(status).or_insert_with(|| problem(kind.title()));
    }
    problems.insert("default".to_owned(), problem("Any other problem"));
    for (path, item) in objects(&mut document["paths"]) {
        for (method, operation) in
            objects(item).filter(|(name, _)| METHODS.contains(&name.as_str()))
        {
            add_responses(path, method, operation, &problems);
            limit_parameters(path, operation);
            if path == SESSION {
                operation["security"] = json!([]);
            }
        }
    }
    document["components"]["responses"] = problems.into();
    limit_schemas(&mut document["components"]["schemas"]);
}

fn objects(value: &mut Value) -> impl Iterator<Item = (&String, &mut Value)> {
    value.as_object_mut().into_iter().flat_map(Map::iter_mut)
}

fn problem(title: &str) -> Value {
    let schema = json!({"schema": {"$ref": "#/components/schemas/Problem"}});
    json!({"description": title, "content": {PROBLEM: schema}})
}

/// Adds the problem statuses that an operation may return.
fn add_responses(path: &str, method: &str, operation: &mut Value, problems: &Map<String, Value>) {
    let (changes, has_body) = (method != "get", operation["requestBody"].is_object());
    let is_under = |prefix: &str| path.starts_with(prefix);
    let conditional = operation["parameters"].as_array().is_some_and(|all| {
        all.iter()
            .any(|it| it["name"].as_str().is_some_and(|it| it.eq_ignore_ascii_case("if-match")))
    });
    let statuses = [
        ("400", true),
        ("401", true),
        ("403", true),
        ("404", path.contains('{')),
        ("408", has_body),
        ("409", changes),
        ("412", conditional),
        ("413", has_body),
        ("416", is_under("/v1/topics/{topic}/partitions/") || path.ends_with("/stream")),
        ("421", true),
        ("422", changes || path.contains('{')),
        ("429", is_under("/v1/topics")),
        ("503", true),
        ("504", changes),
        ("507", path.ends_with("/records") && changes),
        ("default", true),
    ];
    // OpenAPI requires a description of each response.
    for (status, response) in objects(&mut operation["responses"]) {
        let description = match status.as_str() {
            "201" => "It is created",
            "204" => "It is done",
            _ => "The answer",
        };
        if !response["description"].is_string() {
            response["description"] = description.into();
        }
    }
    for (status, _) in statuses.iter().filter(|(_, may_be)| *may_be) {
        if problems.contains_key(*status) {
            let reference = format!("#/components/responses/{status}");
            operation["responses"][*status] = json!({"$ref": reference});
        }
    }
}

/// Adds limits of parameters, which have the same meaning in all operations.
fn limit_parameters(path: &str, operation: &mut Value) {
    let rows = if path == TRACE { HTTP_TRACED_MAX } else { HTTP_PAGE_MAX };
    let limits = [
        ("limit", json!({"minimum": 1, "maximum": rows})),
        ("max_records", json!({"minimum": 1, "maximum": HTTP_RECORDS_MAX})),
        ("max_bytes", json!({"minimum": 1, "maximum": HTTP_READ_BYTES_MAX})),
        ("wait_ms", json!({"minimum": 0, "maximum": HTTP_WAIT_MAX.as_millis() as u64})),
    ];
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        let limit = limits.iter().find(|(name, _)| parameter["name"] == *name);
        if let Some((_, limit)) = limit {
            add(&mut parameter["schema"], limit);
        }
    }
}

fn add(schema: &mut Value, limits: &Value) {
    for (name, value) in limits.as_object().into_iter().flatten() {
        schema[name] = value.clone();
    }
}

/// Limits of members of bodies.
fn schema_limits() -> Vec<(&'static str, &'static str, Value)> {
    let lease = json!({
        "minimum": HTTP_LEASE_MIN.as_millis() as u64,
        "maximum": HTTP_LEASE_MAX.as_millis() as u64,
    });
    let topic = json!({
        "minLength": 1,
        "maxLength": TOPIC_NAME_BYTES_MAX,
        "pattern": "^[a-zA-Z0-9._-]+$",
    });
    let password = json!({"minLength": 1, "maxLength": AMQP_PASSWORD_BYTES_MAX});
    vec![
        ("NewRecords", "records", json!({"minItems": 1, "maxItems": HTTP_RECORDS_MAX})),
        ("NewRecord", "headers", json!({"maxItems": HTTP_RECORD_HEADERS_MAX})),
        ("CreateTopic", "name", topic),
        ("CreateTopic", "partitions", json!({"minimum": 1, "maximum": NEW_TOPIC_PARTITIONS_MAX})),
        ("Take", "max_records", json!({"minimum": 1, "maximum": HTTP_SETTLES_MAX})),
        ("Take", "max_bytes", json!({"minimum": 1, "maximum": HTTP_READ_BYTES_MAX})),
        ("Take", "wait_ms", json!({"maximum": HTTP_WAIT_MAX.as_millis() as u64})),
        ("Take", "lease_ms", lease.clone()),
        ("Extend", "lease_ms", lease),
        ("Extend", "tokens", json!({"minItems": 1, "maxItems": HTTP_SETTLES_MAX})),
        ("NewTransaction", "settles", json!({"maxItems": HTTP_SETTLES_MAX})),
        ("NewTransaction", "appends", json!({"maxItems": HTTP_APPENDS_MAX})),
        ("Settles", "settles", json!({"minItems": 1, "maxItems": HTTP_SETTLES_MAX})),
        ("Search", "max_matches", json!({"minimum": 1, "maximum": HTTP_SEARCH_MATCHES_MAX})),
        ("Search", "max_bytes", json!({"minimum": 1, "maximum": HTTP_SEARCH_BYTES_MAX})),
        ("NewUser", "name", json!({"minLength": 1})),
        ("NewUser", "password", password.clone()),
        ("NewPassword", "password", password),
    ]
}

fn limit_schemas(schemas: &mut Value) {
    for (schema, member, limits) in schema_limits() {
        add(&mut schemas[schema]["properties"][member], &limits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_documents_its_problems() {
        let document = document();
        for (path, item) in document["paths"].as_object().expect("paths") {
            for (method, operation) in item.as_object().expect("operations") {
                if !METHODS.contains(&method.as_str()) {
                    continue;
                }
                let responses = operation["responses"].as_object().expect("responses");
                for status in ["400", "401", "403", "503", "default"] {
                    let problem = &responses[status]["$ref"];
                    let expected = format!("#/components/responses/{status}");
                    assert_eq!(problem, &expected, "{method} {path} {status}");
                }
                for (status, response) in responses.iter().filter(|(it, _)| it.starts_with('2')) {
                    assert!(response["description"].is_string(), "{method} {path} {status}");
                }
                let parameters = operation.get("parameters");
                assert!(parameters.is_none_or(Value::is_array), "{method} {path}");
                let has_body = operation["requestBody"].is_object();
                assert_eq!(responses.contains_key("413"), has_body, "{method} {path}");
                assert_eq!(responses.contains_key("404"), path.contains('{'), "{method} {path}");
            }
        }
        assert!(document["paths"]["/v1/session"]["post"]["security"].is_array());
    }

    #[test]
    fn schema_limits_name_existing_members() {
        let routes = super::super::documented().into_openapi();
        let plain = serde_json::to_value(routes).expect("JSON");
        for (schema, member, _) in schema_limits() {
            let found = &plain["components"]["schemas"][schema]["properties"][member];
            assert!(found.is_object(), "{schema}.{member}");
        }
    }

    #[test]
    fn schemas_are_named_by_the_api() {
        let schemas = document()["components"]["schemas"].as_object().expect("schemas");
        for name in ["BTreeMap", "HashMap", "Vec", "Value"] {
            assert!(!schemas.contains_key(name), "{name}");
        }
    }
}
