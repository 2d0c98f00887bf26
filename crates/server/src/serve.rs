//! The broker and its gateways, wired together; from start to an orderly end.

use std::sync::Arc;
use std::time::Duration;

use access::{Audit, Quotas, Users};
use admin::Admin;
use broker::{Broker, BrokerOptions};
use cli::operator_token;
use cli::output::counted;
use consumer_groups::Groups;
use gateway::Connections;
use gateway_amqp::operations::Administration;
use gateway_http::FrontEnd;
use gateway_kafka::GatewayOptions;
use links::{Security, Tls};
use nodes::{Endpoint, Nodes};
use operations::family::NamedFamilies;
use overview::Overviews;
use spans::Spans;
use tasks::{Failure, Task};
use tokens::Tokens;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use topology::Topology;
use world::{Instant, World};

use crate::gate::Gate;
use crate::listeners::{Bound, Listeners};
use crate::serve_error::ServeError;
use crate::settings::cluster::ClusterSettings;
use crate::settings::security::AuditMode;
use crate::settings::{ServeFlags, Settings};
use crate::signals::Signals;
use crate::starting::{say, waits_for};
use crate::tls_files::TlsFiles;
use crate::{levels, log_ins, logging, process, starting};

pub(crate) fn run(flags: ServeFlags) -> Result<(), ServeError> {
    let started = Instant::now();
    let settings = Settings::resolve(flags)?;
    logging::start(&settings.log, settings.log_format).map_err(ServeError::Logging)?;
    tasks::inject::arm().map_err(ServeError::Injection)?;
    tasks::exit::on_failure().map_err(ServeError::Exit)?;
    use_small_pages();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(settings.threads.unwrap_or_else(threads_default));
    runtime.event_interval(TASKS_PER_LOOK_AT_SOCKETS);
    let runtime = runtime.enable_all().build().map_err(ServeError::Runtime)?;
    runtime.block_on(tasks::named(Task::Main, serve(settings, started)))
}

/// Time limit for flushing the audit log and the traces before the node stops.
const WRITTEN_WITHIN: Duration = Duration::from_secs(5);

/// Tasks that a busy thread runs before it polls its sockets. With Tokio's default of 61, a received request waits for
/// 61 steps of other tasks' long work.
const TASKS_PER_LOOK_AT_SOCKETS: u32 = 16;

/// A core is left to the journal's thread, which every acknowledgement waits for. On two cores, one client thread
/// instead of two acknowledges a single record in 127-146 us instead of 150-156, and handles a third more small
/// requests (`cargo xtask measure produce`): with two threads, each step of a record is a wake-up.
fn threads_default() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).max(1))
}

/// The allocator requests huge pages, of which an idle node would fill only a part: they doubled its memory (63 MB
/// instead of 40) without a measurable gain.
fn use_small_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "huge pages stay on");
    }
}

