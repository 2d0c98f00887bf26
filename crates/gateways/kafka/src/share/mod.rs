//! Share groups' records (KIP-932): fetched by lease, and acknowledged one by one.
//!
//! A share group is a lease group of its name in each topic ([`consumer_groups::lease_groups`]). [`crate::groups`]
//! decides its membership, and the partitions of each member. Here a member's share session
//! ([`crate::state::share_sessions`]) takes records out of the lease groups and settles them.
//!
//! * `fetch`, `acknowledge`: the two requests; `limits`: limits of a fetch
//! * `acquired`, `batches`, `answers`: from leased records to the response
//! * `request`, `response`: codecs of both requests

use kafka_protocol::error::ResponseError;

use crate::errors::Fault;
use crate::share::request::ShareHead;
use crate::state::share_sessions::ShareKey;

mod acknowledge;
mod acquired;
mod answers;
mod batches;
mod fetch;
mod limits;
mod request;
mod response;

pub(crate) use acknowledge::handle as acknowledge;
pub(crate) use fetch::handle as fetch;

/// Length of a UUID in text, which clients use as member ids.
const MEMBER_ID_BYTES_MAX: usize = 36;

/// The member of a request, if its group and member ids are valid.
fn key_of(head: &ShareHead) -> Result<ShareKey, Fault> {
    let invalid = |what| Fault::new(ResponseError::InvalidRequest, what);
    let group = head.group.as_ref().filter(|group| !group.is_empty());
    let group = group.ok_or_else(|| invalid("Invalid group id in the request."))?.clone();
    let is_valid = |member: &str| (1..=MEMBER_ID_BYTES_MAX).contains(&member.len());
    let member = head.member.as_ref().filter(|member| is_valid(member));
    let member = member.ok_or_else(|| invalid("Invalid member id in the request."))?.clone();
    Ok(ShareKey { group, member })
}
