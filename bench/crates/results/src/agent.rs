use serde::{Deserialize, Serialize};

use crate::Host;

/// A machine of several that sent and received.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Agent {
    /// `host:port`, as the coordinator reached it.
    pub address: String,
    /// Its host; without a description of its disk.
    pub host: Host,
    pub senders: u32,
    pub receivers: u32,
    /// Its clock at the start of the load, by which times are corrected.
    pub clock: ClockOffset,
    /// Its clock at the end of the load; `None` if the agent was lost by then.
    pub clock_at_end: Option<ClockOffset>,
}

/// Offset of a clock from the coordinator's in the middle of a round trip; positive when it is
/// ahead.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ClockOffset {
    pub ahead_us: f64,
    /// Half of the shortest round trip: the largest error of the offset.
    pub uncertainty_us: f64,
}

impl Agent {
    /// Largest error of its times during the load, in microseconds: the uncertainty of its clock,
    /// and the drift in the meantime.
    pub fn clock_uncertainty_us(&self) -> f64 {
        let ClockOffset { ahead_us, uncertainty_us } = self.clock;
        match self.clock_at_end {
            None => uncertainty_us,
            Some(end) => (end.ahead_us - ahead_us).abs() + uncertainty_us.max(end.uncertainty_us),
        }
    }
}

/// Largest difference between the times of any two agents, in microseconds.
pub fn clocks_apart_us(agents: &[Agent]) -> f64 {
    let mut each: Vec<f64> = agents.iter().map(Agent::clock_uncertainty_us).collect();
    each.sort_by(|a, b| b.total_cmp(a));
    // A single machine has no difference.
    if each.len() < 2 { 0.0 } else { each[..2].iter().sum() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(start: (f64, f64), end: (f64, f64)) -> Agent {
        let offset = |(ahead_us, uncertainty_us)| ClockOffset { ahead_us, uncertainty_us };
        Agent { clock: offset(start), clock_at_end: Some(offset(end)), ..Agent::default() }
    }

    #[test]
    fn drift_adds_to_the_clock_uncertainty() {
        assert_eq!(agent((1_000.0, 20.0), (1_300.0, 50.0)).clock_uncertainty_us(), 350.0);
        let gone = Agent { clock_at_end: None, ..agent((1_000.0, 20.0), (0.0, 0.0)) };
        assert_eq!(gone.clock_uncertainty_us(), 20.0);
    }

    #[test]
    fn clocks_apart_is_the_sum_of_the_two_worst_uncertainties() {
        let agents = [(10.0, 10.0), (30.0, 30.0), (20.0, 20.0)]
            .map(|(start, end)| agent((0.0, start), (0.0, end)));
        assert_eq!(clocks_apart_us(&agents), 50.0);
        assert_eq!(clocks_apart_us(&agents[..1]), 0.0);
    }
}
