//! Transactions of Kafka's producers that are open for longer than their timeout, and transactional ids that are unused.
//!
//! The leader of an id's home aborts the transaction, which fences its producer (Kafka's
//! `transaction.abort.timed.out.transaction.cleanup.interval.ms`).

use machine::{Command, EndCause, ProducerKey, Refusal, TransactionCommand, TransactionRefusal};
use shard::LocalShard;
use shard::error::ExecuteError;

/// Number of transactions that a round aborts: each is an entry of the log.
const ABORTED_PER_ROUND: usize = 1_000;
/// Number of ids in one command.
const IDS_PER_COMMAND: usize = 1_000;

/// Aborts transactions whose timeout has passed.
pub(super) async fn abort_expired(shard: &LocalShard) {
    if !shard.is_led_here() {
        return;
    }
    for (id, producer) in expired(shard, shard.timeline().unstepped_ms()) {
        let (commit, cause, fresh) = (false, EndCause::Expired, -1);
        let end = TransactionCommand::End { id: id.clone(), producer, commit, cause, fresh };
        match shard.execute(Command::Transaction(end)).await {
            Ok(_) => tracing::info!(
                id,
                producer = producer.id,
                "a transaction was aborted: it was open for longer than its timeout"
            ),
            // It ends by itself, or in a later round.
            Err(ExecuteError::Refused(Refusal::Transaction(
                TransactionRefusal::InvalidState
                | TransactionRefusal::Fenced { .. }
                | TransactionRefusal::Markers,
            ))) => {}
            Err(error) => {
                tracing::warn!(%error, id, "a transaction past its timeout could not be aborted; trying again");
                return;
            }
        }
    }
}

/// Ids of open transactions whose timeout has passed at `now_ms`.
fn expired(shard: &LocalShard, now_ms: i64) -> Vec<(String, ProducerKey)> {
    shard.read(|state| {
        let ids = state.rows.transactions().ids().ongoing();
        let expired = ids.filter(|(_, it)| {
            let since = it.ongoing().map(|open| open.started_ms);
            since.is_some_and(|since| now_ms.saturating_sub(since) > i64::from(it.timeout_ms))
        });
        expired.take(ABORTED_PER_ROUND).map(|(id, it)| (id.to_string(), it.producer)).collect()
    })
}

/// Forgets transactional ids that were unused for `unused_ms`.
pub(super) async fn forget_unused(shard: &LocalShard, unused_ms: i64) {
    let before_ms = shard.timeline().unstepped_ms().saturating_sub(unused_ms);
    let unused: Vec<String> = shard.read(|state| {
        let ids = state.rows.transactions().ids().iter();
        let unused = ids.filter(|(_, it)| it.ongoing().is_none() && it.updated_ms < before_ms);
        unused.map(|(id, _)| id.to_string()).collect()
    });
    for ids in unused.chunks(IDS_PER_COMMAND) {
        let forget = TransactionCommand::Forget { ids: ids.to_vec(), before_ms };
        if let Err(error) = shard.execute(Command::Transaction(forget)).await {
            tracing::warn!(%error, "unused transactional ids could not be forgotten");
            return;
        }
    }
}
