//! `tx`: messages and acknowledgements that take effect together or not at all.
//!
//! RabbitMQ promises atomicity for one queue only. Here one log entry decides on a commit, so it is atomic for all
//! messages and acknowledgements.

use broker::delivery::{Settle, TransferError};

use crate::channel::Channel;
use crate::channel::transaction::Transaction;
use crate::codec::methods::{TxCommit, TxRollbackOk, TxSelectOk};
use crate::errors::{Exception, ReplyCode};
use crate::session::Session;
use crate::session::operation::OperationResult;

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
        let Transaction { mut publisher, answers, returns, reserved } = std::mem::take(transaction);
        let (batches, _) = publisher.take();
        let settles: Vec<Settle> = answers
            .into_iter()
            .filter_map(|answer| Channel::settle_of(answer.held, answer.settlement))
            .collect();
        self.output.append(returns);
        let leases = self.leases(number);
        let future = async move {
            // Held until the messages are in the log.
            let _reserved = reserved;
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
                Err(error) if error.leaves_outcome_open() => {
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
