//! One file for each system: description, installation, and configuration at each tier.

mod activemq;
mod artemis;
mod elasticmq;
mod java;
mod kafka;
mod mosquitto;
mod nats;
mod postgres;
mod postroad;
mod pulsar;
mod rabbitmq;
mod redis;
mod rocketmq;

use crate::plan::System;

pub(crate) static ALL: &[&dyn System] = &[
    &postroad::Postroad,
    &kafka::Kafka,
    &rabbitmq::RabbitMq,
    &nats::Nats,
    &redis::Redis,
    &postgres::Postgres,
    &pulsar::Pulsar,
    &artemis::Artemis,
    &activemq::ActiveMq,
    &rocketmq::RocketMq,
    &mosquitto::Mosquitto,
    &elasticmq::ElasticMq,
];
