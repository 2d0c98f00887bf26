//! Transfer of leadership without rejected appends.
//!
//! A proposal that misses the end of a term is rejected, and with it its appends. So before the term ends the
//! sequencer gets no more appends of producers, whose queue keeps them for the next leader, and settles those that it
//! has.

use std::time::Duration;

use consensus::TransferError;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::LocalShard;
use crate::append::{AppendBatch, Appends};
use crate::request::Request;

/// Time for which the transfer waits for earlier appends to be settled; slower ones may be rejected.
const SETTLED_WITHIN: Duration = Duration::from_millis(250);

/// While a hold exists, [`LocalShard::append_unless_handing_over`] accepts no appends.
struct HandoverHold<'a>(&'a LocalShard);

impl Drop for HandoverHold<'_> {
    fn drop(&mut self) {
        self.0.requests.lock().holds -= 1;
    }
}

impl LocalShard {
    /// Transfers leadership to this voter, as [`consensus::Consensus::transfer_leadership`] does.
    #[tasks::boxed]
    pub async fn transfer_leadership(&self, to: u64) -> Result<(), TransferError> {
        let (settles, settled) = oneshot::channel();
        let _hold = {
            let mut requests = self.requests.lock();
            requests.holds += 1;
            // A stopping node rejects the request, and has no appends to wait for.
            let _ = requests.send(Request::Settle(settles));
            HandoverHold(self)
        };
        // No value is ever sent: the sender is dropped once all is settled.
        let _ = timeout(SETTLED_WITHIN, settled).await;
        self.consensus.transfer_leadership(to).await
    }

    /// Accepts an append, or returns it while leadership is being transferred.
    pub fn append_unless_handing_over(
        &self,
        batches: Vec<AppendBatch>,
        reply: oneshot::Sender<Appends>,
    ) -> Result<(), (Vec<AppendBatch>, oneshot::Sender<Appends>)> {
        let requests = self.requests.lock();
        if requests.holds > 0 {
            return Err((batches, reply));
        }
        // When the node is stopping the request is dropped, and with it the sender of the reply.
        let _ = requests.send(Request::Append { batches, from: None, reply });
        Ok(())
    }
}
