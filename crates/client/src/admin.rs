//! Topics: creating, changing and deleting them; their configuration and their size.

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResult;
use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::describe_log_dirs_response::DescribeLogDirsTopic;
use kafka_protocol::messages::{
    ApiKey, CreatePartitionsRequest, DeleteTopicsRequest, DescribeConfigsRequest,
    DescribeLogDirsRequest,
};
use kafka_protocol::protocol::StrBytes;

use crate::cluster::{Client, Metadata, TopicPartition, patiently};
use crate::error::{ClientError, accepted};
use crate::offsets::PARTITIONS_PER_REQUEST;
pub use crate::requests::ConfigChange;
use crate::requests::{self, CHANGE_MS, ConfigResource, topic_name};

/// A value of a topic's configuration, and its source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigValue {
    pub name: String,
    /// `None` for a secret value.
    pub value: Option<String>,
    pub source: ConfigSource,
}

/// The source of a value, the most specific first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigSource {
    Topic,
    Broker,
    Default,
}

impl Client {
    /// Creates a topic. Returns its number of partitions, if the broker reports it. Without `partitions`, and with a
    /// `replication` of -1, the broker's default applies.
    pub async fn create_topic(
        &self,
        name: &str,
        partitions: Option<i32>,
        replication: i16,
        configs: &[(String, String)],
    ) -> Result<Option<i32>, ClientError> {
        let configs = configs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let request = requests::create_topic(name, partitions.unwrap_or(-1), replication, configs);
        patiently(|| async {
            let mut made = None;
            // 4: partitions may be left to the broker. 5: it reports their number.
            for topic in self.any().await.call(&request, 4..=6).await?.topics {
                let message = topic.error_message.as_deref();
                let what = || format!("cannot create topic {name}");
                accepted(topic.error_code, message, what)?;
                made = (topic.num_partitions > 0).then_some(topic.num_partitions);
            }
            Ok(made)
        })
        .await
    }

    /// Deletes a topic with all its records.
    pub async fn delete_topic(&self, name: &str) -> Result<(), ClientError> {
        let request = DeleteTopicsRequest::default()
            .with_topic_names(vec![topic_name(name)])
            .with_timeout_ms(CHANGE_MS);
        patiently(|| async {
            for topic in self.any().await.call(&request, 1..=5).await?.responses {
                let message = topic.error_message.as_deref();
                let what = || format!("cannot delete topic {name}");
                accepted(topic.error_code, message, what)?;
            }
            Ok(())
        })
        .await
    }

    /// Grows a topic to `total` partitions.
    pub async fn create_partitions(&self, name: &str, total: i32) -> Result<(), ClientError> {
        let topic = CreatePartitionsTopic::default()
            .with_name(topic_name(name))
            .with_count(total)
            .with_assignments(None);
        let request =
            CreatePartitionsRequest::default().with_topics(vec![topic]).with_timeout_ms(CHANGE_MS);
        patiently(|| async {
            for topic in self.any().await.call(&request, 0..=3).await?.results {
                let message = topic.error_message.as_deref();
                let what = || format!("cannot add partitions to topic {name}");
                accepted(topic.error_code, message, what)?;
            }
            Ok(())
        })
        .await
    }

    /// Changes values of a topic's configuration; others stay (KIP-339).
    pub async fn alter_topic_configs(
        &self,
        name: &str,
        changes: &[ConfigChange],
    ) -> Result<(), ClientError> {
        let request = requests::alter_configs(ConfigResource::Topic, name, changes);
        patiently(|| async {
            for resource in self.any().await.call(&request, 0..=1).await?.responses {
                let message = resource.error_message.as_deref();
                let what = || format!("cannot alter topic {name}");
                accepted(resource.error_code, message, what)?;
            }
            Ok(())
        })
        .await
    }

    /// The whole configuration of each topic, sorted by name.
    pub async fn topic_configs(
        &self,
        topics: &[&str],
    ) -> Result<BTreeMap<String, Vec<ConfigValue>>, ClientError> {
        let resources = topics.iter().map(|name| {
            DescribeConfigsResource::default()
                .with_resource_type(ConfigResource::Topic as i8)
                .with_resource_name(StrBytes::from_string((*name).to_owned()))
                .with_configuration_keys(None)
        });
        let request = DescribeConfigsRequest::default().with_resources(resources.collect());
        patiently(|| async {
            let mut configs = BTreeMap::new();
            for resource in self.any().await.call(&request, 1..=4).await?.results {
                let message = resource.error_message.as_deref();
                let name = resource.resource_name.to_string();
                let what = || format!("cannot describe topic {name}");
                accepted(resource.error_code, message, what)?;
                configs.insert(name, config_values(resource));
            }
            Ok(configs)
        })
        .await
    }

    /// Bytes of each partition at its leader. Empty if the broker does not report them.
    pub async fn partition_bytes(
        &self,
        metadata: &Metadata,
        partitions: &[TopicPartition],
    ) -> Result<BTreeMap<TopicPartition, u64>, ClientError> {
        let mut bytes = BTreeMap::new();
        let wanted = partitions.iter().map(|partition| (partition.clone(), ()));
        for (leader, partitions) in self.by_leader(metadata, wanted).await? {
            if !leader.offers(ApiKey::DescribeLogDirs, 1..=4) {
                continue;
            }
            for partitions in partitions.chunks(PARTITIONS_PER_REQUEST) {
                for dir in leader.call(&log_dirs(partitions), 1..=4).await?.results {
                    accepted(dir.error_code, None, || "cannot ask for sizes".into())?;
                    take_sizes(dir.topics, &mut bytes);
                }
            }
        }
        Ok(bytes)
    }
}

fn take_sizes(topics: Vec<DescribeLogDirsTopic>, bytes: &mut BTreeMap<TopicPartition, u64>) {
    for topic in topics {
        let name: Arc<str> = topic.name.as_str().into();
        for partition in topic.partitions {
            let place = TopicPartition::new(name.clone(), partition.partition_index);
            bytes.insert(place, u64::try_from(partition.partition_size).unwrap_or(0));
        }
    }
}

fn log_dirs(partitions: &[(TopicPartition, ())]) -> DescribeLogDirsRequest {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for (partition, ()) in partitions {
        topics.entry(&partition.topic).or_default().push(partition.partition);
    }
    let topics = topics.into_iter().map(|(topic, partitions)| {
        DescribableLogDirTopic::default().with_topic(topic_name(topic)).with_partitions(partitions)
    });
    DescribeLogDirsRequest::default().with_topics(Some(topics.collect()))
}

fn config_values(resource: DescribeConfigsResult) -> Vec<ConfigValue> {
    let mut values: Vec<_> = resource
        .configs
        .into_iter()
        .map(|config| ConfigValue {
            name: config.name.to_string(),
            value: config.value.map(|value| value.to_string()),
            // Numbers of `DescribeConfigsResponse.ConfigSource`.
            source: match config.config_source {
                1 => ConfigSource::Topic,
                2..=4 => ConfigSource::Broker,
                _ => ConfigSource::Default,
            },
        })
        .collect();
    values.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    values
}
