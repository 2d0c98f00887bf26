//! `postroad queue`, `dead-letter` and `schedule`.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::harness::{Broker, eventually, seq};

fn now_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis()
}

/// A broker with a queue of five records in one partition.
fn with_queue(flags: &[&str]) -> Broker {
    let broker = Broker::start();
    broker.run(&[&["queue", "declare", "q", "-p", "1"], flags].concat()).ok();
    broker.feed(&["produce", "q"], seq(1..=5)).ok();
    broker
}

/// A broker with five expired records of `q`, which are dead letters in `dead`.
fn with_dead_letters() -> Broker {
    let broker = with_queue(&["--ttl", "1ms", "--dead-letter", "dead"]);
    eventually("they expire", || depth(&broker, "dead") == 5);
    broker.run(&["queue", "declare", "q", "--ttl", "none"]).ok();
    broker
}

#[track_caller]
fn queue(broker: &Broker, name: &str) -> Value {
    broker.run(&["queue", "list", name, "-o", "json"]).json()[0].clone()
}

#[track_caller]
fn depth(broker: &Broker, name: &str) -> u64 {
    queue(broker, name)["depth"].as_u64().expect("a number")
}

fn scheduled(key: &str, id: &str, in_ms: u128) -> String {
    let due = now_ms() + in_ms;
    format!(
        "{{\"key\":\"{key}\",\"value\":\"later\",\"headers\":\
         {{\"postroad.deliver-at\":\"{due}\",\"postroad.id\":\"{id}\"}}}}\n"
    )
}

#[test]
fn trace_finds_a_record_and_prints_its_history() {
    let broker = with_queue(&[]);
    let line = "{\"key\":\"k\",\"value\":\"v\",\"headers\":{\"colour\":\"red\"}}\n";
    broker.feed(&["produce", "q", "--format", "json"], line).ok();
    for by in [["--key", "k"], ["--header", "colour=red"]] {
        let found = broker.run(&[&["trace", "q", "-o", "json"][..], &by].concat()).json();
        let found = found.as_array().expect("records");
        assert_eq!((found.len(), &found[0]["offset"]), (1, &Value::from(5)), "{by:?}");
        assert_eq!(found[0]["groups"][0]["state"], "ready");
    }
    // Without a topic, in all topics.
    assert!(broker.run(&["trace", "--key", "k"]).ok().contains("record 0:5 of topic q"));
    broker.run(&["queue", "purge", "q"]).ok();
    // No group needs the record any more: it is deleted, but its history is known.
    let told = broker.run(&["trace", "q", "--at", "0:5"]).ok();
    for words in ["record 0:5 of topic q", "group main: ", "settled by an operator"] {
        assert!(told.contains(words), "{told}");
    }
    assert_eq!(broker.run(&["trace", "--key", "none"]).ok(), "no such record\n");
    broker.run(&["trace", "--at", "0:5"]).fails(1, &["<TOPIC>"]);
    broker.run(&["trace", "q"]).fails(1, &["--key"]);
    broker.run(&["trace", "q", "--trace-id", "x"]).fails(1, &["no trace id"]);
}