async fn serve(settings: Settings, started: Instant) -> Result<(), ServeError> {
    let world = world::injected::machine().map_err(ServeError::Injection)?;
    starting::check(&settings.data)?;
    // The ports first: a second instance should fail on them, not on the data directory's lock.
    let mut listeners = Listeners::bind(world.net, &settings).await.map_err(ServeError::Listen)?;
    starting::check_unused(&settings.data)?;
    let certificate = settings.tls.as_ref();
    let certificate =
        certificate.map(|tls| TlsFiles::open(tls, Arc::clone(&world.clock))).transpose()?;
    let mut signals = Signals::new().map_err(ServeError::Signals)?;
    let (failure, connections) = (Failure::new(), Connections::default());
    // From here on operators can query the progress of the start.
    let tls = certificate.as_ref().map(TlsFiles::tls);
    let front = FrontEnd::new(
        http_options(&settings, connections.clone()),
        failure.clone(),
        Arc::clone(&world.entropy),
    );
    let http = listeners.listen_http(tls).map_err(ServeError::Listen)?;
    let serving_http = (!http.is_empty()).then(|| {
        let serving = gateway_http::serve(http, front.clone());
        tasks::vital(Task::HttpListener, serving, &failure)
    });
    let (spans, feed, events) = match settings.traces.clone().map(Spans::new) {
        Some((spans, feed, events)) => (Some(spans), Some(feed), Some(events)),
        None => (None, None, None),
    };
    let (cluster, broker) = {
        let mut opening = Box::pin(async {
            let cluster = match &settings.cluster {
                Some(member) => {
                    Some(join(&world, &settings, member, &connections, &failure).await?)
                }
                None => None,
            };
            front.explain(waits_for(cluster.as_ref()));
            let mut options = broker_options(&settings, cluster.clone(), &failure);
            options.feed = feed;
            options.levels = levels::program_levels().map_err(ServeError::Injection)?;
            let node = options.node;
            let opening = Broker::open(world.clone(), &settings.data, options);
            // A removed node would wait forever for a catalog.
            let broker = tokio::select! {
                biased;
                opened = opening => opened?,
                why = excluded(cluster.as_deref(), node) => {
                    failure.expect_ends();
                    return Err(why);
                }
            };
            // Until then each request would wait for it: clients are refused instead, and connect to another node.
            // Without a majority the node serves what it can.
            if let Err(error) = broker.catalog_is_current().await {
                tracing::debug!(%error, "this node's copy of the catalog may be behind");
            }
            Ok::<_, ServeError>((cluster, broker))
        });
        tokio::select! {
            biased;
            opened = &mut opening => opened?,
            () = signals.stop_requested() => {
                // Open parts end with this future, which is no failure.
                failure.expect_ends();
                return Ok(());
            }
            reason = failure.reported() => return Err(ServeError::Failed(reason)),
        }
    };
    let endpoints = listeners.bound.endpoints(&settings);
    let token =
        operator_token::of(&settings.data, broker.entropy()).map_err(ServeError::OperatorToken)?;
    let nodes = match &cluster {
        Some(cluster) => Nodes::join(&broker, cluster, endpoints, Some(&token)),
        None => Nodes::alone(broker.node(), endpoints).with_operator_token(&token),
    };
    configure(&broker, &settings.kafka_configs).await?;
    let (topology, users) = declared(&broker, &settings).await?;
    let (security, bound) = (&settings.security, &listeners.bound);
    let logins = security.logins(bound, users.has_any(), cluster.is_some()).and_then(|kafka| {
        Ok((kafka, security.http_logins(bound, users.has_any(), cluster.is_some())?))
    });
    let (kafka_login, http_login) = logins.inspect_err(|_| failure.expect_ends())?;
    users.set_login_ports(log_ins::ports(&settings, bound, &kafka_login, &http_login));
    log_ins::log_requirements(&settings, &users);
    instruct(&users, &settings);
    let tokens = settings.tokens.clone().map(|it| Tokens::new(it, Arc::clone(&world.clock)));
    if let Some(tokens) = &tokens {
        users.trust_tokens(tokens.clone());
    }
    let audit = match settings.security.audit {
        AuditMode::Off => Audit::default(),
        mode => Audit::open(&broker, mode == AuditMode::Strict),
    };
    users.set_audit(audit.clone());
    let quotas = Quotas::open(broker.clone())?;
    connections.set_gate(Arc::new(Gate(quotas.clone())));
    let host = overview::Host {
        version: env!("CARGO_PKG_VERSION"),
        started,
        connections: connections.clone(),
        process: process::at_a_glance,
    };
    let families: NamedFamilies = vec![
        (operations::amqp::FAMILY, Arc::new(Administration::new(topology.clone(), users.clone()))),
        (operations::cluster::FAMILY, Arc::new(nodes.administration(&broker))),
        (operations::overview::FAMILY, Arc::new(Overviews::new(broker.clone(), host))),
    ];
    let groups = Groups::start(&broker);
    let admin = Admin::new(broker.clone(), groups.clone(), connections.clone(), families);
    let (stop, stopping) = watch::channel(false);
    let advertised = nodes.own().endpoints.kafka.clone();
    let options = GatewayOptions {
        users: Some(users.clone()),
        login: kafka_login,
        quotas: quotas.clone(),
        ..gateway_options(&settings, nodes.clone(), groups, admin.clone())
    };
    front.open(gateway_http::Node {
        admin,
        nodes,
        broker: broker.clone(),
        topology: Some(topology.clone()),
        listening: listeners.bound.listening(),
        users: Some(users.clone()),
        quotas: quotas.clone(),
        login: http_login,
        version: env!("CARGO_PKG_VERSION"),
        tls: tls.cloned(),
        process: process::seen,
        spans: spans.as_ref().map(|spans| spans.counts().clone()),
    });
    let (log_ins, bound) = (users.login_line(), listeners.bound);
    let (kafka, amqp) = listeners.listen(tls).map_err(|taken| {
        failure.expect_ends();
        ServeError::Listen(taken)
    })?;
    announce(&settings, &bound, &advertised, (&broker, &log_ins), started);
    let serving = gateway_kafka::serve(kafka, broker.clone(), options, stopping.clone());
    let mut gateways = vec![broker.vital(Task::KafkaListener, serving)];
    if let Some(ports) = amqp {
        let mut options = amqp_options(&settings, connections);
        options.quotas = quotas;
        let served = broker.clone();
        let serving =
            gateway_amqp::serve(ports, served, topology, users, options, stopping.clone());
        gateways.push(broker.vital(Task::AmqpListener, serving));
    }
    if let Some((spans, events)) = spans.zip(events) {
        gateways.extend(spans.follow(&broker, events, &world, stopping.clone()));
    }
    if let Some(tokens) = tokens {
        let following = tokens.follow(world.clone(), stopping.clone());
        gateways.push(broker.vital(Task::TokenKeys, following));
    }
    if let Some(files) = certificate {
        let hangup = signal(SignalKind::hangup()).map_err(ServeError::Signals)?;
        let following = files.follow(hangup, world.workers.clone(), stopping);
        gateways.push(broker.vital(Task::Certificates, following));
    }
    let serving = async {
        // A member of a cluster serves what it can meanwhile.
        starting::ready(&broker, &settings).await?;
        std::future::pending::<Result<(), ServeError>>().await
    };
    let outcome = tokio::select! {
        biased;
        () = signals.stop_requested() => Ok(()),
        reason = broker.failed() => Err(ServeError::Failed(reason)),
        why = excluded(cluster.as_deref(), broker.node()) => Err(why),
        failed = serving => failed,
    };
    broker.expect_ends();
    front.drain();
    broker.hand_over().await;
    stop.send_replace(true);
    for gateway in gateways {
        // Ends after its sessions. If it panics, the process ends.
        let _ = gateway.await;
    }
    tokio::join!(audit.flush(WRITTEN_WITHIN), broker.flush_traces(WRITTEN_WITHIN));
    // Last, so that probes see the shutdown meanwhile.
    front.stop();
    if let Some(serving) = serving_http {
        let _ = serving.await;
    }
    broker.shutdown().await;
    if let Some(cluster) = cluster {
        cluster.close().await;
    }
    if outcome.is_ok() {
        tracing::info!("stopped");
    }
    outcome
}

