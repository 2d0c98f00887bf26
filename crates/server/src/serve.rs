//! The broker and its gateways, wired together; from start to an orderly end.

use std::fmt::Display;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use broker::{Broker, BrokerOptions};
use gateway_kafka::GatewayOptions;
use journal::disk::RealDisk;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::logging;
use crate::settings::{ServeFlags, Settings, SettingsError};

#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("{0}")]
    Logging(String),
    #[error("the runtime could not start: {0}")]
    Runtime(std::io::Error),
    #[error("{0}")]
    Open(#[from] broker::OpenError),
    #[error(
        "cannot listen on {address}: {source}; is something else using it? Choose another with --kafka"
    )]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("cannot wait for signals: {0}")]
    Signals(std::io::Error),
    #[error("the Kafka gateway ended by itself: {0}; please report this")]
    Gateway(String),
    #[error("stopped: {0}; what was acknowledged is safe on disk, start again to recover it")]
    Failed(String),
}

pub(crate) fn run(flags: ServeFlags) -> Result<(), ServeError> {
    let started = Instant::now();
    let settings = Settings::resolve(flags)?;
    logging::start(&settings.log, settings.log_format).map_err(ServeError::Logging)?;
    use_small_pages();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(settings.threads.unwrap_or_else(threads_default));
    let runtime = runtime.enable_all().build().map_err(ServeError::Runtime)?;
    runtime.block_on(serve(settings, started))
}

/// A core is left to the journal's thread, which every acknowledgement waits for. On two cores,
/// one thread for clients instead of two answers a lone record in 127-146 us instead of 150-156
/// and takes a third more small requests (`cargo xtask measure produce`): between threads, each
/// step of a record on its way is a wake-up.
fn threads_default() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).max(1))
}

/// The allocator asks for huge pages, and an idle node would fill a corner of each: they doubled
/// its memory (63 MB instead of 40) and gained nothing that could be measured.
fn use_small_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "huge pages stay on");
    }
}

async fn serve(settings: Settings, started: Instant) -> Result<(), ServeError> {
    // The port first: a second instance should fail on it, not on the data directory's lock.
    let listener = TcpListener::bind(settings.kafka)
        .await
        .map_err(|source| ServeError::Listen { address: settings.kafka, source })?;
    let bound = listener.local_addr().map_err(ServeError::Runtime)?;
    let broker =
        Broker::open(Arc::new(RealDisk), &settings.data, broker_options(&settings)).await?;
    let options = gateway_options(&settings, bound);
    announce(&settings, bound, &options, &broker, started);

    let (stop, stopping) = watch::channel(false);
    let mut gateway =
        tokio::spawn(gateway_kafka::serve(listener, broker.clone(), options, stopping));
    say("ready");
    let outcome = tokio::select! {
        outcome = until_told_to_stop(&broker) => {
            stop.send_replace(true);
            if let Err(error) = gateway.await {
                tracing::error!(%error, "the Kafka gateway did not end in order");
            }
            outcome
        }
        ended = &mut gateway => Err(ServeError::Gateway(match ended {
            Ok(()) => "it returned".into(),
            Err(error) => error.to_string(),
        })),
    };
    broker.shutdown().await;
    if outcome.is_ok() {
        tracing::info!("stopped");
    }
    outcome
}

/// A line on standard output. Whoever started the broker may have stopped reading it, which is no
/// reason to stop serving.
fn say(line: impl Display) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

/// Ends on SIGTERM and SIGINT, and when the storage fails for good.
async fn until_told_to_stop(broker: &Broker) -> Result<(), ServeError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Signals)?;
    tokio::select! {
        _ = terminate.recv() => tracing::info!("told to stop; finishing what is under way"),
        _ = interrupt.recv() => tracing::info!("interrupted; finishing what is under way"),
        reason = broker.failed() => return Err(ServeError::Failed(reason)),
    }
    Ok(())
}

fn broker_options(settings: &Settings) -> BrokerOptions {
    BrokerOptions {
        node: settings.node,
        journal: journal::Options {
            segment_bytes: settings.segment_bytes,
            disk_reserve_bytes: settings.disk_reserve_bytes,
            ..journal::Options::default()
        },
        ..BrokerOptions::default()
    }
}

fn gateway_options(settings: &Settings, bound: SocketAddr) -> GatewayOptions {
    let (host, port) =
        settings.advertise_kafka.clone().unwrap_or_else(|| (reachable_host(bound), bound.port()));
    GatewayOptions {
        auto_create_topics: settings.auto_create_topics,
        partitions_default: settings.default_partitions,
        sessions_max: settings.connections_max,
        ..GatewayOptions::new(host, port)
    }
}

/// Nobody can connect to "all addresses": a client on this machine is told loopback.
fn reachable_host(bound: SocketAddr) -> String {
    if bound.ip().is_unspecified() {
        tracing::warn!(
            "listening on all addresses; clients elsewhere need --advertise-kafka HOST:PORT"
        );
        return "127.0.0.1".into();
    }
    bound.ip().to_string()
}

fn announce(
    settings: &Settings,
    bound: SocketAddr,
    options: &GatewayOptions,
    broker: &Broker,
    started: Instant,
) {
    let (topics, partitions) = broker.read(|state| (state.topic_count(), state.partition_count()));
    say(format_args!(
        "postroad {}: data {}, kafka {bound} (advertised {}:{}), durability fsync, \
         {topics} topics with {partitions} partitions, started in {} ms",
        env!("CARGO_PKG_VERSION"),
        settings.data.display(),
        options.advertised_host,
        options.advertised_port,
        started.elapsed().as_millis(),
    ));
}