#[test]
fn a_queue_is_declared_with_its_topic_and_its_dead_letters() {
    let broker = Broker::start();
    let declare = [
        "queue",
        "declare",
        "q",
        "-p",
        "3",
        "--ordering",
        "key",
        "--lease",
        "10s",
        "--attempts",
        "4",
        "--backoff",
        "500ms",
        "--dead-letter",
        "dead",
        "--single-active",
        "--priorities",
        "9",
        "--limit-records",
        "1000",
        "--limit-bytes",
        "1MiB",
        "--overflow",
        "drop-oldest",
    ];
    let said = broker.run(&declare).ok();
    assert_eq!(said, "created topic q\ncreated queue dead for its dead letters\ncreated queue q\n");
    let described = broker.run(&["queue", "describe", "q", "-o", "json"]).json();
    let own: Vec<String> = described["config"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|config| config["own"] == true)
        .map(|config| {
            format!("{}={}", config["name"].as_str().unwrap(), config["value"].as_str().unwrap())
        })
        .collect();
    let expected = [
        "ordering=key",
        "consumers=single-active",
        "lease.ms=10000",
        "attempts.max=4",
        "retry.backoff.ms=500",
        "dead.letter.topic=dead",
    ];
    assert_eq!(own, expected);
    let topic = &described["topic_config"];
    for (name, value) in [
        ("priorities.max", "9"),
        ("limit.records", "1000"),
        ("limit.bytes", "1048576"),
        ("limit.overflow", "drop-oldest"),
        ("retention.settled", "true"),
        ("retention.ms", "-1"),
    ] {
        assert_eq!(topic[name], value, "{name}");
    }
    assert_eq!(queue(&broker, "dead")["partitions"], 3, "as many as the queue");
    // A repetition changes nothing; one more flag changes only its setting.
    assert_eq!(broker.run(&declare).ok(), "found queue q\n");
    assert_eq!(broker.run(&["queue", "declare", "q", "--lease", "5s"]).ok(), "changed queue q\n");
    let text = broker.run(&["queue", "describe", "q"]).ok();
    for words in [["lease.ms", "5000", "(5s)"], ["attempts.max", "4", "queue"]] {
        let line = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        assert!(line.into_iter().any(|line| line.starts_with(&words)), "{words:?} in {text}");
    }
}

#[test]
fn a_topic_becomes_a_queue_and_keeps_its_retention() {
    let broker = Broker::start();
    broker.run(&["topic", "create", "t", "-p", "2"]).ok();
    broker.feed(&["produce", "t", "-p", "0"], seq(1..=5)).ok();
    broker.run(&["queue", "describe", "t"]).fails(1, &["topic t is no queue", "queue declare t"]);
    assert_eq!(broker.run(&["queue", "declare", "t"]).ok(), "created queue t\n");
    assert_eq!(depth(&broker, "t"), 5);
    let late = ["queue", "declare", "t", "--group", "late", "--from", "latest"];
    assert_eq!(broker.run(&late).ok(), "created queue t (group late)\n");
    let listed = broker.run(&["queue", "list", "-o", "json"]).json();
    let depths: Vec<_> = listed.as_array().expect("a list").iter().map(|it| &it["depth"]).collect();
    assert_eq!(depths, [0, 5], "by topic and group: late, then main");
    let topic = broker.run(&["topic", "describe", "t"]).ok();
    assert!(!topic.contains("retention.settled"), "{topic}");
}

#[test]
fn waiting_records_are_counted_and_peek_leases_nothing() {
    let broker = with_queue(&[]);
    for _ in 0..2 {
        let peeked = broker.run(&["queue", "peek", "q", "-o", "json"]).json();
        let values: Vec<_> =
            peeked.as_array().expect("a list").iter().map(|it| it["value"].clone()).collect();
        assert_eq!(values, ["1", "2", "3", "4", "5"]);
        assert_eq!((&peeked[0]["state"], &peeked[0]["attempts"]), (&"ready".into(), &0.into()));
    }
    let text = broker.run(&["queue", "peek", "q", "-n", "1", "--from", "3"]).ok();
    assert!(text.lines().nth(1).is_some_and(|line| line.ends_with('4')), "{text}");
    assert_eq!(text.lines().count(), 2, "{text}");
    let counted = queue(&broker, "q");
    assert_eq!((&counted["depth"], &counted["ready"]), (&5.into(), &5.into()));
    let lag = counted["lag_seconds"].as_f64().expect("a number");
    assert!(lag > 0.0 && lag < 600.0, "{lag}");
    broker.run(&["queue", "peek", "q", "-p", "7"]).fails(1, &["has no partition 7; it has 1"]);
}

