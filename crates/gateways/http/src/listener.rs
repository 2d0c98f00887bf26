//! Serves the connections of both ports.

use axum::Router;
use gateway::{Connection, ListenerOptions, Ports, Socket};
use tasks::Task;
use world::net::Listener;

use crate::connection::admission::AdmissionLimit;
use crate::connection::{self, ListenerState, Peer};
use crate::front::FrontEnd;
use crate::routes;

/// Protocol name of the main port.
pub(crate) const PROTOCOL: &str = "http";
/// Protocol name of the metrics port.
const METRICS: &str = "metrics";

/// Listeners of the gateway.
#[derive(Debug, Default)]
pub struct HttpPorts {
    pub http: Ports,
    /// Serves metrics and health only, without authentication.
    pub metrics: Option<Listener>,
}

impl HttpPorts {
    pub fn is_empty(&self) -> bool {
        self.http.plain.is_none() && self.http.tls.is_none() && self.metrics.is_none()
    }
}

/// Serves clients until [`FrontEnd::stop`], then lets every connection finish its requests in flight (within the drain
/// time of its options) and returns.
#[tasks::boxed]
pub async fn serve(ports: HttpPorts, front: FrontEnd) {
    let metrics = Ports { plain: ports.metrics, tls: None };
    let tls = ports.http.tls.map(|(listener, tls)| (listener, tls.for_http()));
    let http = Ports { tls, ..ports.http };
    tokio::join!(
        serve_ports(PROTOCOL, http, routes::all(&front), &front),
        serve_ports(METRICS, metrics, routes::metrics_alone(&front), &front),
    );
}

async fn serve_ports(protocol: &'static str, ports: Ports, routes: Router, front: &FrontEnd) {
    let options = front.options();
    let accepting = ListenerOptions {
        protocol,
        session: Task::HttpSession,
        sessions_max: options.sessions_max,
        drain_within: options.drain_within,
        connections: options.connections.clone(),
        of_clients: true,
    };
    let serving = ListenerState {
        routes,
        taken_within: options.answer_taken_within,
        places: AdmissionLimit::new(options.sessions_max),
        stopping: front.stopping(),
    };
    let serving = move |mut socket: Socket, connection: Connection| {
        let peer = Peer::of(&mut socket, connection);
        connection::serve(socket, peer, serving.clone())
    };
    gateway::serve_ports(ports, accepting, front.stopping(), serving).await;
}
