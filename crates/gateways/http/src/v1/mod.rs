//! Our API. It only grows: existing paths keep their meaning.
//!
//! Unknown members of a request are rejected by name; clients must ignore unknown members of responses. Paths and
//! documents are in the OpenAPI document, which is generated from the code (`openapi`).
//!
//! Each folder uses those before it:
//!
//! * `query`, `pages`: parameters that several paths share, and paged lists; `held`: responses within memory limits
//! * `operate`: operations of the command line, by paths
//! * `topics`, `records`: topics and their records
//! * `leases`, `groups`: single leases, and groups of consumers
//! * `transactions`: settles and appends that take effect together
//! * `users`, `cluster`: users and rights; state of the node, its cluster and its clients

mod cluster;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod groups;
mod held;
mod leases;
pub(crate) mod openapi;
mod operate;
mod pages;
mod query;
mod records;
mod topics;
mod transactions;
mod users;

use axum::Router;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::cluster::{about, connections, overview};
use self::groups::{dead_letters, lease_groups, offset_groups, offsets, waiting_records};
use self::records::{produce, read, search, stream, trace, whereabouts};
use self::topics::{changes, configs};
use self::users::{quotas, rules, session};
use crate::front::FrontEnd;

/// All routes that require a log-in, with their documentation.
pub(crate) fn documented() -> OpenApiRouter<FrontEnd> {
    OpenApiRouter::with_openapi(openapi::about())
        .routes(routes!(about::version))
        .routes(routes!(about::whoami))
        .routes(routes!(topics::list, topics::create))
        .routes(routes!(topics::describe, topics::delete, changes::patch))
        .routes(routes!(produce::produce))
        .routes(routes!(read::read))
        .routes(routes!(stream::stream))
        .routes(routes!(lease_groups::list))
        .routes(routes!(
            lease_groups::describe,
            lease_groups::declare,
            lease_groups::change,
            lease_groups::delete
        ))
        .routes(routes!(lease_groups::seek))
        .routes(routes!(lease_groups::purge))
        .routes(routes!(leases::take))
        .routes(routes!(leases::settle))
        .routes(routes!(leases::extend))
        .routes(routes!(transactions::execute))
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
        .routes(routes!(waiting_records::list))
        .routes(routes!(waiting_records::peek))
        .routes(routes!(waiting_records::scheduled))
        .routes(routes!(waiting_records::cancel))
        .routes(routes!(waiting_records::remove))
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
