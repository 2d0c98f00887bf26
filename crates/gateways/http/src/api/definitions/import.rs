//! Import of a definitions file. The whole file is parsed and validated first, so that an unsupported entry changes
//! nothing. Existing objects with the same definition are kept.

use access::Users;
use access::user_limits::LimitTarget;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use operations::amqp::PolicyDefinition;
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use topology::{BindingRequest, Destination, PolicyScope, VirtualHost};
use values::Table;

use crate::api::administration::{limits, permissions, policies, users, vhosts};
use crate::api::messaging::{bindings, exchanges, queues};
use crate::api::request::api_error::ApiError;
use crate::api::request::call::{Call, ObjectReader, Outcome, exchange_name, object};
use crate::limits::HTTP_API_DEFINITIONS_LIMITS;

/// Imports run one at a time: a file may be large.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// Header of the response to the import that created the first user: the effect on log-ins. The body stays empty, as
/// RabbitMQ's clients expect.
const NOTICE: HeaderName = HeaderName::from_static("postroad-notice");

/// Sections that describe the file and declare nothing.
const ABOUT: [&str; 12] = [
    "rabbit_version",
    "rabbitmq_version",
    "product_name",
    "product_version",
    "rabbitmq_definition_format",
    "original_cluster_name",
    "original_vhost_name",
    "explanation",
    "metadata",
    "description",
    "default_queue_type",
    "tags",
];

/// Global parameters that RabbitMQ writes by itself.
const IGNORED_GLOBAL_PARAMETERS: [&str; 2] = ["cluster_name", "internal_cluster_id"];

/// A validated file.
#[derive(Default)]
struct File {
    vhosts: Vec<(String, vhosts::VhostMetadata)>,
    users: Vec<(String, Map<String, Value>)>,
    permissions: Vec<(String, String, access_rules::Permissions)>,
    policies: Vec<(String, String, PolicyDefinition)>,
    queues: Vec<(String, String, queues::QueueRequest)>,
    exchanges: Vec<(String, String, exchanges::ExchangeRequest)>,
    bindings: Vec<NewBinding>,
    /// User (true) or virtual host, its name, the limit's name, its value.
    limits: Vec<((bool, String), String, i64)>,
}

struct NewBinding {
    vhost: String,
    source: String,
    destination: Destination,
    key: String,
    arguments: Table,
}

