//! What `serve` runs with. A flag wins over its environment variable, that over the file, and the
//! file over the default; each has the same name in all three.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use access::SettingsUser;
use base::limits;
use broker::config::NodeConfig;
use clap::Args;
use serde::Deserialize;

use crate::cluster_settings::ClusterSettings;
use crate::http_settings::HttpSettings;
use crate::logging::LogFormat;
use crate::security_settings::{Auth, SaidOfSecurity, SecuritySettings};
use crate::size;
use crate::time::parse_duration;
use crate::tls_settings::{ClientAuth, SaidOfTls, TlsSettings};

/// The consensus engine tells of every vote and term; that is for whoever asks for it.
const DEFAULT_LOG: &str = "info,openraft=error";

/// What was said on the command line or in the environment.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ServeFlags {
    /// Read settings from this TOML file; keys are the long flags.
    #[arg(long, value_name = "FILE", env = "POSTROAD_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) said: Said,
}

/// Every setting, each as far as it was said.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Said {
    /// Directory that holds all data; made when it is not there [default: ./postroad-data]
    #[arg(long, value_name = "DIR", env = "POSTROAD_DATA")]
    data: Option<PathBuf>,
    /// Address to listen on for Kafka clients [default: 127.0.0.1:9092]
    #[arg(long, value_name = "ADDR", env = "POSTROAD_KAFKA")]
    kafka: Option<String>,
    /// Address that Kafka clients are told to connect to [default: the one listened on]
    #[arg(long, value_name = "HOST:PORT", env = "POSTROAD_ADVERTISE_KAFKA")]
    advertise_kafka: Option<String>,
    /// Address to listen on for AMQP 0-9-1 clients, or "off" [default: 127.0.0.1:5672]
    #[arg(long, value_name = "ADDR", env = "POSTROAD_AMQP")]
    amqp: Option<String>,
    /// Address to listen on for Kafka clients over TLS [default: none]
    #[arg(long, value_name = "ADDR", env = "POSTROAD_KAFKA_TLS")]
    kafka_tls: Option<String>,
    /// Address that Kafka clients over TLS are told to connect to [default: the one listened on]
    #[arg(long, value_name = "HOST:PORT", env = "POSTROAD_ADVERTISE_KAFKA_TLS")]
    advertise_kafka_tls: Option<String>,
    /// Address to listen on for AMQP 0-9-1 clients over TLS [default: none]
    #[arg(long, value_name = "ADDR", env = "POSTROAD_AMQP_TLS")]
    amqp_tls: Option<String>,
    /// Address to listen on for HTTP (health, metrics), or "off" [default: 127.0.0.1:15672]
    #[arg(long, value_name = "ADDR", env = "POSTROAD_HTTP")]
    http: Option<String>,
    /// Address to listen on for HTTP over TLS [default: none]
    #[arg(long, value_name = "ADDR", env = "POSTROAD_HTTP_TLS")]
    http_tls: Option<String>,
    /// A further name that browsers may call this node by where nobody logs in; may be given several times
    #[arg(long, value_name = "NAME", env = "POSTROAD_HTTP_HOST", value_delimiter = ' ')]
    http_host: Option<Vec<String>>,
    /// Address to listen on for metrics and health alone, for whoever reaches it [default: none]
    #[arg(long, value_name = "ADDR", env = "POSTROAD_METRICS")]
    metrics: Option<String>,
    /// File with the certificate for TLS, and those that it follows from, in PEM. Read again when it
    /// changes, and on SIGHUP
    #[arg(long, value_name = "FILE", env = "POSTROAD_TLS_CERT")]
    tls_cert: Option<PathBuf>,
    /// File with the certificate's key, in PEM, which others may not read
    #[arg(long, value_name = "FILE", env = "POSTROAD_TLS_KEY")]
    tls_key: Option<PathBuf>,
    /// File with the certificates of those who sign clients' certificates, in PEM
    #[arg(long, value_name = "FILE", env = "POSTROAD_TLS_CLIENT_CA")]
    tls_client_ca: Option<PathBuf>,
    /// Whether clients show certificates of their own [default: required with --tls-client-ca, else none]
    #[arg(long, value_enum, value_name = "WHETHER", env = "POSTROAD_TLS_CLIENT_AUTH")]
    tls_client_auth: Option<ClientAuth>,
    /// Who a client is by its certificate, which then is its log-in: cn, dn, san, san:email, san:uri, or rules of Kafka's
    /// (RULE:PATTERN/REPLACEMENT/[L|U], DEFAULT), with commas between [default: nobody, it only may connect]
    #[arg(long, value_name = "HOW", env = "POSTROAD_TLS_PRINCIPAL")]
    tls_principal: Option<String>,
    /// Whether Kafka clients must log in: on ports that other machines reach always with "auto", on those of this
    /// machine only if there are users when the node starts [default: auto]
    #[arg(long, value_enum, value_name = "WHETHER", env = "POSTROAD_AUTH")]
    auth: Option<Auth>,
    /// Let Kafka clients of other machines do everything without a log-in, where there are no users or --auth is off
    #[arg(long, value_name = "BOOL", env = "POSTROAD_INSECURE", num_args = 0..=1, default_missing_value = "true")]
    insecure: Option<bool>,
    /// A user who may log in by every protocol and do everything
    #[arg(long, value_name = "NAME", env = "POSTROAD_ADMIN_USER")]
    admin_user: Option<String>,
    /// File with that user's password in its first line
    #[arg(long, value_name = "FILE", env = "POSTROAD_ADMIN_PASSWORD_FILE")]
    admin_password_file: Option<PathBuf>,
    /// Whether rules of Kafka's count for AMQP, too, and RabbitMQ's permissions for Kafka [default: true]
    #[arg(long, value_name = "BOOL", env = "POSTROAD_AUTHORIZE_CROSS_PROTOCOL")]
    authorize_cross_protocol: Option<bool>,
    /// A user who may do everything, whom commands made; may be given several times
    #[arg(long, value_name = "NAME", env = "POSTROAD_SUPER_USER", value_delimiter = ' ')]
    super_user: Option<Vec<String>>,
    /// Take passwords from other machines on ports that do not encrypt, where anybody on the way reads them
    #[arg(long, value_name = "BOOL", env = "POSTROAD_ALLOW_PLAINTEXT_AUTH", num_args = 0..=1, default_missing_value = "true")]
    allow_plaintext_auth: Option<bool>,
    /// Kafka clients that are logged in must do so anew after this time, such as 1h [default: never]
    #[arg(long, value_name = "TIME", env = "POSTROAD_SESSION_MAX")]
    session_max: Option<String>,
    /// Who may log in by AMQP and do everything, as NAME:PASSWORD; may be given several times.
    /// Others are made with 'postroad user'. Without any there is guest:guest, from this machine only
    #[arg(long, value_name = "USER", env = "POSTROAD_AMQP_USER", value_delimiter = ' ')]
    amqp_user: Option<Vec<String>>,
    /// The user whose permissions AMQP clients get that log in without a name (SASL ANONYMOUS)
    /// [default: such a log-in is refused]
    #[arg(long, value_name = "NAME", env = "POSTROAD_AMQP_ANONYMOUS")]
    amqp_anonymous: Option<String>,
    /// This node's id [default: 1; in a cluster its place among the seeds]
    #[arg(long, value_name = "N", env = "POSTROAD_NODE")]
    node: Option<u32>,
    /// Address to listen on for the other nodes of a cluster [default: none, the node is alone]
    #[arg(long, value_name = "ADDR", env = "POSTROAD_PEER")]
    peer: Option<String>,
    /// Address that the other nodes reach this one by, as it stands in --seeds [default: --peer]
    #[arg(long, value_name = "HOST:PORT", env = "POSTROAD_ADVERTISE_PEER")]
    advertise_peer: Option<String>,
    /// The nodes that found the cluster, by their peer addresses: the same list on each, 3 or 5 of them
    #[arg(long, value_name = "HOST:PORT", env = "POSTROAD_SEEDS", value_delimiter = ',')]
    seeds: Option<Vec<String>>,
    /// Nodes of a cluster that is there already, by their peer addresses: a node with an empty data directory asks
    /// one of them to let it in
    #[arg(long, value_name = "HOST:PORT", env = "POSTROAD_JOIN", value_delimiter = ',')]
    join: Option<Vec<String>>,
    /// A file with a secret of at least 32 random bytes, the same on each node: they encrypt what they say,
    /// and believe nobody who does not have it. Without it only addresses of this machine are allowed
    #[arg(long, value_name = "FILE", env = "POSTROAD_PEER_SECRET")]
    peer_secret: Option<PathBuf>,
    /// Say nothing encrypted to other nodes, though they are on other machines: for private wires
    #[arg(long, value_name = "BOOL", env = "POSTROAD_PEER_PLAINTEXT", num_args = 0..=1, default_missing_value = "true")]
    peer_plaintext: Option<bool>,
    /// Shards that hold records, each with a journal of its own. They can become more, never fewer: topics
    /// that are made afterwards lie in all of them [default: as many as there are; in a new directory one for
    /// every four cores, at most 8]. In a cluster their number is fixed when it is founded [default: so many
    /// for each node]
    #[arg(long, value_name = "N", env = "POSTROAD_SHARDS")]
    shards: Option<u32>,
    /// Size of a journal segment, such as 128MiB [default: 128MiB]
    #[arg(long, value_name = "SIZE", env = "POSTROAD_SEGMENT_BYTES")]
    #[serde(deserialize_with = "size::size")]
    segment_bytes: Option<String>,
    /// Refuse produce when fewer bytes are free on the disk [default: 256MiB]
    #[arg(long, value_name = "SIZE", env = "POSTROAD_DISK_RESERVE")]
    #[serde(deserialize_with = "size::size")]
    disk_reserve: Option<String>,
    /// How often all that is stored is looked through for what changed on the disk, such as 30d, or off: only by
    /// `postroad node scrub` [default: 7d]
    #[arg(long, value_name = "DURATION", env = "POSTROAD_SCRUB_INTERVAL")]
    scrub_interval: Option<String>,
    /// Connections at a time [default: 10000]
    #[arg(long, value_name = "N", env = "POSTROAD_MAX_CONNECTIONS")]
    max_connections: Option<usize>,
    /// Make a topic when a client asks for one that is not there [default: true]
    #[arg(long, value_name = "BOOL", env = "POSTROAD_AUTO_CREATE_TOPICS")]
    auto_create_topics: Option<bool>,
    /// Partitions of a topic when its maker does not say [default: 1]
    #[arg(long, value_name = "N", env = "POSTROAD_DEFAULT_PARTITIONS")]
    default_partitions: Option<u32>,
    /// Set a node configuration by Kafka's name at start, as NAME=VALUE; may be given several times
    #[arg(long, value_name = "CONFIG", env = "POSTROAD_KAFKA_CONFIG", value_delimiter = ' ')]
    kafka_config: Option<Vec<String>>,
    /// Threads that serve clients [default: one a core but one, which is the journal's]
    #[arg(long, value_name = "N", env = "POSTROAD_THREADS")]
    threads: Option<usize>,
    /// Level, or directives by module, such as info,broker=debug [default: info]
    #[arg(long, value_name = "FILTER", env = "POSTROAD_LOG")]
    log: Option<String>,
    /// Form of the log on standard error [default: human]
    #[arg(long, value_enum, value_name = "FORM", env = "POSTROAD_LOG_FORMAT")]
    log_format: Option<LogFormat>,
}

