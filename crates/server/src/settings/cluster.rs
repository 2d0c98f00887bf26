//! Cluster settings of `serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::{SettingsError, host_port, invalid, listen};

/// Addresses and security of the connections to other nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ClusterSettings {
    /// Listen address for peers.
    pub(crate) listen: SocketAddr,
    /// `HOST:PORT`, as in the seeds.
    pub(crate) address: String,
    pub(crate) seeds: Vec<String>,
    /// Nodes of an existing cluster. The node requests to join at one of them.
    pub(crate) join: Vec<String>,
    /// A file.
    pub(crate) secret: Option<PathBuf>,
    pub(crate) plaintext: bool,
}

impl ClusterSettings {
    /// `None`: a single node, without any cluster setting.
    pub(crate) fn of(
        peer: Option<String>,
        advertised: Option<String>,
        seeds: Option<Vec<String>>,
        join: Option<Vec<String>>,
        secret: Option<PathBuf>,
        plaintext: bool,
    ) -> Result<Option<Self>, SettingsError> {
        let Some(peer) = peer else {
            let said = [
                ("advertise-peer", advertised),
                ("seeds", seeds.map(|seeds| seeds.join(","))),
                ("join", join.map(|members| members.join(","))),
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
        let (seeds, join) = (addresses("seeds", seeds)?, addresses("join", join)?);
        if !seeds.is_empty() && !join.is_empty() {
            let problem = "is for a node of a cluster that is there already, and --seeds are those that found a new \
                           one: leave one of them away";
            return Err(invalid("join", &join.join(","), problem));
        }
        Ok(Some(Self { listen, address, seeds, join, secret, plaintext }))
    }
}

fn addresses(
    setting: &'static str,
    said: Option<Vec<String>>,
) -> Result<Vec<String>, SettingsError> {
    let said = said.unwrap_or_default().into_iter().map(|address| address.trim().to_owned());
    let addresses: Vec<String> = said.collect();
    for address in &addresses {
        host_port(setting, address)?;
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(peer: Option<&str>, seeds: &[&str]) -> Result<Option<ClusterSettings>, SettingsError> {
        let seeds = seeds.iter().map(|seed| seed.to_string()).collect();
        ClusterSettings::of(peer.map(str::to_owned), None, Some(seeds), None, None, false)
    }

    #[test]
    fn advertised_peer_address_defaults_to_the_listen_address() {
        let settings = of(Some("127.0.0.1:7701"), &["a:7700", " b:7700"]).expect("valid");
        let settings = settings.expect("a member");
        assert_eq!(settings.address, "127.0.0.1:7701");
        assert_eq!(settings.seeds, ["a:7700", "b:7700"]);
    }

    #[test]
    fn cluster_settings_require_a_peer_address() {
        let error = of(None, &["a:7700"]).expect_err("refused").to_string();
        assert!(error.contains("--seeds") && error.contains("--peer"), "{error}");
        assert_eq!(ClusterSettings::of(None, None, None, None, None, false).expect("valid"), None);
    }

    #[test]
    fn join_and_seeds_are_mutually_exclusive() {
        let of = |seeds: Option<&str>| {
            let (peer, join) =
                (Some("127.0.0.1:7704".to_owned()), Some(vec![" a:7700".to_owned()]));
            ClusterSettings::of(peer, None, seeds.map(|it| vec![it.to_owned()]), join, None, false)
        };
        assert_eq!(of(None).expect("valid").expect("a member").join, ["a:7700"]);
        let error = of(Some("b:7700")).expect_err("refused").to_string();
        assert!(error.contains("--join") && error.contains("--seeds"), "{error}");
    }

    #[test]
    fn seeds_are_hosts_with_ports() {
        let error = of(Some("127.0.0.1:7701"), &["a"]).expect_err("refused").to_string();
        assert!(error.contains("--seeds \"a\""), "{error}");
    }
}
