//! Starts a session for each accepted connection.

use std::sync::Arc;

use access::Users;
use broker::Broker;
use gateway::{Connection, ListenerOptions, Ports, Socket};
use tasks::Task;
use tokio::sync::watch;
use topology::Topology;
use tracing::{debug, error, warn};

use crate::connection;
use crate::gateway::{Gateway, PROTOCOL};
use crate::options::GatewayOptions;
use crate::session::Session;
use crate::session::end::SessionEnd;

/// Serves AMQP clients until `shutdown` becomes true. Then lets every session finish its work in flight (at most
/// `options.drain_within`) and returns.
#[tasks::boxed]
pub async fn serve(
    ports: Ports,
    broker: Broker,
    topology: Topology,
    users: Users,
    options: GatewayOptions,
    shutdown: watch::Receiver<bool>,
) {
    let accepting = ListenerOptions {
        protocol: PROTOCOL,
        session: Task::AmqpSession,
        sessions_max: options.sessions_max,
        drain_within: options.drain_within,
        connections: options.connections.clone(),
        of_clients: true,
    };
    let gateway = Arc::new(Gateway::new(broker, topology, users, options, shutdown.clone()));
    let serving = move |mut socket: Socket, connection: Connection| {
        let peer = connection.peer().ip();
        let certified = gateway.users.certify(socket.certificate(), peer);
        let encrypted = socket.is_encrypted();
        let session = Session::new(connection.clone(), encrypted, certified, Arc::clone(&gateway));
        serve_session(socket, session, connection)
    };
    gateway::serve_ports(ports, accepting, shutdown, serving).await;
}

async fn serve_session(socket: Socket, session: Session, connection: Connection) {
    let (peer, id) = (session.peer, session.id);
    debug!(%peer, session = id.0, encrypted = session.encrypted, "connected");
    let (end, client) = connection::run(socket, session).await;
    if matches!(end, SessionEnd::Panicked) {
        error!(%peer, session = id.0, client, reason = %end, "connection closed");
    } else if end.is_ordinary() {
        debug!(%peer, session = id.0, client, reason = %end, "disconnected");
    } else if let Some(suppressed) = connection.closed_line() {
        warn!(%peer, session = id.0, client, reason = %end, suppressed, "connection closed");
    } else {
        debug!(%peer, session = id.0, client, reason = %end, "connection closed");
    }
}
