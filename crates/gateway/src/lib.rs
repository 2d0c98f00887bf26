//! Shared parts of all listeners, independent of the protocol.
//!
//! A gateway has its codec and the logic of its sessions. Accepting, limiting and ending connections, and sending to
//! slow clients, are implemented here once.
//!
//! * [`listener`]: accepts connections within limits, and drains them at shutdown
//! * [`tls`], [`socket`]: encryption, and one type of connection with and without it
//! * [`connections`]: the live connections, which operators list and close
//! * [`traffic`]: counters of their traffic
//! * [`unsent`]: output that the socket has not taken yet
//! * [`slow_reader`]: detects clients that are too slow to take it
//! * [`input`]: reading into a growing buffer
//!
//! It uses the world's sockets and the table of tasks, and neither the broker nor any protocol.

mod closed_lines;
pub mod connections;
pub mod input;
pub mod limits;
pub mod listener;
pub mod slow_reader;
pub mod socket;
pub mod tls;
pub mod traffic;
pub mod unsent;

pub use connections::{Connection, Connections, Gate, RegisteredConnection, SessionSnapshot};
pub use listener::{ListenerOptions, Ports, serve, serve_ports};
pub use slow_reader::{SlowReader, WriteError};
pub use socket::Socket;
pub use tls::Tls;
pub use traffic::{Traffic, TrafficSeen};
pub use unsent::UnsentOutput;
