//! The ports that clients connect to, and the addresses advertised for them.

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::io;
use std::net::{IpAddr, SocketAddr};

use gateway::{Ports, Tls};
use gateway_http::{HttpPorts, ListeningPort};
use nodes::{Endpoint, Endpoints};
use world::net::{BoundPort, Listener, Net};

use crate::settings::Settings;

/// All ports, before any client is served. HTTP listens at once, for operators who watch the start. The other
/// protocols refuse connections until the node can serve them, so that their clients connect to another node.
pub(crate) struct Listeners {
    kafka: ReservedPort,
    kafka_tls: Option<ReservedPort>,
    amqp: Option<ReservedPort>,
    amqp_tls: Option<ReservedPort>,
    http: Option<ReservedPort>,
    http_tls: Option<ReservedPort>,
    metrics: Option<ReservedPort>,
    pub(crate) bound: Bound,
}

/// Addresses of the ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) kafka: SocketAddr,
    pub(crate) kafka_tls: Option<SocketAddr>,
    pub(crate) amqp: Option<SocketAddr>,
    pub(crate) amqp_tls: Option<SocketAddr>,
    pub(crate) http: Option<SocketAddr>,
    pub(crate) http_tls: Option<SocketAddr>,
    pub(crate) metrics: Option<SocketAddr>,
}

impl Listeners {
    /// Binds all of them, so that the error names every address that is in use.
    pub(crate) async fn bind(net: Net, settings: &Settings) -> Result<Self, TakenPorts> {
        let tls = settings.tls.as_ref();
        let mut taken = Vec::new();
        let mut reserve = async |setting, address: Option<SocketAddr>| {
            let reserved = ReservedPort::new(net, setting, address?).await;
            reserved.map_err(|port| taken.push(port)).ok()
        };
        let kafka = reserve("kafka", Some(settings.kafka)).await;
        let kafka_tls = reserve("kafka-tls", tls.and_then(|tls| tls.kafka)).await;
        let amqp = reserve("amqp", settings.amqp).await;
        let amqp_tls = reserve("amqp-tls", tls.and_then(|tls| tls.amqp)).await;
        let http = reserve("http", settings.http.http).await;
        let http_tls = reserve("http-tls", tls.and_then(|tls| tls.http)).await;
        let metrics = reserve("metrics", settings.http.metrics).await;
        let Some(kafka) = kafka.filter(|_| taken.is_empty()) else {
            let of_settings = [
                Some(settings.kafka),
                tls.and_then(|tls| tls.kafka),
                settings.amqp,
                tls.and_then(|tls| tls.amqp),
                settings.http.http,
                tls.and_then(|tls| tls.http),
                settings.http.metrics,
                settings.cluster.as_ref().map(|cluster| cluster.listen),
            ];
            let used = of_settings.into_iter().flatten().map(|address| address.port()).collect();
            return Err(TakenPorts::with_free_ones(net, taken, used).await);
        };
        let at = |port: Option<&ReservedPort>| port.map(|port| port.address);
        let bound = Bound {
            kafka: kafka.address,
            kafka_tls: at(kafka_tls.as_ref()),
            amqp: at(amqp.as_ref()),
            amqp_tls: at(amqp_tls.as_ref()),
            http: at(http.as_ref()),
            http_tls: at(http_tls.as_ref()),
            metrics: at(metrics.as_ref()),
        };
        Ok(Self { kafka, kafka_tls, amqp, amqp_tls, http, http_tls, metrics, bound })
    }

    /// Takes the HTTP ports and listens on them, before the others.
    pub(crate) fn listen_http(&mut self, tls: Option<&Tls>) -> Result<HttpPorts, TakenPorts> {
        let mut taken = Vec::new();
        let http = listen(self.http.take(), self.http_tls.take(), tls, &mut taken);
        let metrics = self.metrics.take().and_then(|port| port.listen(&mut taken));
        TakenPorts::check(taken)?;
        Ok(HttpPorts { http, metrics })
    }

    /// Listens on the Kafka ports, and on the AMQP ports if AMQP is offered.
    pub(crate) fn listen(self, tls: Option<&Tls>) -> Result<(Ports, Option<Ports>), TakenPorts> {
        let mut taken = Vec::new();
        let kafka = listen(Some(self.kafka), self.kafka_tls, tls, &mut taken);
        let amqp = listen(self.amqp, self.amqp_tls, tls, &mut taken);
        TakenPorts::check(taken)?;
        let is_offered = amqp.plain.is_some() || amqp.tls.is_some();
        Ok((kafka, is_offered.then_some(amqp)))
    }
}