#[test]
fn rates_are_records_a_second() {
    let broker = with_queue(&[]);
    let mut producing = broker.spawn(&["produce", "q"]);
    producing.write("early\n");
    let listing = broker.spawn(&["queue", "describe", "q", "--rates=1s", "-o", "json"]);
    for number in 0..40 {
        producing.write(&format!("{number}\n"));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let described: Value = serde_json::from_str(&listing.end().ok()).expect("JSON");
    let rate = described["summary"]["rates"]["published"].as_f64().expect("a number");
    assert!(rate > 0.0 && rate <= 41.0, "about 20 a second: {rate}");
    // The broker knows the recent rates, without waiting.
    let rate = queue(&broker, "q")["rates"]["published"].as_f64().expect("a number");
    assert!(rate > 2.0 && rate <= 41.0, "{rate}");
    let listed = broker.run(&["queue", "list", "--rates"]).ok();
    assert!(listed.contains("PUBLISHED/S") && !listed.contains(" 0.0  0.0  0.0"), "{listed}");
    let described = broker.run(&["queue", "describe", "q"]).ok();
    assert!(described.contains(" published, 0.0 delivered, 0.0 settled a second"), "{described}");
    producing.end().ok();
}

#[test]
fn a_purge_settles_all_or_single_records() {
    let broker = with_queue(&[]);
    let purge = |more: &[&str]| broker.run(&[&["queue", "purge", "q"], more].concat());
    assert_eq!(purge(&["-r", "0:1", "-r", "0:3"]).ok(), "purged 2 records from queue q\n");
    let peeked = broker.run(&["queue", "peek", "q", "-o", "json"]).json();
    let offsets: Vec<_> =
        peeked.as_array().expect("a list").iter().map(|it| it["offset"].clone()).collect();
    assert_eq!(offsets, [0, 2, 4]);
    purge(&["-r", "0:3"]).fails(1, &["record 3 of partition 0 is settled, or was never there"]);
    assert_eq!(purge(&[]).ok(), "purged 3 records from queue q\n");
    assert_eq!(depth(&broker, "q"), 0);
    assert_eq!(broker.run(&["queue", "peek", "q"]).ok(), "queue q has no records waiting\n");
}

#[test]
fn queue_is_listed_as_paused_until_it_is_resumed() {
    let broker = with_queue(&[]);
    assert_eq!(broker.run(&["queue", "pause", "q"]).ok(), "paused queue q\n");
    assert_eq!(queue(&broker, "q")["paused"], true);
    assert!(broker.run(&["queue", "list"]).ok().contains("paused"));
    assert_eq!(broker.run(&["queue", "resume", "q"]).ok(), "resumed queue q\n");
    assert_eq!(queue(&broker, "q")["paused"], false);
}

#[test]
fn queue_seeks_back_and_forth_within_the_kept_records() {
    let broker = with_queue(&["--keep"]);
    let seek = |to: &str, more: &[&str]| {
        let arguments = [&["queue", "seek", "q", "--to", to, "-o", "json"], more].concat();
        broker.run(&arguments).json()["partitions"][0]["to"].clone()
    };
    broker.run(&["queue", "purge", "q"]).ok();
    assert_eq!(seek("earliest", &["--dry-run"]), 0);
    assert_eq!(depth(&broker, "q"), 0, "a dry run changes nothing");
    assert_eq!(seek("earliest", &[]), 0);
    assert_eq!(depth(&broker, "q"), 5);
    assert_eq!(seek("-2", &[]), 3);
    assert_eq!(depth(&broker, "q"), 2);
    assert_eq!(seek("15m ago", &[]), 0);
    assert_eq!(seek("latest", &[]), 5);
    assert_eq!(depth(&broker, "q"), 0);
}

#[test]
fn a_deleted_queue_leaves_its_topic_unless_asked() {
    let broker = with_queue(&["--keep"]);
    assert_eq!(broker.run(&["queue", "delete", "q"]).ok(), "deleted queue q\n");
    broker.run(&["queue", "delete", "q"]).fails(1, &["topic q is no queue"]);
    assert_eq!(broker.run(&["consume", "q"]).ok(), seq(1..=5));
    broker.run(&["queue", "declare", "q"]).ok();
    let delete = ["queue", "delete", "q", "--with-topic"];
    assert_eq!(broker.run(&delete).ok(), "deleted queue q and its topic\n");
    assert_eq!(
        broker.run(&["queue", "list", "-o", "json"]).json().as_array().map(Vec::len),
        Some(0)
    );
}

#[test]
fn dead_letters_are_counted_by_source_and_reason() {
    let broker = with_dead_letters();
    let listed = broker.run(&["dead-letter", "list", "-o", "json"]).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(1));
    assert_eq!((&listed[0]["topic"], &listed[0]["records"]), (&"dead".into(), &5.into()));
    let count = &listed[0]["counts"][0];
    assert_eq!((&count["source"], &count["group"]), (&"q".into(), &"main".into()));
    assert_eq!((&count["reason"], &count["records"]), (&"expired".into(), &5.into()));
    let text = broker.run(&["dead-letter", "list"]).ok();
    assert!(text.contains("dead   q          main   expired        5"), "{text}");
}

