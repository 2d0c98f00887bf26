//! The servers that are compared.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use client::TlsTcp;
use client::blocking::{Access, Connection};

use crate::failure::{Context, Failure, Outcome};
use crate::measure::PATIENCE;
use crate::server::{self, Postroad, Server};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Load {
    Log,
    Queue,
}

#[derive(Debug)]
pub(super) struct Variant {
    pub(super) name: &'static str,
    pub(super) load: Load,
    tls: bool,
    /// Clients log in by SASL as a user whose rules allow the load.
    user: bool,
    /// A scrape of `/metrics` each second.
    scraped: bool,
    /// Quotas above the load.
    quotas: bool,
    history: bool,
}

impl Variant {
    const fn plain(name: &'static str, load: Load) -> Self {
        Self { name, load, tls: false, user: false, scraped: false, quotas: false, history: false }
    }
}

/// The first variant of each load is the baseline.
pub(super) const VARIANTS: &[Variant] = &[
    Variant::plain("log, nothing", Load::Log),
    Variant { user: true, ..Variant::plain("log, SASL and rules", Load::Log) },
    Variant { user: true, quotas: true, ..Variant::plain("log, SASL, rules, quotas", Load::Log) },
    Variant { scraped: true, ..Variant::plain("log, a scrape each second", Load::Log) },
    Variant { tls: true, ..Variant::plain("log, TLS", Load::Log) },
    Variant { tls: true, user: true, ..Variant::plain("log, TLS, SASL and rules", Load::Log) },
    Variant::plain("queue, nothing", Load::Queue),
    Variant { history: true, ..Variant::plain("queue, history", Load::Queue) },
    Variant {
        history: true,
        user: true,
        ..Variant::plain("queue, history, SASL and rules", Load::Queue)
    },
    Variant {
        history: true,
        user: true,
        tls: true,
        scraped: true,
        ..Variant::plain("queue, all but quotas", Load::Queue)
    },
];

pub(super) const TOPIC: &str = "cost";
pub(super) const GROUP: &str = "main";
pub(super) const PARTITIONS: i32 = 16;
const ADMIN: &str = "root";
const USER: &str = "load";
const PASSWORD: &str = "not a secret";
const SCRAPED_EVERY: Duration = Duration::from_secs(1);

/// A server with its topic, and the address and credentials for the load.
pub(super) struct RunningServer {
    server: Server,
    address: SocketAddr,
    access: Access,
    scraper: Option<Scraper>,
}

impl RunningServer {
    pub(super) fn start(variant: &Variant, mut postroad: Postroad, folder: &Path) -> Outcome<Self> {
        let mut access = Access::default();
        let mut address = SocketAddr::from(([127, 0, 0, 1], postroad.port));
        let mut serve = |words: &[&str]| {
            postroad.arguments.extend(words.iter().map(|word| (*word).to_owned()));
        };
        if !variant.history {
            serve(&["--history-bytes", "0"]);
        }
        if variant.user {
            let file = folder.join("admin-password");
            write_secret(&file, PASSWORD)?;
            let file = file.display().to_string();
            serve(&["--admin-user", ADMIN, "--admin-password-file", &file]);
            access.login = Some((USER.to_owned(), PASSWORD.to_owned()));
        }
        if variant.tls {
            address = SocketAddr::from(([127, 0, 0, 1], server::free_port()?));
            let (listen, dir) = (address.to_string(), folder.display().to_string());
            let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
            let (cert_file, key_file) = (cert.display().to_string(), key.display().to_string());
            serve(&["--kafka-tls", &listen, "--tls-cert", &cert_file, "--tls-key", &key_file]);
            let made = ["tls", "self-signed", "--name", "127.0.0.1", "--dir", &dir];
            run(&postroad.binary, &made)?;
            let pem = fs::read(&cert).context(|| format!("cannot read {cert_file}"))?;
            let tls = TlsTcp::new(&pem).map_err(|error| Failure::new(error.to_string()))?;
            access.tls = Some(tls);
        }
        let scraped = SocketAddr::from(([127, 0, 0, 1], server::free_port()?));
        if variant.scraped {
            let scraped = scraped.to_string();
            postroad.arguments.extend(["--metrics".to_owned(), scraped]);
        }
        let (server, _) = postroad.start(PATIENCE)?;
        let token = postroad.data.join("operator.token").display().to_string();
        let ask = |words: &[&str]| {
            postroad.run_command(&[words, &["--token-file", &token]].concat()).map(drop)
        };
        let partitions = PARTITIONS.to_string();
        let declare = ["queue", "declare", TOPIC, "--group", GROUP, "--partitions", &partitions];
        match variant.load {
            Load::Log => ask(&["topic", "create", TOPIC, "--partitions", &partitions])?,
            Load::Queue => ask(&declare)?,
        }
        if variant.user {
            ask(&["user", "add", USER, PASSWORD])?;
            ask(&["acl", "add", USER, "write", "topic", TOPIC])?;
            ask(&["acl", "add", USER, "read", "topic", TOPIC])?;
            ask(&["acl", "add", USER, "read", "group", GROUP])?;
        }
        if variant.quotas {
            let rates = ["producer_byte_rate=100GiB", "consumer_byte_rate=100GiB"];
            ask(&["quota", "set", "--user", USER, rates[0], rates[1]])?;
        }
        let scraper = variant.scraped.then(|| Scraper::start(scraped));
        Ok(Self { server, address, access, scraper })
    }

    pub(super) fn connect(&self) -> Outcome<Connection> {
        let connection = Connection::open_with(self.address, PATIENCE, &self.access);
        connection.context(|| "cannot connect to postroad")
    }

    pub(super) fn cpu_seconds(&self) -> Outcome<f64> {
        Ok(host::process::cpu_seconds(self.server.pid())?)
    }

    pub(super) fn stop(self) -> Outcome {
        if let Some(scraper) = self.scraper {
            scraper.stop()?;
        }
        self.server.stop(PATIENCE).map(drop)
    }
}

fn write_secret(file: &Path, secret: &str) -> Outcome {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = fs::OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(file);
    let written = opened.and_then(|mut file| writeln!(file, "{secret}"));
    written.context(|| format!("cannot write {}", file.display()))
}

fn run(binary: &Path, words: &[&str]) -> Outcome {
    let said = || format!("postroad {}", words.join(" "));
    let output = Command::new(binary)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .context(|| format!("cannot run {}", said()))?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Failure::new(format!("{} failed: {complaint}", said())))
}

/// Reads `/metrics` each second.
struct Scraper {
    ends: Arc<AtomicBool>,
    scraped: Arc<AtomicU32>,
    thread: JoinHandle<()>,
}

impl Scraper {
    fn start(address: SocketAddr) -> Self {
        let (ends, scraped) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let thread = thread::spawn({
            let (ends, scraped) = (Arc::clone(&ends), Arc::clone(&scraped));
            move || {
                while !ends.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    if scrape(address)
                        .is_ok_and(|text| text.contains("postroad_metrics_scrape_seconds "))
                    {
                        scraped.fetch_add(1, Ordering::Relaxed);
                    }
                    thread::sleep(SCRAPED_EVERY.saturating_sub(begun.elapsed()));
                }
            }
        });
        Self { ends, scraped, thread }
    }

    fn stop(self) -> Outcome {
        self.ends.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        match (ended, self.scraped.load(Ordering::Relaxed)) {
            (Ok(()), 1..) => Ok(()),
            _ => Err(Failure::new("no scrape got the metrics")),
        }
    }
}

fn scrape(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}
