//! Transactional batches of a Produce request: each needs the producer's transaction open in the shard of its partition.

use broker::{AppendBatch, ExecuteError, ProducerKey, Refusal, TransactionRefusal};
use kafka_protocol::error::ResponseError;

use crate::errors::Fault;
use crate::state::Gateway;

/// First version of Produce whose clients register no partitions (KIP-890).
pub(crate) const UNREGISTERED_SINCE: i16 = 12;

/// Opens the transaction `id` where the batches need it. Returns the batches that may be appended, and for each batch
/// the error that it got instead, in order.
pub(crate) async fn open(
    gateway: &Gateway,
    id: &str,
    version: i16,
    batches: Vec<AppendBatch>,
) -> (Vec<AppendBatch>, Vec<Option<Fault>>) {
    let registers = version < UNREGISTERED_SINCE;
    let (mut admitted, mut faults) = (Vec::with_capacity(batches.len()), Vec::new());
    for batch in batches {
        let fault = open_for(gateway, id, registers, &batch).await.err();
        if fault.is_none() {
            admitted.push(batch);
        }
        faults.push(fault);
    }
    (admitted, faults)
}

async fn open_for(
    gateway: &Gateway,
    id: &str,
    registers: bool,
    batch: &AppendBatch,
) -> Result<(), Fault> {
    let (header, partition) = (&batch.header, batch.partition);
    let producer = ProducerKey { id: header.producer_id, epoch: header.producer_epoch };
    let broker = &gateway.broker;
    // The append itself is refused at a node that does not lead.
    let is_open = !header.attributes.is_transactional()
        || !broker.leads(partition)
        || broker.is_transaction_open(producer, partition, registers);
    if is_open {
        return Ok(());
    }
    let opened = broker.open_transaction(id, producer, partition, registers).await;
    opened.map_err(|error| fault(error, registers))
}

fn fault(error: ExecuteError, registers: bool) -> Fault {
    match error {
        ExecuteError::Refused(Refusal::Transaction(TransactionRefusal::Fenced { .. })) => {
            Fault::new(ResponseError::InvalidProducerEpoch, error.to_string())
        }
        // Clients before KIP-890 retry after this one without a change of the epoch.
        ExecuteError::Refused(Refusal::Transaction(TransactionRefusal::Concurrent))
        | ExecuteError::Unavailable(_)
            if registers =>
        {
            Fault::new(ResponseError::NotEnoughReplicas, error.to_string())
        }
        error => error.into(),
    }
}
