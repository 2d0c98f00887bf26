//! Links to other nodes, of which there are none yet.
//!
//! A group of one voter runs the same engine as a group of five; it just never sends. Should a
//! membership name another node all the same, each send says that it cannot be reached and why,
//! and the engine backs off as it does from a node that is down.

use std::future::Future;

use futures_util::Stream;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{
    Backoff, NetBackoff, NetSnapshot, NetStreamAppend, NetTransferLeader, NetVote, RPCOption,
    RaftNetworkFactory,
};
use openraft::raft::{
    AppendEntriesRequest, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::{SnapshotOf, VoteOf};
use openraft::{BasicNode, OptionalSend};

use crate::replica::Image;
use crate::types::TypeConfig;

#[derive(Clone, Copy, Debug)]
pub(crate) struct NoPeers;

/// The link to a node that cannot be reached.
#[derive(Debug)]
pub(crate) struct NoLink {
    target: u64,
    address: String,
}

impl NoLink {
    fn unreachable(&self) -> Unreachable<TypeConfig> {
        let Self { target, address } = self;
        Unreachable::from_string(format!(
            "node {target} at '{address}': this version links no nodes, its groups have one voter"
        ))
    }

    fn refuse<T>(&self) -> Result<T, RPCError<TypeConfig>> {
        Err(RPCError::Unreachable(self.unreachable()))
    }
}

impl RaftNetworkFactory<TypeConfig> for NoPeers {
    type Network = NoLink;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> NoLink {
        NoLink { target, address: node.addr.clone() }
    }
}

impl NetBackoff<TypeConfig> for NoLink {
    fn backoff(&self) -> Option<Backoff> {
        None
    }
}

impl NetStreamAppend<TypeConfig> for NoLink {
    fn stream_append<'s, S>(
        &'s mut self,
        _input: S,
        _option: RPCOption,
    ) -> BoxFuture<
        's,
        Result<
            BoxStream<'s, Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>>>,
            RPCError<TypeConfig>,
        >,
    >
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        Box::pin(async move { self.refuse() })
    }
}

impl NetVote<TypeConfig> for NoLink {
    async fn vote(
        &mut self,
        _rpc: VoteRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.refuse()
    }

    async fn pre_vote(
        &mut self,
        _rpc: VoteRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.refuse()
    }
}

impl NetSnapshot<TypeConfig> for NoLink {
    type SnapshotData = Image;

    async fn full_snapshot(
        &mut self,
        _vote: VoteOf<TypeConfig>,
        _snapshot: SnapshotOf<TypeConfig, Image>,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        Err(StreamingError::Unreachable(self.unreachable()))
    }
}

impl NetTransferLeader<TypeConfig> for NoLink {
    async fn transfer_leader(
        &mut self,
        _req: TransferLeaderRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.refuse()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_send_to_another_node_says_that_it_is_unreachable_and_why() {
        let node = BasicNode { addr: "b:9".to_owned() };
        let mut link = NoPeers.new_client(2, &node).await;
        let request = VoteRequest::new(openraft::Vote::new(1, 1), None);
        let refused = link.vote(request, RPCOption::new(Duration::from_secs(1))).await.unwrap_err();
        assert!(matches!(refused, RPCError::Unreachable(_)));
        assert!(refused.to_string().contains("node 2 at 'b:9'"), "{refused}");
    }
}
