//! Prometheus endpoint of a run: mqperf's metrics, by its names (`report::prometheus`).

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use load::{Counts, Interval, Observer};
use report::prometheus;
use results::{Mark, Second};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// As in mqperf, so that the last scrape gets the final figures.
const LIVES_ON: Duration = Duration::from_secs(10);
/// Number of concurrent connections; others wait.
const CONNECTIONS_MAX: usize = 8;
/// Time limit of a connection, which serves one request.
const REQUEST_MAX: Duration = Duration::from_secs(5);
const HEADER_BYTES_MAX: usize = 16 << 10;

/// Serves the metrics of the current or last load.
#[derive(Debug)]
pub(crate) struct Exporter {
    exposed: Exposed,
    task: JoinHandle<()>,
}

/// The metrics that are served.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exposed {
    live: Arc<Mutex<Option<Arc<prometheus::Live>>>>,
}

impl Exporter {
    pub(crate) async fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let exposed = Exposed::default();
        let task = tokio::spawn(serve(listener, exposed.clone()));
        Ok(Self { exposed, task })
    }

    pub(crate) fn exposed(&self) -> Exposed {
        self.exposed.clone()
    }

    /// Serves for some more seconds, and stops.
    pub(crate) async fn end(self) {
        tokio::time::sleep(LIVES_ON).await;
        self.task.abort();
    }
}

impl Exposed {
    /// Exposes this load from now on.
    pub(crate) fn show(&self, test: &str, run: &str, host: &str) -> Shown {
        let live = Arc::new(prometheus::Live::new(test, run, host));
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&live));
        Shown { live, counts: Counts::default() }
    }

    fn text(&self) -> String {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner).clone();
        live.map_or_else(String::new, |live| live.exposition())
    }
}

async fn serve(listener: TcpListener, exposed: Exposed) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Probably out of descriptors; some may be freed.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let exposed = exposed.clone();
        tokio::spawn(async move {
            let answer = service_fn(|request| {
                let answer = answer(&request, &exposed);
                async move { Ok::<_, Infallible>(answer) }
            });
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).keep_alive(false).max_buf_size(HEADER_BYTES_MAX);
            let served = timeout(REQUEST_MAX, http.serve_connection(TokioIo::new(stream), answer));
            if let Ok(Err(error)) = served.await {
                tracing::debug!("a scrape: {error}");
            }
            drop(place);
        });
    }
}

/// Serves the same paths as mqperf.
fn answer(request: &Request<Incoming>, exposed: &Exposed) -> Response<String> {
    let mut response = Response::new(String::new());
    let (body, headers) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/" | "/metrics") => {
            (exposed.text(), [(CONTENT_TYPE, prometheus::CONTENT_TYPE)])
        }
        (_, "/" | "/metrics") => {
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            ("only GET\n".to_owned(), [(ALLOW, "GET, HEAD")])
        }
        _ => {
            *response.status_mut() = StatusCode::NOT_FOUND;
            ("metrics are at /metrics\n".to_owned(), [(CONTENT_TYPE, "text/plain")])
        }
    };
    for (name, value) in headers {
        response.headers_mut().insert(name, hyper::header::HeaderValue::from_static(value));
    }
    *response.body_mut() = body;
    response
}

/// Records one load.
#[derive(Debug)]
pub(crate) struct Shown {
    live: Arc<prometheus::Live>,
    counts: Counts,
}

impl Observer for Shown {
    fn second(&mut self, second: &Second, _phase: &str, _elapsed: Duration, _of: Duration) {
        self.live.set_backlog(second.backlog);
    }

    fn interval(&mut self, interval: &Interval, counts: Counts) {
        let new = counts.since(self.counts);
        self.counts = counts;
        // mqperf counts a message as sent once it is confirmed.
        self.live.sent(new.confirmed);
        self.live.confirmed(new.confirmed);
        self.live.received(new.received);
        self.live.settled(new.settled);
        self.live.redelivered(new.repeated);
        self.live.errors(new.errors);
        self.live.send_latencies(&interval.send);
        self.live.receive_latencies(&interval.receive);
    }

    fn mark(&mut self, _mark: &Mark) {}

