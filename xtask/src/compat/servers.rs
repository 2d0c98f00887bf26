//! The target of a family: one server of its own, or three nodes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Options;
use crate::cluster::{Cluster, NODES, NodeFault};
use crate::failure::{Failure, Outcome};
use crate::server::{self, Postroad, Server};

const READY_WITHIN: Duration = Duration::from_secs(20);
const STOPS_WITHIN: Duration = Duration::from_secs(30);

pub(super) enum Servers {
    One { server: Server, amqp: String, log: PathBuf },
    Three(Cluster),
}

impl Servers {
    pub(super) fn one(binary: &Path, place: &Path, options: &Options) -> Outcome<Servers> {
        let amqp = format!("127.0.0.1:{}", server::free_port()?);
        let postroad = Postroad {
            binary: binary.to_owned(),
            data: place.join("data"),
            log: place.join("server.log"),
            port: server::free_port()?,
            arguments: [&["--amqp".to_owned(), amqp.clone()], &options.serve[..]].concat(),
        };
        let (server, _) = postroad.start(READY_WITHIN)?;
        Ok(Servers::One { server, amqp, log: postroad.log })
    }

    /// With a leader on each node, so that two thirds of the shards that clients use have a remote leader.
    pub(super) fn three(binary: &Path, place: &Path, options: &Options) -> Outcome<Servers> {
        let shards = ["--shards".to_owned(), NODES.to_string()];
        // Without authentication, as a single node without users: scenarios create some, and other clients must
        // still connect.
        let open = ["--auth".to_owned(), "off".to_owned()];
        let serve = [&shards[..], &open, &options.serve].concat();
        let cluster = Cluster::found(binary, place, &serve, NodeFault::Kill, true, READY_WITHIN)?;
        Ok(Servers::Three(cluster))
    }

    /// Addresses for Kafka clients and for AMQP clients.
    pub(super) fn addresses(&self) -> (String, String) {
        match self {
            Servers::One { server, amqp, .. } => (server.address.to_string(), amqp.clone()),
            Servers::Three(cluster) => {
                (cluster.address(0).to_string(), cluster.amqp[0].to_string())
            }
        }
    }

    /// Fails if a server has ended by itself, or does not stop cleanly.
    pub(super) fn stop(self) -> Outcome {
        match self {
            Servers::One { mut server, log, .. } => {
                server.still_runs()?;
                let status = server.stop(STOPS_WITHIN)?;
                if status.success() {
                    return Ok(());
                }
                Err(Failure::new(format!("postroad ended with {status} after SIGTERM"))
                    .remedy(format!("read {}", log.display())))
            }
            Servers::Three(mut cluster) => {
                cluster.still_runs()?;
                cluster.stop(STOPS_WITHIN)
            }
        }
    }
}