fn listen(
    plain: Option<ReservedPort>,
    encrypted: Option<ReservedPort>,
    tls: Option<&Tls>,
    taken: &mut Vec<TakenPort>,
) -> Ports {
    let mut listening = |port: Option<ReservedPort>| port.and_then(|port| port.listen(taken));
    let plain = listening(plain);
    Ports { plain, tls: listening(encrypted).zip(tls.cloned()) }
}

/// A port that refuses connections until it listens.
struct ReservedPort {
    setting: &'static str,
    address: SocketAddr,
    port: BoundPort,
}

impl ReservedPort {
    async fn new(net: Net, setting: &'static str, address: SocketAddr) -> Result<Self, TakenPort> {
        let reserved = net
            .bind(address)
            .await
            .and_then(|port| Ok(Self { setting, address: port.local_addr()?, port }));
        reserved.map_err(|source| TakenPort { address, setting, source })
    }

    /// `None`: it was added to `taken`.
    fn listen(self, taken: &mut Vec<TakenPort>) -> Option<Listener> {
        let Self { setting, address, port } = self;
        let failed = |source| taken.push(TakenPort { address, setting, source });
        port.listen().map_err(failed).ok()
    }
}

/// An address that cannot be listened on.
#[derive(Debug)]
pub(crate) struct TakenPort {
    address: SocketAddr,
    setting: &'static str,
    source: io::Error,
}

/// All of them of a node, at least one.
#[derive(Debug)]
pub(crate) struct TakenPorts {
    taken: Vec<TakenPort>,
    /// Settings with free addresses to use instead.
    free: Vec<(&'static str, SocketAddr)>,
}

impl TakenPorts {
    /// Fails if there are any.
    fn check(taken: Vec<TakenPort>) -> Result<(), Self> {
        if taken.is_empty() { Ok(()) } else { Err(Self { taken, free: Vec::new() }) }
    }

    /// Finds a free port for each. `used`: ports that are not suggested, whether they are free or not.
    async fn with_free_ones(net: Net, taken: Vec<TakenPort>, mut used: BTreeSet<u16>) -> Self {
        let mut free = Vec::new();
        for TakenPort { address, setting, .. } in &taken {
            // A port that is usually free and easily remembered, or one of the next ones.
            let first = address.port().checked_add(10_000).unwrap_or(SUGGESTIONS_FROM);
            for port in (first..=u16::MAX).take(SUGGESTIONS_TRIED) {
                let candidate = SocketAddr::new(address.ip(), port);
                if !used.contains(&port) && net.bind(candidate).await.is_ok() {
                    used.insert(port);
                    free.push((*setting, candidate));
                    break;
                }
            }
        }
        Self { taken, free }
    }
}

/// First suggestion for a port to which 10,000 cannot be added.
const SUGGESTIONS_FROM: u16 = 20_000;
const SUGGESTIONS_TRIED: usize = 100;

/// The command line of this process, with some addresses replaced.
fn retry_command(
    arguments: impl IntoIterator<Item = String>,
    replaced: &[(&str, SocketAddr)],
) -> String {
    let mut command = "postroad serve".to_owned();
    let mut arguments = arguments.into_iter().peekable();
    arguments.next_if(|argument| argument == "serve");
    while let Some(argument) = arguments.next() {
        let flag = argument.strip_prefix("--").unwrap_or_default();
        let (name, has_value) = match flag.split_once('=') {
            Some((name, _)) => (name, true),
            None => (flag, false),
        };
        match (replaced.iter().any(|(setting, _)| *setting == name), has_value) {
            (true, true) => {}
            (true, false) => drop(arguments.next()),
            (false, _) => {
                command.push(' ');
                command += &shell_word(&argument);
            }
        }
    }
    for (setting, address) in replaced {
        let _ = write!(command, " --{setting} {address}");
    }
    command
}

/// Quotes an argument for a POSIX shell, if it has to be.
fn shell_word(argument: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:=,@%+".contains(&byte);
    match !argument.is_empty() && argument.bytes().all(is_plain) {
        true => argument.to_owned(),
        false => format!("'{}'", argument.replace('\'', "'\\''")),
    }
}

impl fmt::Display for TakenPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, TakenPort { address, setting, source }) in self.taken.iter().enumerate() {
            let between = if place == 0 { "" } else { "; " };
            write!(f, "{between}cannot listen on {address} (--{setting}): {source}")?;
        }
        f.write_str(". Stop the process that listens there, or choose another address")?;
        if self.free.is_empty() {
            return Ok(());
        }
        let arguments = std::env::args_os().skip(1).map(|it| it.to_string_lossy().into_owned());
        write!(f, ": {}", retry_command(arguments, &self.free))
    }
}

