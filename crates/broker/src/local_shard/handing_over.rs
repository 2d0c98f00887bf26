//! Handing leadership over, so that appends made at this node are not refused.
//!
//! A proposal that comes too late for a term is refused, and with it its appends. So before the term ends the sequencer
//! gets no more appends from [`crate::forwarding`], which keeps them for the next leader, and settles those that it has.

use std::time::Duration;

use consensus::TransferError;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::LocalShard;
use crate::append::{AppendBatch, Appends};
use crate::request::Request;

/// The hand-over waits so long for earlier appends to be settled; what takes longer may be refused.
const SETTLED_WITHIN: Duration = Duration::from_millis(250);

/// While one exists, [`LocalShard::append_unless_handing_over`] takes nothing.
struct Hold<'a>(&'a LocalShard);

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.0.requests.lock().holds -= 1;
    }
}

impl LocalShard {
    /// Hands leadership over to that voter, as [`consensus::Consensus::transfer_leadership`] does.
    pub(crate) async fn transfer_leadership(&self, to: u64) -> Result<(), TransferError> {
        let (settles, settled) = oneshot::channel();
        let _hold = {
            let mut requests = self.requests.lock();
            requests.holds += 1;
            // A node that stops has nothing that could be waited for.
            let _ = requests.send(Request::Settle(settles));
            Hold(self)
        };
        // Nothing is ever sent: its end is the message.
        let _ = timeout(SETTLED_WITHIN, settled).await;
        self.consensus.transfer_leadership(to).await
    }

    /// Takes an append; gives it back while leadership is being handed over.
    pub(crate) fn append_unless_handing_over(
        &self,
        batches: Vec<AppendBatch>,
        reply: oneshot::Sender<Appends>,
    ) -> Result<(), (Vec<AppendBatch>, oneshot::Sender<Appends>)> {
        let requests = self.requests.lock();
        if requests.holds > 0 {
            return Err((batches, reply));
        }
        // When the node is stopping the request is dropped, and with it the sender of the answer.
        let _ = requests.send(Request::Append { batches, from: None, reply });
        Ok(())
    }
}
