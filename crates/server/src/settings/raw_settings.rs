//! Settings as given by flags, environment and file, each of them optional.

use std::path::PathBuf;

use clap::Args;
use serde::Deserialize;

use super::security::{AuditMode, Auth};
use super::size;
use super::tls::ClientAuth;
use crate::logging::LogFormat;

/// Settings of the command line and the environment.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ServeFlags {
    /// Read settings from this TOML file; keys are the long flags.
    #[arg(long, value_name = "FILE", env = "POSTROAD_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) said: RawSettings,
}

/// Every setting, each as far as it was said.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct RawSettings {
    /// Directory that holds all data; made when it is not there [default: ./postroad-data]
    #[arg(long, value_name = "DIR", env = "POSTROAD_DATA")]
    pub(super) data: Option<PathBuf>,
    /// Address to listen on for Kafka clients [default: 127.0.0.1:9092]
    #[arg(long, value_name = "ADDR", env = "POSTROAD_KAFKA")]
    pub(super) kafka: Option<String>,
    /// Address that Kafka clients are told to connect to [default: the one listened on]
    #[arg(long, value_name = "HOST:PORT", env = "POSTROAD_ADVERTISE_KAFKA")]
    pub(super) advertise_kafka: Option<String>,
    /// Address to listen on for AMQP 0-9-1 clients, or "off" [default: 127.0.0.1:5672]
    #[arg(long, value_name = "ADDR", env = "POSTROAD_AMQP")]
    pub(super) amqp: Option<String>,
    /// Address to listen on for Kafka clients over TLS [default: none]
    #[arg(long, value_name = "ADDR", env = "POSTROAD_KAFKA_TLS")]
    pub(super) kafka_tls: Option<String>,
    /// Address that Kafka clients over TLS are told to connect to [default: the one listened on]
    #[arg(long, value_name = "HOST:PORT", env = "POSTROAD_ADVERTISE_KAFKA_TLS")]
    pub(super) advertise_kafka_tls: Option<String>,
    /// Address to listen on for AMQP 0-9-1 clients over TLS [default: none]
    #[arg(long, value_name = "ADDR", env = "POSTROAD_AMQP_TLS")]
    pub(super) amqp_tls: Option<String>,
    /// Address to listen on for HTTP (health, metrics), or "off" [default: 127.0.0.1:15672]
    #[arg(long, value_name = "ADDR", env = "POSTROAD_HTTP")]
    pub(super) http: Option<String>,
    /// Address to listen on for HTTP over TLS [default: none]
    #[arg(long, value_name = "ADDR", env = "POSTROAD_HTTP_TLS")]
    pub(super) http_tls: Option<String>,
    /// Further host name that browsers may use for this node while no log-in is required; may be given several times
    #[arg(long, value_name = "NAME", env = "POSTROAD_HTTP_HOST", value_delimiter = ' ')]
    pub(super) http_host: Option<Vec<String>>,
    /// Address for metrics and health alone, open to every client that reaches it [default: none]
    #[arg(long, value_name = "ADDR", env = "POSTROAD_METRICS")]
    pub(super) metrics: Option<String>,
    /// File with the certificate for TLS, and those that it follows from, in PEM. Read again when it
    /// changes, and on SIGHUP
    #[arg(long, value_name = "FILE", env = "POSTROAD_TLS_CERT")]
    pub(super) tls_cert: Option<PathBuf>,
    /// File with the certificate's key, in PEM, which others may not read
    #[arg(long, value_name = "FILE", env = "POSTROAD_TLS_KEY")]
    pub(super) tls_key: Option<PathBuf>,
    /// File with the certificates of those who sign clients' certificates, in PEM
    #[arg(long, value_name = "FILE", env = "POSTROAD_TLS_CLIENT_CA")]
    pub(super) tls_client_ca: Option<PathBuf>,
    /// File with the lists of certificates that these have revoked, one of each of them, in PEM. Read again when it changes
    #[arg(long, value_name = "FILE", env = "POSTROAD_TLS_CLIENT_CRL")]
    pub(super) tls_client_crl: Option<PathBuf>,
    /// Whether clients show certificates of their own [default: required with --tls-client-ca, else none]
    #[arg(long, value_enum, value_name = "WHETHER", env = "POSTROAD_TLS_CLIENT_AUTH")]
    pub(super) tls_client_auth: Option<ClientAuth>,
    /// User name in a client's certificate, which then is its log-in: cn, dn, san, san:email, san:uri, or rules of Kafka's
    /// (RULE:PATTERN/REPLACEMENT/[L|U], DEFAULT), with commas between [default: none, the client may only connect]
    #[arg(long, value_name = "HOW", env = "POSTROAD_TLS_PRINCIPAL")]
    pub(super) tls_principal: Option<String>,
    /// Whether Kafka clients must log in: on ports that other machines reach always with "auto", on those of this
    /// machine only if there are users when the node starts [default: auto]
    #[arg(long, value_enum, value_name = "WHETHER", env = "POSTROAD_AUTH")]
    pub(super) auth: Option<Auth>,
    /// Let Kafka clients of other machines do everything without a log-in, where there are no users or --auth is off
    #[arg(long, value_name = "BOOL", env = "POSTROAD_INSECURE", num_args = 0..=1, default_missing_value = "true")]
    pub(super) insecure: Option<bool>,
    /// A user who may log in by every protocol and do everything
    #[arg(long, value_name = "NAME", env = "POSTROAD_ADMIN_USER")]
    pub(super) admin_user: Option<String>,
    /// File with that user's password in its first line
    #[arg(long, value_name = "FILE", env = "POSTROAD_ADMIN_PASSWORD_FILE")]
    pub(super) admin_password_file: Option<PathBuf>,
    /// Whether it is written who changed what, logged in and was kept from something; strict: what cannot be written is
    /// not done [default: off]
    #[arg(long, value_enum, value_name = "MODE", env = "POSTROAD_AUDIT")]
    pub(super) audit: Option<AuditMode>,
    /// Whether rules of Kafka's count for AMQP, too, and RabbitMQ's permissions for Kafka [default: true]
    #[arg(long, value_name = "BOOL", env = "POSTROAD_AUTHORIZE_CROSS_PROTOCOL")]
    pub(super) authorize_cross_protocol: Option<bool>,
    /// User with all rights, created by commands; may be given several times
    #[arg(long, value_name = "NAME", env = "POSTROAD_SUPER_USER", value_delimiter = ' ')]
    pub(super) super_user: Option<Vec<String>>,
    /// Accept passwords from other machines on ports without TLS, readable by everyone on the network path
    #[arg(long, value_name = "BOOL", env = "POSTROAD_ALLOW_PLAINTEXT_AUTH", num_args = 0..=1, default_missing_value = "true")]
    pub(super) allow_plaintext_auth: Option<bool>,
    /// Time after which Kafka clients must authenticate again, such as 1h [default: never]
    #[arg(long, value_name = "TIME", env = "POSTROAD_SESSION_MAX")]
    pub(super) session_max: Option<String>,
    /// Issuer of tokens (JWT) for log-ins, exactly as in their claim iss [default: none]
    #[arg(long, value_name = "ISSUER", env = "POSTROAD_OIDC_ISSUER")]
    pub(super) oidc_issuer: Option<String>,
    /// Audience of tokens, by their claim aud; may be given several times, one of them must match
    #[arg(long, value_name = "AUDIENCE", env = "POSTROAD_OIDC_AUDIENCE", value_delimiter = ' ')]
    pub(super) oidc_audience: Option<Vec<String>>,
    /// Where the issuer's public keys are (a JWK set): an address that begins with https://, or a file. Read again every
    /// five minutes (a file every ten seconds), and for a key that is not known [default: what the issuer says itself]
    #[arg(long, value_name = "URL|FILE", env = "POSTROAD_OIDC_JWKS")]
    pub(super) oidc_jwks: Option<String>,
    /// The claim of a token that names its user [default: sub]
    #[arg(long, value_name = "CLAIM", env = "POSTROAD_OIDC_PRINCIPAL_CLAIM")]
    pub(super) oidc_principal_claim: Option<String>,
    /// File with the certificates of those who sign the issuer's certificate, in PEM [default: those that the
    /// machine believes]
    #[arg(long, value_name = "FILE", env = "POSTROAD_OIDC_CA")]
    pub(super) oidc_ca: Option<PathBuf>,
    /// User with all rights who may log in by AMQP, as NAME:PASSWORD; may be given several times.
    /// Others are made with 'postroad user'. Without any there is guest:guest, from this machine only
    #[arg(long, value_name = "USER", env = "POSTROAD_AMQP_USER", value_delimiter = ' ')]
    pub(super) amqp_user: Option<Vec<String>>,
    /// The user whose permissions AMQP clients get that log in without a name (SASL ANONYMOUS)
    /// [default: such a log-in is refused]
    #[arg(long, value_name = "NAME", env = "POSTROAD_AMQP_ANONYMOUS")]
    pub(super) amqp_anonymous: Option<String>,
    /// This node's id [default: 1; in a cluster its place among the seeds]
    #[arg(long, value_name = "N", env = "POSTROAD_NODE")]
    pub(super) node: Option<u32>,
    /// Address to listen on for the other nodes of a cluster [default: none, the node is alone]
    #[arg(long, value_name = "ADDR", env = "POSTROAD_PEER")]
    pub(super) peer: Option<String>,
    /// Address that the other nodes reach this one by, as it stands in --seeds [default: --peer]
    #[arg(long, value_name = "HOST:PORT", env = "POSTROAD_ADVERTISE_PEER")]
    pub(super) advertise_peer: Option<String>,
    /// The nodes that found the cluster, by their peer addresses: the same list on each, 3 or 5 of them
    #[arg(long, value_name = "HOST:PORT", env = "POSTROAD_SEEDS", value_delimiter = ',')]
    pub(super) seeds: Option<Vec<String>>,
    /// Nodes of a cluster that is there already, by their peer addresses: a node with an empty data directory asks
    /// one of them to let it in
    #[arg(long, value_name = "HOST:PORT", env = "POSTROAD_JOIN", value_delimiter = ',')]
    pub(super) join: Option<Vec<String>>,
    /// A file with a secret of at least 32 random bytes, the same on each node: they encrypt what they say,
    /// and reject nodes that do not have it. Without it only addresses of this machine are allowed
    #[arg(long, value_name = "FILE", env = "POSTROAD_PEER_SECRET")]
    pub(super) peer_secret: Option<PathBuf>,
    /// Say nothing encrypted to other nodes, though they are on other machines: for private wires
    #[arg(long, value_name = "BOOL", env = "POSTROAD_PEER_PLAINTEXT", num_args = 0..=1, default_missing_value = "true")]
    pub(super) peer_plaintext: Option<bool>,
    /// Where the node is, such as a rack, a room or an availability zone: Kafka clients with the same client.rack read
    /// from it what other nodes lead [default: none]
    #[arg(long, value_name = "NAME", env = "POSTROAD_RACK")]
    pub(super) rack: Option<String>,
    /// Shards that hold records, each with a journal of its own. They can become more, never fewer: topics
    /// that are made afterwards lie in all of them [default: as many as there are; in a new directory one for
    /// every four cores, at most 8]. In a cluster their number is fixed when it is founded [default: so many
    /// for each node]
    #[arg(long, value_name = "N", env = "POSTROAD_SHARDS")]
    pub(super) shards: Option<u32>,
    /// Size of a journal segment, such as 128MiB [default: 128MiB]
    #[arg(long, value_name = "SIZE", env = "POSTROAD_SEGMENT_BYTES")]
    #[serde(deserialize_with = "size::size")]
    pub(super) segment_bytes: Option<String>,
    /// Refuse produce when fewer bytes are free on the disk [default: 256MiB]
    #[arg(long, value_name = "SIZE", env = "POSTROAD_DISK_RESERVE")]
    #[serde(deserialize_with = "size::size")]
    pub(super) disk_reserve: Option<String>,
    /// How often all that is stored is looked through for what changed on the disk, such as 30d, or off: only by
    /// `postroad node scrub` [default: 7d]
    #[arg(long, value_name = "DURATION", env = "POSTROAD_SCRUB_INTERVAL")]
    pub(super) scrub_interval: Option<String>,
    /// Memory of each shard for what happened to its records, such as 16MiB, or 0 for none (`postroad trace`) [default:
    /// 2MiB]
    #[arg(long, value_name = "SIZE", env = "POSTROAD_HISTORY_BYTES")]
    #[serde(deserialize_with = "size::size")]
    pub(super) history_bytes: Option<String>,
    /// Collector of OpenTelemetry that takes spans of traced records (OTLP over HTTP), such as http://127.0.0.1:4318
    /// [default: none are made]
    #[arg(long, value_name = "URL", env = "POSTROAD_OTEL_ENDPOINT")]
    pub(super) otel_endpoint: Option<String>,
    /// File with headers for each request to it, one a line as NAME: VALUE, such as a key
    #[arg(long, value_name = "FILE", env = "POSTROAD_OTEL_HEADERS")]
    pub(super) otel_headers: Option<PathBuf>,
    /// File with the certificates of those who sign the collector's certificate, in PEM [default: those that the machine
    /// believes]
    #[arg(long, value_name = "FILE", env = "POSTROAD_OTEL_CA")]
    pub(super) otel_ca: Option<PathBuf>,
    /// Connections at a time [default: 10000]
    #[arg(long, value_name = "N", env = "POSTROAD_MAX_CONNECTIONS")]
    pub(super) max_connections: Option<usize>,
    /// Make a topic when a client asks for one that is not there [default: true]
    #[arg(long, value_name = "BOOL", env = "POSTROAD_AUTO_CREATE_TOPICS")]
    pub(super) auto_create_topics: Option<bool>,
    /// Partitions of a topic when its maker does not say [default: 1]
    #[arg(long, value_name = "N", env = "POSTROAD_DEFAULT_PARTITIONS")]
    pub(super) default_partitions: Option<u32>,
    /// Set a node configuration by Kafka's name at start, as NAME=VALUE; may be given several times
    #[arg(long, value_name = "CONFIG", env = "POSTROAD_KAFKA_CONFIG", value_delimiter = ' ')]
    pub(super) kafka_config: Option<Vec<String>>,
    /// Threads that serve clients [default: one a core but one, which is the journal's]
    #[arg(long, value_name = "N", env = "POSTROAD_THREADS")]
    pub(super) threads: Option<usize>,
    /// Level, or directives by module, such as info,broker=debug [default: info]
    #[arg(long, value_name = "FILTER", env = "POSTROAD_LOG")]
    pub(super) log: Option<String>,
    /// Form of the log on standard error [default: human]
    #[arg(long, value_enum, value_name = "FORM", env = "POSTROAD_LOG_FORMAT")]
    pub(super) log_format: Option<LogFormat>,
}