/// What the broker runs with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Settings {
    pub(crate) data: PathBuf,
    pub(crate) kafka: SocketAddr,
    /// `None`: what is listened on.
    pub(crate) advertise_kafka: Option<(String, u16)>,
    /// `None`: AMQP is off.
    pub(crate) amqp: Option<SocketAddr>,
    pub(crate) http: HttpSettings,
    /// `None`: no port encrypts.
    pub(crate) tls: Option<TlsSettings>,
    pub(crate) security: SecuritySettings,
    pub(crate) amqp_users: Vec<SettingsUser>,
    /// `None`: whoever logs in says who it is.
    pub(crate) amqp_anonymous: Option<String>,
    pub(crate) node: u32,
    /// `None`: the node is alone.
    pub(crate) cluster: Option<ClusterSettings>,
    /// `None`: as many as there are.
    pub(crate) shards: Option<u32>,
    pub(crate) segment_bytes: u64,
    pub(crate) disk_reserve_bytes: u64,
    /// `None`: not by itself.
    pub(crate) scrub_interval: Option<Duration>,
    pub(crate) connections_max: usize,
    pub(crate) auto_create_topics: bool,
    pub(crate) default_partitions: u32,
    /// Node configurations to be set at start, by Kafka's names.
    pub(crate) kafka_configs: Vec<(String, String)>,
    pub(crate) threads: Option<usize>,
    pub(crate) log: String,
    pub(crate) log_format: LogFormat,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error("the configuration file {path} cannot be read: {source}")]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("the configuration file {path} is not right:\n{source}")]
    Malformed { path: PathBuf, source: Box<toml::de::Error> },
    #[error("--{setting} {value:?} {problem}")]
    Invalid { setting: &'static str, value: String, problem: String },
}

