//! The open transaction of a channel: messages and acknowledgements that wait for its commit.

use broker::delivery::Settlement;
use rabbitmq::publisher::Publisher;

use crate::channel::UnackedDelivery;
use crate::errors::{Exception, ReplyCode};
use crate::gateway::transaction_memory::{ReservedMemory, TransactionMemory};
use crate::limits::{
    AMQP_TRANSACTION_BYTES_MAX, AMQP_TRANSACTION_SETTLES_MAX, AMQP_TRANSACTIONS_BYTES_MAX,
};
use crate::output::Output;

#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub(crate) publisher: Publisher,
    pub(crate) answers: Vec<PendingSettlement>,
    /// Unroutable messages, returned once the transaction is committed.
    pub(crate) returns: Output,
    /// The transaction's part of the memory shared by all transactions of the node.
    pub(crate) reserved: Option<ReservedMemory>,
}

#[derive(Debug)]
pub(crate) struct PendingSettlement {
    pub(crate) tag: u64,
    pub(crate) held: UnackedDelivery,
    pub(crate) settlement: Settlement,
}

impl Transaction {
    pub(crate) fn answer(&mut self, tag: u64, held: UnackedDelivery, settlement: Settlement) {
        self.answers.push(PendingSettlement { tag, held, settlement });
    }

    pub(crate) fn check_settles(&self) -> Result<(), Exception> {
        if self.answers.len() <= AMQP_TRANSACTION_SETTLES_MAX {
            return Ok(());
        }
        let text =
            format!("a transaction holds at most {AMQP_TRANSACTION_SETTLES_MAX} acknowledgements");
        Err(Exception::new(ReplyCode::ResourceError, text))
    }

    /// Reserves memory for one more message.
    pub(crate) fn reserve(
        &mut self,
        memory: &TransactionMemory,
        bytes: usize,
    ) -> Result<(), Exception> {
        let reserved = self.reserved.get_or_insert_with(|| memory.reservation());
        let fits_all = reserved.grow(bytes);
        let (limit, whose) = if reserved.bytes > AMQP_TRANSACTION_BYTES_MAX {
            (AMQP_TRANSACTION_BYTES_MAX, "a transaction holds")
        } else if !fits_all {
            (AMQP_TRANSACTIONS_BYTES_MAX, "all transactions of a node together hold")
        } else {
            return Ok(());
        };
        let text = format!("{whose} at most {limit} bytes");
        Err(Exception::new(ReplyCode::ResourceError, text))
    }
}
