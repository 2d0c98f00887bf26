use crate::errors::UnknownPeer;
use crate::plan::System;
use crate::{Peer, systems};

/// The available brokers, Postroad first.
pub fn catalog() -> Vec<&'static Peer> {
    systems::ALL.iter().map(|system| system.peer()).collect()
}

pub(crate) fn find(name: &str) -> Result<&'static dyn System, UnknownPeer> {
    let found = systems::ALL.iter().find(|system| system.peer().name == name);
    found.copied().ok_or_else(|| UnknownPeer {
        name: name.to_owned(),
        known: catalog().into_iter().map(|peer| peer.name).collect(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::peer::CLUSTER;

    #[test]
    fn ports_of_all_servers_are_distinct() {
        let mut taken = BTreeMap::new();
        for peer in catalog() {
            let nodes = if peer.cluster_tiers.is_empty() { 1 } else { CLUSTER };
            for node in 1..=nodes {
                for (purpose, _) in peer.ports {
                    let port = peer.port(purpose, node);
                    let user = format!("{} {purpose} {node}", peer.name);
                    if let Some(other) = taken.insert(port, user.clone()) {
                        panic!("{user} and {other} both want {port}");
                    }
                }
            }
        }
    }

    #[test]
    fn ports_are_below_the_ephemeral_range() {
        const FIRST_OF_LINUX: u16 = 32_768;
        let ports = catalog().into_iter().flat_map(|peer| peer.ports);
        for (purpose, port) in ports {
            assert!((24_000..FIRST_OF_LINUX).contains(port), "{purpose} {port}");
        }
    }

    #[test]
    fn tiers_of_a_majority_need_a_cluster() {
        for peer in catalog() {
            let majority = |tier: &crate::Tier| matches!(tier, crate::Tier::T2 | crate::Tier::T4);
            assert!(!peer.tiers.iter().any(majority), "{}", peer.name);
            assert!(peer.cluster_tiers.iter().all(majority), "{}", peer.name);
        }
    }

    #[test]
    fn unknown_name_error_lists_the_known_ones() {
        let failure = find("kafak").map(|_| ()).expect_err("there is none");
        assert!(failure.to_string().contains("kafka, rabbitmq"), "{failure}");
    }
}
