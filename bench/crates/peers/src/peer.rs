use std::fmt;

use tier::Tier;

/// A broker that can be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// As users write it: `rabbitmq`.
    pub name: &'static str,
    /// For people: `Apache Kafka`.
    pub title: &'static str,
    /// The version that is installed. Of a Debian package: the upstream part, which stays within a
    /// release.
    pub version: &'static str,
    pub source: Source,
    /// What must be on the machine.
    pub needs: &'static [Need],
    /// What one node holds. Which of them a message gets may depend on the kind of queue too.
    pub tiers: &'static [Tier],
    /// What three nodes hold; nothing if there is no such form here.
    pub cluster_tiers: &'static [Tier],
    /// Of the first node; one node's ports are [`PORTS_OF_A_NODE`] apart from the next one's.
    pub ports: &'static [(&'static str, u16)],
    /// What decides the tier, and what else a reader of results should know.
    pub note: &'static str,
}

/// How far apart the ports of the nodes of one system are.
pub(crate) const PORTS_OF_A_NODE: u16 = 10;

/// Nodes of the clustered form: the fewest of which a majority survives one.
pub(crate) const CLUSTER: u32 = 3;

impl Peer {
    /// The tiers that so many nodes hold.
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

/// Where a peer comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Libraries or a distribution, through `mvn`.
    MavenCentral,
    /// Packages of this Debian release, unpacked into a folder.
    Debian,
    /// Built from a module, through `go install`.
    GoProxy,
    /// A binary that the user names, or a build of this repository.
    Own,
}

/// Something that must be on the machine.
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
