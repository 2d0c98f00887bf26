//! `postroad quota`, and its enforcement by a node.

use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

use crate::harness::{Broker, eventually};

#[test]
fn quotas_are_set_listed_and_taken_away() {
    let broker = Broker::start();
    assert_eq!(broker.run(&["quota", "list"]).ok(), "no quotas\n");
    let set = ["quota", "set", "--user", "app", "producer_byte_rate=10MiB"];
    assert_eq!(broker.run(&set).ok(), "set the quotas\n");
    let set = ["quota", "set", "--user-default", "--client", "c", "controller_mutation_rate=0.5"];
    broker.run(&set).ok();
    let table = broker.run(&["quota", "list"]).ok();
    assert!(table.starts_with("USER "), "{table}");
    for line in ["controller_mutation_rate", "producer_byte_rate", "(default)", "10485760", "0.5"] {
        assert!(table.contains(line), "{table}");
    }
    let shown = broker.run(&["quota", "list", "--user", "app", "-o", "json"]).json();
    let expected = serde_json::json!([
        {"entity": {"user": "app"}, "quotas": {"producer_byte_rate": 10_485_760.0}},
    ]);
    assert_eq!(shown, expected);
    broker.run(&["quota", "set", "producer_byte_rate=1"]).fails(1, &["--user"]);
    broker.run(&["quota", "set", "--user", "a", "speed=1"]).fails(1, &["it is one of"]);
    let wrong = ["quota", "set", "--user", "a", "connection_creation_rate=1"];
    broker.run(&wrong).fails(1, &["a quota of an ip"]);
    broker.run(&["quota", "remove", "--user", "app"]).ok();
    broker.run(&["quota", "remove", "--user-default", "--client", "c"]).ok();
    assert_eq!(broker.run(&["quota", "list"]).ok(), "no quotas\n");
}

#[test]
fn too_many_connections_from_an_address_are_closed() {
    let broker = Broker::start();
    broker.run(&["quota", "set", "--ip-default", "connection_creation_rate=1"]).ok();
    let refused = || {
        // Opened concurrently, so that they exceed one a second.
        let streams: Vec<_> =
            (0..5).map(|_| TcpStream::connect(broker.amqp()).expect("connects")).collect();
        streams.into_iter().any(|mut stream| {
            stream.set_read_timeout(Some(Duration::from_secs(3))).expect("is set");
            // The test sends nothing: a served connection would not be closed so soon.
            stream.read(&mut [0]).is_ok_and(|read| read == 0)
        })
    };
    eventually("a connection is refused", refused);
}
