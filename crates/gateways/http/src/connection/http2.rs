//! HTTP/2 connections, by hyper, with the limits of HTTP/1 connections and those of concurrent streams.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::header::HOST;
use axum::http::{HeaderMap, HeaderValue, Request, Uri};
use futures_util::stream::{FuturesUnordered, StreamExt};
use hyper::server::conn::http2::Builder;
use hyper_util::rt::TokioTimer;
use tokio::time::{Sleep, sleep};

use crate::connection::streams::{Stream, Streams};
use crate::limits::{
    HTTP_HEADER_BYTES_MAX, HTTP_HEADERS_WITHIN, HTTP2_CONNECTION_WINDOW_BYTES, HTTP2_ERRORS_MAX,
    HTTP2_PING_ANSWERED_WITHIN, HTTP2_PING_EVERY, HTTP2_RESETS_UNSEEN_MAX,
    HTTP2_STREAM_WINDOW_BYTES, HTTP2_STREAMS_MAX, HTTP2_UNSENT_BYTES_MAX,
};
use crate::problem::{Kind, Problem};

/// Settings of a connection. These and [`crate::connection::frames`] bound floods.
pub(crate) fn builder(streams: Streams) -> Builder<Streams> {
    let mut builder = Builder::new(streams);
    builder
        .timer(TokioTimer::new())
        // No more than this is kept of a header block, in however many frames it arrives. A longer block gets 431;
        // one with more than five CONTINUATION frames ends the connection.
        .max_header_list_size(HTTP_HEADER_BYTES_MAX as u32)
        .max_concurrent_streams(HTTP2_STREAMS_MAX)
        .initial_stream_window_size(HTTP2_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(HTTP2_UNSENT_BYTES_MAX)
        // Clients that cancel requests as fast as they send them (CVE-2023-44487): the first limits cancelled
        // requests that are not yet accepted, at a time; the second those rejected for protocol errors, over the life
        // of the connection.
        .max_pending_accept_reset_streams(HTTP2_RESETS_UNSEEN_MAX)
        .max_local_error_reset_streams(HTTP2_ERRORS_MAX)
        // A request may wait long on a silent connection whose client is gone.
        .keep_alive_interval(HTTP2_PING_EVERY)
        .keep_alive_timeout(HTTP2_PING_ANSWERED_WITHIN);
    builder
}

/// A connection with its requests.
pub(crate) struct Http2Connection<C> {
    connection: Pin<Box<C>>,
    finish: fn(Pin<&mut C>),
    begun: Streams,
    under_way: FuturesUnordered<Stream>,
    had_any: bool,
    is_finishing: bool,
    /// Deadline of an idle connection.
    idle_until: Option<Pin<Box<Sleep>>>,
    taken_within: Duration,
}

impl<C> Http2Connection<C> {
    /// `finish` makes a connection accept no further requests. The rest of its responses must be read within
    /// `taken_within`.
    pub(crate) fn new(
        connection: C,
        finish: fn(Pin<&mut C>),
        begun: Streams,
        taken_within: Duration,
    ) -> Self {
        Self {
            connection: Box::pin(connection),
            finish,
            begun,
            under_way: FuturesUnordered::new(),
            had_any: false,
            is_finishing: false,
            idle_until: None,
            taken_within,
        }
    }

    /// Accepts no further requests, and ends after those in flight.
    pub(crate) fn finish(&mut self) {
        self.is_finishing = true;
        self.idle_until = None;
        (self.finish)(self.connection.as_mut());
    }

    /// Whether the connection must be closed because it has been idle for too long. As in HTTP/1, the next request
    /// must arrive within that time. This covers silent clients and slow header blocks.
    fn is_idle_for_long(&mut self, context: &mut Context<'_>) -> bool {
        loop {
            let within = match self.is_finishing {
                true => self.taken_within,
                false => HTTP_HEADERS_WITHIN,
            };
            let until = self.idle_until.get_or_insert_with(|| Box::pin(sleep(within)));
            if until.as_mut().poll(context).is_pending() {
                return false;
            }
            if self.is_finishing || !self.had_any {
                return true;
            }
            // Responses may still be unread, and a well-behaved client should receive GOAWAY. The connection is
            // polled once more, since nothing else may wake it.
            self.finish();
            context.waker().wake_by_ref();
        }
    }
}

impl<C: Future<Output = hyper::Result<()>>> Future for Http2Connection<C> {
    type Output = hyper::Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let served = self.get_mut();
        if let Poll::Ready(ended) = served.connection.as_mut().poll(context) {
            return Poll::Ready(ended);
        }
        let begun = served.begun.take();
        served.had_any |= !begun.is_empty();
        served.under_way.extend(begun);
        while let Poll::Ready(Some(())) = served.under_way.poll_next_unpin(context) {}
        if !served.under_way.is_empty() {
            served.idle_until = None;
        } else if served.is_idle_for_long(context) {
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }
}

impl<C> Drop for Http2Connection<C> {
    fn drop(&mut self) {
        // Each stream has a reference to its list: break the cycle.
        drop(self.begun.take());
    }
}

/// Rewrites a request to its form in HTTP/1: the authority moves to the header `Host`, and the URI is only a path.
/// Handlers need not know the version.
pub(crate) fn to_http1_form<B>(request: &mut Request<B>) -> Result<(), Problem> {
    let said = host(request.uri(), request.headers())?;
    if let Some(host) = said {
        request.headers_mut().insert(HOST, host);
    }
    if let Some(path) = request.uri().path_and_query().cloned() {
        *request.uri_mut() = Uri::from(path);
    }
    Ok(())
}

/// The host of a request, from `:authority` or `Host` or both (RFC 9113, section 8.3.1).
fn host(uri: &Uri, headers: &HeaderMap) -> Result<Option<HeaderValue>, Problem> {
    let wrong = |detail| Err(Problem::new(Kind::BadRequest, detail));
    let mut hosts = headers.get_all(HOST).iter();
    let (host, another) = (hosts.next(), hosts.next());
    if another.is_some() {
        return wrong("the request has more than one header Host");
    }
    match (uri.authority(), host) {
        (None, host) => Ok(host.cloned()),
        (Some(authority), Some(host))
            if !authority.as_str().as_bytes().eq_ignore_ascii_case(host.as_bytes()) =>
        {
            wrong("the request is for another host by its header Host than by its :authority")
        }
        (Some(authority), _) => match HeaderValue::from_str(authority.as_str()) {
            Ok(host) => Ok(Some(host)),
            Err(_) => wrong("the request's :authority cannot stand in a header"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(uri: &str, hosts: &[&str]) -> Result<(String, Option<String>), u16> {
        let mut request = Request::builder().uri(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        let mut request = request.body(()).expect("a request");
        to_http1_form(&mut request).map_err(|problem| problem.kind().status().as_u16())?;
        let host = request.headers().get(HOST).map(|host| host.to_str().expect("text").to_owned());
        Ok((request.uri().to_string(), host))
    }

    #[test]
    fn host_of_a_request_is_unambiguous() {
        let known = |path: &str, host: &str| Ok((path.to_owned(), Some(host.to_owned())));
        assert_eq!(of("http://a.example:1/b?c", &[]), known("/b?c", "a.example:1"));
        assert_eq!(of("http://a.example/", &["A.example"]), known("/", "a.example"));
        assert_eq!(of("/b", &["a"]), known("/b", "a"));
        assert_eq!(of("/b", &[]), Ok(("/b".to_owned(), None)));
        for (uri, hosts) in [
            ("http://localhost/", &["evil.example"][..]),
            ("http://evil.example/", &["localhost"]),
            ("http://localhost/", &["localhost", "localhost"]),
            ("/", &["localhost", "evil.example"]),
        ] {
            assert_eq!(of(uri, hosts), Err(400), "{uri}");
        }
    }
}
