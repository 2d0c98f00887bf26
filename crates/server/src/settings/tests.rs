//! Tests of parsed settings.

use super::*;

fn raw(toml: &str) -> RawSettings {
    toml::from_str(toml).expect("well-formed")
}

#[test]
fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
    let flags = RawSettings { node: Some(7), ..RawSettings::default() };
    let file = raw("node = 3\nkafka = \"127.0.0.1:1234\"\nsegment-bytes = \"64MiB\"");
    let settings = Settings::from_raw(flags.or(file)).expect("valid");
    assert_eq!(settings.node, 7);
    assert_eq!(settings.kafka.port(), 1234);
    assert_eq!(settings.segment_bytes, 64 << 20);
    assert_eq!(settings.data, PathBuf::from("postroad-data"));
}

#[test]
fn listeners_bind_loopback_by_default() {
    let settings = Settings::from_raw(RawSettings::default()).expect("valid");
    assert!(settings.kafka.ip().is_loopback());
}

#[test]
fn amqp_has_its_address_and_its_users_or_is_off() {
    let settings = Settings::from_raw(RawSettings::default()).expect("valid");
    assert_eq!(settings.amqp.map(|address| address.port()), Some(5672));
    assert_eq!(settings.amqp_users, []);
    let toml = "amqp = \"off\"\namqp-user = [\"app:se:cret\", \"other:x\"]";
    let settings = Settings::from_raw(raw(toml)).expect("valid");
    assert_eq!(settings.amqp, None);
    let known: Vec<_> =
        settings.amqp_users.iter().map(|user| (&*user.name, &*user.password)).collect();
    assert_eq!(known, [("app", "se:cret"), ("other", "x")]);
    let error = Settings::from_raw(raw("amqp-user = [\"secret\"]")).expect_err("refused");
    assert!(error.to_string().contains("is not a name and a password"), "{error}");
}

#[test]
fn node_configurations_are_named_as_in_kafka_and_checked() {
    let toml = "kafka-config = [\"log.retention.ms=1000\", \"offsets.retention.minutes = 5\"]";
    let settings = Settings::from_raw(raw(toml)).expect("valid");
    let expected = [("log.retention.ms", "1000"), ("offsets.retention.minutes", "5")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(settings.kafka_configs, expected);
    for wrong in ["log.retention.ms", "=1", "no.such.config=1", "log.retention.ms=soon"] {
        let error = Settings::from_raw(raw(&format!("kafka-config = [\"{wrong}\"]")));
        let error = error.expect_err("refused").to_string();
        assert!(error.contains("--kafka-config") && error.contains(wrong), "{error}");
    }
}

#[test]
fn a_key_that_is_not_known_is_refused_by_name() {
    let error = toml::from_str::<RawSettings>("kafak = \"127.0.0.1:9092\"").expect_err("refused");
    assert!(error.to_string().contains("kafak"), "{error}");
}

#[test]
fn sizes_have_units_and_bad_ones_are_named() {
    let parsed = |text: &str| size::bytes("disk-reserve", Some(text.into()), 0).ok();
    assert_eq!(parsed("17"), Some(17));
    assert_eq!(parsed("1_024k"), Some(1 << 20));
    assert_eq!(parsed("2GiB"), Some(2 << 30));
    for wrong in ["", "x", "1 parsec", "-1", "99999999999999T"] {
        assert_eq!(parsed(wrong), None, "{wrong}");
    }
    let error = size::bytes("disk-reserve", Some("much".into()), 0).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "--disk-reserve \"much\" is not a size, such as 134217728 or 128MiB"
    );
}

#[test]
fn in_a_file_a_size_may_be_a_number() {
    let settings = Settings::from_raw(raw("segment-bytes = 67108864")).expect("valid");
    assert_eq!(settings.segment_bytes, 64 << 20);
    let error = toml::from_str::<RawSettings>("disk-reserve = true").expect_err("refused");
    assert!(error.to_string().contains("a size is a number of bytes"), "{error}");
}

#[test]
fn zero_threads_connections_or_partitions_are_rejected() {
    for none in ["threads = 0", "max-connections = 0", "default-partitions = 0"] {
        let error = Settings::from_raw(raw(none)).expect_err("refused").to_string();
        assert!(error.ends_with("must be at least 1"), "{error}");
    }
}

#[test]
fn scrub_interval_is_a_duration_or_off() {
    let parsed = |text: &str| Settings::from_raw(raw(text)).map(|it| it.scrub_interval);
    let day = std::time::Duration::from_secs(86_400);
    assert_eq!(parsed("").expect("valid"), Some(7 * day));
    assert_eq!(parsed("scrub-interval = \"30d\"").expect("valid"), Some(30 * day));
    assert_eq!(parsed("scrub-interval = \"off\"").expect("valid"), None);
    for wrong in ["never", "5s", ""] {
        let error = parsed(&format!("scrub-interval = {wrong:?}")).expect_err("refused");
        assert!(error.to_string().starts_with("--scrub-interval"), "{error}");
    }
}

#[test]
fn history_bytes_is_a_size_or_zero() {
    let parsed = |text: &str| Settings::from_raw(raw(text)).map(|it| it.history_bytes);
    assert_eq!(parsed("").expect("valid"), 2 << 20);
    assert_eq!(parsed("history-bytes = \"16MiB\"").expect("valid"), 16 << 20);
    assert_eq!(parsed("history-bytes = 0").expect("valid"), 0);
    for wrong in ["2GiB", "much"] {
        let error = parsed(&format!("history-bytes = {wrong:?}")).expect_err("refused");
        assert!(error.to_string().starts_with("--history-bytes"), "{error}");
    }
}

#[test]
fn a_rack_is_a_name_or_none() {
    assert_eq!(Settings::from_raw(RawSettings::default()).expect("valid").rack, None);
    let settings = Settings::from_raw(raw("rack = \"eu-west-1a\"")).expect("valid");
    assert_eq!(settings.rack.as_deref(), Some("eu-west-1a"));
    let long = "x".repeat(256);
    for wrong in ["", " ", "a ", "a\nb", &long] {
        let error = Settings::from_raw(raw(&format!("rack = {wrong:?}"))).expect_err("refused");
        assert!(error.to_string().starts_with("--rack"), "{error}");
    }
}

#[test]
fn an_advertised_address_may_be_a_name_or_ipv6() {
    assert_eq!(host_port("a", "broker:9092").ok(), Some(("broker".into(), 9092)));
    assert_eq!(host_port("a", "[::1]:9092").ok(), Some(("::1".into(), 9092)));
    for wrong in ["broker", ":9092", "broker:x", "broker:70000"] {
        assert!(host_port("a", wrong).is_err(), "{wrong}");
    }
}
