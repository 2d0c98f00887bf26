//! Exchanges that a federation link declares at its upstream: they forward everything that may go
//! to the downstream (RabbitMQ's `x-federation-upstream`).

use crate::message::{Headers, Hop};

/// The broker that a link forwards messages to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Downstream {
    /// Maximum number of hops that a message may have had.
    pub hops_max: i64,
    /// The downstream itself as a hop. `None`: the link does not send it.
    pub itself: Option<Hop>,
}

impl Downstream {
    /// Whether a message is forwarded: it had few enough hops, and none of them is the downstream.
    pub(crate) fn takes<H: Headers + ?Sized>(&self, headers: &H) -> bool {
        let hops = headers.hops();
        hops.is_empty()
            || (i64::try_from(hops.len()).is_ok_and(|count| count < self.hops_max)
                && self.itself.as_ref().is_none_or(|itself| !hops.contains(itself)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Property, Value};

    struct HopPath(Vec<Hop>);

    impl Headers for HopPath {
        fn get(&self, _name: &str) -> Option<Value<'_>> {
            None
        }

        fn each(&self, _see: &mut dyn FnMut(&str, Value<'_>)) {}

        fn property(&self, _property: Property) -> Option<Value<'_>> {
            None
        }

        fn hops(&self) -> Vec<Hop> {
            self.0.clone()
        }
    }

    fn hop(cluster: &str) -> Hop {
        Hop { cluster: cluster.to_owned(), vhost: "/".to_owned() }
    }

    #[test]
    fn message_is_forwarded_within_the_hop_limit_and_never_back() {
        let downstream = Downstream { hops_max: 2, itself: Some(hop("down")) };
        assert!(downstream.takes(&HopPath(Vec::new())));
        assert!(downstream.takes(&HopPath(vec![hop("other")])));
        assert!(!downstream.takes(&HopPath(vec![hop("other"), hop("third")])));
        assert!(!downstream.takes(&HopPath(vec![hop("down")])));
        let elsewhere = Hop { vhost: "shop".to_owned(), ..hop("down") };
        assert!(downstream.takes(&HopPath(vec![elsewhere])));
        let unnamed = Downstream { hops_max: 2, itself: None };
        assert!(unnamed.takes(&HopPath(vec![hop("down")])));
        assert!(!Downstream { hops_max: 1, ..downstream }.takes(&HopPath(vec![hop("other")])));
    }
}
