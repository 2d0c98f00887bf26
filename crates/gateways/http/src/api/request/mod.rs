//! One request of the management API: its path, query and body, the rights of its user, and the forms of responses.
//!
//! * `call`: the request; `path`, `values`: parsing; `list`: paged lists; `api_error`: errors

pub(super) mod api_error;
pub(super) mod call;
pub(super) mod list;
pub(super) mod path;
pub(super) mod values;
