//! Transactions of Kafka's producers over three shards.

mod histories;
mod rules;
mod shards;
