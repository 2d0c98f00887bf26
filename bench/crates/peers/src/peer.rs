use std::fmt;

use tier::Tier;

/// An available broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Name on the command line: `rabbitmq`.
    pub name: &'static str,
    /// Display name: `Apache Kafka`.
    pub title: &'static str,
    /// The version to install. For a Debian package: the upstream part, which does not change
    /// within a release.
    pub version: &'static str,
    pub source: Source,
    /// Prerequisites on the machine.
    pub needs: &'static [Need],
    /// Tiers of a single node. The tier of a message may also depend on the kind of queue.
    pub tiers: &'static [Tier],
    /// Tiers of three nodes; empty if there is no cluster here.
    pub cluster_tiers: &'static [Tier],
    /// Ports of the first node; those of the next node are [`PORTS_OF_A_NODE`] higher.
    pub ports: &'static [(&'static str, u16)],
    /// The settings that decide the tier, and other notes for readers of results.
    pub note: &'static str,
}

/// Distance between the ports of a system's nodes.
pub(crate) const PORTS_OF_A_NODE: u16 = 10;

/// Nodes of a cluster: the fewest whose majority survives the loss of one.
pub(crate) const CLUSTER: u32 = 3;

impl Peer {
    /// The tiers with this number of nodes.
    pub fn tiers_of(&self, nodes: u32) -> &'static [Tier] {
        match nodes {
            1 => self.tiers,
            CLUSTER => self.cluster_tiers,
            _ => &[],
        }
    }

    pub(crate) fn port(&self, purpose: &str, node: u32) -> u16 {
        let found = self.ports.iter().find(|(name, _)| *name == purpose);
        let (_, first) = found.unwrap_or_else(|| panic!("{} has no port {purpose}", self.name));
        first + PORTS_OF_A_NODE * (node as u16 - 1)
    }
}

/// Origin of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Libraries or a distribution, through `mvn`.
    MavenCentral,
    /// Packages of this Debian release, unpacked into a folder.
    Debian,
    /// Built from a module, through `go install`.
    GoProxy,
    /// A binary set by the user, or a build of this repository.
    Own,
}

/// A prerequisite on the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// Java 17 or newer.
    Java,
    Maven,
    Go,
    /// `apt-get` and `dpkg-deb`; no root.
    Apt,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MavenCentral => "Maven Central",
            Self::Debian => "Debian packages",
            Self::GoProxy => "Go module proxy",
            Self::Own => "this repository",
        })
    }
}