impl Settings {
    pub(crate) fn resolve(flags: ServeFlags) -> Result<Self, SettingsError> {
        let file = flags.config.as_deref().map(read).transpose()?.unwrap_or_default();
        Self::from_said(flags.said.or(file))
    }

    fn from_said(said: Said) -> Result<Self, SettingsError> {
        let segment_bytes =
            size::bytes("segment-bytes", said.segment_bytes, limits::SEGMENT_BYTES_DEFAULT)?;
        let range = limits::SEGMENT_BYTES_MIN..=limits::SEGMENT_BYTES_MAX;
        if !range.contains(&segment_bytes) {
            let problem = format!("is not between {} and {} bytes", range.start(), range.end());
            return Err(invalid("segment-bytes", &segment_bytes.to_string(), problem));
        }
        Ok(Self {
            data: said.data.unwrap_or_else(|| PathBuf::from("postroad-data")),
            kafka: listen("kafka", said.kafka.as_deref().unwrap_or("127.0.0.1:9092"))?,
            advertise_kafka: said
                .advertise_kafka
                .map(|address| host_port("advertise-kafka", &address))
                .transpose()?,
            amqp: listen_unless_off("amqp", said.amqp.as_deref(), "127.0.0.1:5672")?,
            http: HttpSettings::of(said.http.as_deref(), said.http_host, said.metrics.as_deref())?,
            tls: TlsSettings::of(SaidOfTls {
                kafka: said.kafka_tls,
                advertise_kafka: said.advertise_kafka_tls,
                amqp: said.amqp_tls,
                http: said.http_tls,
                cert: said.tls_cert,
                key: said.tls_key,
                client_ca: said.tls_client_ca,
                client_auth: said.tls_client_auth,
                principal: said.tls_principal.clone(),
            })?,
            security: SecuritySettings::of(SaidOfSecurity {
                auth: said.auth,
                insecure: said.insecure,
                admin_user: said.admin_user,
                admin_password_file: said.admin_password_file,
                super_users: said.super_user,
                allow_plaintext_auth: said.allow_plaintext_auth,
                session_max: said.session_max,
                across: said.authorize_cross_protocol,
                tls_principal: said.tls_principal,
            })?,
            amqp_users: match said.amqp_user {
                Some(users) => {
                    users.iter().map(|user| amqp_user(user)).collect::<Result<_, _>>()?
                }
                None => Vec::new(),
            },
            amqp_anonymous: said.amqp_anonymous,
            node: said.node.unwrap_or(1),
            cluster: ClusterSettings::of(
                said.peer,
                said.advertise_peer,
                said.seeds,
                said.join,
                said.peer_secret,
                said.peer_plaintext.unwrap_or(false),
            )?,
            shards: shards(said.shards)?,
            segment_bytes,
            disk_reserve_bytes: size::bytes(
                "disk-reserve",
                said.disk_reserve,
                limits::DISK_RESERVE_BYTES_DEFAULT,
            )?,
            scrub_interval: scrub_interval(said.scrub_interval)?,
            connections_max: at_least_one("max-connections", said.max_connections)?
                .unwrap_or(limits::SESSIONS_MAX_DEFAULT),
            auto_create_topics: said.auto_create_topics.unwrap_or(true),
            default_partitions: at_least_one("default-partitions", said.default_partitions)?
                .unwrap_or(1),
            kafka_configs: kafka_configs(said.kafka_config.unwrap_or_default())?,
            threads: at_least_one("threads", said.threads)?,
            log: said.log.unwrap_or_else(|| DEFAULT_LOG.into()),
            log_format: said.log_format.unwrap_or_default(),
        })
    }
}

