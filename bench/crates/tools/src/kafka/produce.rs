//! Rate of acknowledged records.

use super::topic::TOPIC;
use super::{Contender, Figures, Kafka, Workload};
use crate::failure::Outcome;
use crate::stage::Server;

impl Kafka {
    pub(super) fn produce(
        &self,
        server: &Server,
        workload: Workload,
        contender: Contender,
    ) -> Outcome<Figures> {
        // Enough for about ten seconds at the expected rate of each contender.
        let (warm_up, records) = match (contender, workload) {
            (Contender::KafkaFlush, Workload::Produce16) => (50_000, 300_000),
            (Contender::KafkaFlush, _) => (10_000, 60_000),
            (_, Workload::Produce16) => (200_000, 1_200_000),
            _ => (100_000, 800_000),
        };
        self.tools.produce(server.address, TOPIC, self.scaled(warm_up), &self.payload)?;
        let records = self.scaled(records);
        let clock = server.cpu_clock()?;
        let produced = self.tools.produce(server.address, TOPIC, records, &self.payload)?;
        let used = clock.stop(records as f64)?;
        let records_per_second = Some(produced.records_per_second);
        Ok(Figures { records_per_second, used, ..Figures::default() })
    }
}
