//! The supported systems and their drivers.

use std::sync::Arc;

use driver::{Driver, Failure, Target};

#[cfg(feature = "amqp")]
use crate::amqp;
#[cfg(feature = "amqp1")]
use crate::amqp1;
#[cfg(feature = "kurrentdb")]
use crate::kurrentdb;
use crate::memory;
#[cfg(feature = "mongodb")]
use crate::mongodb;
#[cfg(feature = "mqtt")]
use crate::mqtt;
#[cfg(feature = "nats")]
use crate::nats;
#[cfg(feature = "postgres")]
use crate::postgres;
#[cfg(feature = "pulsar")]
use crate::pulsar;
#[cfg(feature = "queen")]
use crate::queen;
#[cfg(feature = "redis")]
use crate::redis;
#[cfg(feature = "rocketmq")]
use crate::rocketmq;
#[cfg(feature = "sqs")]
use crate::sqs;
#[cfg(feature = "zeromq")]
use crate::zeromq;
#[cfg(feature = "kafka")]
use crate::{kafka, kafka_share, kmq};

/// One system of the support table.
#[derive(Clone, Copy, Debug)]
pub struct System {
    /// Name on the command line.
    pub name: &'static str,
    /// Display name.
    pub title: &'static str,
    pub support: Support,
}

/// The suite's support of a system.
#[derive(Clone, Copy, Debug)]
pub enum Support {
    Driver(Connect),
    /// There is a driver that has not been run on a server of this system yet.
    Untried {
        connect: Connect,
        why: &'static str,
    },
    /// There is a driver, behind a feature of this crate that this build omits.
    LeftOut {
        feature: &'static str,
    },
    None {
        why: &'static str,
    },
}

/// Reads the settings. The first call on the driver shows whether the server is up.
pub type Connect = fn(&Target) -> Result<Arc<dyn Driver>, Failure>;

macro_rules! driver_if {
    ($feature:literal, $connect:expr) => {
        support_if!($feature, Support::Driver($connect))
    };
    ($feature:literal, $connect:expr, untried: $why:literal) => {
        support_if!($feature, Support::Untried { connect: $connect, why: $why })
    };
}

macro_rules! support_if {
    ($feature:literal, $support:expr) => {{
        #[cfg(feature = $feature)]
        let support = $support;
        #[cfg(not(feature = $feature))]
        let support = Support::LeftOut { feature: $feature };
        support
    }};
}

const SYSTEMS: &[System] = &[
    System {
        name: "postroad-kafka",
        title: "Postroad by Kafka's protocol, consumer groups",
        support: driver_if!("kafka", kafka::connect_postroad),
    },
    System {
        name: "postroad-share",
        title: "Postroad by Kafka's protocol, share groups",
        support: driver_if!("kafka", kafka_share::connect_postroad),
    },
    System {
        name: "postroad-kmq",
        title: "KMQ on Postroad by Kafka's protocol",
        support: driver_if!("kafka", kmq::connect_postroad),
    },
    System {
        name: "kafka",
        title: "Apache Kafka, consumer groups",
        support: driver_if!("kafka", kafka::connect_kafka),
    },
    System {
        name: "kafka-share",
        title: "Apache Kafka, share groups",
        support: driver_if!("kafka", kafka_share::connect_kafka),
    },
    System {
        name: "kmq",
        title: "KMQ on Apache Kafka",
        support: driver_if!("kafka", kmq::connect_kafka),
    },
    System {
        name: "redpanda",
        title: "Redpanda, consumer groups",
        support: driver_if!(
            "kafka",
            kafka::connect_redpanda,
            untried: "no server is in the package registries"
        ),
    },
    System {
        name: "postroad-amqp",
        title: "Postroad by AMQP 0-9-1",
        support: driver_if!("amqp", amqp::connect_postroad),
    },
    System {
        name: "rabbitmq-classic",
        title: "RabbitMQ, classic queues",
        support: driver_if!("amqp", amqp::connect_classic),
    },
    System {
        name: "rabbitmq-quorum",
        title: "RabbitMQ, quorum queues",
        support: driver_if!("amqp", amqp::connect_quorum),
    },
    System {
        name: "rabbitmq-stream",
        title: "RabbitMQ, streams by AMQP 0-9-1",
        support: driver_if!("amqp", amqp::connect_stream),
    },
    System {
        name: "lavinmq",
        title: "LavinMQ",
        support: driver_if!(
            "amqp",
            amqp::connect_lavin,
            untried: "no server is in the package registries"
        ),
    },
    System {
        name: "nats-jetstream",
        title: "NATS JetStream",
        support: driver_if!("nats", nats::connect_jetstream),
    },
    System {
        name: "nats-core",
        title: "NATS core, no storage",
        support: driver_if!("nats", nats::connect_core),
    },
    System { name: "redis", title: "Redis Streams", support: driver_if!("redis", redis::connect) },
    System {
        name: "postgres",
        title: "PostgreSQL, SKIP LOCKED",
        support: driver_if!("postgres", postgres::connect),
    },
    System {
        name: "sqs",
        title: "Amazon SQS and what speaks like it (ElasticMQ)",
        support: driver_if!("sqs", sqs::connect),
    },
    System {
        name: "queen",
        title: "Queen MQ",
        support: driver_if!(
            "queen",
            queen::connect,
            untried: "no server is in the package registries; tested on one that was written after \
                      its source"
        ),
    },
    System {
        name: "mongodb",
        title: "MongoDB, findOneAndUpdate",
        support: driver_if!(
            "mongodb",
            mongodb::connect,
            untried: "no server is in the package registries; tested on one that speaks its wire \
                      protocol"
        ),
    },
    System {
        name: "artemis",
        title: "ActiveMQ Artemis by AMQP 1.0",
        support: driver_if!("amqp1", amqp1::connect_artemis),
    },
    System {
        name: "activemq",
        title: "ActiveMQ Classic by AMQP 1.0",
        support: driver_if!("amqp1", amqp1::connect_classic),
    },
    System {
        name: "mqtt",
        title: "MQTT 3.1.1 at QoS 1 (Mosquitto)",
        support: driver_if!("mqtt", mqtt::connect),
    },
    System {
        name: "pulsar",
        title: "Apache Pulsar",
        support: driver_if!("pulsar", pulsar::connect),
    },
    System {
        name: "rocketmq",
        title: "Apache RocketMQ",
        support: driver_if!("rocketmq", rocketmq::connect),
    },
    System {
        name: "kurrentdb",
        title: "KurrentDB, persistent subscriptions",
        support: driver_if!(
            "kurrentdb",
            kurrentdb::connect,
            untried: "no server is in the package registries"
        ),
    },
    System {
        name: "zeromq",
        title: "ZeroMQ, push and pull",
        support: driver_if!("zeromq", zeromq::connect),
    },
    System {
        name: "blazingmq",
        title: "BlazingMQ",
        support: Support::None {
            why: "its clients are C++, Java and Python libraries over a protocol of its own: there is no \
                  Rust client, and no server is in the package registries",
        },
    },
    System {
        name: memory::SYSTEM,
        title: memory::TITLE,
        support: Support::Driver(memory::connect),
    },
];

