//! Our API. It only grows: a path that is here stays what it is.
//!
//! What is asked is refused by name where it says more than is known; clients must pass over what they do not know of
//! answers. Paths and documents are in the OpenAPI document, which is made of the same code (`openapi`).
//!
//! * `asked`: bodies and queries, within their limits; `held`: answers within theirs
//! * `pages`: lists, a page at a time
//! * `topics`: which there are; `records`: records as documents
//! * `produce`, `new_records`, `json`: appending; `read`, `stream`: by offset
//! * `groups`: who settles records one by one; `leases`, `token`: one record at a time
//! * `offset_groups`: groups that commit offsets; `offsets`: what they have committed
//! * `lease_groups`: groups of all topics, and their records that wait; `dead_letters`: those that nobody could settle
//! * `search`, `filter`: looking for records; `whereabouts`: what became of one; `trace`: both
//! * `configs`: what a topic is set to; `topic_changes`: changes of it
//! * `overview`, `cluster`, `connections`: how the node, its cluster and its clients are
//! * `users`, `rules`, `quotas`: who may do what, and how much; `session`: log-ins of browsers
//! * `about`: which node this is, and who asks; `operate`: operations of the command line by paths

mod about;
pub(crate) mod asked;
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

use crate::front::Front;

/// Every route of it, with what the document says of them.
pub(crate) fn documented() -> OpenApiRouter<Front> {
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

/// Those for which nobody has to log in, since they are how a browser does.
pub(crate) fn documented_for_everybody() -> OpenApiRouter<Front> {
    OpenApiRouter::new().routes(routes!(session::show, session::begin, session::end))
}

pub(crate) fn routes_for_everybody() -> Router<Front> {
    documented_for_everybody().split_for_parts().0
}

pub(crate) fn routes() -> Router<Front> {
    let (routes, _) = documented().split_for_parts();
    routes.route("/v1/openapi.json", axum::routing::get(openapi::serve))
}