#[test]
fn dead_letter_has_the_reason_and_place_of_its_death() {
    let broker = with_dead_letters();
    let show = |more: &[&str]| {
        let said = broker.run(&[&["dead-letter", "show", "dead", "-o", "json"], more].concat());
        said.json().as_array().cloned().expect("a list")
    };
    let shown = show(&[]);
    assert_eq!(shown.len(), 5);
    assert_eq!((&shown[1]["value"], &shown[1]["offset"]), (&"2".into(), &1.into()));
    let death = &shown[1]["death"];
    assert_eq!((&death["topic"], &death["offset"]), (&"q".into(), &1.into()));
    assert_eq!((&death["reason"], &death["attempts"]), (&"expired".into(), &0.into()));
    assert!(u128::from(death["time_ms"].as_u64().expect("a time")) <= now_ms());
    assert_eq!(show(&["-n", "2"]).len(), 2);
    assert_eq!(show(&["--reason", "rejected"]).len(), 0);
    assert_eq!(show(&["--source", "q", "--reason", "expired"]).len(), 5);
    let chosen = show(&["-r", "0:4", "-r", "0:2", "-r", "0:99"]);
    let values: Vec<_> = chosen.iter().map(|it| it["value"].clone()).collect();
    assert_eq!(values, ["3", "5"]);
}

#[test]
fn redrive_moves_the_requested_number_of_dead_letters_in_order() {
    let broker = with_dead_letters();
    let redrive = |more: &[&str]| broker.run(&[&["dead-letter", "redrive", "dead"], more].concat());
    redrive(&["--to", "dead"]).fails(1, &["in topic dead already"]);
    redrive(&["--to", "nowhere"]).fails(1, &["there is no topic nowhere"]);
    assert_eq!(
        redrive(&["--max", "2"]).ok(),
        "sent 2 records from topic dead to where they came from\n"
    );
    assert_eq!((depth(&broker, "dead"), depth(&broker, "q")), (3, 2));
    broker.run(&["queue", "declare", "other"]).ok();
    let sent = redrive(&["--to", "other", "-r", "0:4", "-o", "json"]).json();
    assert_eq!((&sent["records"], &sent["left"]), (&1.into(), &0.into()));
    assert_eq!(broker.run(&["consume", "other"]).ok(), "5\n");
    assert_eq!(redrive(&[]).ok(), "sent 2 records from topic dead to where they came from\n");
    let peeked = broker.run(&["queue", "peek", "q", "-o", "json"]).json();
    let values: Vec<_> =
        peeked.as_array().expect("a list").iter().map(|it| it["value"].clone()).collect();
    assert_eq!(values, ["1", "2", "3", "4"]);
    assert_eq!(peeked[0]["headers"], Value::Array(Vec::new()), "the story of its death is gone");
    assert_eq!(depth(&broker, "dead"), 0);
}

