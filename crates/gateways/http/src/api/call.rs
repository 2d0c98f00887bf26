//! One request of the management API: authorization, then dispatch to its endpoint.

use std::pin::Pin;
use std::sync::Arc;

use crate::limits::HTTP_DOCUMENT_LIMITS;
use access::user_limits::{Limit, LimitTarget};
use access::{AccessTarget, Operation, Users};
use access_rules::quota::Quota;
use axum::extract::Request;
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use base::json::{self, JsonLimits};
use broker::Broker;
use bytes::Bytes;
use rabbitmq::rights::Rights;
use serde_json::{Map, Value};
use topology::{OwnerId, Topology, VirtualHost};

use super::api_error::ApiError;
use super::endpoints::{ENDPOINTS, Endpoint, Gate};
use super::path::{Query, captured, segments};
use crate::connection::Peer;
use crate::front::{FrontEnd, Node};
use crate::login::RequestClient;
use crate::quotas::RequestCharges;
use crate::v1::request_input;

/// User name on ports without log-in.
const NOBODY: &str = "anonymous";
/// Name of the default exchange in paths.
const DEFAULT_EXCHANGE: &str = "amq.default";

pub(super) type Outcome = Result<Response, ApiError>;
pub(super) type OutcomeFuture<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

pub(super) struct Call {
    pub(super) front: FrontEnd,
    pub(super) caller: RequestClient,
    pub(super) peer: Peer,
    pub(super) topology: Topology,
    pub(super) query: Query,
    pub(super) headers: HeaderMap,
    arguments: Vec<(&'static str, String)>,
    body: Bytes,
}

pub(super) async fn answer(
    front: FrontEnd,
    caller: RequestClient,
    peer: Peer,
    request: Request,
) -> Result<Response, ApiError> {
    if !caller.rights().manages() {
        return Err(ApiError::not_authorised("Not management user"));
    }
    let topology = front.opened()?.topology.clone();
    let topology = topology.ok_or_else(|| ApiError::unavailable("there is no management here"))?;
    let (head, body) = request.into_parts();
    let segments = segments(head.uri.path())?;
    let (endpoint, arguments) = found(&head.method, &segments)?;
    let query = Query::of(head.uri.query())?;
    let (headers, none) = (head.headers, Bytes::new());
    let mut call = Call { front, caller, peer, topology, query, headers, arguments, body: none };
    // Checked before the body is read: it may be large.
    call.check(endpoint.gate, endpoint.method).await?;
    if endpoint.body_bytes_max > 0 {
        call.body = request_input::whole(&call.front, body, endpoint.body_bytes_max).await?;
    }
    (endpoint.carry_out)(&call).await
}

type RouteMatch = (&'static Endpoint, Vec<(&'static str, String)>);

fn found(method: &Method, segments: &[String]) -> Result<RouteMatch, ApiError> {
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let mut is_known = false;
    for endpoint in ENDPOINTS {
        let Some(arguments) = captured(endpoint.path, segments) else { continue };
        if endpoint.method == method {
            return Ok((endpoint, arguments));
        }
        is_known = true;
    }
    Err(if is_known { ApiError::method_not_allowed() } else { ApiError::not_found() })
}

impl Call {
    pub(super) fn node(&self) -> Result<&Node, ApiError> {
        Ok(self.front.opened()?)
    }

    pub(super) fn broker(&self) -> &Broker {
        self.topology.broker()
    }

    /// The limit in effect; `None`: unlimited.
    pub(super) fn limit(&self, of: LimitTarget<'_>, limit: Limit) -> Result<Option<u64>, ApiError> {
        Ok(self.node()?.users.as_ref().and_then(|users| users.limit(of, limit)))
    }

    /// As [`RequestCharges::begin`].
    pub(super) fn spends(&self, quota: Quota) -> Result<RequestCharges, ApiError> {
        Ok(RequestCharges::begin(self.node()?, &self.caller, quota)?)
    }

    pub(super) fn users(&self) -> Result<&Users, ApiError> {
        let users = self.node()?.users.as_ref();
        users.ok_or_else(|| ApiError::bad_request("there are no users here"))
    }

    /// Value of a path parameter.
    pub(super) fn arg(&self, name: &str) -> &str {
        let found = self.arguments.iter().find(|(known, _)| *known == name);
        found.map_or("", |(_, value)| value)
    }

    /// Exchange in a path parameter, with `amq.default` mapped to the empty name.
    pub(super) fn exchange_arg(&self, name: &str) -> &str {
        exchange_name(self.arg(name))
    }

    /// Owner of exclusive queues; here the HTTP connection, which never has one.
    pub(super) fn owner(&self) -> OwnerId {
        OwnerId(self.peer.connection.id())
    }

    pub(super) fn user_name(&self) -> &str {
        self.caller.name().unwrap_or(NOBODY)
    }

    /// The user's rights in RabbitMQ's terms.
    pub(super) fn rights(&self) -> Rights {
        Rights::from_known(Arc::from(self.user_name()), self.caller.shared_rights())
    }

    pub(super) fn looks(&self) -> bool {
        self.caller.rights().would(Operation::Look, AccessTarget::Cluster)
    }

    /// Whether the user may administer the cluster. Reads are not audited.
    fn administers(&self, method: &Method) -> bool {
        match *method == Method::GET {
            true => self.caller.rights().would(Operation::Administer, AccessTarget::Cluster),
            false => self.caller.rights().may(Operation::Administer, AccessTarget::Cluster),
        }
    }

