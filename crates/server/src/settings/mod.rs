//! Settings of `serve`. A flag takes precedence over its environment variable, that over the file, and the file over
//! the default; each has the same name in all three.
//!
//! * `raw_settings`: the settings as given; [`source`]: their source, for errors
//! * [`cluster`], [`http`], [`security`], [`tls`], [`tokens`], [`traces`]: validated settings by subject; `size`: sizes

pub(crate) mod cluster;
pub(crate) mod http;
mod raw_settings;
pub(crate) mod security;
mod size;
pub(crate) mod source;
pub(crate) mod tls;
mod tokens;
mod traces;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::tokens::TokenOptions;
use access::SettingsUser;
use base::limits;
use broker::config::NodeConfig;
use operations::time::parse_duration;
use spans::ExportOptions;

use self::cluster::ClusterSettings;
use self::http::HttpSettings;
use self::raw_settings::RawSettings;
pub(crate) use self::raw_settings::ServeFlags;
use self::security::{RawSecuritySettings, SecuritySettings};
use self::tls::{RawTlsSettings, TlsSettings};
use self::tokens::RawTokenSettings;
use self::traces::RawTraceSettings;
use crate::limits::RACK_BYTES_MAX;
use crate::logging::LogFormat;

/// The consensus engine logs every vote and term, which is off by default.
const DEFAULT_LOG: &str = "info,openraft=error";

/// Settings of the broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Settings {
    pub(crate) data: PathBuf,
    pub(crate) kafka: SocketAddr,
    /// `None`: the listen address.
    pub(crate) advertise_kafka: Option<(String, u16)>,
    /// `None`: AMQP is off.
    pub(crate) amqp: Option<SocketAddr>,
    pub(crate) http: HttpSettings,
    /// `None`: no port encrypts.
    pub(crate) tls: Option<TlsSettings>,
    pub(crate) security: SecuritySettings,
    /// `None`: no login by token.
    pub(crate) tokens: Option<TokenOptions>,
    pub(crate) amqp_users: Vec<SettingsUser>,
    /// `None`: every login needs a name.
    pub(crate) amqp_anonymous: Option<String>,
    pub(crate) node: u32,
    /// `None`: a single node.
    pub(crate) cluster: Option<ClusterSettings>,
    /// Rack of the node; `None`: not set.
    pub(crate) rack: Option<String>,
    /// `None`: as many as exist.
    pub(crate) shards: Option<u32>,
    pub(crate) segment_bytes: u64,
    pub(crate) disk_reserve_bytes: u64,
    /// `None`: only on request.
    pub(crate) scrub_interval: Option<Duration>,
    /// For each shard; 0: no history of records.
    pub(crate) history_bytes: usize,
    /// Destination of spans of traced records. `None`: no spans.
    pub(crate) traces: Option<ExportOptions>,
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
    #[error("{place} {value:?} {problem}")]
    Sourced { place: String, value: String, problem: String },
}

impl Settings {
    pub(crate) fn resolve(flags: ServeFlags) -> Result<Self, SettingsError> {
        let file = flags.config.as_deref().map(read).transpose()?.unwrap_or_default();
        let settings = Self::from_raw(flags.said.or(file));
        settings.map_err(|error| source::sourced(error, flags.config.as_deref()))
    }

    fn from_raw(said: RawSettings) -> Result<Self, SettingsError> {
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
            tls: TlsSettings::of(RawTlsSettings {
                kafka: said.kafka_tls,
                advertise_kafka: said.advertise_kafka_tls,
                amqp: said.amqp_tls,
                http: said.http_tls,
                cert: said.tls_cert,
                key: said.tls_key,
                client_ca: said.tls_client_ca,
                client_crl: said.tls_client_crl,
                client_auth: said.tls_client_auth,
                principal: said.tls_principal.clone(),
            })?,
            security: SecuritySettings::of(RawSecuritySettings {
                auth: said.auth,
                insecure: said.insecure,
                admin_user: said.admin_user,
                admin_password_file: said.admin_password_file,
                super_users: said.super_user,
                allow_plaintext_auth: said.allow_plaintext_auth,
                session_max: said.session_max,
                across: said.authorize_cross_protocol,
                oidc_issuer: said.oidc_issuer.clone(),
                tls_principal: said.tls_principal,
                audit: said.audit,
            })?,
            tokens: tokens::of(RawTokenSettings {
                issuer: said.oidc_issuer,
                audiences: said.oidc_audience,
                jwks: said.oidc_jwks,
                principal_claim: said.oidc_principal_claim,
                authorities: said.oidc_ca,
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
            rack: rack(said.rack)?,
            shards: shards(said.shards)?,
            segment_bytes,
            disk_reserve_bytes: size::bytes(
                "disk-reserve",
                said.disk_reserve,
                limits::DISK_RESERVE_BYTES_DEFAULT,
            )?,
            scrub_interval: scrub_interval(said.scrub_interval)?,
            history_bytes: history_bytes(said.history_bytes)?,
            traces: traces::of(RawTraceSettings {
                endpoint: said.otel_endpoint,
                headers: said.otel_headers,
                authorities: said.otel_ca,
            })?,
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
    /// Users who may log in and do everything.
    pub(crate) fn users(&self) -> Vec<SettingsUser> {
        self.amqp_users.iter().chain(&self.security.admin).cloned().collect()
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

fn history_bytes(said: Option<String>) -> Result<usize, SettingsError> {
    const HISTORY_BYTES_MAX: usize = 1 << 30;
    let default = limits::HISTORY_BYTES_PER_SHARD_DEFAULT as u64;
    let bytes = size::bytes("history-bytes", said, default)?;
    match usize::try_from(bytes) {
        Ok(bytes) if bytes <= HISTORY_BYTES_MAX => Ok(bytes),
        _ => {
            let problem = format!("is more than {} bytes", HISTORY_BYTES_MAX);
            Err(invalid("history-bytes", &bytes.to_string(), problem))
        }
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

/// A name that clients and other nodes receive.
fn rack(said: Option<String>) -> Result<Option<String>, SettingsError> {
    let is_name = |name: &String| {
        (1..=RACK_BYTES_MAX).contains(&name.len())
            && name.trim() == name
            && !name.contains(char::is_control)
    };
    match said {
        Some(name) if !is_name(&name) => {
            let problem = format!(
                "is no name of a rack: 1 to {} bytes, without blanks around it",
                RACK_BYTES_MAX
            );
            Err(invalid("rack", &name, problem))
        }
        said => Ok(said),
    }
}

fn read(path: &Path) -> Result<RawSettings, SettingsError> {
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

/// `NAME:PASSWORD`. Errors do not repeat the password.
fn amqp_user(text: &str) -> Result<SettingsUser, SettingsError> {
    let parsed = text.split_once(':').filter(|(name, _)| !name.is_empty());
    let (name, password) = parsed.ok_or_else(|| {
        let name = text.split(':').next().unwrap_or_default();
        invalid("amqp-user", name, "is not a name and a password, such as app:secret")
    })?;
    Ok(SettingsUser { name: name.to_owned(), password: password.to_owned() })
}

/// `NAME=VALUE`. Each one is checked separately here; the start checks all of them together with the stored ones.
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
