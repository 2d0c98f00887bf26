//! Layers around all routes, in the order that [`crate::routes`] gives them. They use the front end, and the format of
//! errors of each API.
//!
//! * `finishing`: common parts of responses: request id, security headers, problem documents
//! * `hosts`: accepted host names where there is no log-in; `origin`: protection against CSRF
//! * `current`: the node's copy of the catalog

pub(crate) mod current;
pub(crate) mod finishing;
pub(crate) mod hosts;
pub(crate) mod origin;
