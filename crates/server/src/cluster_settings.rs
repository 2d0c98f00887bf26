//! What `serve` is told of the cluster that the node is a member of.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::settings::{SettingsError, host_port, invalid, listen};

/// How the node reaches others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ClusterSettings {
    /// Where peers connect.
    pub(crate) listen: SocketAddr,
    /// `HOST:PORT`, as it stands in the seeds.
    pub(crate) address: String,
    pub(crate) seeds: Vec<String>,
    /// A file.
    pub(crate) secret: Option<PathBuf>,
    pub(crate) plaintext: bool,
}

impl ClusterSettings {
    /// `None`: the node is alone, and nothing was said of others.
    pub(crate) fn of(
        peer: Option<String>,
        advertised: Option<String>,
        seeds: Option<Vec<String>>,
        secret: Option<PathBuf>,
        plaintext: bool,
    ) -> Result<Option<Self>, SettingsError> {
        let Some(peer) = peer else {
            let said = [
                ("advertise-peer", advertised),
                ("seeds", seeds.map(|seeds| seeds.join(","))),
                ("peer-secret", secret.map(|secret| secret.display().to_string())),
                ("peer-plaintext", plaintext.then(|| "true".to_owned())),
            ];
            let said = said.into_iter().find_map(|(setting, value)| Some((setting, value?)));
            return match said {
                None => Ok(None),
                Some((setting, value)) => {
                    let problem =
                        "is for a node of a cluster: say its own address, too, with --peer";
                    Err(invalid(setting, &value, problem))
                }
            };
        };
        if let (true, Some(secret)) = (plaintext, &secret) {
            let problem = "is of no use with --peer-plaintext: leave one of them away";
            return Err(invalid("peer-secret", &secret.display().to_string(), problem));
        }
        let listen = listen("peer", &peer)?;
        let address = advertised.unwrap_or(peer);
        host_port("advertise-peer", &address)?;
        let seeds: Vec<String> =
            seeds.unwrap_or_default().into_iter().map(|seed| seed.trim().to_owned()).collect();
        for seed in &seeds {
            host_port("seeds", seed)?;
        }
        Ok(Some(Self { listen, address, seeds, secret, plaintext }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(peer: Option<&str>, seeds: &[&str]) -> Result<Option<ClusterSettings>, SettingsError> {
        let seeds = seeds.iter().map(|seed| seed.to_string()).collect();
        ClusterSettings::of(peer.map(str::to_owned), None, Some(seeds), None, false)
    }

    #[test]
    fn a_node_is_reached_where_it_listens_unless_told_otherwise() {
        let settings = of(Some("127.0.0.1:7701"), &["a:7700", " b:7700"]).expect("valid");
        let settings = settings.expect("a member");
        assert_eq!(settings.address, "127.0.0.1:7701");
        assert_eq!(settings.seeds, ["a:7700", "b:7700"]);
    }

    #[test]
    fn what_is_said_of_a_cluster_needs_an_address_of_this_node() {
        let error = of(None, &["a:7700"]).expect_err("refused").to_string();
        assert!(error.contains("--seeds") && error.contains("--peer"), "{error}");
        assert_eq!(ClusterSettings::of(None, None, None, None, false).expect("valid"), None);
    }

    #[test]
    fn seeds_are_hosts_with_ports() {
        let error = of(Some("127.0.0.1:7701"), &["a"]).expect_err("refused").to_string();
        assert!(error.contains("--seeds \"a\""), "{error}");
    }
}