#[test]
fn dead_letters_of_a_deleted_topic_stay_and_are_reported() {
    let broker = with_dead_letters();
    broker.run(&["topic", "delete", "q"]).ok();
    let said = broker.run(&["dead-letter", "redrive", "dead"]).ok();
    assert!(said.contains("sent 0 records") && said.contains("5 records stayed"), "{said}");
    assert_eq!(depth(&broker, "dead"), 5);
}

#[test]
fn deleting_dead_letters_requires_a_filter_or_all() {
    let broker = with_dead_letters();
    let delete = |more: &[&str]| broker.run(&[&["dead-letter", "delete", "dead"], more].concat());
    delete(&[]).fails(1, &["--all"]);
    assert_eq!(delete(&["--reason", "rejected"]).ok(), "topic dead has no such dead letters\n");
    assert_eq!(delete(&["-r", "0:0"]).ok(), "deleted 1 dead letter of topic dead\n");
    assert_eq!(
        delete(&["--source", "q", "--max", "1"]).ok(),
        "deleted 1 dead letter of topic dead\n"
    );
    assert_eq!(delete(&["--all"]).ok(), "deleted 3 dead letters of topic dead\n");
    assert_eq!(depth(&broker, "dead"), 0);
}

#[test]
fn dead_letter_commands_change_no_ordinary_records() {
    let broker = with_dead_letters();
    let run = |command: &str, more: &[&str]| {
        broker.run(&[&["dead-letter", command, "mixed"], more].concat())
    };
    broker.run(&["topic", "create", "mixed", "-p", "1"]).ok();
    broker.feed(&["produce", "mixed"], seq(1..=3)).ok();
    assert_eq!(run("delete", &["--all"]).ok(), "topic mixed has no dead letters\n");
    assert_eq!(run("redrive", &["--to", "q"]).ok(), "topic mixed has no dead letters\n");
    broker.run(&["queue", "describe", "mixed"]).fails(1, &["topic mixed is no queue"]);
    // A queue for work that also receives dead letters.
    broker.run(&["queue", "declare", "mixed"]).ok();
    broker.run(&["queue", "declare", "q", "--ttl", "1ms", "--dead-letter", "mixed"]).ok();
    broker.feed(&["produce", "q"], "late\n").ok();
    eventually("it expires", || depth(&broker, "mixed") == 4);
    let listed = broker.run(&["dead-letter", "list", "mixed", "-o", "json"]).json();
    assert_eq!(
        (&listed[0]["records"], &listed[0]["counts"][0]["source"]),
        (&1.into(), &"q".into())
    );
    assert_eq!(run("show", &["-o", "json"]).json().as_array().map(Vec::len), Some(1));
    let left = run("delete", &["-r", "0:0", "-r", "0:1", "-o", "json"]).json();
    assert_eq!((&left["records"], &left["left"]), (&0.into(), &2.into()));
    assert_eq!(run("delete", &["--all"]).ok(), "deleted 1 dead letter of topic mixed\n");
    assert_eq!(depth(&broker, "mixed"), 3);
}

#[test]
fn thousands_of_dead_letters_are_counted_and_sent_back_in_pieces() {
    let broker = Broker::start();
    broker.run(&["queue", "declare", "q", "-p", "2", "--ttl", "1ms", "--dead-letter", "dead"]).ok();
    broker.feed(&["produce", "q"], seq(1..=30_000)).ok();
    eventually("they expire", || depth(&broker, "dead") == 30_000);
    broker.run(&["queue", "declare", "q", "--ttl", "none"]).ok();
    let listed = broker.run(&["dead-letter", "list", "-o", "json"]).json();
    assert_eq!(listed[0]["counts"][0]["records"], 30_000);
    let sent = broker.run(&["dead-letter", "redrive", "dead", "--max", "2500", "-o", "json"]);
    assert_eq!(sent.json()["records"], 2500);
    assert_eq!(depth(&broker, "q"), 2500);
}

