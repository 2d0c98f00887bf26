use super::*;

/// For each topic configuration: a valid value other than the default, and what it is refused for.
/// `None` where the default is all there is.
const TOPIC_VALUES: [(&str, Option<&str>, &[&str]); 36] = [
    ("cleanup.policy", Some("compact, delete"), &["", "none", "delete,", "Delete"]),
    ("retention.ms", Some("-1"), &["-2", "1.5", "", "x"]),
    ("retention.bytes", Some("1073741824"), &["", "1k", "9223372036854775808"]),
    ("segment.bytes", Some("1048576"), &["13", "2147483648", "-1"]),
    ("segment.ms", Some("60000"), &["0", "-1"]),
    ("delete.retention.ms", Some("0"), &["-1"]),
    ("min.cleanable.dirty.ratio", Some("0.01"), &["-0.1", "1.1", "NaN", "x"]),
    ("min.compaction.lag.ms", Some("1000"), &["-1"]),
    ("max.compaction.lag.ms", Some("1000"), &["0"]),
    ("max.message.bytes", Some("67108864"), &["-1", "67108865"]),
    ("message.timestamp.type", Some("LogAppendTime"), &["logappendtime", "NoTimestampType", ""]),
    ("message.timestamp.before.max.ms", Some("0"), &["-1"]),
    ("message.timestamp.after.max.ms", Some("0"), &["-1"]),
    ("compression.type", Some("zstd"), &["none", "ZSTD", ""]),
    ("compression.gzip.level", Some("9"), &["0", "10", "-2"]),
    ("compression.lz4.level", None, &["1", "17", "x"]),
    ("compression.zstd.level", Some("-131072"), &["23", "-131073"]),
    ("durability", Some("replicated"), &["memory", "Fsync", ""]),
    ("min.insync.replicas", Some("2"), &["0", "-1"]),
    ("flush.messages", Some("1"), &["0"]),
    ("flush.ms", Some("0"), &["-1"]),
    ("unclean.leader.election.enable", Some("TRUE"), &["yes", "1", ""]),
    ("preallocate", Some("true"), &["on"]),
    ("segment.index.bytes", None, &["4096"]),
    ("segment.jitter.ms", None, &["1"]),
    ("index.interval.bytes", None, &["0"]),
    ("file.delete.delay.ms", None, &["0"]),
    ("leader.replication.throttled.replicas", None, &["*", "0:1"]),
    ("follower.replication.throttled.replicas", None, &["*"]),
    ("remote.storage.enable", None, &["true", "x"]),
    ("remote.log.copy.disable", None, &["true"]),
    ("remote.log.delete.on.disable", None, &["true"]),
    ("remote.copy.lag.ms", None, &["-1"]),
    ("remote.copy.lag.bytes", None, &["1"]),
    ("local.retention.ms", None, &["-1"]),
    ("local.retention.bytes", None, &["1"]),
];

