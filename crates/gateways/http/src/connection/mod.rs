//! One connection, from accept to close: HTTP/1.1 and HTTP/2 by hyper. It knows no route.
//!
//! * `opening`: detects the HTTP version; `http2`: HTTP/2 connections; `streams`: their concurrent requests
//! * `admission`: limit of requests; `frames`: limit of frame floods
//! * `slow_client`: disconnects clients that do not read their responses

pub(crate) mod admission;
pub(crate) mod frames;
pub(crate) mod http2;
mod opening;
mod slow_client;
mod streams;

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use access::{CertifiedName, Users};
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use gateway::{Connection, Socket};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::server::conn::http2::Connection as Connection2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tasks::Task;
use tokio::sync::watch;
use tokio::time::timeout;
use tower_service::Service;
use tracing::debug;

use crate::connection::admission::{AdmissionLimit, ConnectionPlaces};
use crate::connection::http2::Http2Connection;
use crate::connection::opening::Version;
use crate::connection::slow_client::TimedSocket;
use crate::connection::streams::{PacedBody, Streams};
use crate::limits::{
    HTTP_CLOSES_WITHIN, HTTP_HEADER_BYTES_MAX, HTTP_HEADERS_MAX, HTTP_HEADERS_WITHIN,
};
use crate::problem::Problem;

/// The client of a connection; every request carries it.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) connection: Connection,
    pub(crate) encrypted: bool,
    /// The client's certificate, if it sent one.
    certificate: Option<Arc<ClientCertificate>>,
}

/// A client certificate, and the principal that it names.
#[derive(Debug)]
struct ClientCertificate {
    der: Vec<u8>,
    named: OnceLock<Option<CertifiedName>>,
}

impl Peer {
    pub(crate) fn of(socket: &mut Socket, connection: Connection) -> Self {
        let shown =
            |der: &[u8]| Arc::new(ClientCertificate { der: der.to_vec(), named: OnceLock::new() });
        let certificate = socket.certificate().map(shown);
        Self { connection, encrypted: socket.is_encrypted(), certificate }
    }

    /// The principal named by the certificate. Parsed once, since connections have many requests.
    pub(crate) fn certified(&self, users: &Users) -> Option<&CertifiedName> {
        let shown = self.certificate.as_ref()?;
        let named = || users.certify(Some(&shown.der), self.connection.peer().ip());
        shown.named.get_or_init(named).as_ref()
    }

    /// Whether the connection is encrypted or local, so that credentials are safe on it.
    pub(crate) fn is_private(&self) -> bool {
        self.encrypted || self.connection.peer().ip().to_canonical().is_loopback()
    }
}

/// Rejection of a request before a handler sees it.
#[derive(Clone, Debug)]
pub(crate) struct EarlyRejection(pub(crate) Problem);

/// Shared state of all connections.
#[derive(Clone)]
pub(crate) struct ListenerState {
    pub(crate) routes: Router,
    pub(crate) taken_within: Duration,
    pub(crate) places: AdmissionLimit,
    pub(crate) stopping: watch::Receiver<bool>,
}

pub(crate) async fn serve(mut socket: Socket, peer: Peer, serving: ListenerState) {
    let connection = peer.connection.clone();
    let (id, address) = (connection.id(), connection.peer());
    debug!(peer = %address, session = id, encrypted = peer.encrypted, "connected");
    let places = serving.places.connected();
    let mut stopping = serving.stopping.clone();
    let opened = tokio::select! {
        biased;
        opened = timeout(HTTP_HEADERS_WITHIN, opening::version(&mut socket)) => opened,
        () = connection.closing() => return,
        _ = stopping.wait_for(|stopping| *stopping) => return,
    };
    let (version, first) = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => {
            return debug!(peer = %address, session = id, reason = %error, "disconnected");
        }
        Err(_) => return debug!(peer = %address, session = id, "it says nothing: closed"),
    };
    let io = TimedSocket::new(socket, first, serving.taken_within);
    let ended = match version {
        Version::Http1 => serve_1(io, peer, serving).await,
        Version::Http2 => Box::pin(serve_2(io, peer, places, serving)).await,
    };
    match ended {
        Some(Ok(())) => debug!(peer = %address, session = id, ?version, "disconnected"),
        Some(Err(error)) => {
            debug!(peer = %address, session = id, ?version, reason = %error, "disconnected");
        }
        None => debug!(peer = %address, session = id, ?version, "an operator closed it"),
    }
}

async fn serve_1(io: TimedSocket, peer: Peer, serving: ListenerState) -> Option<hyper::Result<()>> {
    let ListenerState { routes, stopping, .. } = serving;
    let connection = peer.connection.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        tasks::inject::point(Task::HttpSession);
        let mut routes = routes.clone();
        async move { answer(&mut routes, request).await }
    });
    let serving = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            // Also closes idle connections after this time.
            .header_read_timeout(HTTP_HEADERS_WITHIN)
            .max_buf_size(HTTP_HEADER_BYTES_MAX)
            .max_headers(HTTP_HEADERS_MAX)
            .serve_connection(TokioIo::new(io), service)
    );
    until_closed(serving, |serving| serving.graceful_shutdown(), &connection, stopping).await
}

async fn serve_2(
    io: TimedSocket,
    peer: Peer,
    places: ConnectionPlaces,
    serving: ListenerState,
) -> Option<hyper::Result<()>> {
    let ListenerState { routes, taken_within, stopping, .. } = serving;
    let connection = peer.connection.clone();
    let streams = Streams::new(taken_within);
    let begun = streams.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (progress, place) = (begun.next(), places.take());
        let refused = match place {
            Some(_) => http2::to_http1_form(&mut request).err(),
            None => Some(Problem::busy(format!(
                "{} connections and requests are served at a time, each further request of a connection as one",
                places.most()
            ))),
        };
        let extensions = request.extensions_mut();
        extensions.insert(peer.clone());
        if let Some(problem) = refused {
            extensions.insert(EarlyRejection(problem));
        }
        tasks::inject::point(Task::HttpSession);
        let mut routes = routes.clone();
        async move {
            let answered = answer(&mut routes, request).await;
            answered.map(|answered| answered.map(|body| PacedBody::new(body, progress, place)))
        }
    });
    let serving =
        http2::builder(streams.clone()).serve_connection(TokioIo::new(io.counted()), service);
    let finish = |connection: Pin<&mut Connection2<_, _, _>>| connection.graceful_shutdown();
    let serving = pin!(Http2Connection::new(serving, finish, streams, taken_within));
    until_closed(serving, |serving| serving.get_mut().finish(), &connection, stopping).await
}

/// Serves a connection until it ends, is asked to end, or the node shuts down. `None`: an operator closed it.
async fn until_closed<S: Future<Output = hyper::Result<()>>>(
    mut serving: Pin<&mut S>,
    finish: impl Fn(Pin<&mut S>),
    connection: &Connection,
    mut stopping: watch::Receiver<bool>,
) -> Option<hyper::Result<()>> {
    let stopped = async {
        // The sender is dropped only when the node stops.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    };
    tokio::select! {
        biased;
        ended = serving.as_mut() => Some(ended),
        () = connection.closing() => {
            finish(serving.as_mut());
            timeout(HTTP_CLOSES_WITHIN, serving.as_mut()).await.ok()
        }
        () = stopped => {
            finish(serving.as_mut());
            Some(serving.as_mut().await)
        }
    }
}

async fn answer(routes: &mut Router, request: Request<Incoming>) -> Result<Response, Infallible> {
    // A router is always ready.
    routes.call(request.map(Body::new)).await
}
