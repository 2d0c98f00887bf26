//! HTTP requests from a node to other servers: to an issuer for its keys, to a collector for traces.
//!
//! HTTP/1.1, over TLS for `https://`. Redirects are not followed: a node connects only to the servers in its
//! settings.
//!
//! * [`address`]: URLs; [`authorities`]: trusted certificate authorities; [`connection`]: a connection and its
//!   requests

pub mod address;
pub mod authorities;
pub mod connection;

pub use address::{Address, AddressError};
pub use authorities::{AuthoritiesError, read_authorities};
pub use connection::{Connection, RequestError};