impl Settings {
    /// Who may log in and do everything.
    pub(crate) fn users(&self) -> Vec<SettingsUser> {
        self.amqp_users.iter().chain(&self.security.admin).cloned().collect()
    }
}

impl Said {
    /// What is not said here is taken from `other`.
    fn or(self, other: Said) -> Said {
        Said {
            data: self.data.or(other.data),
            kafka: self.kafka.or(other.kafka),
            advertise_kafka: self.advertise_kafka.or(other.advertise_kafka),
            amqp: self.amqp.or(other.amqp),
            kafka_tls: self.kafka_tls.or(other.kafka_tls),
            advertise_kafka_tls: self.advertise_kafka_tls.or(other.advertise_kafka_tls),
            amqp_tls: self.amqp_tls.or(other.amqp_tls),
            http: self.http.or(other.http),
            http_tls: self.http_tls.or(other.http_tls),
            http_host: self.http_host.or(other.http_host),
            metrics: self.metrics.or(other.metrics),
            tls_cert: self.tls_cert.or(other.tls_cert),
            tls_key: self.tls_key.or(other.tls_key),
            tls_client_ca: self.tls_client_ca.or(other.tls_client_ca),
            tls_client_auth: self.tls_client_auth.or(other.tls_client_auth),
            tls_principal: self.tls_principal.or(other.tls_principal),
            auth: self.auth.or(other.auth),
            insecure: self.insecure.or(other.insecure),
            authorize_cross_protocol: self
                .authorize_cross_protocol
                .or(other.authorize_cross_protocol),
            admin_user: self.admin_user.or(other.admin_user),
            admin_password_file: self.admin_password_file.or(other.admin_password_file),
            super_user: self.super_user.or(other.super_user),
            allow_plaintext_auth: self.allow_plaintext_auth.or(other.allow_plaintext_auth),
            session_max: self.session_max.or(other.session_max),
            amqp_user: self.amqp_user.or(other.amqp_user),
            amqp_anonymous: self.amqp_anonymous.or(other.amqp_anonymous),
            node: self.node.or(other.node),
            peer: self.peer.or(other.peer),
            advertise_peer: self.advertise_peer.or(other.advertise_peer),
            seeds: self.seeds.or(other.seeds),
            join: self.join.or(other.join),
            peer_secret: self.peer_secret.or(other.peer_secret),
            peer_plaintext: self.peer_plaintext.or(other.peer_plaintext),
            shards: self.shards.or(other.shards),
            segment_bytes: self.segment_bytes.or(other.segment_bytes),
            disk_reserve: self.disk_reserve.or(other.disk_reserve),
            scrub_interval: self.scrub_interval.or(other.scrub_interval),
            max_connections: self.max_connections.or(other.max_connections),
            auto_create_topics: self.auto_create_topics.or(other.auto_create_topics),
            default_partitions: self.default_partitions.or(other.default_partitions),
            kafka_config: self.kafka_config.or(other.kafka_config),
            threads: self.threads.or(other.threads),
            log: self.log.or(other.log),
            log_format: self.log_format.or(other.log_format),
        }
    }
}

