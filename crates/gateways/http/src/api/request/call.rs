//! One request of the management API, and the rights that its endpoint requires.

use std::pin::Pin;
use std::sync::Arc;

use access::user_limits::{Limit, LimitTarget};
use access::{AccessTarget, Operation, Users};
use access_rules::quota::Quota;
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use base::json::{self, JsonLimits};
use broker::Broker;
use bytes::Bytes;
use rabbitmq::rights::Rights;
use serde_json::{Map, Value};
use topology::{OwnerId, Topology, VirtualHost};

use crate::api::request::api_error::ApiError;
use crate::api::request::path::Query;
use crate::connection::Peer;
use crate::front::{FrontEnd, Node};
use crate::limits::HTTP_DOCUMENT_LIMITS;
use crate::login::RequestClient;
use crate::quotas::RequestCharges;

/// User name on ports without log-in.
const NOBODY: &str = "anonymous";
/// Name of the default exchange in paths.
const DEFAULT_EXCHANGE: &str = "amq.default";

/// Right that an endpoint requires, besides some tag. Handlers check further rights, as AMQP's methods do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gate {
    /// Any tag.
    Manage,
    /// The right to monitor the cluster.
    Look,
    Administer,
    /// The right to open the virtual host in the path, or to monitor the cluster.
    SeeVhost,
    /// The right to open the virtual host in the path.
    UseVhost,
    /// The right to set policies in the virtual host in the path.
    SetPolicies,
    /// The right to set policies anywhere, or to monitor the cluster.
    SeePolicies,
}

pub(in crate::api) type Outcome = Result<Response, ApiError>;
pub(in crate::api) type OutcomeFuture<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

#[derive(Clone)]
pub(in crate::api) struct Call {
    pub(in crate::api) front: FrontEnd,
    pub(in crate::api) caller: RequestClient,
    pub(in crate::api) peer: Peer,
    pub(in crate::api) topology: Topology,
    pub(in crate::api) query: Query,
    pub(in crate::api) headers: HeaderMap,
    pub(in crate::api) arguments: Vec<(&'static str, String)>,
    pub(in crate::api) body: Bytes,
}

impl Call {
    /// The same request with all rights. Only for endpoints that an administrator may call: they change users and
    /// permissions themselves, so the rights at the beginning of the request do not count for its later steps.
    pub(in crate::api) fn with_every_right(&self) -> Self {
        Self { caller: self.caller.with_every_right(), ..self.clone() }
    }

    pub(in crate::api) fn node(&self) -> Result<&Node, ApiError> {
        Ok(self.front.opened()?)
    }

    pub(in crate::api) fn broker(&self) -> &Broker {
        self.topology.broker()
    }

    /// The limit in effect; `None`: unlimited.
    pub(in crate::api) fn limit(
        &self,
        of: LimitTarget<'_>,
        limit: Limit,
    ) -> Result<Option<u64>, ApiError> {
        Ok(self.node()?.users.as_ref().and_then(|users| users.limit(of, limit)))
    }

    /// As [`RequestCharges::begin`].
    pub(in crate::api) fn spends(&self, quota: Quota) -> Result<RequestCharges, ApiError> {
        Ok(RequestCharges::begin(self.node()?, &self.caller, quota)?)
    }

    pub(in crate::api) fn users(&self) -> Result<&Users, ApiError> {
        let users = self.node()?.users.as_ref();
        users.ok_or_else(|| ApiError::bad_request("there are no users here"))
    }

    /// Value of a path parameter.
    pub(in crate::api) fn arg(&self, name: &str) -> &str {
        let found = self.arguments.iter().find(|(known, _)| *known == name);
        found.map_or("", |(_, value)| value)
    }

    /// Exchange in a path parameter, with `amq.default` mapped to the empty name.
    pub(in crate::api) fn exchange_arg(&self, name: &str) -> &str {
        exchange_name(self.arg(name))
    }

    /// Owner of exclusive queues; here the HTTP connection, which never has one.
    pub(in crate::api) fn owner(&self) -> OwnerId {
        OwnerId(self.peer.connection.id())
    }

    pub(in crate::api) fn user_name(&self) -> &str {
        self.caller.name().unwrap_or(NOBODY)
    }

    /// The user's rights in RabbitMQ's terms.
    pub(in crate::api) fn rights(&self) -> Rights {
        Rights::from_known(Arc::from(self.user_name()), self.caller.shared_rights())
    }

