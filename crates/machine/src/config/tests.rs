use super::*;

/// For each topic configuration: a valid value other than the default, and refused values. `None`
/// if only the default is valid.
const TOPIC_VALUES: [(&str, Option<&str>, &[&str]); 46] = [
    ("trace", Some("0.5%"), &["", "true", "0%", "100%", "1", "0.01", "On"]),
    ("retention.settled", Some("true"), &["1", "yes", ""]),
    ("priorities.max", Some("255"), &["256", "-1", ""]),
    ("priorities.order", Some("two-to-one"), &["fair", ""]),
    ("limit.records", Some("0"), &["-2", "x"]),
    ("limit.bytes", Some("1000000"), &["-2", "1k"]),
    ("limit.overflow", Some("drop-oldest"), &["drop-head", "", "Reject"]),
    ("dedup.window.ms", Some("300000"), &["-1", "x"]),
    ("dedup.ids.max", Some("10000000"), &["0", "50000001", "x"]),
    ("errors.deadletterqueue.group.enable", Some("true"), &["x"]),
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
fn table_and_test_values_have_the_same_names() {
    let mut table: Vec<_> = TOPIC_CONFIGS.iter().map(|entry| entry.name).collect();
    let mut here: Vec<_> = TOPIC_VALUES.iter().map(|(name, ..)| *name).collect();
    table.sort_unstable();
    here.sort_unstable();
    assert_eq!(table, here);
}

#[test]
fn every_default_is_valid_and_applies_to_a_topic_without_own_values() {
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
        // The node's defaults for groups are the same.
        let own = NodeConfig::default().own;
        assert_eq!(parsed.check(&own), Ok(()), "{}", entry.name);
        let of_leases = |group: &GroupConfig| group.share.lease_group_config(&own);
        assert_eq!(of_leases(&parsed), of_leases(&GroupConfig::DEFAULT), "{}", entry.name);
    }
    for entry in &LEASE_GROUP_CONFIGS {
        let parsed = LeaseGroupConfig::parse(&overrides(&[(entry.name, entry.default)]));
        assert_eq!(parsed, Ok(LeaseGroupConfig::default()), "{}", entry.name);
    }
}

