//! Memory of messages that are being received, charged to a budget of the node as it arrives: bytes that a client
//! announces and does not send take no room from others.

use std::sync::Arc;
use std::task::{Context, Poll};

use broker::Permit;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::gateway::Gateway;

/// Room is requested in steps of this size at least.
const STEP_BYTES: usize = 64 << 10;

/// Charged memory of one session.
#[derive(Default)]
pub(crate) struct IncomingMemory {
    permit: Permit,
    permitted: usize,
    /// Bytes of messages that are incomplete, or complete and not passed to the broker.
    bytes: usize,
    /// Those of them that are complete.
    complete: usize,
    /// Pending request for more room, and its bytes.
    growth: Option<(BoxFuture<'static, Permit>, usize)>,
}

impl IncomingMemory {
    /// Charges bytes that have arrived. The session handles no further frame while it waits for room.
    pub(crate) fn add(&mut self, gateway: &Arc<Gateway>, bytes: usize) {
        self.bytes += bytes;
        if self.growth.is_some() || self.bytes <= self.permitted {
            return;
        }
        let more = (self.bytes - self.permitted).max(STEP_BYTES);
        let (gateway, mut permit) = (Arc::clone(gateway), std::mem::take(&mut self.permit));
        let mut growth = async move {
            gateway.arriving.grow(&mut permit, more).await;
            permit
        }
        .boxed();
        match (&mut growth).now_or_never() {
            Some(permit) => self.grown(permit, more),
            None => self.growth = Some((growth, more)),
        }
    }

    pub(crate) fn waits(&self) -> bool {
        self.growth.is_some()
    }

    /// Returns whether a wait for room has ended.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> bool {
        let Some((growth, more)) = &mut self.growth else { return false };
        let Poll::Ready(permit) = growth.poll_unpin(context) else { return false };
        let more = *more;
        self.growth = None;
        self.grown(permit, more);
        true
    }

    fn grown(&mut self, permit: Permit, more: usize) {
        self.permit = permit;
        self.permitted += more;
        self.release();
    }

    /// A message with so many charged bytes is complete. They stay charged until the broker has it.
    pub(crate) fn complete(&mut self, bytes: usize) {
        self.complete += bytes;
    }

    /// All complete messages were passed to the broker.
    pub(crate) fn handed_over(&mut self) {
        self.bytes -= std::mem::take(&mut self.complete);
        self.release();
    }

    /// An incomplete message was discarded.
    pub(crate) fn discard(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.release();
    }

    fn release(&mut self) {
        if self.bytes == 0 && self.growth.is_none() {
            self.permit = Permit::default();
            self.permitted = 0;
        }
    }
}