    pub(in crate::api) fn looks(&self) -> bool {
        self.caller.rights().would(Operation::Look, AccessTarget::Cluster)
    }

    /// Whether the user may administer the cluster. Reads are not audited.
    fn administers(&self, method: &Method) -> bool {
        match *method == Method::GET {
            true => self.caller.rights().would(Operation::Administer, AccessTarget::Cluster),
            false => self.caller.rights().may(Operation::Administer, AccessTarget::Cluster),
        }
    }

    pub(in crate::api) fn may_open(&self, vhost: &str) -> bool {
        self.caller.rights().opens(vhost)
    }

    /// Virtual hosts that the user may see.
    pub(in crate::api) fn visible_vhosts(&self) -> Vec<VirtualHost> {
        let mut vhosts = self.topology.vhosts();
        vhosts.retain(|vhost| self.looks() || self.may_open(vhost.name()));
        vhosts
    }

    /// The virtual host in the path, or all visible ones.
    pub(in crate::api) async fn vhosts(&self) -> Result<Vec<VirtualHost>, ApiError> {
        match self.arguments.iter().any(|(name, _)| *name == "vhost") {
            true => Ok(vec![self.vhost().await?]),
            false => Ok(self.visible_vhosts()),
        }
    }

    pub(in crate::api) async fn vhost(&self) -> Result<VirtualHost, ApiError> {
        let found = self.topology.look_for_vhost(self.arg("vhost")).await?;
        found.ok_or_else(ApiError::not_found)
    }

    pub(in crate::api) async fn check(&self, gate: Gate, method: &Method) -> Result<(), ApiError> {
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

    pub(in crate::api) fn body(&self) -> &Bytes {
        &self.body
    }

    /// The body as a JSON object; an empty body is an empty object.
    pub(in crate::api) fn object(&self) -> Result<Map<String, Value>, ApiError> {
        object(&self.body, &HTTP_DOCUMENT_LIMITS)
    }
}

pub(in crate::api) fn node_name(broker: &Broker) -> String {
    format!("postroad@node-{}", broker.node())
}

pub(in crate::api) fn exchange_name(name: &str) -> &str {
    if name == DEFAULT_EXCHANGE { "" } else { name }
}

pub(in crate::api) fn object(
    body: &[u8],
    limits: &JsonLimits,
) -> Result<Map<String, Value>, ApiError> {
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
pub(in crate::api) struct ObjectReader<'a>(pub(in crate::api) &'a Map<String, Value>);

impl<'a> ObjectReader<'a> {
    fn wrong(name: &str, what: &str) -> ApiError {
        ApiError::bad_request(format!("{name} is {what}"))
    }

    pub(in crate::api) fn is_there(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| !value.is_null())
    }

    pub(in crate::api) fn text(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Self::wrong(name, "to be a string")),
        }
    }

    pub(in crate::api) fn needed(&self, name: &str) -> Result<&'a str, ApiError> {
        let missing = || ApiError::bad_request(format!("key_missing: {name}"));
        self.text(name)?.ok_or_else(missing)
    }

    /// Some clients send `"true"`.
    pub(in crate::api) fn flag(&self, name: &str, default: bool) -> Result<bool, ApiError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(default),
            Some(Value::Bool(value)) => Ok(*value),
            Some(Value::String(text)) if text == "true" => Ok(true),
            Some(Value::String(text)) if text == "false" => Ok(false),
            Some(_) => Err(Self::wrong(name, "to be true or false")),
        }
    }

    pub(in crate::api) fn integer(&self, name: &str, default: i64) -> Result<i64, ApiError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(default),
            Some(Value::String(text)) => {
                text.parse().map_err(|_| Self::wrong(name, "to be an integer"))
            }
            Some(value) => value.as_i64().ok_or_else(|| Self::wrong(name, "to be an integer")),
        }
    }

    /// Some languages write `[]` for an empty object.
    pub(in crate::api) fn object(
        &self,
        name: &str,
    ) -> Result<Option<&'a Map<String, Value>>, ApiError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(Value::Array(all)) if all.is_empty() => Ok(None),
            Some(_) => Err(Self::wrong(name, "to be an object")),
        }
    }

    /// A list of strings, or one string with commas.
    pub(in crate::api) fn texts(&self, name: &str) -> Result<Option<Vec<String>>, ApiError> {
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
