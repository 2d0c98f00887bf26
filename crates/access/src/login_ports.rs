//! Ports of the node, and whether their clients must log in.

use std::net::SocketAddr;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Admission {
    /// Log-in is optional.
    #[default]
    Open,
    Required,
    /// Log-in is required as soon as there is a user.
    OpenWithoutUsers,
}

/// A port of the node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoginPort {
    /// The setting that opens it: `kafka`, `http-tls`.
    pub setting: &'static str,
    pub address: SocketAddr,
    pub admission: Admission,
}

/// The ports of a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LoginPorts {
    pub ports: Vec<LoginPort>,
    /// Whether the existence of users decides about open ports (`auth = "auto"`).
    pub by_users: bool,
}
