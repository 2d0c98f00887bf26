//! Deliveries in a batch of a relay: their leases in the head, their records in the body.
//!
//! Records are slices of the batches in the leader's memory, and of the other node's receive buffer: only the
//! kernel copies them between the log and that node's client.

use std::sync::Arc;

use base::{LeaseGroupId, Offset};
use bytes::Bytes;
use dispatch::{ConsumerId, LeaseAttributes, Token};
use record::{BatchHeader, HEADER_LEN, SharedBatch};
use serde::{Deserialize, Serialize};
use shard::delivery::event::Delivery;

use super::frame::MalformedFrame;

/// In the order of delivery.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct DeliveryRuns(Vec<Run>);

/// Deliveries of records of one batch, in ascending order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Run {
    group: LeaseGroupId,
    partition: u32,
    /// The batch's header, as stored.
    header: Vec<u8>,
    /// Length of the records, decompressed, in the body.
    bytes: u32,
    leases: Vec<Lease>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Lease {
    consumer: ConsumerId,
    token: Token,
    offset: Offset,
    attempt: u16,
    /// Their deadline is a remaining time.
    terms: Option<LeaseAttributes>,
}

impl DeliveryRuns {
    /// Adds the records to the body. `now_ms`: the time here.
    pub(super) fn new(deliveries: &[Delivery], now_ms: i64, body: &mut Vec<Bytes>) -> Self {
        let mut runs = Vec::new();
        let mut rest = deliveries;
        while let Some(first) = rest.first() {
            let joins = |(one, next): (&Delivery, &Delivery)| {
                one.group == next.group
                    && one.partition == next.partition
                    && one.record.is_before(&next.record)
            };
            let more = rest.iter().zip(&rest[1..]).take_while(|pair| joins(*pair)).count();
            let (run, others) = rest.split_at(more + 1);
            rest = others;
            runs.push(Run::new(first, run, now_ms, body));
        }
        Self(runs)
    }

    /// Reads the deliveries; their records are at the front of the body. `now_ms`: the time here.
    pub(super) fn read(
        self,
        now_ms: i64,
        body: &mut Bytes,
    ) -> Result<Vec<Delivery>, MalformedFrame> {
        let mut deliveries = Vec::new();
        for run in self.0 {
            run.read(now_ms, body, &mut deliveries)?;
        }
        Ok(deliveries)
    }
}

impl Run {
    fn new(first: &Delivery, run: &[Delivery], now_ms: i64, body: &mut Vec<Bytes>) -> Self {
        let mut header = [0; HEADER_LEN];
        first.record.batch().header().write(&mut header);
        let mut bytes = 0;
        let mut rest = run;
        while let Some(from) = rest.first() {
            // Adjacent records go as one slice.
            let follows =
                |(one, next): (&Delivery, &Delivery)| one.record.is_followed_by(&next.record);
            let more = rest.iter().zip(&rest[1..]).take_while(|pair| follows(*pair)).count();
            let slice = from.record.encoded_up_to(&rest[more].record);
            let slice = slice.unwrap_or_else(|| from.record.encoded());
            bytes += slice.len();
            body.push(slice);
            rest = &rest[more + 1..];
        }
        let lease = |delivery: &Delivery| Lease {
            consumer: delivery.consumer,
            token: delivery.token,
            offset: delivery.offset,
            attempt: delivery.attempt,
            terms: delivery.terms.map(|terms| terms.shifted(now_ms.saturating_neg())),
        };
        Self {
            group: first.group,
            partition: first.partition,
            header: header.to_vec(),
            // A decompressed batch is far smaller than 4 GiB.
            bytes: bytes as u32,
            leases: run.iter().map(lease).collect(),
        }
    }

    fn read(
        self,
        now_ms: i64,
        body: &mut Bytes,
        deliveries: &mut Vec<Delivery>,
    ) -> Result<(), MalformedFrame> {
        let Self { group, partition, header, bytes, leases } = self;
        if bytes as usize > body.len() || header.len() != HEADER_LEN {
            return Err(MalformedFrame::Records);
        }
        let header = BatchHeader::parse(&header).map_err(|_| MalformedFrame::Records)?;
        let records = body.split_to(bytes as usize);
        let batch = SharedBatch::from_records(header, records, leases.len());
        let batch = Arc::new(batch.map_err(|_| MalformedFrame::Records)?);
        for Lease { consumer, token, offset, attempt, terms } in leases {
            let record = batch.record(offset).ok_or(MalformedFrame::Records)?;
            let terms = terms.map(|terms| terms.shifted(now_ms));
            deliveries.push(Delivery {
                group,
                consumer,
                token,
                partition,
                offset,
                attempt,
                terms,
                record,
            });
        }
        Ok(())
    }
}
