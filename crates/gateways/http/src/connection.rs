//! One connection, from accepted to closed: HTTP/1.1 by hyper.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use access::{Certified, Users};
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use base::limits::{
    HTTP_CLOSES_WITHIN, HTTP_HEADER_BYTES_MAX, HTTP_HEADERS_MAX, HTTP_HEADERS_WITHIN,
};
use gateway::{Connection, Socket};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tasks::Task;
use tokio::sync::watch;
use tokio::time::timeout;
use tower_service::Service;
use tracing::debug;

use crate::slow_client::Watched;

/// Who is at the other end; every request carries it.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) connection: Connection,
    pub(crate) encrypted: bool,
    /// What it showed, if it did.
    certificate: Option<Arc<Shown>>,
}

/// A client's certificate, and whom it names.
#[derive(Debug)]
struct Shown {
    der: Vec<u8>,
    named: OnceLock<Option<Certified>>,
}

impl Peer {
    pub(crate) fn of(socket: &mut Socket, connection: Connection) -> Self {
        let shown = |der: &[u8]| Arc::new(Shown { der: der.to_vec(), named: OnceLock::new() });
        let certificate = socket.certificate().map(shown);
        Self { connection, encrypted: socket.is_encrypted(), certificate }
    }

    /// Whom its certificate names. It is read once: connections have many requests.
    pub(crate) fn certified(&self, users: &Users) -> Option<&Certified> {
        let shown = self.certificate.as_ref()?;
        let named = || users.certify(Some(&shown.der), self.connection.peer().ip());
        shown.named.get_or_init(named).as_ref()
    }

    /// Whether nobody else hears what is said.
    pub(crate) fn is_private(&self) -> bool {
        self.encrypted || self.connection.peer().ip().to_canonical().is_loopback()
    }
}

pub(crate) async fn serve(
    socket: Socket,
    peer: Peer,
    routes: Router,
    taken_within: Duration,
    mut stopping: watch::Receiver<bool>,
) {
    let connection = peer.connection.clone();
    let (id, address) = (connection.id(), connection.peer());
    debug!(peer = %address, session = id, encrypted = peer.encrypted, "connected");
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        tasks::inject::point(Task::HttpSession);
        let mut routes = routes.clone();
        async move { answer(&mut routes, request).await }
    });
    let io = TokioIo::new(Watched::new(socket, taken_within));
    let mut serving = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            // What does not say anything for so long is closed as well.
            .header_read_timeout(HTTP_HEADERS_WITHIN)
            .max_buf_size(HTTP_HEADER_BYTES_MAX)
            .max_headers(HTTP_HEADERS_MAX)
            .serve_connection(io, service)
    );
    let stopped = async {
        // The other end is gone only together with the node.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    };
    let ended = tokio::select! {
        biased;
        ended = serving.as_mut() => Some(ended),
        () = connection.closing() => {
            serving.as_mut().graceful_shutdown();
            timeout(HTTP_CLOSES_WITHIN, serving.as_mut()).await.ok()
        }
        () = stopped => {
            serving.as_mut().graceful_shutdown();
            Some(serving.as_mut().await)
        }
    };
    match ended {
        Some(Ok(())) => debug!(peer = %address, session = id, "disconnected"),
        Some(Err(error)) => {
            debug!(peer = %address, session = id, reason = %error, "disconnected");
        }
        None => debug!(peer = %address, session = id, "an operator closed it"),
    }
}

async fn answer(routes: &mut Router, request: Request<Incoming>) -> Result<Response, Infallible> {
    // A router is always ready.
    routes.call(request.map(Body::new)).await
}
