//! `tx`: messages and acknowledgements that take effect together or not at all.
//!
//! RabbitMQ promises atomicity for one queue only. Here a commit is one log entry, so it is atomic for all messages
//! and acknowledgements. Acknowledgements for queues of several shards take one entry per shard, the first of them
//! with all messages.

use crate::limits::{
    AMQP_TRANSACTION_BYTES_MAX, AMQP_TRANSACTION_SETTLES_MAX, AMQP_TRANSACTIONS_BYTES_MAX,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use broker::delivery::{Settle, Settlement, TransferError};

use crate::channel::{Channel, UnackedDelivery};
use crate::codec::methods::{TxCommit, TxRollbackOk, TxSelectOk};
use crate::errors::{Exception, ReplyCode};
use crate::operation::OperationResult;
use crate::output::Output;
use crate::session::Session;
use rabbitmq::publisher::Publisher;

#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub(crate) publisher: Publisher,
    answers: Vec<PendingSettlement>,
    /// Unroutable messages, returned once the transaction is committed.
    pub(crate) returns: Output,
    /// The transaction's part of the memory shared by all transactions of the node.
    room: Option<ReservedRoom>,
}

/// Bytes held by all open transactions of a node. They do not count against the budget of requests: requests end by
/// themselves, while a transaction is open for as long as its client likes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rooms(Arc<AtomicUsize>);

/// Returned when dropped.
#[derive(Debug)]
struct ReservedRoom {
    rooms: Rooms,
    bytes: usize,
}

impl ReservedRoom {
    fn grow(&mut self, bytes: usize) -> bool {
        let held = self.rooms.0.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.bytes += bytes;
        held <= AMQP_TRANSACTIONS_BYTES_MAX
    }
}

impl Drop for ReservedRoom {
    fn drop(&mut self) {
        self.rooms.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct PendingSettlement {
    tag: u64,
    held: UnackedDelivery,
    settlement: Settlement,
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
    pub(crate) fn take_room(&mut self, rooms: &Rooms, bytes: usize) -> Result<(), Exception> {
        let room = self.room.get_or_insert_with(|| ReservedRoom { rooms: rooms.clone(), bytes: 0 });
        let fits_all = room.grow(bytes);
        let (limit, whose) = if room.bytes > AMQP_TRANSACTION_BYTES_MAX {
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

fn not_transactional() -> Exception {
    Exception::precondition_failed("channel is not transactional")
}

impl Session {
    pub(crate) fn tx_select(&mut self, number: u16) -> Result<(), Exception> {
        let Some(channel) = self.channels.get_mut(&number) else { return Ok(()) };
        if channel.confirms.is_some() {
            return Err(Exception::precondition_failed("cannot switch from confirm to tx mode"));
        }
        channel.transaction.get_or_insert_default();
        self.output.method(number, TxSelectOk::default());
        Ok(())
    }

    pub(crate) fn tx_commit(&mut self, number: u16) -> Result<(), Exception> {
        let Some(channel) = self.channels.get_mut(&number) else { return Ok(()) };
        let transaction = channel.transaction.as_mut().ok_or_else(not_transactional)?;
        let Transaction { mut publisher, answers, returns, room } = std::mem::take(transaction);
        let (batches, _) = publisher.take();
        let settles: Vec<Settle> = answers
            .into_iter()
            .filter_map(|answer| Channel::settle_of(answer.held, answer.settlement))
            .collect();
        self.output.append(returns);
        let leases = self.leases(number);
        let future = async move {
            // Held until the messages are in the log.
            let _room = room;
            let Some(leases) = leases.filter(|_| !batches.is_empty() || !settles.is_empty()) else {
                return Ok(OperationResult::Committed);
            };
            match leases.transfer(settles, batches).await {
                Ok(_) => Ok(OperationResult::Committed),
                Err(TransferError::Unavailable(error)) => {
                    Err(Exception::new(ReplyCode::InternalError, error.to_string()))
                }
                Err(error @ TransferError::Partly(_)) => {
                    Err(Exception::new(ReplyCode::InternalError, error.to_string()))
                }
                Err(error) => Err(Exception::precondition_failed(format!(
                    "transaction not committed: {error}"
                ))),
            }
        };
        self.begin(number, TxCommit::ID, future);
        Ok(())
    }

    /// Drops the published messages and restores the acknowledged deliveries.
    pub(crate) fn tx_rollback(&mut self, number: u16) -> Result<(), Exception> {
        let Some(channel) = self.channels.get_mut(&number) else { return Ok(()) };
        let transaction = channel.transaction.as_mut().ok_or_else(not_transactional)?;
        let answers = std::mem::take(transaction).answers;
        channel.unacked.put_back(answers.into_iter().map(|answer| (answer.tag, answer.held)));
        self.output.method(number, TxRollbackOk::default());
        Ok(())
    }
}
