//! The dependencies of a node on its surroundings, behind one value, so that a simulation can replace the machine.
//!
//! * [`disk`]: files; the machine's, and one in memory that fails on demand
//! * [`net`]: sockets; the kernel's, and those of a simulated network
//! * [`clock`]: the wall clock and the monotonic one
//! * [`Instant`]: durations and deadlines; a simulation's runtime owns it
//! * [`entropy`]: random bytes
//! * [`injected`]: injected faults of disk and clock, for tests on the real binary
//! * [`Workers`]: blocking work, on threads or as tasks
//!
//! `crates/clippy.toml` forbids the clocks of the standard library and tokio's sockets in other crates, and hash
//! maps other than those of `base::collections`, whose order a seed fixes.

pub mod clock;
pub mod disk;
pub mod entropy;
pub mod injected;
pub mod net;

use std::sync::Arc;

pub use clock::{Clock, ManualClock, RuntimeClock, SystemClock};
pub use disk::{Disk, DiskFile, RealDisk, SimulatedDisk};
pub use entropy::{Entropy, OsEntropy, SeededEntropy};
pub use net::Net;
pub use tasks::Workers;
pub use tokio::time::Instant;

/// A node's surroundings. Clones share them.
#[derive(Clone, Debug)]
pub struct World {
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub net: Net,
    /// How blocking work is run.
    pub workers: Workers,
}

impl World {
    /// The machine that this runs on.
    pub fn real() -> Self {
        Self::on(Arc::new(RealDisk))
    }

    /// The machine that this runs on, except for its disk.
    pub fn on(disk: Arc<dyn Disk>) -> Self {
        Self {
            disk,
            clock: Arc::new(SystemClock),
            entropy: Arc::new(OsEntropy),
            net: Net::Kernel,
            workers: Workers::Threads,
        }
    }

    pub fn with_net(self, net: Net) -> Self {
        Self { net, ..self }
    }

    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }
}