impl RawSettings {
    /// Takes missing settings from `other`.
    pub(super) fn or(self, other: RawSettings) -> RawSettings {
        RawSettings {
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
            tls_client_crl: self.tls_client_crl.or(other.tls_client_crl),
            tls_client_auth: self.tls_client_auth.or(other.tls_client_auth),
            tls_principal: self.tls_principal.or(other.tls_principal),
            auth: self.auth.or(other.auth),
            insecure: self.insecure.or(other.insecure),
            authorize_cross_protocol: self
                .authorize_cross_protocol
                .or(other.authorize_cross_protocol),
            admin_user: self.admin_user.or(other.admin_user),
            admin_password_file: self.admin_password_file.or(other.admin_password_file),
            audit: self.audit.or(other.audit),
            super_user: self.super_user.or(other.super_user),
            allow_plaintext_auth: self.allow_plaintext_auth.or(other.allow_plaintext_auth),
            session_max: self.session_max.or(other.session_max),
            oidc_issuer: self.oidc_issuer.or(other.oidc_issuer),
            oidc_audience: self.oidc_audience.or(other.oidc_audience),
            oidc_jwks: self.oidc_jwks.or(other.oidc_jwks),
            oidc_principal_claim: self.oidc_principal_claim.or(other.oidc_principal_claim),
            oidc_ca: self.oidc_ca.or(other.oidc_ca),
            amqp_user: self.amqp_user.or(other.amqp_user),
            amqp_anonymous: self.amqp_anonymous.or(other.amqp_anonymous),
            node: self.node.or(other.node),
            peer: self.peer.or(other.peer),
            advertise_peer: self.advertise_peer.or(other.advertise_peer),
            seeds: self.seeds.or(other.seeds),
            join: self.join.or(other.join),
            peer_secret: self.peer_secret.or(other.peer_secret),
            peer_plaintext: self.peer_plaintext.or(other.peer_plaintext),
            rack: self.rack.or(other.rack),
            shards: self.shards.or(other.shards),
            segment_bytes: self.segment_bytes.or(other.segment_bytes),
            disk_reserve: self.disk_reserve.or(other.disk_reserve),
            scrub_interval: self.scrub_interval.or(other.scrub_interval),
            history_bytes: self.history_bytes.or(other.history_bytes),
            otel_endpoint: self.otel_endpoint.or(other.otel_endpoint),
            otel_headers: self.otel_headers.or(other.otel_headers),
            otel_ca: self.otel_ca.or(other.otel_ca),
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