fn overrides(values: &[(&str, &str)]) -> Overrides {
    values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn parse(values: &[(&str, &str)]) -> Result<TopicConfig, ConfigError> {
    TopicConfig::parse(&NodeConfig::default(), &overrides(values))
}

#[test]
fn the_table_and_this_test_know_the_same_names() {
    let mut table: Vec<_> = TOPIC_CONFIGS.iter().map(|entry| entry.name).collect();
    let mut here: Vec<_> = TOPIC_VALUES.iter().map(|(name, ..)| *name).collect();
    table.sort_unstable();
    here.sort_unstable();
    assert_eq!(table, here);
}

#[test]
fn every_default_is_valid_and_is_what_a_topic_has_that_says_nothing() {
    for entry in &TOPIC_CONFIGS {
        let parsed = parse(&[(entry.name, entry.default)]);
        assert_eq!(parsed, Ok(TopicConfig::default()), "{}", entry.name);
    }
    for entry in &NODE_CONFIGS {
        let parsed = NodeConfig::parse(&overrides(&[(entry.name, entry.default)])).unwrap();
        assert_eq!(parsed.own, NodeConfig::default().own, "{}", entry.name);
    }
    for entry in &GROUP_CONFIGS {
        let parsed = GroupConfig::parse(&overrides(&[(entry.name, entry.default)])).unwrap();
        assert_eq!(parsed.overrides.len(), 1, "{}", entry.name);
    }
}

#[test]
fn every_name_takes_its_valid_values_and_refuses_the_others() {
    for (name, valid, invalid) in TOPIC_VALUES {
        let entry = topic_entry(name).unwrap();
        if let Some(valid) = valid {
            let parsed = parse(&[(name, valid)]).unwrap_or_else(|error| panic!("{error}"));
            let sets = matches!(entry.effect, Effect::Sets(_));
            assert_eq!(parsed != TopicConfig::default(), sets, "{name} = {valid}");
        }
        assert_eq!(valid.is_none(), matches!(entry.effect, Effect::OnlyDefault { .. }), "{name}");
        for value in invalid {
            let refused = parse(&[(name, value)]).expect_err(name).to_string();
            assert!(refused.contains(name), "{refused}");
        }
    }
    for (name, invalid) in [("producer.id.expiration.ms", "0"), ("offsets.retention.minutes", "x")]
    {
        assert!(NodeConfig::parse(&overrides(&[(name, invalid)])).is_err());
    }
    for entry in &GROUP_CONFIGS {
        assert!(GroupConfig::parse(&overrides(&[(entry.name, "0")])).is_err());
    }
}

#[test]
fn values_become_what_they_mean() {
    let config = parse(&[
        ("cleanup.policy", " compact , delete "),
        ("retention.ms", "-1"),
        ("retention.bytes", " 100 "),
        ("max.message.bytes", "2000"),
        ("message.timestamp.type", "LogAppendTime"),
        ("compression.type", "lz4"),
        ("min.cleanable.dirty.ratio", "1e-1"),
        ("durability", "replicated"),
    ])
    .unwrap();
    assert_eq!(config.cleanup_policy, CleanupPolicy { delete: true, compact: true });
    assert_eq!((config.retention_ms, config.retention_bytes), (None, Some(100)));
    assert_eq!(config.max_message_bytes, 2000);
    assert_eq!(config.timestamp_type, TimestampType::LogAppendTime);
    assert_eq!(config.compression_type, CompressionType::Lz4);
    assert_eq!(config.min_cleanable_dirty_ratio, 0.1);
    assert_eq!(config.durability, Durability::Replicated);
}

#[test]
fn an_unknown_name_is_refused() {
    let unknown = Err(ConfigError::Unknown { name: "message.format.version".to_owned() });
    assert_eq!(parse(&[("message.format.version", "3.0")]), unknown);
    assert!(NodeConfig::parse(&overrides(&[("retention.ms", "1")])).is_err());
    assert!(GroupConfig::parse(&overrides(&[("share.session.timeout.ms", "45000")])).is_err());
}

#[test]
fn memory_durability_is_refused_as_not_offered_yet() {
    let refused = parse(&[("durability", "memory")]).unwrap_err();
    assert!(refused.to_string().contains("not offered yet"), "{refused}");
}

#[test]
fn values_that_contradict_each_other_are_refused() {
    let lags = [("min.compaction.lag.ms", "2"), ("max.compaction.lag.ms", "1")];
    assert!(matches!(parse(&lags), Err(ConfigError::Conflict { .. })));
    assert!(parse(&[("flush.messages", "1"), ("durability", "fsync")]).is_ok());
    for flush in ["flush.messages", "flush.ms"] {
        let unsynced = [(flush, "1"), ("durability", "replicated")];
        assert!(matches!(parse(&unsynced), Err(ConfigError::Conflict { .. })), "{flush}");
    }
}

#[test]
fn a_topic_has_its_own_value_then_the_nodes_then_the_default() {
    let node = [("log.retention.ms", "5"), ("message.max.bytes", "6")];
    let node = NodeConfig::parse(&overrides(&node)).unwrap();
    let own = overrides(&[("retention.ms", "7")]);
    let config = TopicConfig::parse(&node, &own).unwrap();
    assert_eq!((config.retention_ms, config.max_message_bytes), (Some(7), 6));
    assert_eq!(config.segment_ms, TopicConfig::default().segment_ms);

    let described = |name| describe_topic(&own, &node).find(|one| one.name == name).unwrap();
    let retention = described("retention.ms");
    assert_eq!((retention.value, retention.source), ("7", ConfigSource::Own));
    assert_eq!(retention.node_name, Some("log.retention.ms"));
    assert_eq!((retention.node_value, retention.default), (Some("5"), "604800000"));
    assert_eq!(described("max.message.bytes").source, ConfigSource::Node);
    assert_eq!(described("segment.ms").source, ConfigSource::Default);

    let described = |name| describe_node(&node).find(|one| one.name == name).unwrap();
    assert_eq!(described("log.retention.ms").value, "5");
    assert_eq!(described("log.roll.ms").source, ConfigSource::Default);
}

#[test]
fn every_configuration_is_documented_and_named_once() {
    let topic = TOPIC_CONFIGS.iter().map(|entry| (entry.name, entry.documentation));
    let node_config = NodeConfig::default();
    let node = describe_node(&node_config).map(|one| (one.name, one.documentation));
    for entries in [topic.collect::<Vec<_>>(), node.collect()] {
        let names: std::collections::BTreeSet<_> = entries.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), entries.len());
        assert!(entries.iter().all(|(_, documentation)| documentation.ends_with('.')));
    }
}
