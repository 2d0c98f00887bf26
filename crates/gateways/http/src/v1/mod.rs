//! Our API. It only grows: existing paths keep their meaning.
//!
//! Unknown members of a request are rejected by name; clients must ignore unknown members of responses. Paths and
//! documents are in the OpenAPI document, which is generated from the code (`openapi`).
//!
//! * `request_input`: bodies and queries, within limits; `held`: responses within memory limits
//! * `pages`: paged lists
//! * `topics`: topics; `records`: records as documents
//! * `produce`, `new_records`, `json`: appending; `read`, `stream`: reading by offset
//! * `groups`: lease groups; `leases`, `token`: single leases
//! * `offset_groups`: groups that commit offsets; `offsets`: their committed offsets
//! * `lease_groups`: lease groups of all topics, and their waiting records; `dead_letters`: dead letters
//! * `search`, `filter`: record search; `whereabouts`: state of one record; `trace`: both
//! * `configs`: configuration of a topic; `topic_changes`: changes of it
//! * `overview`, `cluster`, `connections`: state of the node, its cluster and its clients
//! * `users`, `rules`, `quotas`: users, rights and quotas; `session`: browser log-in
//! * `about`: version and current user; `operate`: operations of the command line, by paths

mod about;
mod cluster;
mod configs;
mod connections;
mod dead_letters;
mod filter;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod groups;
mod held;
mod json;
mod lease_groups;
mod leases;
mod new_records;
mod offset_groups;
mod offsets;
pub(crate) mod openapi;
mod operate;
mod overview;
mod pages;
mod produce;
mod quotas;
mod read;
mod records;
pub(crate) mod request_input;
mod rules;
mod search;
mod session;
mod stream;
mod token;
mod topic_changes;
mod topics;
mod trace;
mod users;
mod whereabouts;

use axum::Router;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::front::FrontEnd;

/// All routes that require a log-in, with their documentation.
pub(crate) fn documented() -> OpenApiRouter<FrontEnd> {
    OpenApiRouter::with_openapi(openapi::about())
        .routes(routes!(about::version))
        .routes(routes!(about::whoami))
        .routes(routes!(topics::list, topics::create))
        .routes(routes!(topics::describe, topics::delete, topic_changes::patch))
        .routes(routes!(produce::produce))
        .routes(routes!(read::read))
        .routes(routes!(stream::stream))
        .routes(routes!(groups::list))
        .routes(routes!(groups::describe, groups::declare, groups::change, groups::delete))
        .routes(routes!(groups::seek))
        .routes(routes!(groups::purge))
        .routes(routes!(leases::take))
        .routes(routes!(leases::settle))
        .routes(routes!(leases::extend))
        .routes(routes!(offset_groups::list))
        .routes(routes!(offset_groups::describe, offset_groups::delete))
        .routes(routes!(offset_groups::members))
        .routes(routes!(offset_groups::seek))
        .routes(routes!(offsets::list))
        .routes(routes!(offsets::lag))
        .routes(routes!(configs::show, configs::change))
        .routes(routes!(search::search))
        .routes(routes!(whereabouts::find_out))
        .routes(routes!(whereabouts::history))
        .routes(routes!(trace::trace))
        .routes(routes!(lease_groups::list))
        .routes(routes!(lease_groups::peek))
        .routes(routes!(lease_groups::scheduled))
        .routes(routes!(lease_groups::cancel))
        .routes(routes!(lease_groups::remove))
        .routes(routes!(dead_letters::topics))
        .routes(routes!(dead_letters::count))
        .routes(routes!(dead_letters::show))
        .routes(routes!(dead_letters::redrive))
        .routes(routes!(dead_letters::delete))
        .routes(routes!(overview::overview))
        .routes(routes!(cluster::show))
        .routes(routes!(cluster::shards))
        .routes(routes!(cluster::decide))
        .routes(routes!(cluster::moves, cluster::move_partitions))
        .routes(routes!(connections::list))
        .routes(routes!(connections::close))
        .routes(routes!(users::list, users::add))
        .routes(routes!(users::set_password))
        .routes(routes!(users::delete))
        .routes(routes!(rules::list, rules::add))
        .routes(routes!(rules::delete))
        .routes(routes!(rules::explain))
        .routes(routes!(quotas::list, quotas::change))
}

/// Public routes, by which a browser logs in.
pub(crate) fn documented_public() -> OpenApiRouter<FrontEnd> {
    OpenApiRouter::new().routes(routes!(session::show, session::begin, session::end))
}

pub(crate) fn public_routes() -> Router<FrontEnd> {
    documented_public().split_for_parts().0
}

pub(crate) fn routes() -> Router<FrontEnd> {
    let (routes, _) = documented().split_for_parts();
    routes.route("/v1/openapi.json", axum::routing::get(openapi::serve))
}
