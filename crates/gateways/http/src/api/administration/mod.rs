//! Objects of administrators: virtual hosts, users, permissions, limits, policies and parameters.

pub(super) mod limits;
pub(super) mod parameters;
pub(super) mod permissions;
pub(super) mod policies;
pub(super) mod users;
pub(super) mod vhosts;
