//! The list of nodes that found a cluster: their numbers, and the comparison of two lists.
//!
//! Every node has the same list in the same order, since a node's number is its place in it.

use aws_lc_rs::digest::{SHA256, digest};
use base::limits::NODES_MAX;
use links::NodeId;
use thiserror::Error;
use uuid::{Builder, Uuid, Version};

/// The first seed, which founds the cluster.
pub(crate) const FOUNDER: NodeId = NodeId(1);

/// Reason why a list of seeds founds no cluster.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SeedsError {
    #[error(
        "the data directory belongs to no cluster yet: give `--seeds` with the addresses of all nodes that are \
         to found it, the same list on each, or `--join` with the address of a node of the one that it is to join"
    )]
    Missing,
    #[error(
        "the data directory is of a node that has begun to join a cluster: give `--join` with the address of one \
         of its nodes again"
    )]
    JoinMissing,
    #[error(
        "the data directory is of a node that has begun to found a cluster: start it with `--seeds` as before, or \
         give an empty data directory to join another one"
    )]
    FoundsAnother,
    #[error("`{address}` is no address of a node: write HOST:PORT, such as db1.example:7700")]
    NotAnAddress { address: String },
    #[error("`{address}` stands twice among the seeds: name each node once")]
    Twice { address: String },
    #[error(
        "two seeds found no cluster: with two nodes both have to run for anything to work, which is less \
         available than one; give one seed, or three"
    )]
    Two,
    #[error("{count} seeds found no cluster: {NODES_MAX} nodes are allowed; give fewer")]
    TooMany { count: usize },
    #[error(
        "this node's address `{address}` is not among the seeds `{listed}`: give the one of them that leads to \
         this node, or correct the seeds on all nodes"
    )]
    NotListed { address: String, listed: String },
    #[error(
        "this data directory has begun to be node {was}, and `{address}` is number {place} among the seeds now: \
         list this node at place {was}, or start with an empty data directory"
    )]
    AnotherPlace { was: u64, place: u64, address: String },
    #[error(
        "the data directory is being recovered, and that did not end: type `postroad recover` as before, then start \
         the node"
    )]
    Recovering,
    #[error(
        "the data directory is being restored from a backup, and that did not end: type `postroad restore` as before, \
         then start the node"
    )]
    Restoring,
}

/// A valid list of seeds, its addresses in one notation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Seeds(Vec<String>);

impl Seeds {
    pub(crate) fn of(addresses: &[String]) -> Result<Self, SeedsError> {
        let mut seeds = Vec::with_capacity(addresses.len());
        for address in addresses {
            let address = in_one_notation(address)?;
            if seeds.contains(&address) {
                return Err(SeedsError::Twice { address });
            }
            seeds.push(address);
        }
        match seeds.len() {
            0 => Err(SeedsError::Missing),
            2 => Err(SeedsError::Two),
            count if count > NODES_MAX => Err(SeedsError::TooMany { count }),
            _ => Ok(Self(seeds)),
        }
    }

    /// The nodes by number, from 1 on.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (NodeId, &str)> {
        (1..).map(NodeId).zip(self.0.iter().map(String::as_str))
    }

    pub(crate) fn has(&self, node: NodeId) -> bool {
        (1..=self.0.len() as u64).contains(&node.0)
    }

    pub(crate) fn first(&self) -> &str {
        self.0.first().map_or("", String::as_str)
    }

    /// The number of this address among them.
    pub(crate) fn number(&self, address: &str) -> Result<NodeId, SeedsError> {
        let address = in_one_notation(address)?;
        let found = self.nodes().find(|(_, seed)| *seed == address).map(|(node, _)| node);
        found.ok_or_else(|| SeedsError::NotListed { address, listed: self.listed() })
    }

    /// The list as an option's value.
    pub(crate) fn listed(&self) -> String {
        self.0.join(",")
    }

    /// The id that represents the cluster until it has its own: equal lists have equal ids. Its version
    /// distinguishes it from the id of a cluster, which is random.
    pub(crate) fn provisional_cluster(&self) -> Uuid {
        let hash = digest(&SHA256, format!("seeds of a cluster: {}", self.listed()).as_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.as_ref()[..16]);
        Builder::from_custom_bytes(bytes).into_uuid()
    }
}

/// Whether this represents a list of seeds, rather than being the id of a cluster.
pub(crate) fn is_provisional(cluster: Uuid) -> bool {
    cluster.get_version() == Some(Version::Custom)
}

/// Normalizes an address. Names are compared without case; one node under two names is not detected.
pub(crate) fn in_one_notation(address: &str) -> Result<String, SeedsError> {
    let not_one = || SeedsError::NotAnAddress { address: address.to_owned() };
    let lower = address.trim().to_ascii_lowercase();
    let (host, port) = lower.rsplit_once(':').ok_or_else(not_one)?;
    let is_bracketed = host.starts_with('[') && host.ends_with(']') && host.len() > 2;
    let is_plain = !host.is_empty() && !host.contains([':', '[', ']', ',', ' ', '/']);
    let port = port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(not_one)?;
    match is_bracketed || is_plain {
        true => Ok(format!("{host}:{port}")),
        false => Err(not_one()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seeds(listed: &str) -> Result<Seeds, SeedsError> {
        Seeds::of(&listed.split(',').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn seed_number_is_its_place_in_the_list() {
        let three = seeds("a:7700, B.example:7700 ,[::1]:07700").expect("a list");
        assert_eq!(three.number("b.EXAMPLE:7700"), Ok(NodeId(2)));
        assert_eq!(three.number("[::1]:7700"), Ok(NodeId(3)));
        assert!(three.has(NodeId(3)) && !three.has(NodeId(4)) && !three.has(NodeId(0)));
        let error = three.number("d:7700").expect_err("not there");
        assert!(error.to_string().contains("`a:7700,b.example:7700,[::1]:7700`"), "{error}");
    }

    #[test]
    fn invalid_lists_of_seeds_are_rejected() {
        for (listed, error) in [
            ("a:1,b:1", SeedsError::Two),
            ("a:1,b:1,A:1", SeedsError::Twice { address: "a:1".into() }),
        ] {
            assert_eq!(seeds(listed), Err(error));
        }
        assert_eq!(Seeds::of(&[]), Err(SeedsError::Missing));
        let many: Vec<_> = (0..=NODES_MAX).map(|number| format!("n{number}:1")).collect();
        assert_eq!(Seeds::of(&many), Err(SeedsError::TooMany { count: NODES_MAX + 1 }));
        for address in ["a", "a:", ":1", "a:0", "a:70000", "::1:7700", "a b:1", "http://a:1"] {
            let refused = SeedsError::NotAnAddress { address: address.into() };
            assert_eq!(seeds(address), Err(refused));
        }
        for fine in ["a:1", "a:1,b:1,c:1", "a:1,b:1,c:1,d:1", "a:1,b:1,c:1,d:1,e:1"] {
            assert!(seeds(fine).is_ok(), "{fine}");
        }
    }

    #[test]
    fn equal_lists_of_seeds_have_the_same_provisional_cluster() {
        let cluster = |listed| seeds(listed).expect("a list").provisional_cluster();
        assert_eq!(cluster("a:1,b:1,c:1"), cluster("A:1, b:1,c:01"));
        assert_ne!(cluster("a:1,b:1,c:1"), cluster("a:1,c:1,b:1"));
        assert_ne!(cluster("a:1,b:1,c:1"), cluster("a:1,b:1,c:2"));
        assert!(is_provisional(cluster("a:1")));
        assert!(!is_provisional(Builder::from_random_bytes([7; 16]).into_uuid()));
    }
}