    fn ended(&mut self, senders: u64, receivers: u64) {
        self.live.sender_threads_done(senders);
        self.live.receiver_threads_done(receivers);
        self.live.set_backlog(0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use clap::Parser;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;
    use crate::arguments::{Arguments, Command};

    async fn free_port() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        listener.local_addr().expect("it is bound")
    }

    async fn fetch(address: SocketAddr, request: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(format!("{request}\r\nHost: here\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    #[tokio::test]
    async fn exporter_serves_the_exposed_metrics_only() {
        let address = free_port().await;
        let exporter = Exporter::bind(address).await.expect("the port is free");
        let empty = fetch(address, "GET /metrics HTTP/1.1").await.expect("an answer");
        assert!(empty.starts_with("HTTP/1.1 200") && empty.ends_with("\r\n\r\n"), "{empty}");
        let mut shown = exporter.exposed().show("mqperf/base", "one", "here");
        let mut interval = Interval::default();
        interval.send.record_us(60_000);
        shown.interval(&interval, Counts { sent: 7, confirmed: 5, ..Counts::default() });
        shown.interval(&interval, Counts { sent: 9, confirmed: 9, ..Counts::default() });
        shown.ended(3, 4);
        for path in ["/", "/metrics"] {
            let text = fetch(address, &format!("GET {path} HTTP/1.1")).await.expect("an answer");
            assert!(text.contains(prometheus::CONTENT_TYPE), "{text}");
            let labels = r#"{test="mqperf/base",run="one",host="here"}"#;
            for line in [
                format!("mqperf_sent_total{labels} 9"),
                format!("mqperf_send_latency_ms_count{labels} 2"),
                format!("mqperf_sent_threads_done{labels} 3"),
                format!("mqperf_receive_threads_done{labels} 4"),
            ] {
                assert!(text.lines().any(|other| other == line), "{line}\n{text}");
            }
        }
        let wrong = fetch(address, "GET /elsewhere HTTP/1.1").await.expect("an answer");
        assert!(wrong.starts_with("HTTP/1.1 404"), "{wrong}");
        let wrong = fetch(address, "POST /metrics HTTP/1.1").await.expect("an answer");
        assert!(wrong.starts_with("HTTP/1.1 405"), "{wrong}");
    }

    #[tokio::test]
    async fn silent_connections_do_not_block_others() {
        let address = free_port().await;
        let _exporter = Exporter::bind(address).await.expect("the port is free");
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS_MAX * 2 {
            silent.push(TcpStream::connect(address).await.expect("it is accepted or waits"));
        }
        let within = REQUEST_MAX * 3;
        let answer = timeout(within, fetch(address, "GET / HTTP/1.1")).await.expect("in time");
        assert!(answer.expect("an answer").starts_with("HTTP/1.1 200"));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn metrics_are_served_during_a_run_and_shortly_after() {
        let (folder, address) = (tempfile::tempdir().expect("a folder"), free_port().await);
        let path = folder.path().display().to_string();
        let words = ["postroad-bench", "run", "lowlat/size-512", "--quick", "--quiet"];
        let more = ["--on", "memory=memory://watched", "--tier", "T0", "--out", &path];
        let served_at = address.to_string();
        let place = ["--peers-dir", &path, "--prometheus", &served_at];
        let arguments = Arguments::parse_from(words.iter().chain(&more).chain(&place));
        let Command::Run(run) = arguments.command else { panic!("it was said to run") };
        let ended = AtomicBool::new(false);
        let running = async {
            let code = crate::commands::run::run(run).await;
            ended.store(true, Relaxed);
            code
        };
        let sent = |text: &str| {
            let line = text.lines().find(|line| line.starts_with("mqperf_sent_total{"))?;
            let total: u64 = line.rsplit_once(' ')?.1.parse().ok()?;
            line.contains("run=\"memory-T0-").then_some(total)
        };
        let mut seen = Vec::new();
        let watching = async {
            while !ended.load(Relaxed) {
                tokio::time::sleep(Duration::from_millis(300)).await;
                if let Ok(text) = fetch(address, "GET /metrics HTTP/1.1").await {
                    seen.extend(sent(&text));
                }
            }
        };
        let (code, ()) = tokio::join!(running, watching);
        assert!(code.is_ok());
        seen.dedup();
        assert!(seen.is_sorted() && seen.len() >= 3, "{seen:?}");
        let result = &results::read_all(folder.path()).expect("reads")[0];
        assert_eq!(seen.last(), Some(&result.audit.confirmed));
    }
}
