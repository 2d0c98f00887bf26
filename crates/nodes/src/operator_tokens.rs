//! Tokens that log operators in.
//!
//! Each node has a token in its data directory, and accepts the tokens of all nodes: a command that reads a topic
//! connects to the leaders of its partitions, and presents the token of the node that it was started at. Nodes send
//! each other only the SHA-256 of their tokens, which have more than 200 random bits.

use std::fmt::Write as _;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest;

use crate::OtherNodes;
use crate::node_gossip::NodeGossip;

/// The tokens of this node and of the other nodes. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct OperatorTokens {
    /// `None`: the node has none.
    own: Option<String>,
    others: Option<OtherNodes>,
}

impl OperatorTokens {
    pub(crate) fn new(own: Option<&str>, others: Option<OtherNodes>) -> Self {
        Self { own: own.map(sha256), others }
    }

    pub(crate) fn own_sha256(&self) -> Option<&str> {
        self.own.as_deref()
    }

    pub(crate) fn accept(&self, token: &str) -> bool {
        let given = sha256(token);
        let is_given =
            |known: &str| verify_slices_are_equal(known.as_bytes(), given.as_bytes()).is_ok();
        if self.own.as_deref().is_some_and(is_given) {
            return true;
        }
        let Some(OtherNodes { cluster, heard }) = &self.others else { return false };
        let heard = heard.borrow();
        // A removed node is no peer.
        let peers = heard.iter().filter(|(node, _)| cluster.links().peer(**node).is_some());
        let mut told = peers.filter_map(|(_, told)| NodeGossip::decode(told)?.operator_token);
        told.any(|known| is_given(&known))
    }
}

/// In lower-case hexadecimal digits.
fn sha256(token: &str) -> String {
    let digest = digest::digest(&digest::SHA256, token.as_bytes());
    digest.as_ref().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_without_a_cluster_accepts_its_own_token_only() {
        let tokens = OperatorTokens::new(Some("abc"), None);
        assert!(tokens.accept("abc") && !tokens.accept("abd") && !tokens.accept(""));
        // FIPS 180-2, appendix B.1.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(tokens.own_sha256(), Some(expected));
        assert!(!tokens.accept(expected));
        assert!(!OperatorTokens::new(None, None).accept(""));
    }
}
