//! Rate of reading a backlog.

use super::topic::TOPIC;
use super::{Figures, Kafka};
use crate::failure::Outcome;
use crate::stage::Server;

impl Kafka {
    pub(super) fn consume(&self, server: &Server) -> Outcome<Figures> {
        let records = self.scaled(2_000_000);
        self.tools.produce(server.address, TOPIC, records, &self.payload)?;
        self.tools.consume(server.address, TOPIC, records / 10)?;
        let clock = server.cpu_clock()?;
        let consumed = self.tools.consume(server.address, TOPIC, records)?;
        Ok(Figures {
            records_per_second: Some(consumed.records_per_second),
            fetched_per_second: Some(consumed.fetched_per_second),
            used: clock.stop(records as f64)?,
            ..Figures::default()
        })
    }
}
