//! What every listener needs, whatever its protocol.
//!
//! A gateway keeps its codec and what its sessions do; how connections are accepted, bounded and ended, and
//! how bytes reach a client that may be slow, is here, once.
//!
//! * [`listener`]: accepts connections within limits, and drains them at shutdown
//! * [`tls`], [`socket`]: encryption, and one type of connection with and without it
//! * [`connections`]: the live ones, which operators list and close
//! * [`traffic`]: what went through them
//! * [`unsent`]: what a session has to say and the socket has not taken
//! * [`slow_reader`]: when a client is too slow to take it
//! * [`input`]: reading into a buffer that grows
//!
//! It knows the world's sockets and the table of tasks, and neither the broker nor any protocol.

mod closed_lines;
pub mod connections;
pub mod input;
pub mod listener;
pub mod slow_reader;
pub mod socket;
pub mod tls;
pub mod traffic;
pub mod unsent;

pub use connections::{Connection, Connections, Gate, Registered, Told};
pub use listener::{ListenerOptions, Ports, serve, serve_ports};
pub use slow_reader::{SlowReader, WriteError};
pub use socket::Socket;
pub use tls::Tls;
pub use traffic::{Traffic, TrafficSeen};
pub use unsent::Unsent;