impl Bound {
    /// The ports in the form of the management API.
    pub(crate) fn listening(&self) -> Vec<ListeningPort> {
        let all = [
            ("kafka", Some(self.kafka)),
            ("kafka/ssl", self.kafka_tls),
            ("amqp", self.amqp),
            ("amqp/ssl", self.amqp_tls),
            ("http", self.http),
            ("https", self.http_tls),
            ("http/prometheus", self.metrics),
        ];
        let bound = all.into_iter().filter_map(|(protocol, address)| {
            address.map(|address| ListeningPort { protocol, address })
        });
        bound.collect()
    }

    /// The addresses advertised to clients.
    pub(crate) fn endpoints(&self, settings: &Settings) -> Endpoints {
        let of = |bound: SocketAddr, advertised: Option<&(String, u16)>, setting| match advertised {
            Some((host, port)) => Endpoint { host: host.clone(), port: *port },
            None => Endpoint { host: reachable_host(bound, setting), port: bound.port() },
        };
        let kafka = of(self.kafka, settings.advertise_kafka.as_ref(), "--advertise-kafka");
        let advertised = settings.tls.as_ref().and_then(|tls| tls.advertise_kafka.as_ref());
        let kafka_tls = self.kafka_tls.map(|at| of(at, advertised, "--advertise-kafka-tls"));
        // AMQP clients are never redirected to another node, but operators see its address.
        let amqp = self.amqp.map(|at| Endpoint { host: kafka.host.clone(), port: at.port() });
        Endpoints { kafka, amqp, kafka_tls, rack: settings.rack.clone() }
    }

    /// Address of the web console.
    pub(crate) fn console(&self) -> Option<String> {
        let (scheme, at) = match (self.http, self.http_tls) {
            (Some(http), _) => ("http", http),
            (None, Some(tls)) => ("https", tls),
            (None, None) => return None,
        };
        // "All addresses" is not an address that a browser can open.
        let host = match at.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => "127.0.0.1".to_owned(),
            IpAddr::V6(ip) if ip.is_unspecified() => "[::1]".to_owned(),
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        Some(format!("{scheme}://{host}:{}/", at.port()))
    }

    /// A line for people. `advertised` is the address that Kafka clients receive.
    pub(crate) fn summary(&self, advertised: &Endpoint) -> String {
        let amqp = self.amqp.map_or_else(|| "off".into(), |address| address.to_string());
        let http = self.http.map_or_else(|| "off".into(), |address| address.to_string());
        let kafka = self.kafka;
        let mut told = format!("kafka {kafka} (advertised {advertised}), amqp {amqp}, http {http}");
        for (name, address) in [
            ("kafka-tls", self.kafka_tls),
            ("amqp-tls", self.amqp_tls),
            ("http-tls", self.http_tls),
            ("metrics", self.metrics),
        ] {
            if let Some(address) = address {
                let _ = write!(told, ", {name} {address}");
            }
        }
        if let Some(console) = self.console() {
            let _ = write!(told, ", console {console}");
        }
        told
    }
}

/// "All addresses" is not connectable: a client on this machine gets loopback.
fn reachable_host(bound: SocketAddr, setting: &str) -> String {
    if bound.ip().is_unspecified() {
        tracing::warn!("listening on all addresses; clients elsewhere need {setting} HOST:PORT");
        return "127.0.0.1".into();
    }
    bound.ip().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggested_command_keeps_the_other_arguments() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let replaced = [("kafka", address(19092)), ("http", address(25672))];
        let of = |arguments: &[&str]| {
            retry_command(arguments.iter().map(|it| (*it).to_owned()), &replaced)
        };
        let chosen = "--kafka 127.0.0.1:19092 --http 127.0.0.1:25672";
        assert_eq!(of(&[]), format!("postroad serve {chosen}"));
        assert_eq!(
            of(&["serve", "--data", "my data", "--kafka", "127.0.0.1:1", "--http=127.0.0.1:2"]),
            format!("postroad serve --data 'my data' {chosen}")
        );
        assert_eq!(
            of(&["serve", "--kafka-tls", "h:1", "--rack", "it's"]),
            format!("postroad serve --kafka-tls h:1 --rack 'it'\\''s' {chosen}")
        );
    }
}