/// Name, a valid value other than the default, and refused values.
type Values<'a> = (&'a str, &'a str, &'a [&'a str]);

const LEASE_GROUP_VALUES: [Values<'_>; 9] = [
    ("ordering", "key", &["Free", "", "keys"]),
    ("consumers", "single-active", &["exclusive", ""]),
    ("lease.ms", "0", &["-1", "", "x"]),
    ("attempts.max", "65535", &["-1", "65536"]),
    ("retry.backoff.ms", "60000", &["-1", "60001"]),
    ("retry.backoff.max.ms", "0", &["-1"]),
    ("dead.letter.topic", "dead", &[".", "a/b"]),
    ("dead.letter.route", "amqp:any text", &[]),
    ("record.ttl.ms", "0", &["-2"]),
];

const GROUP_VALUES: [Values<'_>; 19] = [
    ("consumer.session.timeout.ms", "1", &["0"]),
    ("consumer.heartbeat.interval.ms", "1", &["0"]),
    ("streams.session.timeout.ms", "1", &["0"]),
    ("streams.heartbeat.interval.ms", "1", &["0"]),
    ("streams.num.standby.replicas", "1", &["-1"]),
    ("streams.initial.rebalance.delay.ms", "0", &["-1"]),
    ("share.record.lock.duration.ms", "15000", &["999"]),
    ("share.delivery.count.limit", "10", &["1", "x"]),
    ("share.partition.max.record.locks", "100", &["99"]),
    ("share.session.timeout.ms", "50000", &["0"]),
    ("share.heartbeat.interval.ms", "6000", &["0"]),
    (
        "share.auto.offset.reset",
        "by_duration:PT1H",
        &["none", "", "by_duration:", "by_duration:1h"],
    ),
    ("share.isolation.level", "read_committed", &["READ_COMMITTED", ""]),
    ("share.renew.acknowledge.enable", "false", &["no"]),
    ("errors.deadletterqueue.topic.name", "dlq.x", &["..", "a b"]),
    ("errors.deadletterqueue.copy.record.enable", "true", &["x"]),
    ("share.ordering", "partition", &["keyed"]),
    ("share.retry.backoff.ms", "1000", &["-1", "60001"]),
    ("share.retry.backoff.max.ms", "100", &["-1"]),
];

const NODE_VALUES: [Values<'_>; 40] = [
    ("dedup.memory.max.bytes", "67108864", &["-1", "64m"]),
    ("producer.id.expiration.ms", "1", &["0"]),
    ("offsets.retention.minutes", "1", &["x", "0"]),
    ("log.retention.check.interval.ms", "1", &["0", "soon"]),
    ("group.initial.rebalance.delay.ms", "0", &["-1"]),
    ("group.min.session.timeout.ms", "1", &["0", "1800001"]),
    ("group.max.session.timeout.ms", "6000", &["0", "5999"]),
    ("group.max.size", "1", &["0", "10001"]),
    ("group.consumer.session.timeout.ms", "5000", &["0", "4999"]),
    ("group.consumer.heartbeat.interval.ms", "45000", &["0", "45001"]),
    ("group.consumer.max.size", "1", &["0", "10001"]),
    ("group.share.record.lock.duration.ms", "15000", &["14999", "60001"]),
    ("group.share.min.record.lock.duration.ms", "1000", &["999", "30001"]),
    ("group.share.max.record.lock.duration.ms", "3600000", &["3600001", "29999"]),
    ("group.share.delivery.count.limit", "10", &["1", "11"]),
    ("group.share.min.delivery.count.limit", "5", &["1", "6"]),
    ("group.share.max.delivery.count.limit", "32767", &["4", "32768"]),
    ("group.share.partition.max.record.locks", "4000", &["99", "4001"]),
    ("group.share.min.partition.max.record.locks", "2000", &["99", "2001"]),
    ("group.share.max.partition.max.record.locks", "10000", &["10001", "1999"]),
    ("group.share.session.timeout.ms", "60000", &["44999", "60001"]),
    ("group.share.min.session.timeout.ms", "1", &["0", "45001"]),
    ("group.share.max.session.timeout.ms", "45000", &["44999"]),
    ("group.share.heartbeat.interval.ms", "15000", &["4999", "15001"]),
    ("group.share.min.heartbeat.interval.ms", "1", &["0", "5001"]),
    ("group.share.max.heartbeat.interval.ms", "5000", &["4999"]),
    ("group.share.max.size", "1000", &["9", "1001"]),
    ("group.share.max.share.sessions", "1", &["0"]),
    ("group.streams.session.timeout.ms", "60000", &["44999", "60001"]),
    ("group.streams.min.session.timeout.ms", "1", &["0", "45001"]),
    ("group.streams.max.session.timeout.ms", "45000", &["44999"]),
    ("group.streams.heartbeat.interval.ms", "15000", &["4999", "15001"]),
    ("group.streams.min.heartbeat.interval.ms", "1", &["0", "5001"]),
    ("group.streams.max.heartbeat.interval.ms", "5000", &["4999"]),
    ("group.streams.max.size", "1", &["0", "10001"]),
    ("group.streams.num.standby.replicas", "2", &["-1", "3"]),
    ("group.streams.max.standby.replicas", "0", &["-1"]),
    ("group.streams.initial.rebalance.delay.ms", "0", &["-1"]),
    ("errors.deadletterqueue.auto.create.topics.enable", "true", &["x"]),
    ("errors.deadletterqueue.topic.name.prefix", "", &[]),
];

/// Checks that a table accepts these values with an effect, and refuses the invalid ones.
fn check_values<T: PartialEq>(
    names: impl Iterator<Item = &'static str>,
    values: &[Values<'_>],
    parse: impl Fn(&Overrides) -> Result<T, ConfigError>,
) {
    let mut table: Vec<_> = names.collect();
    let mut here: Vec<_> = values.iter().map(|(name, ..)| *name).collect();
    table.sort_unstable();
    here.sort_unstable();
    assert_eq!(table, here);
    for (name, valid, invalid) in values {
        match (parse(&overrides(&[(name, valid)])), parse(&Overrides::new())) {
            (Ok(set), Ok(default)) => assert!(set != default, "{name} = {valid} does nothing"),
            (Err(error), _) | (_, Err(error)) => panic!("{error}"),
        }
        for value in *invalid {
            let refused = parse(&overrides(&[(name, value)])).err().expect(name).to_string();
            assert!(refused.contains(name), "{refused}");
        }
    }
}

#[test]
fn every_group_and_node_configuration_has_an_effect_or_is_refused() {
    let names = LEASE_GROUP_CONFIGS.iter().map(|entry| entry.name);
    check_values(names, &LEASE_GROUP_VALUES, LeaseGroupConfig::parse);
    let names = GROUP_CONFIGS.iter().map(|entry| entry.name);
    check_values(names, &GROUP_VALUES, |values| {
        let config = GroupConfig::parse(values)?;
        let GroupConfig { session_timeout_ms, heartbeat_interval_ms, share, streams, .. } = config;
        Ok((session_timeout_ms, heartbeat_interval_ms, share, streams))
    });
    let names = NODE_CONFIGS.iter().map(|entry| entry.name);
    check_values(names, &NODE_VALUES, |values| Ok(NodeConfig::parse(values)?.own));
}

#[test]
fn share_group_values_are_limited_by_the_nodes_bounds() {
    let node = |values: &[(&str, &str)]| NodeConfig::parse(&overrides(values)).unwrap().own;
    let group = |values: &[(&str, &str)]| GroupConfig::parse(&overrides(values)).unwrap();
    let short = group(&[("share.record.lock.duration.ms", "5000")]);
    assert!(matches!(short.check(&node(&[])), Err(ConfigError::Conflict { .. })));
    let bounds = [("group.share.min.record.lock.duration.ms", "1000")];
    assert_eq!(short.check(&node(&bounds)), Ok(()));
    let often = group(&[("share.delivery.count.limit", "11")]);
    assert!(often.check(&node(&[])).is_err());
    for name in ["share.session.timeout.ms", "share.heartbeat.interval.ms"] {
        assert!(group(&[(name, "70000")]).check(&node(&[])).is_err(), "{name}");
    }
    // A value that was valid when it was set counts as the bound from then on.
    let leases = |config: &GroupConfig, own| config.share.lease_group_config(&own);
    assert_eq!(leases(&short, node(&bounds))["lease.ms"], "5000");
    assert_eq!(leases(&short, node(&[]))["lease.ms"], "15000");
}

#[test]
fn streams_group_values_are_limited_by_the_nodes_bounds() {
    let node = |values: &[(&str, &str)]| NodeConfig::parse(&overrides(values)).unwrap().own;
    for (name, value, bound) in [
        ("streams.session.timeout.ms", "10000", ("group.streams.min.session.timeout.ms", "10000")),
        (
            "streams.heartbeat.interval.ms",
            "500",
            ("group.streams.min.heartbeat.interval.ms", "500"),
        ),
        ("streams.num.standby.replicas", "3", ("group.streams.max.standby.replicas", "3")),
    ] {
        let group = GroupConfig::parse(&overrides(&[(name, value)])).unwrap();
        assert!(matches!(group.check(&node(&[])), Err(ConfigError::Conflict { .. })), "{name}");
        assert_eq!(group.check(&node(&[bound])), Ok(()));
    }
}

#[test]
fn share_group_configuration_becomes_an_equivalent_lease_group_configuration() {
    let node = NodeConfig::default().own;
    let group = GroupConfig::parse(&overrides(&[
        ("share.record.lock.duration.ms", "20000"),
        ("share.delivery.count.limit", "7"),
        ("errors.deadletterqueue.topic.name", "dlq.orders"),
        ("share.ordering", "key"),
        ("share.retry.backoff.ms", "10"),
        ("share.retry.backoff.max.ms", "80"),
        ("share.auto.offset.reset", "by_duration:P1DT1S"),
    ]))
    .unwrap();
    assert_eq!(group.share.start, StartPosition::Since { ms_ago: 86_401_000 });
    let expected = LeaseGroupConfig {
        ordering: LeaseOrdering::Key,
        lease_ms: Some(20_000),
        attempts_max: Some(7),
        retry_backoff_ms: 10,
        retry_backoff_max_ms: 80,
        dead_letter_topic: Some("dlq.orders".into()),
        ..LeaseGroupConfig::default()
    };
    assert_eq!(LeaseGroupConfig::parse(&group.share.lease_group_config(&node)), Ok(expected));
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
}

#[test]
fn values_are_parsed_into_typed_fields() {
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
    assert!(GroupConfig::parse(&overrides(&[("streams.assignment.interval.ms", "1")])).is_err());
    assert!(LeaseGroupConfig::parse(&overrides(&[("retention.ms", "1")])).is_err());
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
fn topic_value_overrides_the_nodes_value_which_overrides_the_default() {
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
    let group = GROUP_CONFIGS.iter().map(|entry| (entry.name, entry.documentation));
    let own = overrides(&[("ordering", "key")]);
    let leases = describe_lease_group(&own).map(|one| (one.name, one.documentation));
    for entries in [topic.collect::<Vec<_>>(), node.collect(), group.collect(), leases.collect()] {
        let names: std::collections::BTreeSet<_> = entries.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), entries.len());
        assert!(entries.iter().all(|(_, documentation)| documentation.ends_with('.')));
    }
}
