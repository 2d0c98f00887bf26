//! What `serve` runs with. A flag wins over its environment variable, that over the file, and the
//! file over the default; each has the same name in all three.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use access::SettingsUser;
use base::limits;
use broker::config::NodeConfig;
use clap::Args;
use serde::{Deserialize, Deserializer};

use crate::cluster_settings::ClusterSettings;
use crate::logging::LogFormat;

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
    #[serde(deserialize_with = "size")]
    segment_bytes: Option<String>,
    /// Refuse produce when fewer bytes are free on the disk [default: 256MiB]
    #[arg(long, value_name = "SIZE", env = "POSTROAD_DISK_RESERVE")]
    #[serde(deserialize_with = "size")]
    disk_reserve: Option<String>,
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
            bytes("segment-bytes", said.segment_bytes, limits::SEGMENT_BYTES_DEFAULT)?;
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
            amqp: amqp(said.amqp.as_deref())?,
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
            disk_reserve_bytes: bytes(
                "disk-reserve",
                said.disk_reserve,
                limits::DISK_RESERVE_BYTES_DEFAULT,
            )?,
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

impl Said {
    /// What is not said here is taken from `other`.
    fn or(self, other: Said) -> Said {
        Said {
            data: self.data.or(other.data),
            kafka: self.kafka.or(other.kafka),
            advertise_kafka: self.advertise_kafka.or(other.advertise_kafka),
            amqp: self.amqp.or(other.amqp),
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

fn amqp(said: Option<&str>) -> Result<Option<SocketAddr>, SettingsError> {
    match said {
        Some("off") => Ok(None),
        address => listen("amqp", address.unwrap_or("127.0.0.1:5672")).map(Some),
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

/// In a file a size may also be a plain number.
fn size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a size is a number of bytes or a text such as \"128MiB\"")]
    enum Size {
        Number(u64),
        Text(String),
    }
    Ok(Some(match Size::deserialize(from)? {
        Size::Number(number) => number.to_string(),
        Size::Text(text) => text,
    }))
}

/// A size in bytes, plain or with a unit: 1048576, 1024KiB, 1MiB, 1m.
fn bytes(setting: &'static str, text: Option<String>, default: u64) -> Result<u64, SettingsError> {
    let Some(text) = text else { return Ok(default) };
    size_in_bytes(&text).map_err(|problem| invalid(setting, &text, problem))
}

pub(crate) fn size_in_bytes(text: &str) -> Result<u64, &'static str> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => Some(0),
        "k" | "kb" | "kib" => Some(10),
        "m" | "mb" | "mib" => Some(20),
        "g" | "gb" | "gib" => Some(30),
        "t" | "tb" | "tib" => Some(40),
        _ => None,
    };
    let parsed = shift.and_then(|shift| {
        digits.trim().replace('_', "").parse::<u64>().ok()?.checked_mul(1 << shift)
    });
    parsed.ok_or("is not a size, such as 134217728 or 128MiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(toml: &str) -> Said {
        toml::from_str(toml).expect("well-formed")
    }

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
        let flags = Said { node: Some(7), ..Said::default() };
        let file = said("node = 3\nkafka = \"127.0.0.1:1234\"\nsegment-bytes = \"64MiB\"");
        let settings = Settings::from_said(flags.or(file)).expect("valid");
        assert_eq!(settings.node, 7);
        assert_eq!(settings.kafka.port(), 1234);
        assert_eq!(settings.segment_bytes, 64 << 20);
        assert_eq!(settings.data, PathBuf::from("postroad-data"));
    }

    #[test]
    fn listeners_bind_loopback_unless_told_otherwise() {
        let settings = Settings::from_said(Said::default()).expect("valid");
        assert!(settings.kafka.ip().is_loopback());
    }

    #[test]
    fn amqp_has_its_address_and_its_users_or_is_off() {
        let settings = Settings::from_said(Said::default()).expect("valid");
        assert_eq!(settings.amqp.map(|address| address.port()), Some(5672));
        assert_eq!(settings.amqp_users, []);
        let toml = "amqp = \"off\"\namqp-user = [\"app:se:cret\", \"other:x\"]";
        let settings = Settings::from_said(said(toml)).expect("valid");
        assert_eq!(settings.amqp, None);
        let known: Vec<_> =
            settings.amqp_users.iter().map(|user| (&*user.name, &*user.password)).collect();
        assert_eq!(known, [("app", "se:cret"), ("other", "x")]);
        let error = Settings::from_said(said("amqp-user = [\"secret\"]")).expect_err("refused");
        assert!(error.to_string().contains("is not a name and a password"), "{error}");
    }

    #[test]
    fn node_configurations_are_named_as_in_kafka_and_checked() {
        let toml = "kafka-config = [\"log.retention.ms=1000\", \"offsets.retention.minutes = 5\"]";
        let settings = Settings::from_said(said(toml)).expect("valid");
        let expected = [("log.retention.ms", "1000"), ("offsets.retention.minutes", "5")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(settings.kafka_configs, expected);
        for wrong in ["log.retention.ms", "=1", "no.such.config=1", "log.retention.ms=soon"] {
            let error = Settings::from_said(said(&format!("kafka-config = [\"{wrong}\"]")));
            let error = error.expect_err("refused").to_string();
            assert!(error.contains("--kafka-config") && error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn a_key_that_is_not_known_is_refused_by_name() {
        let error = toml::from_str::<Said>("kafak = \"127.0.0.1:9092\"").expect_err("refused");
        assert!(error.to_string().contains("kafak"), "{error}");
    }

    #[test]
    fn sizes_have_units_and_bad_ones_are_named() {
        let parsed = |text: &str| bytes("disk-reserve", Some(text.into()), 0).ok();
        assert_eq!(parsed("17"), Some(17));
        assert_eq!(parsed("1_024k"), Some(1 << 20));
        assert_eq!(parsed("2GiB"), Some(2 << 30));
        for wrong in ["", "x", "1 parsec", "-1", "99999999999999T"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
        let error = bytes("disk-reserve", Some("much".into()), 0).expect_err("refused");
        assert_eq!(
            error.to_string(),
            "--disk-reserve \"much\" is not a size, such as 134217728 or 128MiB"
        );
    }

    #[test]
    fn in_a_file_a_size_may_be_a_number() {
        let settings = Settings::from_said(said("segment-bytes = 67108864")).expect("valid");
        assert_eq!(settings.segment_bytes, 64 << 20);
        let error = toml::from_str::<Said>("disk-reserve = true").expect_err("refused");
        assert!(error.to_string().contains("a size is a number of bytes"), "{error}");
    }

    #[test]
    fn nothing_can_be_done_with_none_of_it() {
        for none in ["threads = 0", "max-connections = 0", "default-partitions = 0"] {
            let error = Settings::from_said(said(none)).expect_err("refused").to_string();
            assert!(error.ends_with("must be at least 1"), "{error}");
        }
    }

    #[test]
    fn an_advertised_address_may_be_a_name_or_ipv6() {
        assert_eq!(host_port("a", "broker:9092").ok(), Some(("broker".into(), 9092)));
        assert_eq!(host_port("a", "[::1]:9092").ok(), Some(("::1".into(), 9092)));
        for wrong in ["broker", ":9092", "broker:x", "broker:70000"] {
            assert!(host_port("a", wrong).is_err(), "{wrong}");
        }
    }
}