pub(in crate::api) async fn import(call: &Call) -> Outcome {
    let _turn = ONE_AT_A_TIME.lock().await;
    let (headers, body, vhost) =
        (call.headers.clone(), call.body().clone(), call.arg("vhost").to_owned());
    let read = move || {
        let document = object(&file(&headers, &body)?, &HTTP_API_DEFINITIONS_LIMITS)?;
        File::of(&document, &vhost)
    };
    let file = call.front.parse(call.body().len(), read).await?;
    if !call.arg("vhost").is_empty() {
        // The virtual host must exist.
        call.vhost().await?;
    }
    if call.query.is_true("dry_run") {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let had_users = call.users().is_ok_and(Users::has_any);
    // As in RabbitMQ, an administrator's import needs no permissions in the virtual hosts of the file.
    file.apply(&call.with_every_right()).await?;
    tracing::info!(by = call.user_name(), "definitions are imported");
    let mut response = StatusCode::NO_CONTENT.into_response();
    let notice = call.users().ok().filter(|_| !had_users).and_then(Users::login_notice);
    if let Some(notice) = notice.and_then(|notice| HeaderValue::from_str(&notice).ok()) {
        response.headers_mut().insert(NOTICE, notice);
    }
    Ok(response)
}

/// The body, or the file within a multipart form.
fn file(headers: &HeaderMap, body: &Bytes) -> Result<Bytes, ApiError> {
    let content = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let Some(parameters) = content.strip_prefix("multipart/form-data") else {
        return Ok(body.clone());
    };
    let wrong = || ApiError::bad_request("the form has no part named file");
    let boundary = parameters.split(';').find_map(|it| it.trim().strip_prefix("boundary="));
    let boundary = boundary.map(|it| it.trim_matches('"')).filter(|it| !it.is_empty());
    part(body, boundary.ok_or_else(wrong)?).map(|range| body.slice(range)).ok_or_else(wrong)
}

/// Range of the content of the part named `file` (RFC 7578).
pub(in crate::api) fn part(body: &[u8], boundary: &str) -> Option<std::ops::Range<usize>> {
    let find = |from: usize, sought: &[u8]| {
        let rest = body.get(from..)?;
        rest.windows(sought.len()).position(|window| window == sought).map(|at| from + at)
    };
    let mark = format!("--{boundary}");
    let mut at = find(0, mark.as_bytes())?;
    loop {
        let head = at + mark.len();
        let content = find(head, b"\r\n\r\n")? + 4;
        let end = find(content, format!("\r\n{mark}").as_bytes())?;
        let headers = String::from_utf8_lossy(&body[head..content]);
        if headers.contains("name=\"file\"") || headers.contains("name=file") {
            return Some(content..end);
        }
        at = end + 2;
    }
}

impl File {
    /// `of`: the virtual host of all entries; empty: each entry names its own.
    fn of(document: &Map<String, Value>, of: &str) -> Result<Self, ApiError> {
        let mut file = Self::default();
        for (section, value) in document {
            if ABOUT.contains(&section.as_str()) {
                continue;
            }
            // Limits of the file's virtual host, which are among its parameters, too.
            if section == "limits" && !of.is_empty() {
                file.add_limits(
                    ObjectReader(document).object(section)?,
                    LimitTarget::VirtualHost(of),
                )?;
                continue;
            }
            let rows = match value {
                Value::Array(rows) => rows.as_slice(),
                Value::Null => &[],
                // Some tools write `{}` for an empty list.
                Value::Object(map) if map.is_empty() => &[],
                _ => return Err(ApiError::bad_request(format!("{section} is to be a list"))),
            };
            for row in rows {
                let Value::Object(row) = row else {
                    return Err(ApiError::bad_request(format!("{section}: {row} is no object")));
                };
                let named = |refused: ApiError| {
                    let name = row.get("name").or(row.get("user")).and_then(Value::as_str);
                    let name = name.unwrap_or_default();
                    ApiError::bad_request(format!("{section} {name:?}: {}", refused.reason()))
                };
                file.add(section, row, of).map_err(named)?;
            }
        }
        Ok(file)
    }

    fn add(&mut self, section: &str, row: &Map<String, Value>, of: &str) -> Result<(), ApiError> {
        let said = ObjectReader(row);
        let vhost = || match of {
            "" => said.needed("vhost").map(str::to_owned),
            of => Ok(of.to_owned()),
        };
        let name = || said.needed("name").map(str::to_owned);
        let is_of_one = !of.is_empty();
        match section {
            "vhosts" | "users" | "permissions" | "topic_permissions" | "global_parameters"
                if is_of_one =>
            {
                Err(ApiError::bad_request("a file for one virtual host has none of these"))
            }
            "vhosts" => {
                let wanted = vhosts::VhostMetadata::of(row)?;
                vhosts::check_name(&name()?)?;
                let name = name()?;
                self.add_limits(said.object("limits")?, LimitTarget::VirtualHost(&name))?;
                self.vhosts.push((name, wanted));
                Ok(())
            }
            "users" => {
                users::check(row)?;
                let name = name()?;
                self.add_limits(said.object("limits")?, LimitTarget::User(&name))?;
                self.users.push((name, row.clone()));
                Ok(())
            }
            "permissions" => {
                let user = said.needed("user")?.to_owned();
                self.permissions.push((vhost()?, user, permissions::parse(row)?));
                Ok(())
            }
            "policies" => {
                self.policies.push((vhost()?, name()?, policies::parse(row)?));
                Ok(())
            }
            "queues" => {
                self.queues.push((vhost()?, name()?, queues::QueueRequest::of(row)?));
                Ok(())
            }
            "exchanges" => {
                self.exchanges.push((vhost()?, name()?, exchanges::ExchangeRequest::of(row)?));
                Ok(())
            }
            "bindings" => {
                let destination = said.needed("destination")?;
                let destination = match said.needed("destination_type")? {
                    "queue" => Destination::Queue(destination.into()),
                    "exchange" => Destination::Exchange(exchange_name(destination).into()),
                    other => {
                        return Err(ApiError::bad_request(format!("destination_type {other}")));
                    }
                };
                let (key, arguments) = bindings::parse(row)?;
                let source = exchange_name(said.needed("source")?).to_owned();
                self.bindings.push(NewBinding {
                    vhost: vhost()?,
                    source,
                    destination,
                    key,
                    arguments,
                });
                Ok(())
            }
            "global_parameters" if IGNORED_GLOBAL_PARAMETERS.contains(&name()?.as_str()) => Ok(()),
            // RabbitMQ's format for limits of virtual hosts.
            "parameters" if said.text("component")? == Some("vhost-limits") => {
                self.add_limits(said.object("value")?, LimitTarget::VirtualHost(&vhost()?))
            }
            "parameters" => Err(ApiError::bad_request(format!(
                "component {} not found",
                said.text("component")?.unwrap_or_default()
            ))),
            _ => Err(ApiError::bad_request("that is not there here")),
        }
    }

    fn add_limits(
        &mut self,
        said: Option<&Map<String, Value>>,
        of: LimitTarget<'_>,
    ) -> Result<(), ApiError> {
        for (word, value) in said.into_iter().flatten() {
            let wrong = || ApiError::bad_request(format!("limits: {word} is no number"));
            let value = value.as_i64().ok_or_else(wrong)?;
            limits::check(of, word, value)?;
            let name = match of {
                LimitTarget::User(name) => (true, name.to_owned()),
                LimitTarget::VirtualHost(name) => (false, name.to_owned()),
            };
            self.limits.push((name, word.clone(), value));
        }
        Ok(())
    }

    async fn apply(self, call: &Call) -> Result<(), ApiError> {
        for (name, wanted) in &self.vhosts {
            vhosts::make(call, name, wanted).await?;
        }
        for (name, said) in &self.users {
            if call.users()?.list().iter().any(|user| user.of_settings && *user.name == **name) {
                return Err(ApiError::bad_request(format!(
                    "users {name:?}: it is one of the node's settings, and is changed there"
                )));
            }
            users::set(call, name, said, true).await?;
        }
        for ((is_user, name), word, value) in &self.limits {
            let of =
                if *is_user { LimitTarget::User(name) } else { LimitTarget::VirtualHost(name) };
            limits::set_to(call, of, word, *value).await?;
        }
        for (vhost, user, set) in self.permissions {
            self::vhost(call, &vhost).await?;
            call.users()?.allow(&user, &vhost, set).await?;
        }
        for (vhost, name, policy) in self.policies {
            policies::set(&self::vhost(call, &vhost).await?, PolicyScope::User, &name, policy)
                .await?;
        }
        for (vhost, name, declared) in &self.queues {
            declared.declare(call, &self::vhost(call, vhost).await?, name).await?;
        }
        for (vhost, name, declared) in &self.exchanges {
            declared.declare(call, &self::vhost(call, vhost).await?, exchange_name(name)).await?;
        }
        for binding in &self.bindings {
            // Every queue has a binding of the default exchange.
            if binding.source.is_empty() {
                continue;
            }
            let NewBinding { vhost, source, destination, key, arguments } = binding;
            let request = BindingRequest { source, destination, key, arguments };
            bindings::bind(call, &self::vhost(call, vhost).await?, request).await?;
        }
        Ok(())
    }
}

async fn vhost(call: &Call, name: &str) -> Result<VirtualHost, ApiError> {
    let found = call.topology.look_for_vhost(name).await?;
    found.ok_or_else(|| ApiError::bad_request(format!("there is no virtual host {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_found_in_its_part_of_a_form() {
        let form = b"--x\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nno\r\n--x\r\n\
            Content-Disposition: form-data; name=\"file\"; filename=\"d.json\"\r\n\r\n{}\r\n--x--\r\n";
        assert_eq!(part(form, "x").map(|range| &form[range]), Some(&b"{}"[..]));
        assert_eq!(part(form, "y"), None);
        assert_eq!(part(b"--x", "x"), None);
        assert_eq!(part(b"", "x"), None);
    }

    #[test]
    fn unsupported_definitions_are_rejected_by_name() {
        let refused = |text: &str| {
            let document = serde_json::from_str(text).expect("JSON");
            File::of(&document, "").err().expect("is refused").reason().to_owned()
        };
        for (text, word) in [
            (r#"{"shovels":[{"name":"s"}]}"#, "shovels"),
            (r#"{"parameters":[{"component":"shovel","name":"s"}]}"#, "shovel"),
            (r#"{"topic_permissions":[{"user":"u"}]}"#, "topic_permissions"),
            (r#"{"users":[{"name":"u","tags":"","limits":{"max-queues":1}}]}"#, "max-queues"),
            (r#"{"vhosts":[{"name":"v","limits":{"max-queues":"x"}}]}"#, "max-queues"),
            (r#"{"vhosts":[{"name":"v","tracing":true}]}"#, "tracing"),
            (r#"{"queues":[{"name":"q"}]}"#, "vhost"),
            (r#"{"queues":1}"#, "list"),
        ] {
            assert!(refused(text).contains(word), "{text}: {}", refused(text));
        }
        let fine = r#"{"rabbit_version":"4","global_parameters":[{"name":"cluster_name","value":"x"}],"topic_permissions":[]}"#;
        assert!(File::of(&serde_json::from_str(fine).expect("JSON"), "").is_ok());
    }
}
