//! Requests that a node makes of other servers: of an issuer for its keys, of a collector that takes traces.
//!
//! HTTP/1.1, over TLS where the address says so. Redirects are not followed: a node connects where its settings say, and
//! nobody else decides that.
//!
//! * [`address`]: where; [`authorities`]: who is believed to be a host; [`connection`]: one connection, and requests on it

pub mod address;
pub mod authorities;
pub mod connection;

pub use address::{Address, AddressError};
pub use authorities::{AuthoritiesError, read_authorities};
pub use connection::{Connection, RequestError};