    pub(super) fn may_open(&self, vhost: &str) -> bool {
        self.caller.rights().opens(vhost)
    }

    /// Virtual hosts that the user may see.
    pub(super) fn visible_vhosts(&self) -> Vec<VirtualHost> {
        let mut vhosts = self.topology.vhosts();
        vhosts.retain(|vhost| self.looks() || self.may_open(vhost.name()));
        vhosts
    }

    /// The virtual host in the path, or all visible ones.
    pub(super) async fn vhosts(&self) -> Result<Vec<VirtualHost>, ApiError> {
        match self.arguments.iter().any(|(name, _)| *name == "vhost") {
            true => Ok(vec![self.vhost().await?]),
            false => Ok(self.visible_vhosts()),
        }
    }

    pub(super) async fn vhost(&self) -> Result<VirtualHost, ApiError> {
        let found = self.topology.look_for_vhost(self.arg("vhost")).await?;
        found.ok_or_else(ApiError::not_found)
    }

    async fn check(&self, gate: Gate, method: &Method) -> Result<(), ApiError> {
        let may = match gate {
            Gate::Manage => true,
            Gate::Look => self.looks(),
            Gate::Administer => self.administers(method),
            // The reply must not reveal whether an inaccessible virtual host exists.
            Gate::SeeVhost => self.looks() || self.may_open(self.arg("vhost")),
            Gate::UseVhost => self.may_open(self.arg("vhost")),
            Gate::SetPolicies => {
                self.caller.rights().sets_policies() && self.may_open(self.arg("vhost"))
            }
            Gate::SeePolicies => self.caller.rights().sets_policies() || self.looks(),
        };
        match (may, gate) {
            (true, Gate::SeeVhost | Gate::UseVhost | Gate::SetPolicies) => {
                self.vhost().await.map(drop)
            }
            (true, _) => Ok(()),
            (false, Gate::SeeVhost | Gate::UseVhost) => {
                Err(ApiError::not_authorised("User not authorised to access virtual host"))
            }
            (false, Gate::Administer) => Err(ApiError::not_authorised("Not administrator user")),
            (false, Gate::Look) => Err(ApiError::not_authorised("Not monitor user")),
            (false, _) => Err(ApiError::not_authorised("Not policymaker user")),
        }
    }

    pub(super) fn body(&self) -> &Bytes {
        &self.body
    }

    /// The body as a JSON object; an empty body is an empty object.
    pub(super) fn object(&self) -> Result<Map<String, Value>, ApiError> {
        object(&self.body, &HTTP_DOCUMENT_LIMITS)
    }
}

pub(super) fn exchange_name(name: &str) -> &str {
    if name == DEFAULT_EXCHANGE { "" } else { name }
}

pub(super) fn object(body: &[u8], limits: &JsonLimits) -> Result<Map<String, Value>, ApiError> {
    json::examine(body, limits).map_err(|error| ApiError::bad_request(error.to_string()))?;
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Map::new());
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(ApiError::with_error("not_json", "the body is no JSON object")),
        Err(error) => {
            Err(ApiError::with_error("not_json", format!("the body is no JSON: {error}")))
        }
    }
}

/// Reader of an object's members; absent ones have defaults.
pub(super) struct ObjectReader<'a>(pub(super) &'a Map<String, Value>);

impl<'a> ObjectReader<'a> {
    fn wrong(name: &str, what: &str) -> ApiError {
        ApiError::bad_request(format!("{name} is {what}"))
    }

    pub(super) fn is_there(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| !value.is_null())
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Self::wrong(name, "to be a string")),
        }
    }

    pub(super) fn needed(&self, name: &str) -> Result<&'a str, ApiError> {
        let missing = || ApiError::bad_request(format!("key_missing: {name}"));
        self.text(name)?.ok_or_else(missing)
    }

    /// Some clients send `"true"`.
    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool, ApiError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(default),
            Some(Value::Bool(value)) => Ok(*value),
            Some(Value::String(text)) if text == "true" => Ok(true),
            Some(Value::String(text)) if text == "false" => Ok(false),
            Some(_) => Err(Self::wrong(name, "to be true or false")),
        }
    }

    pub(super) fn integer(&self, name: &str, default: i64) -> Result<i64, ApiError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(default),
            Some(Value::String(text)) => {
                text.parse().map_err(|_| Self::wrong(name, "to be an integer"))
            }
            Some(value) => value.as_i64().ok_or_else(|| Self::wrong(name, "to be an integer")),
        }
    }

    /// Some languages write `[]` for an empty object.
    pub(super) fn object(&self, name: &str) -> Result<Option<&'a Map<String, Value>>, ApiError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(Value::Array(all)) if all.is_empty() => Ok(None),
            Some(_) => Err(Self::wrong(name, "to be an object")),
        }
    }

    /// A list of strings, or one string with commas.
    pub(super) fn texts(&self, name: &str) -> Result<Option<Vec<String>>, ApiError> {
        let wrong = || Self::wrong(name, "to be a list of strings");
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => {
                let all = text.split(',').map(str::trim).filter(|one| !one.is_empty());
                Ok(Some(all.map(str::to_owned).collect()))
            }
            Some(Value::Array(all)) => {
                let all = all.iter().map(|one| one.as_str().map(str::to_owned));
                all.collect::<Option<Vec<_>>>().map(Some).ok_or_else(wrong)
            }
            Some(_) => Err(wrong()),
        }
    }
}
