//! All endpoints, with their authorization.

use axum::http::Method;

use crate::api::administration::{limits, parameters, permissions, policies, users, vhosts};
use crate::api::definitions::{self, import};
use crate::api::messaging::{bindings, exchanges, messages, queues};
use crate::api::node::{channels, connections, health, nodes, overview};
use crate::api::request::call::{Call, Gate, OutcomeFuture};
use crate::limits::{
    HTTP_API_DEFINITIONS_BYTES_MAX, HTTP_API_MESSAGE_BYTES_MAX, HTTP_DOCUMENT_BYTES_MAX,
};

pub(crate) struct Endpoint {
    pub(crate) method: &'static Method,
    pub(crate) path: &'static str,
    pub(crate) gate: Gate,
    pub(crate) body_bytes_max: usize,
    pub(super) carry_out: for<'a> fn(&'a Call) -> OutcomeFuture<'a>,
}

const NOTHING: usize = 0;
const DOCUMENT: usize = HTTP_DOCUMENT_BYTES_MAX;
const MESSAGE: usize = HTTP_API_MESSAGE_BYTES_MAX;
const DEFINITIONS: usize = HTTP_API_DEFINITIONS_BYTES_MAX;

macro_rules! endpoints {
    ($($method:ident $path:literal $gate:ident $body:ident $handler:path;)*) => {
        &[$(Endpoint {
            method: &Method::$method,
            path: $path,
            gate: Gate::$gate,
            body_bytes_max: $body,
            carry_out: |call| Box::pin($handler(call)),
        },)*]
    };
}

