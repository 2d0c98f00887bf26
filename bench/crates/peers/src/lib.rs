//! The brokers that the suite measures: installed in its own folder, started at a durability tier,
//! and stopped.
//!
//! * [`catalog`]: the brokers with their versions, sources and tiers
//! * [`Peers`]: a folder of installed brokers; installs, starts, stops, kills, restarts and wipes
//! * [`Tool`]: a program of a broker's project that puts load on brokers, installed beside them
//! * [`Running`]: endpoints of a started broker, and every setting that differs from its default
//!
//! One rule shaped it: nothing on the machine but the folder changes. Packages are unpacked there
//! and not installed, and servers get ports that no default installation has. A process is only
//! signalled if the kernel confirms that it is the very one that was started here ([`Identity`]).
//! No broker's client is used: readiness checks write the few bytes themselves.

mod catalog;
mod config;
mod disk;
mod errors;
mod identity;
mod install;
mod launch;
mod lifecycle;
mod nodes;
mod peer;
mod peers;
mod plan;
mod ports;
mod power;
mod progress;
mod ready;
mod running;
mod systems;
mod tool;

pub use catalog::catalog;
pub use errors::{
    DiskError, FolderError, InstallError, OpenError, StartError, StopError, UnknownPeer,
};
pub use identity::{Identity, resident_bytes};
pub use install::{Installed, java};
pub use peer::{Need, Peer, Source};
pub use peers::{Peers, State};
pub use progress::{Progress, Silent};
pub use running::{Endpoint, Process, Running};
pub use tier::Tier;
pub use tool::Tool;