/// Systems whose address is where the suite's own receivers bind, so that it need not be reachable.
pub(crate) const SERVERLESS: [&str; 1] = ["zeromq"];

/// All systems, in the order of the support table.
pub fn all() -> &'static [System] {
    SYSTEMS
}

/// The driver of the system that the target names.
pub fn connect(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    let unknown = |what: String| Failure::Setting { name: "system".into(), why: what };
    let Some(system) = all().iter().find(|system| system.name == target.system) else {
        let names: Vec<_> = all().iter().map(|system| system.name).collect();
        return Err(unknown(format!(
            "{:?} is not known; there are {}",
            target.system,
            names.join(", ")
        )));
    };
    match system.support {
        Support::Driver(connect) | Support::Untried { connect, .. } => connect(target),
        Support::LeftOut { feature } => Err(unknown(format!(
            "this build has no driver of {}: build it with --features {feature}",
            system.name
        ))),
        Support::None { why } => Err(unknown(format!("{} has no driver: {why}", system.name))),
    }
}

#[cfg(test)]
mod tests {
    use driver::Topology;

    use super::*;

    #[test]
    fn unknown_system_error_lists_the_known_ones() {
        let refused = connect(&Target::of("rabitmq")).expect_err("is misspelt").to_string();
        assert!(refused.contains("rabitmq") && refused.contains("memory"), "{refused}");
    }

    /// Systems, with settings that results show under the users' names.
    const SAID: &[(&str, &[&str])] = &[
        ("kafka", &["window"]),
        ("kafka-share", &["window"]),
        ("kmq", &["window", "max-redeliveries"]),
        ("rabbitmq-quorum", &["window", "prefetch", "queue.x-max-length"]),
        ("rabbitmq-stream", &["window", "prefetch"]),
        ("lavinmq", &["window", "prefetch"]),
        ("nats-jetstream", &["window", "prefetch", "max-ack-pending"]),
        ("nats-core", &["window"]),
        ("redis", &["window", "batch"]),
        ("postgres", &["window", "batch", "poll-ms"]),
        ("sqs", &["window", "parallel", "group-batch", "poll-ms"]),
        ("queen", &["window", "batch", "partitions", "poll-ms"]),
        ("mongodb", &["window", "batch", "poll-ms"]),
        ("artemis", &["window", "prefetch"]),
        ("mqtt", &["window"]),
        ("pulsar", &["window", "prefetch", "batch", "linger-ms"]),
        ("rocketmq", &["window", "prefetch"]),
        ("kurrentdb", &["window", "batch", "prefetch"]),
        ("memory", &["window"]),
    ];

    #[test]
    fn every_driver_shows_its_client_settings() {
        for system in all() {
            let Ok(driver) = connect(&Target::of(system.name)) else { continue };
            let about = driver.about();
            let topology = Topology::new("said", about.styles[0], about.tiers[0]);
            assert!(!driver.settings(&topology).is_empty(), "{}", system.name);
        }
        let mut checked = 0;
        for (system, settings) in SAID {
            let mut target = Target::of(system);
            for name in *settings {
                target.settings.insert((*name).to_owned(), "7".to_owned());
            }
            let driver = match connect(&target) {
                Ok(driver) => driver,
                Err(Failure::Setting { name, .. }) if name == "system" => continue,
                Err(failure) => panic!("{system}: {failure}"),
            };
            let about = driver.about();
            let said = driver.settings(&Topology::new("said", about.styles[0], about.tiers[0]));
            for name in *settings {
                assert_eq!(said.get(*name).map(String::as_str), Some("7"), "{system}: {name}");
            }
            checked += 1;
        }
        assert!(checked > 0, "the one in memory is never left out");
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = all().iter().map(|system| system.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().len());
    }
}