pub(crate) const ENDPOINTS: &[Endpoint] = endpoints! {
    GET "/overview" Manage NOTHING overview::overview;
    GET "/whoami" Manage NOTHING overview::whoami;
    GET "/version" Manage NOTHING overview::version;
    GET "/cluster-name" Manage NOTHING overview::cluster_name;
    PUT "/cluster-name" Administer DOCUMENT parameters::no_renaming;
    GET "/extensions" Manage NOTHING parameters::none;
    GET "/feature-flags" Manage NOTHING overview::feature_flags;
    PUT "/feature-flags/{name}/enable" Administer DOCUMENT overview::enable_feature_flag;
    POST "/rebalance/queues" Administer DOCUMENT parameters::no_rebalancing;
    GET "/deprecated-features" Look NOTHING overview::deprecated_features;
    GET "/deprecated-features/used" Look NOTHING overview::deprecated_features_in_use;
    GET "/nodes" Look NOTHING nodes::list;
    GET "/nodes/{name}" Look NOTHING nodes::one;
    GET "/nodes/{name}/memory" Look NOTHING nodes::memory;
    GET "/nodes/{name}/memory/relative" Look NOTHING nodes::memory;
    GET "/auth/attempts/{name}" Look NOTHING nodes::log_ins;

    GET "/vhosts" Manage NOTHING vhosts::list;
    GET "/vhosts/{vhost}" SeeVhost NOTHING vhosts::one;
    PUT "/vhosts/{name}" Administer DOCUMENT vhosts::put;
    DELETE "/vhosts/{name}" Administer NOTHING vhosts::delete;
    POST "/vhosts/{vhost}/deletion/protection" Administer DOCUMENT vhosts::protect;
    DELETE "/vhosts/{vhost}/deletion/protection" Administer NOTHING vhosts::unprotect;
    GET "/vhosts/{vhost}/permissions" Administer NOTHING permissions::list_of_vhost;
    GET "/vhosts/{vhost}/topic-permissions" Administer NOTHING parameters::none;

    GET "/users" Administer NOTHING users::list;
    GET "/users/without-permissions" Administer NOTHING users::without_permissions;
    POST "/users/bulk-delete" Administer DOCUMENT users::delete_several;
    GET "/users/{name}" Administer NOTHING users::one;
    PUT "/users/{name}" Administer DOCUMENT users::put;
    DELETE "/users/{name}" Administer NOTHING users::delete;
    GET "/users/{name}/permissions" Administer NOTHING permissions::list_of_user;
    GET "/users/{name}/topic-permissions" Administer NOTHING parameters::none;
    GET "/permissions" Administer NOTHING permissions::list;
    GET "/permissions/{vhost}/{user}" Administer NOTHING permissions::one;
    PUT "/permissions/{vhost}/{user}" Administer DOCUMENT permissions::put;
    DELETE "/permissions/{vhost}/{user}" Administer NOTHING permissions::delete;
    GET "/topic-permissions" Administer NOTHING parameters::none;
    GET "/topic-permissions/{vhost}/{user}" Administer NOTHING parameters::none;
    PUT "/topic-permissions/{vhost}/{user}" Administer DOCUMENT parameters::no_topic_permissions;
    DELETE "/topic-permissions/{vhost}/{user}" Administer NOTHING parameters::always_absent;
    DELETE "/topic-permissions/{vhost}/{user}/{exchange}" Administer NOTHING parameters::always_absent;
    GET "/vhost-limits" Manage NOTHING limits::list_of_vhosts;
    GET "/vhost-limits/{vhost}" SeeVhost NOTHING limits::list_of_vhost;
    PUT "/vhost-limits/{vhost}/{name}" Administer DOCUMENT limits::set_of_vhost;
    DELETE "/vhost-limits/{vhost}/{name}" Administer NOTHING limits::clear_of_vhost;
    GET "/user-limits" Administer NOTHING limits::list_of_users;
    GET "/user-limits/{user}" Administer NOTHING limits::list_of_user;
    PUT "/user-limits/{user}/{name}" Administer DOCUMENT limits::set_of_user;
    DELETE "/user-limits/{user}/{name}" Administer NOTHING limits::clear_of_user;

    GET "/policies" SeePolicies NOTHING policies::list;
    GET "/policies/{vhost}" SeePolicies NOTHING policies::list;
    GET "/policies/{vhost}/{name}" SeePolicies NOTHING policies::one;
    PUT "/policies/{vhost}/{name}" SetPolicies DOCUMENT policies::put;
    DELETE "/policies/{vhost}/{name}" SetPolicies NOTHING policies::delete;
    GET "/operator-policies" Look NOTHING policies::list_operators;
    GET "/operator-policies/{vhost}" Look NOTHING policies::list_operators;
    GET "/operator-policies/{vhost}/{name}" Look NOTHING policies::one_operators;
    PUT "/operator-policies/{vhost}/{name}" Administer DOCUMENT policies::put_operators;
    DELETE "/operator-policies/{vhost}/{name}" Administer NOTHING policies::delete_operators;
    GET "/parameters" SeePolicies NOTHING parameters::none;
    GET "/parameters/{component}" SeePolicies NOTHING parameters::none;
    GET "/parameters/{component}/{vhost}" SeePolicies NOTHING parameters::none;
    GET "/parameters/{component}/{vhost}/{name}" SeePolicies NOTHING parameters::always_absent;
    PUT "/parameters/{component}/{vhost}/{name}" SetPolicies DOCUMENT parameters::no_parameters;
    DELETE "/parameters/{component}/{vhost}/{name}" SetPolicies NOTHING parameters::always_absent;
    GET "/global-parameters" Administer NOTHING parameters::global;
    GET "/global-parameters/{name}" Administer NOTHING parameters::one_global;
    DELETE "/global-parameters/{name}" Administer NOTHING parameters::always_absent;
    PUT "/global-parameters/{name}" Administer DOCUMENT parameters::no_parameters;
    GET "/stream/connections" Manage NOTHING parameters::none;
    GET "/stream/connections/{vhost}" SeeVhost NOTHING parameters::none;
    GET "/stream/publishers" Manage NOTHING parameters::none;
    GET "/stream/publishers/{vhost}" SeeVhost NOTHING parameters::none;
    GET "/stream/consumers" Manage NOTHING parameters::none;
    GET "/stream/consumers/{vhost}" SeeVhost NOTHING parameters::none;
    GET "/shovels" Look NOTHING parameters::none;
    GET "/shovels/{vhost}" Look NOTHING parameters::none;
    GET "/federation-links" Look NOTHING parameters::none;
    GET "/federation-links/{vhost}" Look NOTHING parameters::none;

    GET "/exchanges" Manage NOTHING exchanges::list;
    GET "/exchanges/{vhost}" SeeVhost NOTHING exchanges::list;
    GET "/exchanges/{vhost}/{name}" SeeVhost NOTHING exchanges::one;
    PUT "/exchanges/{vhost}/{name}" UseVhost DOCUMENT exchanges::put;
    DELETE "/exchanges/{vhost}/{name}" UseVhost NOTHING exchanges::delete;
    GET "/exchanges/{vhost}/{name}/bindings/source" SeeVhost NOTHING bindings::list_from_source;
    GET "/exchanges/{vhost}/{name}/bindings/destination" SeeVhost NOTHING bindings::list_to_exchange;
    POST "/exchanges/{vhost}/{name}/publish" UseVhost MESSAGE messages::publish;

    GET "/queues" Manage NOTHING queues::list;
    GET "/queues/detailed" Manage NOTHING queues::list;
    GET "/queues/{vhost}" SeeVhost NOTHING queues::list;
    GET "/queues/{vhost}/{name}" SeeVhost NOTHING queues::one;
    PUT "/queues/{vhost}/{name}" UseVhost DOCUMENT queues::put;
    DELETE "/queues/{vhost}/{name}" UseVhost NOTHING queues::delete;
    DELETE "/queues/{vhost}/{name}/contents" UseVhost NOTHING queues::purge;
    GET "/queues/{vhost}/{name}/bindings" SeeVhost NOTHING bindings::list_to_queue;
    POST "/queues/{vhost}/{name}/get" UseVhost DOCUMENT messages::get;
    POST "/queues/{vhost}/{name}/actions" Administer DOCUMENT parameters::no_actions;

    GET "/bindings" Manage NOTHING bindings::list;
    GET "/bindings/{vhost}" SeeVhost NOTHING bindings::list;
    GET "/bindings/{vhost}/e/{source}/q/{queue}" SeeVhost NOTHING bindings::list_between;
    POST "/bindings/{vhost}/e/{source}/q/{queue}" UseVhost DOCUMENT bindings::post;
    GET "/bindings/{vhost}/e/{source}/q/{queue}/{key}" SeeVhost NOTHING bindings::one;
    DELETE "/bindings/{vhost}/e/{source}/q/{queue}/{key}" UseVhost NOTHING bindings::delete;
    GET "/bindings/{vhost}/e/{source}/e/{exchange}" SeeVhost NOTHING bindings::list_between;
    POST "/bindings/{vhost}/e/{source}/e/{exchange}" UseVhost DOCUMENT bindings::post;
    GET "/bindings/{vhost}/e/{source}/e/{exchange}/{key}" SeeVhost NOTHING bindings::one;
    DELETE "/bindings/{vhost}/e/{source}/e/{exchange}/{key}" UseVhost NOTHING bindings::delete;

    GET "/definitions" Administer NOTHING definitions::export;
    POST "/definitions" Administer DEFINITIONS import::import;
    GET "/definitions/{vhost}" Administer NOTHING definitions::export;
    POST "/definitions/{vhost}" Administer DEFINITIONS import::import;

    GET "/connections" Manage NOTHING connections::list;
    GET "/connections/username/{user}" Manage NOTHING connections::list_of_user;
    DELETE "/connections/username/{user}" Administer NOTHING connections::close_of_user;
    GET "/connections/{name}" Manage NOTHING connections::one;
    DELETE "/connections/{name}" Administer NOTHING connections::close;
    GET "/connections/{name}/channels" Manage NOTHING channels::list_of_connection;
    GET "/vhosts/{vhost}/connections" SeeVhost NOTHING connections::list_of_vhost;
    GET "/vhosts/{vhost}/channels" SeeVhost NOTHING channels::list_of_vhost;
    GET "/channels" Manage NOTHING channels::list;
    GET "/channels/{name}" Manage NOTHING channels::one;
    GET "/consumers" Manage NOTHING channels::all_consumers;
    GET "/consumers/{vhost}" SeeVhost NOTHING channels::consumers_of_vhost;

    GET "/aliveness-test/{vhost}" SeeVhost NOTHING health::well;
    GET "/healthchecks/node" Manage NOTHING health::node;
    GET "/healthchecks/node/{name}" Manage NOTHING health::node;
    GET "/health/checks/alarms" Manage NOTHING health::alarms;
    GET "/health/checks/local-alarms" Manage NOTHING health::alarms;
    GET "/health/checks/virtual-hosts" Manage NOTHING health::well;
    GET "/health/checks/node-is-quorum-critical" Manage NOTHING health::quorum;
    GET "/health/checks/ready-to-serve-clients" Manage NOTHING health::ready;
    GET "/health/checks/is-in-service" Manage NOTHING health::ready;
    GET "/health/checks/metadata-store/initialized" Manage NOTHING health::ready;
    GET "/health/checks/certificate-expiration/{within}/{unit}" Manage NOTHING health::certificate;
    GET "/health/checks/port-listener/{port}" Manage NOTHING health::port;
    GET "/health/checks/protocol-listener/{protocol}" Manage NOTHING health::protocol;
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changing_endpoints_require_more_than_any_tag() {
        for endpoint in ENDPOINTS.iter().filter(|it| *it.method != Method::GET) {
            let gates = [Gate::Administer, Gate::UseVhost, Gate::SetPolicies];
            assert!(gates.contains(&endpoint.gate), "{} {}", endpoint.method, endpoint.path);
        }
    }

    #[test]
    fn every_endpoint_is_documented() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = path.join("../../../docs/user/management-api.md");
        let text = std::fs::read_to_string(path).expect("docs/user/management-api.md");
        for endpoint in ENDPOINTS {
            let first = endpoint.path.split('/').nth(1).unwrap_or_default();
            assert!(text.contains(&format!("`/{first}")), "{} is not there", endpoint.path);
        }
    }
}
