//! Requests to the leaders of shards on other nodes, and the server of their requests. It uses the node's shards, and
//! the requests and encoding of crate `shard-peers`.
//!
//! * [`forwarding`]: appends, in order
//! * [`query_client`], [`query_server`]: queries of a shard's rows
//! * [`remote_watch`]: waiting for records of shards without rows on this node
//! * [`peer_service`]: serves all requests of other nodes

pub(crate) mod forwarding;
pub(crate) mod peer_service;
pub(crate) mod query_client;
pub(crate) mod query_server;
pub(crate) mod remote_watch;