pub(crate) fn listen_unless_off(
    setting: &'static str,
    said: Option<&str>,
    default: &str,
) -> Result<Option<SocketAddr>, SettingsError> {
    match said {
        Some("off") => Ok(None),
        address => listen(setting, address.unwrap_or(default)).map(Some),
    }
}

fn scrub_interval(said: Option<String>) -> Result<Option<Duration>, SettingsError> {
    const MIN: Duration = Duration::from_secs(60);
    match said {
        None => Ok(Some(limits::SCRUB_INTERVAL_DEFAULT)),
        Some(said) if said == "off" => Ok(None),
        Some(said) => match parse_duration(&said) {
            Ok(interval) if interval >= MIN => Ok(Some(interval)),
            _ => {
                let problem = "is neither off nor a duration of a minute or more, such as 7d";
                Err(invalid("scrub-interval", &said, problem.to_owned()))
            }
        },
    }
}

fn shards(said: Option<u32>) -> Result<Option<u32>, SettingsError> {
    match said {
        Some(count) if !(1..=limits::SHARDS_MAX).contains(&count) => {
            let problem = format!("is not between 1 and {}", limits::SHARDS_MAX);
            Err(invalid("shards", &count.to_string(), problem))
        }
        said => Ok(said),
    }
}

fn read(path: &Path) -> Result<Said, SettingsError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| SettingsError::Unreadable { path: path.into(), source })?;
    toml::from_str(&text)
        .map_err(|source| SettingsError::Malformed { path: path.into(), source: Box::new(source) })
}