/// AMQP's topology and users.
async fn declared(broker: &Broker, settings: &Settings) -> Result<(Topology, Users), ServeError> {
    let topology = Topology::open(broker.clone()).await?;
    let router = gateway_amqp::dead_letter::Router::new(&topology);
    broker.set_dead_letter_router(gateway_amqp::dead_letter::SCHEME, Arc::new(router));
    let known = topology.clone();
    let known = move |name: &str| known.has_vhost(name);
    let users = Users::open(broker.clone(), settings.users(), known).await?;
    Ok((topology, users))
}

/// Applies the settings to the users, before the first login.
fn instruct(users: &Users, settings: &Settings) {
    if settings.security.apart {
        users.keep_protocols_apart();
    }
    users.name_super_users(settings.security.super_users.clone());
    if let Some(mapping) = settings.tls.as_ref().and_then(|tls| tls.principal.clone()) {
        users.trust_certificates(mapping);
    }
}

/// Sets node configurations from the settings at start, as a client could. They persist, and a later change holds until
/// the next start.
async fn configure(broker: &Broker, configs: &[(String, String)]) -> Result<(), ServeError> {
    let set = broker.catalog().node_config().overrides.clone();
    let mut config = set.clone();
    config.extend(configs.iter().cloned());
    if config == set {
        return Ok(());
    }
    broker.set_node_config(config).await.map_err(ServeError::Config)
}

