//! How current the node's copy of the catalog must be before a request is answered from it.
//!
//! Another node may have created, changed or deleted something a moment ago, or while this node was cut off.
//! So no response states that something exists, or that it does not, from a copy older than another node's
//! response. Requests of operators pass the catalog's barrier before they are handled. Requests about records
//! are frequent: they pass it only before the response is that a topic is unknown. The shard's leader rejects
//! requests for deleted topics.
//!
//! If the catalog has no leader for [`BARRIER_WITHIN`](base::limits::BARRIER_WITHIN), the request is answered
//! from this node's copy, and the catalog rejects its changes. A topic missing from that copy is
//! `REQUEST_TIMED_OUT` in responses to operators, and the error that clients retry in responses about
//! records.

use kafka_protocol::messages::ApiKey;

use crate::api_keys::CatalogNeed;
use crate::state::Gateway;
use crate::topic_ref::RequestedTopic;

/// Passes the catalog's barrier, for requests that need it. False where the catalog's leader did not answer.
pub(crate) async fn pass(gateway: &Gateway, api: ApiKey) -> bool {
    let users = gateway.options.users.as_ref();
    let current = match (CatalogNeed::of(api), users) {
        (CatalogNeed::Nothing, _) => return true,
        (CatalogNeed::Topics, _) if !gateway.broker.may_lack_definitions() => return true,
        (CatalogNeed::Topics, _) => {
            gateway.broker.definitions_are_current().await.map_err(|error| error.to_string())
        }
        (CatalogNeed::Users, Some(users)) => {
            users.catch_up().await.map_err(|error| error.to_string())
        }
        (CatalogNeed::Quotas, _) => {
            gateway.options.quotas.catch_up().await.map_err(|error| error.to_string())
        }
        (CatalogNeed::All | CatalogNeed::Users, _) => {
            gateway.broker.catalog_is_current().await.map_err(|error| error.to_string())
        }
    };
    if let Err(error) = &current {
        tracing::debug!(?api, error, "a request is answered by what this node knows");
    }
    current.is_ok()
}

/// Passes the catalog's barrier if this node does not know one of these topics.
pub(crate) async fn ensure_known<'a>(
    gateway: &Gateway,
    topics: impl Iterator<Item = RequestedTopic<'a>>,
) {
    if gateway.broker.is_alone() {
        return;
    }
    let are_known = {
        let catalog = gateway.broker.catalog();
        let mut topics = topics;
        topics.all(|topic| match topic {
            RequestedTopic::Name(name) => catalog.topic_named(name).is_some(),
            RequestedTopic::Id(id) => catalog.topic_with_uuid(&id).is_some(),
        })
    };
    if !are_known && let Err(error) = gateway.broker.catalog_is_current().await {
        tracing::debug!(%error, "a topic may be unknown to this node only");
    }
}