pub(crate) fn invalid(
    setting: &'static str,
    value: &str,
    problem: impl Into<String>,
) -> SettingsError {
    SettingsError::Invalid { setting, value: value.into(), problem: problem.into() }
}

fn at_least_one<T: PartialEq + From<u8>>(
    setting: &'static str,
    value: Option<T>,
) -> Result<Option<T>, SettingsError> {
    if value == Some(T::from(0)) {
        return Err(invalid(setting, "0", "must be at least 1"));
    }
    Ok(value)
}

pub(crate) fn listen(setting: &'static str, text: &str) -> Result<SocketAddr, SettingsError> {
    let text = text.replace("localhost:", "127.0.0.1:");
    text.parse().map_err(|_| {
        invalid(setting, &text, "is not an address and port, such as 127.0.0.1:9092 or [::1]:9092")
    })
}

pub(crate) fn host_port(setting: &'static str, text: &str) -> Result<(String, u16), SettingsError> {
    let parsed = text.rsplit_once(':').and_then(|(host, port)| {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (!host.is_empty()).then_some(())?;
        Some((host.to_string(), port.parse().ok()?))
    });
    parsed.ok_or_else(|| invalid(setting, text, "is not a host and port, such as broker:9092"))
}

/// `NAME:PASSWORD`. The password is not repeated in what is wrong with it.
fn amqp_user(text: &str) -> Result<SettingsUser, SettingsError> {
    let parsed = text.split_once(':').filter(|(name, _)| !name.is_empty());
    let (name, password) = parsed.ok_or_else(|| {
        let name = text.split(':').next().unwrap_or_default();
        invalid("amqp-user", name, "is not a name and a password, such as app:secret")
    })?;
    Ok(SettingsUser { name: name.to_owned(), password: password.to_owned() })
}

/// `NAME=VALUE`, each checked by itself here, and all together with what is set already at start.
fn kafka_configs(said: Vec<String>) -> Result<Vec<(String, String)>, SettingsError> {
    let mut configs = Vec::with_capacity(said.len());
    for text in said {
        let pair = text.split_once('=').map(|(name, value)| (name.trim(), value.trim()));
        let Some((name, value)) = pair.filter(|(name, _)| !name.is_empty()) else {
            let problem = "is not a name and a value, such as log.retention.ms=86400000";
            return Err(invalid("kafka-config", &text, problem));
        };
        let one = [(name.to_owned(), value.to_owned())];
        if let Err(error) = NodeConfig::parse(&one.clone().into()) {
            return Err(invalid("kafka-config", &text, format!("is refused: {error}")));
        }
        configs.extend(one);
    }
    Ok(configs)
}

#[cfg(test)]
mod tests;
