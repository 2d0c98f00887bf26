//! State of the gateway and of its connections, and state that lasts between the requests of a client. Handlers of
//! requests borrow it; it depends on none of them.

pub(crate) mod fetch_sessions;
pub(crate) mod leader_watch;
pub(crate) mod login;
mod session;
pub(crate) mod share_sessions;

use std::sync::Arc;

use broker::{Broker, Budget, Permit};
use coordinator::Coordinator;
use gateway::Traffic;
use kafka_protocol::ResponseError;
use kafka_protocol::protocol::StrBytes;
use tokio::sync::{Semaphore, watch};

pub(crate) use self::session::Session;
use crate::limits::{
    ANSWER_BYTES_IN_FLIGHT_MAX, ANSWER_UNCOUNTED_BYTES_MAX, ARRIVING_BYTES_MAX,
    DESCRIBED_BYTES_MAX, FETCH_BYTES_IN_FLIGHT_MAX, PACKED_BYTES_IN_FLIGHT_MAX,
    REQUEST_BYTES_IN_FLIGHT_MAX,
};

use crate::errors::coordinator_code;
use crate::options::GatewayOptions;
use crate::state::fetch_sessions::FetchSessions;
use crate::state::leader_watch::{Changes, LeaderWatch};
use crate::state::share_sessions::ShareSessions;

/// State shared by all sessions of the gateway.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) broker: Broker,
    pub(crate) options: GatewayOptions,
    pub(crate) traffic: Traffic,
    pub(crate) fetch_sessions: FetchSessions,
    pub(crate) share_sessions: ShareSessions,
    /// Kilobytes of fetch responses that may be in memory, from read to written.
    pub(crate) fetch_budget: Arc<Semaphore>,
    /// Produce requests of sessions whose batches take long to check. While they wait for a thread they must
    /// not keep the producers' budget from other sessions.
    pub(crate) packed_budget: Budget,
    /// Requests other than produce requests, from read to answered or waiting.
    pub(crate) request_budget: Budget,
    /// Incomplete requests.
    pub(crate) arriving_budget: Budget,
    /// Requests waiting for records or for members of a group.
    pub(crate) waiting_budget: Budget,
    /// Large responses other than fetch responses, from the first row to written.
    pub(crate) answer_budget: Budget,
    leaders: LeaderWatch,
    shutdown: watch::Receiver<bool>,
}

/// The protocol's name for operators.
pub(crate) const PROTOCOL: &str = "kafka";

/// Bytes of one permit of [`Gateway::fetch_budget`].
pub(crate) const FETCH_BUDGET_UNIT: usize = 1 << 10;

impl Gateway {
    pub(crate) fn new(
        broker: Broker,
        options: GatewayOptions,
        shutdown: watch::Receiver<bool>,
    ) -> Self {
        let coordinators = Arc::downgrade(options.groups.coordinators());
        Self {
            leaders: LeaderWatch::start(&broker, coordinators),
            traffic: options.connections.traffic(PROTOCOL),
            fetch_sessions: FetchSessions::new(options.fetch_sessions_max),
            share_sessions: ShareSessions::default(),
            fetch_budget: Arc::new(Semaphore::new(FETCH_BYTES_IN_FLIGHT_MAX / FETCH_BUDGET_UNIT)),
            packed_budget: Budget::new(PACKED_BYTES_IN_FLIGHT_MAX),
            request_budget: Budget::new(REQUEST_BYTES_IN_FLIGHT_MAX),
            arriving_budget: Budget::new(ARRIVING_BYTES_MAX),
            waiting_budget: Budget::new(options.waiting_bytes_max),
            answer_budget: Budget::new(ANSWER_BYTES_IN_FLIGHT_MAX),
            broker,
            options,
            shutdown,
        }
    }

    /// Reserves room for a response of about so many bytes; a small one needs none.
    pub(crate) async fn answer_room(&self, bytes: usize) -> Option<Permit> {
        if bytes <= ANSWER_UNCOUNTED_BYTES_MAX {
            return None;
        }
        Some(self.answer_budget.admit(bytes).await)
    }

    /// Reserves room for a response that describes so many items, each of about so many bytes.
    pub(crate) async fn described_room(&self, items: usize, item_bytes: usize) -> Option<Permit> {
        self.answer_room(items.saturating_mul(item_bytes).min(DESCRIBED_BYTES_MAX)).await
    }

    /// Returns when the node shuts down. A request that waits for records or members of a group waits for
    /// this as well, and then answers with the data available.
    pub(crate) async fn draining(&self) {
        let mut shutdown = self.shutdown.clone();
        // The sender lives as long as the node.
        let _ = shutdown.wait_for(|stopping| *stopping).await;
    }

    /// Returns the group's coordinator. Callers keep it only for a visit, because dropping it at the end of the
    /// term ends the requests that wait in it.
    pub(crate) fn coordinator(&self, group: &str) -> Result<Arc<Coordinator>, ResponseError> {
        self.options.groups.of(group).map_err(coordinator_code)
    }

    pub(crate) fn node_id(&self) -> i32 {
        self.broker.node() as i32
    }

    pub(crate) fn cluster_id(&self) -> StrBytes {
        StrBytes::from_string(self.broker.cluster_id().to_string())
    }

    /// Subscribes to changes of shards' leaders, from now on.
    pub(crate) fn leader_changes(&self) -> Changes {
        self.leaders.changes()
    }
}
