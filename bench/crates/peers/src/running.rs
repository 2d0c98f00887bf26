use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tier::Tier;

use crate::Identity;

/// A started peer. Also the format of its state on disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Running {
    pub name: String,
    /// Version as the installed package reports it.
    pub version: String,
    pub tier: Tier,
    pub nodes: u32,
    pub endpoints: Vec<Endpoint>,
    pub user: Option<String>,
    pub password: Option<String>,
    pub processes: Vec<Process>,
    /// Every setting of the server that is not its default, addresses and folders excepted.
    pub settings: BTreeMap<String, String>,
    pub data_dir: PathBuf,
    /// Log of the first node.
    pub log: PathBuf,
}

/// Address of a protocol.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Endpoint {
    pub node: u32,
    /// `kafka`, `amqp`, `nats`, `mqtt`, `http`, ...
    pub protocol: String,
    /// `127.0.0.1:24100`.
    pub address: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Process {
    pub node: u32,
    /// `broker`, or the kind of a helper.
    pub role: String,
    pub identity: Identity,
    pub log: PathBuf,
    /// Signal for a graceful stop; a number as in `kill -l`.
    pub(crate) ending: i32,
}

pub(crate) const BROKER: &str = "broker";

impl Running {
    /// Addresses of this protocol, by node.
    pub fn addresses(&self, protocol: &str) -> Vec<String> {
        let spoken = self.endpoints.iter().filter(|endpoint| endpoint.protocol == protocol);
        spoken.map(|endpoint| endpoint.address.clone()).collect()
    }

    /// Ids of the running processes, including helpers. Each may have children.
    pub fn pids(&self) -> Vec<u32> {
        let live = self.processes.iter().filter(|process| process.identity.runs());
        live.map(|process| process.identity.pid).collect()
    }

    /// The broker of a node.
    pub fn broker(&self, node: u32) -> Option<&Process> {
        self.processes.iter().find(|process| process.node == node && process.role == BROKER)
    }

    /// Number of running nodes.
    pub fn live_nodes(&self) -> u32 {
        let brokers = self.processes.iter().filter(|process| process.role == BROKER);
        brokers.filter(|process| process.identity.runs()).count() as u32
    }
}

impl Endpoint {
    pub(crate) fn new(node: u32, protocol: &str, address: impl Into<String>) -> Self {
        Self { node, protocol: protocol.to_owned(), address: address.into() }
    }
}
