//! Errors of opening a broker. Those of its operations are in crate `shard`.

use shard::error::Unavailable;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{0}")]
    Journal(#[from] journal::OpenError),
    /// The lost entries may have been acknowledged with this node's vote: it must not vote like a new node.
    #[error(
        "{error}. The other nodes of the cluster have what was here, and this copy must not vote without it: move \
         the directory away, start a new node with an empty one and `--join`, then type \
         `postroad node replace {node} --with NEW`"
    )]
    Lost { node: u32, error: journal::OpenError },
    #[error("{0}")]
    Consensus(#[from] consensus::StartError),
    #[error("the cluster's identity in {path} is damaged: {reason}")]
    Cluster { path: String, reason: String },
    #[error(
        "{} belongs to a node of a cluster: start it with --peer, or use another directory", dir.display()
    )]
    Member { dir: std::path::PathBuf },
    #[error("{path} cannot be read: {reason}")]
    Layout { path: std::path::PathBuf, reason: String },
    #[error(
        "the node has {there} shards and cannot have fewer ({wanted}): their records would be lost; leave \
         --shards away, or say {there} or more"
    )]
    FewerShards { there: u32, wanted: u32 },
    #[error(
        "the cluster has {there} shards, and their number cannot be changed ({wanted}): leave --shards away"
    )]
    ShardsOfCluster { there: u32, wanted: u32 },
    #[error("the shards of the node cannot be founded: {0}")]
    Shards(String),
    #[error("{0}")]
    Level(cluster::level::LevelMissing),
    #[error("{0}")]
    Directory(#[from] cluster::level::LevelError),
    #[error("{0}")]
    Unavailable(#[from] Unavailable),
    #[error("{doing}: {source}")]
    Io { doing: String, source: std::io::Error },
}