#[test]
fn scheduled_records_are_listed_by_their_time_and_cancelled() {
    let broker = Broker::start();
    broker.run(&["queue", "declare", "q", "-p", "1"]).ok();
    let hour = 3_600_000;
    let records = [scheduled("b", "two", 2 * hour), scheduled("a", "one", hour)].concat();
    broker.feed(&["produce", "q", "--format", "json"], records + "{\"value\":\"now\"}\n").ok();
    let list = || {
        let listed = broker.run(&["schedule", "list", "q", "-o", "json"]).json();
        listed.as_array().cloned().expect("a list")
    };
    let listed = list();
    let told: Vec<_> = listed.iter().map(|it| (&it["key"], &it["id"], &it["offset"])).collect();
    assert_eq!(
        told,
        [
            (&"a".into(), &"one".into(), &Value::from(1)),
            (&"b".into(), &"two".into(), &Value::from(0))
        ]
    );
    let text = broker.run(&["queue", "peek", "q"]).ok();
    assert!(text.contains("delayed for 1h 59m"), "{text}");
    let cancel = |more: &[&str]| broker.run(&[&["schedule", "cancel", "q"], more].concat());
    cancel(&["--id", "three"]).fails(1, &["no scheduled record of id three", "schedule list q"]);
    cancel(&["--record", "0:2"]).fails(1, &["record 2 of partition 0 is not scheduled"]);
    assert_eq!(cancel(&["--id", "one"]).ok(), "cancelled 1 scheduled record of queue q\n");
    assert_eq!(cancel(&["--record", "0:0"]).ok(), "cancelled 1 scheduled record of queue q\n");
    assert_eq!(list().len(), 0);
    assert_eq!(depth(&broker, "q"), 1, "what is due now stays");
}

#[test]
fn purges_pauses_and_declarations_survive_a_restart() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    let broker = Broker::start_on(&data);
    broker.run(&["queue", "declare", "q", "-p", "1", "--attempts", "7"]).ok();
    broker.feed(&["produce", "q"], seq(1..=5)).ok();
    broker.run(&["queue", "purge", "q", "-r", "0:2"]).ok();
    broker.run(&["queue", "pause", "q"]).ok();
    broker.kill();
    let broker = Broker::start_on(&data);
    let described = broker.run(&["queue", "describe", "q", "-o", "json"]).json();
    assert_eq!(described["summary"]["depth"], 4);
    assert_eq!(described["summary"]["paused"], true);
    assert_eq!(described["progress"][0]["settled_above"], 1);
    let text = broker.run(&["queue", "describe", "q"]).ok();
    assert!(text.contains("attempts.max          7"), "{text}");
}

#[test]
fn mistakes_are_errors_of_the_user_with_a_remedy() {
    let broker = with_queue(&[]);
    for (arguments, words) in [
        (&["queue", "purge", "x"][..], &["there is no topic x", "queue declare x"][..]),
        (&["queue", "peek", "q", "-g", "g"], &["no queue of group g", "--group g"]),
        (&["queue", "list", "x"], &["there is no queue x"]),
        (&["queue", "declare", "a b"], &["cannot create topic a b"]),
        (&["queue", "declare", "q", "--backoff", "2h"], &["retry.backoff.max.ms"]),
        (&["queue", "declare", "q", "--lease", "soon"], &["is not a duration"]),
        (&["queue", "declare", "q", "--limit-bytes", "much"], &["is not a size"]),
        (&["dead-letter", "show", "x"], &["there is no topic x"]),
        (&["dead-letter", "show", "q", "-r", "5"], &["write PARTITION:OFFSET"]),
        (&["schedule", "list", "x"], &["there is no topic x"]),
    ] {
        broker.run(arguments).fails(1, words);
    }
}
