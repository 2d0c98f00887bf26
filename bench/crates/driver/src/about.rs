use crate::{Failure, Style, Tier, Topology};

/// Capabilities of a system and its terms. Kept by the driver, printed with each result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct About {
    /// Name on the command line: `rabbitmq-quorum`.
    pub system: &'static str,
    /// Display name: `RabbitMQ, quorum queues`.
    pub title: &'static str,
    /// The client library and its version.
    pub client: &'static str,
    /// State of a message when `send` returns.
    pub sent_means: &'static str,
    /// How received messages are hidden, and when they are redelivered.
    pub hidden_means: &'static str,
    pub tiers: &'static [Tier],
    pub styles: &'static [Style],
    pub lanes: Lanes,
    pub returns: Return,
    /// A destination can have more than one subscription.
    pub subscriptions: bool,
    /// The system marks redelivered messages.
    pub tells_redelivery: bool,
    /// `settle` returns only after the server has confirmed.
    pub settles_confirmed: bool,
    /// `post` does not wait for the server.
    pub pipelined: bool,
}

impl About {
    /// Checks that the system supports the topology. The error names the missing capability.
    pub fn offers(&self, topology: &Topology) -> Result<(), Failure> {
        let lacks = |what: String| Err(Failure::Unsupported { system: self.system, what });
        let Topology { tier, style, subscriptions, .. } = *topology;
        if !self.tiers.contains(&tier) {
            return lacks(format!("tier {tier} ({})", tier.meaning()));
        }
        if !self.styles.contains(&style) {
            return lacks(match style {
                Style::Queue => "settling of single messages".into(),
                Style::Log => "reading by position".into(),
            });
        }
        if subscriptions > 1 && !self.subscriptions {
            return lacks("second subscription".into());
        }
        Ok(())
    }
}

/// Order guarantee of a system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lanes {
    /// By key, with any number of receivers.
    Ordered,
    /// By key, with one receiver to a partition at a time.
    Partitioned,
    /// All of a destination in one order, with one receiver.
    Single,
    Unordered,
}

/// Conditions under which an unsettled message is redelivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Return {
    /// After the lease, and when the connection ends.
    LeaseOrConnection,
    /// After the lease only.
    Lease,
    /// When the connection ends.
    Connection,
    /// Not redelivered: at most once.
    Never,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capability_is_named() {
        let about = About {
            system: "any",
            title: "Any",
            client: "none",
            sent_means: "",
            hidden_means: "",
            tiers: &[Tier::T1],
            styles: &[Style::Queue],
            lanes: Lanes::Single,
            returns: Return::Never,
            subscriptions: false,
            tells_redelivery: false,
            settles_confirmed: false,
            pipelined: false,
        };
        let topology = Topology::new("t", Style::Queue, Tier::T1);
        assert_eq!(about.offers(&topology), Ok(()));
        let lacking = [
            (Topology { tier: Tier::T3, ..topology.clone() }, "any has no tier T3"),
            (Topology { style: Style::Log, ..topology.clone() }, "reading by position"),
            (Topology { subscriptions: 2, ..topology }, "second subscription"),
        ];
        for (topology, what) in lacking {
            let said = about.offers(&topology).expect_err(what).to_string();
            assert!(said.contains(what), "{said}");
        }
    }
}
