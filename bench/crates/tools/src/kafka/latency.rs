//! One record at a time: produced, acknowledged and consumed.

use super::topic::TOPIC;
use super::{Contender, Figures, Kafka};
use crate::failure::Outcome;
use crate::stage::Server;

impl Kafka {
    pub(super) fn latency(&self, server: &Server, contender: Contender) -> Outcome<Figures> {
        let records = self.scaled(if contender == Contender::KafkaFlush { 3_000 } else { 5_000 });
        let tool = self.tools.end_to_end(server.address, TOPIC, records)?;
        let clock = server.cpu_clock()?;
        let round_trip = self.tools.round_trip(server.address, TOPIC, records)?;
        Ok(Figures {
            tool_p50_ms: Some(tool.p50_ms),
            tool_p99_ms: Some(tool.p99_ms),
            acknowledged_p50_us: Some(round_trip.acknowledged_p50_us),
            consumed_p50_us: Some(round_trip.consumed_p50_us),
            consumed_p99_us: Some(round_trip.consumed_p99_us),
            // RoundTrip's warm-up is as long as its run.
            used: clock.stop(2.0 * records as f64)?,
            ..Figures::default()
        })
    }
}
