//! The brokers that the suite measures: installed in a folder of its own, started at a durability
//! tier, and stopped.
//!
//! * [`catalog`]: which there are, in which version, from where, and which tiers they hold
//! * [`Peers`]: a folder of installed ones; installs, starts, stops, kills, restarts and wipes
//! * [`Tool`]: a program of a broker's project that puts load on brokers, installed beside them
//! * [`Running`]: where a started one is, and every setting that was not left as it comes
//!
//! One rule shaped it: nothing on the machine but the folder changes. Packages are unpacked there
//! and not installed, servers get ports that no default installation has, and a process is only
//! ever signalled when the kernel says that it is the very one that was started here
//! ([`Identity`]). Nothing here knows a broker's client: who asks whether a server is ready writes
//! the few bytes himself.

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
