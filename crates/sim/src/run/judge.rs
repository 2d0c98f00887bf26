//! Checks at the start of every life, and at the end of a run: the clients' replies are compared with the node's
//! state.

use base::PartitionId;
use broker::ShardStatus;

use super::Run;
use crate::profile::LifeEnd;
use crate::reading;
use crate::verdict::Invariant;
use crate::workload::{Client, jobs, kafka, keys, log, offsets, share, topics};

impl Run {
    pub(super) async fn judge(&mut self, client: Client) -> LifeEnd {
        let looked = async {
            self.check_start(&client).await?;
            jobs::check(&client, &self.rules).await?;
            share::check(&client, &self.shared).await?;
            let found = keys::found(&client.broker).await?;
            self.knowledge.lock().keys.check(&found, &self.verdict);
            Ok::<_, String>(())
        };
        if let Err(why) = looked.await {
            self.verdict.violated(Invariant::Durable, why);
        }
        client.broker.shutdown().await;
        LifeEnd::Stop
    }

    /// Makes the checks at the start of a life.
    pub(super) async fn check_start(&self, client: &Client) -> Result<(), String> {
        let broker = &client.broker;
        let committed = offsets::committed(broker).await;
        {
            let mut known = self.knowledge.lock();
            for ShardStatus { shard, term, .. } in broker.shard_statuses() {
                let before = known.terms.insert(shard, term).unwrap_or(0);
                if term <= before {
                    let what = format!("term {term} of shard {shard} follows {before}");
                    self.verdict.violated(Invariant::Terms, what);
                }
            }
            known.offsets.check(committed, &self.verdict);
            let left = topics::left(broker, known.topics.gone());
            known.topics.check(&topics::found(broker), &left, &self.verdict);
        }
        for partition in kafka::partitions(broker) {
            let found = reading::sent_in(broker, partition).await?;
            if let Err(violation) = self.knowledge.lock().kafka.check(partition.index, &found) {
                self.verdict.violated(Invariant::from(&violation), violation.to_string());
            }
        }
        let topic = broker.catalog().topic_id(log::TOPIC);
        let Some(topic) = topic else {
            return match self.knowledge.lock().log.acknowledged() {
                0 => Ok(()),
                _ => Err("the topic of the log is gone".to_owned()),
            };
        };
        for partition in 0..log::PARTITIONS {
            let found = reading::sent_in(broker, PartitionId::new(topic, partition)).await?;
            if let Err(violation) = self.knowledge.lock().log.check(partition, &found) {
                self.verdict.violated(Invariant::from(&violation), violation.to_string());
            }
        }
        Ok(())
    }
}
