//! The ports that clients connect to, and the addresses advertised for them.

use std::fmt::{self, Write};
use std::io;
use std::net::{IpAddr, SocketAddr};

use gateway::{Ports, Tls};
use gateway_http::{HttpPorts, ListeningPort};
use nodes::{Endpoint, Endpoints};
use world::net::{Listener, Net};

use crate::settings::Settings;

/// All bound ports, before any client is served.
pub(crate) struct Listeners {
    kafka: Listener,
    kafka_tls: Option<Listener>,
    amqp: Option<Listener>,
    amqp_tls: Option<Listener>,
    http: Option<Listener>,
    http_tls: Option<Listener>,
    metrics: Option<Listener>,
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
        let kafka = bind(net, "kafka", Some(settings.kafka), &mut taken).await;
        let kafka_tls = bind(net, "kafka-tls", tls.and_then(|tls| tls.kafka), &mut taken).await;
        let amqp = bind(net, "amqp", settings.amqp, &mut taken).await;
        let amqp_tls = bind(net, "amqp-tls", tls.and_then(|tls| tls.amqp), &mut taken).await;
        let http = bind(net, "http", settings.http.http, &mut taken).await;
        let http_tls = bind(net, "http-tls", tls.and_then(|tls| tls.http), &mut taken).await;
        let metrics = bind(net, "metrics", settings.http.metrics, &mut taken).await;
        let Some((kafka, kafka_bound)) = kafka.filter(|_| taken.is_empty()) else {
            return Err(TakenPorts(taken));
        };
        let at = |listener: &Option<(Listener, SocketAddr)>| listener.as_ref().map(|(_, at)| *at);
        let bound = Bound {
            kafka: kafka_bound,
            kafka_tls: at(&kafka_tls),
            amqp: at(&amqp),
            amqp_tls: at(&amqp_tls),
            http: at(&http),
            http_tls: at(&http_tls),
            metrics: at(&metrics),
        };
        let listener = |listener: Option<(Listener, SocketAddr)>| listener.map(|(it, _)| it);
        Ok(Self {
            kafka,
            kafka_tls: listener(kafka_tls),
            amqp: listener(amqp),
            amqp_tls: listener(amqp_tls),
            http: listener(http),
            http_tls: listener(http_tls),
            metrics: listener(metrics),
            bound,
        })
    }

    /// Takes the HTTP ports, which are served before the others.
    pub(crate) fn take_http(&mut self, tls: Option<&Tls>) -> HttpPorts {
        let tls = self.http_tls.take().zip(tls.cloned());
        let http = Ports { plain: self.http.take(), tls };
        HttpPorts { http, metrics: self.metrics.take() }
    }

    /// The Kafka ports, and the AMQP ports if AMQP is offered.
    pub(crate) fn into_ports(self, tls: Option<&Tls>) -> (Ports, Option<Ports>) {
        let encrypted = |listener: Option<Listener>| listener.zip(tls.cloned());
        let kafka = Ports { plain: Some(self.kafka), tls: encrypted(self.kafka_tls) };
        let amqp = Ports { plain: self.amqp, tls: encrypted(self.amqp_tls) };
        let is_offered = amqp.plain.is_some() || amqp.tls.is_some();
        (kafka, is_offered.then_some(amqp))
    }
}

/// `None`: the port is off, or was added to `taken`.
async fn bind(
    net: Net,
    setting: &'static str,
    address: Option<SocketAddr>,
    taken: &mut Vec<TakenPort>,
) -> Option<(Listener, SocketAddr)> {
    let address = address?;
    let bound = match net.listen(address).await {
        Ok(listener) => listener.local_addr().map(|bound| (listener, bound)),
        Err(error) => Err(error),
    };
    bound.map_err(|source| taken.push(TakenPort { address, setting, source })).ok()
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
pub(crate) struct TakenPorts(Vec<TakenPort>);

impl fmt::Display for TakenPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, TakenPort { address, setting, source }) in self.0.iter().enumerate() {
            let between = if place == 0 { "" } else { "; " };
            write!(f, "{between}cannot listen on {address} (--{setting}): {source}")?;
        }
        f.write_str(". Stop what uses it, or choose another: postroad serve")?;
        for TakenPort { address, setting, .. } in &self.0 {
            // A port that is usually free and easily remembered.
            let port = address.port().checked_add(10_000).unwrap_or(0);
            write!(f, " --{setting} {}", SocketAddr::new(address.ip(), port))?;
        }
        Ok(())
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