/// Joins a cluster; a new node retries until it has received its number.
async fn join(
    world: &World,
    settings: &Settings,
    member: &ClusterSettings,
    connections: &Connections,
    failure: &Failure,
) -> Result<Arc<cluster::Node>, ServeError> {
    let options = cluster::NodeOptions {
        listen: member.listen,
        address: member.address.clone(),
        seeds: member.seeds.clone(),
        join: member.join.clone(),
        security: security(member)?,
        levels: levels::program_levels().map_err(ServeError::Injection)?,
    };
    let started =
        cluster::Node::start(world, &settings.data, options, connections.clone(), failure).await?;
    Ok(Arc::new(started))
}

/// Resolves once the cluster has removed the node, or has reached a level that this program does not support.
async fn excluded(cluster: Option<&cluster::Node>, node: u32) -> ServeError {
    let Some(cluster) = cluster else { return std::future::pending().await };
    tokio::select! {
        biased;
        () = cluster.removed() => ServeError::Removed { node },
        refusal = cluster.outdated() => ServeError::Outdated(refusal),
    }
}

fn security(member: &ClusterSettings) -> Result<Security, ServeError> {
    let Some(path) = &member.secret else {
        return Ok(Security::Plain { beyond_loopback: member.plaintext });
    };
    let unusable = |reason: String| ServeError::PeerSecret { path: path.clone(), reason };
    let secret = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
    let tls = Tls::from_secret(secret.trim_ascii()).map_err(|error| unusable(error.to_string()))?;
    Ok(Security::Tls(tls))
}

/// Shards of a new data directory. A shard has a journal thread, a sequencer and a driver, each of which may keep a
/// core busy, besides the client threads: with fewer cores they would compete. On two cores one shard is the fastest;
/// machines with more have not been measured (docs/adr/0010-how-many-shards-a-new-node-has.md).
fn shards_new() -> u32 {
    const CORES_A_SHARD: usize = 4;
    const SHARDS_MAX: usize = 8;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / CORES_A_SHARD).clamp(1, SHARDS_MAX) as u32
}

fn broker_options(
    settings: &Settings,
    cluster: Option<Arc<cluster::Node>>,
    failure: &Failure,
) -> BrokerOptions {
    // Kafka clients need node numbers of 32 bits.
    let member = cluster.as_ref().and_then(|node| u32::try_from(node.identity().at.node.0).ok());
    BrokerOptions {
        node: member.unwrap_or(settings.node),
        cluster,
        failure: Some(failure.clone()),
        shards: settings.shards,
        shards_new: shards_new(),
        scrub_interval: settings.scrub_interval,
        history_bytes: settings.history_bytes,
        journal: journal::Options {
            segment_bytes: settings.segment_bytes,
            disk_reserve_bytes: settings.disk_reserve_bytes,
            ..journal::Options::default()
        },
        ..BrokerOptions::default()
    }
}

fn gateway_options(
    settings: &Settings,
    nodes: Nodes,
    groups: Groups,
    admin: Admin,
) -> GatewayOptions {
    GatewayOptions {
        auto_create_topics: settings.auto_create_topics,
        partitions_default: settings.default_partitions,
        sessions_max: settings.connections_max,
        ..GatewayOptions::new(nodes, groups, admin)
    }
}

fn amqp_options(settings: &Settings, connections: Connections) -> gateway_amqp::GatewayOptions {
    gateway_amqp::GatewayOptions {
        connections,
        sessions_max: settings.connections_max,
        anonymous_user: settings.amqp_anonymous.clone(),
        plaintext_passwords: settings.security.plaintext,
        ..gateway_amqp::GatewayOptions::default()
    }
}

fn http_options(settings: &Settings, connections: Connections) -> gateway_http::GatewayOptions {
    gateway_http::GatewayOptions {
        connections,
        sessions_max: settings.connections_max,
        hosts: settings.http.hosts.clone(),
        ..gateway_http::GatewayOptions::default()
    }
}

fn announce(
    settings: &Settings,
    bound: &Bound,
    advertised: &Endpoint,
    (broker, log_ins): (&Broker, &str),
    started: Instant,
) {
    let (topics, partitions) = {
        let catalog = broker.catalog();
        (catalog.topic_count(), catalog.partition_count())
    };
    say(format_args!(
        "postroad {}: data {}, {}, {log_ins}, durability fsync, \
         {} with {}, started in {} ms",
        env!("CARGO_PKG_VERSION"),
        settings.data.display(),
        bound.summary(advertised),
        counted(topics as u64, "topic"),
        counted(partitions, "partition"),
        started.elapsed().as_millis(),
    ));
}
