use serde::{Deserialize, Serialize};

use crate::Host;

/// One of several machines that sent and received.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Agent {
    /// `host:port`, as the coordinator reached it.
    pub address: String,
    /// What it runs on; nothing is known of its disk.
    pub host: Host,
    pub senders: u32,
    pub receivers: u32,
    /// As its clock was when the load began: times are corrected by that.
    pub clock: ClockOffset,
    /// As it was when the load had ended; none if it was gone by then.
    pub clock_at_end: Option<ClockOffset>,
}

/// By how much a clock is ahead of the coordinator's, as a round trip shows it: in its midst.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ClockOffset {
    pub ahead_us: f64,
    /// Half of the shortest round trip: it is more or less by at most that.
    pub uncertainty_us: f64,
}

impl Agent {
    /// How far its times may be from the coordinator's, in microseconds, at any moment of the load:
    /// what was not known of its clock, and what the clock went astray meanwhile.
    pub fn clock_uncertainty_us(&self) -> f64 {
        let ClockOffset { ahead_us, uncertainty_us } = self.clock;
        match self.clock_at_end {
            None => uncertainty_us,
            Some(end) => (end.ahead_us - ahead_us).abs() + uncertainty_us.max(end.uncertainty_us),
        }
    }
}

/// How far the times of any two of them may be apart, in microseconds.
pub fn clocks_apart_us(agents: &[Agent]) -> f64 {
    let mut each: Vec<f64> = agents.iter().map(Agent::clock_uncertainty_us).collect();
    each.sort_by(|a, b| b.total_cmp(a));
    // One machine agrees with itself.
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
    fn what_a_clock_went_astray_is_uncertain_too() {
        assert_eq!(agent((1_000.0, 20.0), (1_300.0, 50.0)).clock_uncertainty_us(), 350.0);
        let gone = Agent { clock_at_end: None, ..agent((1_000.0, 20.0), (0.0, 0.0)) };
        assert_eq!(gone.clock_uncertainty_us(), 20.0);
    }

    #[test]
    fn the_two_worst_clocks_say_how_far_two_may_be_apart() {
        let agents = [(10.0, 10.0), (30.0, 30.0), (20.0, 20.0)]
            .map(|(start, end)| agent((0.0, start), (0.0, end)));
        assert_eq!(clocks_apart_us(&agents), 50.0);
        assert_eq!(clocks_apart_us(&agents[..1]), 0.0);
    }
}
