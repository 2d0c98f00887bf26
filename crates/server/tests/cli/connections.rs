//! `postroad connection`.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::harness::{Broker, eventually, postroad};

/// The connections of one protocol.
fn of(broker: &Broker, protocol: &str) -> Vec<serde_json::Value> {
    let listed = broker.run(&["connection", "list", "-o", "json"]).json();
    let listed = listed.as_array().expect("a list").iter();
    listed.filter(|it| it["protocol"] == protocol).cloned().collect()
}

#[test]
fn connections_of_all_protocols_are_listed_and_closed() {
    let broker = Broker::start();
    let mut amqp = TcpStream::connect(broker.amqp()).expect("connects");
    amqp.write_all(b"AMQP\0\0\x09\x01").expect("sends");
    eventually("the connection is accepted", || of(&broker, "amqp").len() == 1);
    let listed = &of(&broker, "amqp")[0];
    assert_eq!(listed["peer"], amqp.local_addr().expect("is bound").to_string());
    assert!(listed["since_ms"].as_i64() > Some(0) && listed["user"].is_null(), "{listed}");

    // The command itself is a Kafka client, and reports its name.
    let own = &of(&broker, "kafka")[0];
    let client = own["client"].as_str().expect("it has said so");
    assert!(client.starts_with("postroad-cli "), "{own}");
    let table = broker.run(&["connection", "list"]).ok();
    assert!(table.starts_with("ID  PROTOCOL  PEER "), "{table}");

    let id = listed["id"].to_string();
    let said = broker.run(&["connection", "close", &id]).ok();
    assert_eq!(said, format!("told connection {id} to close\n"));
    let mut rest = Vec::new();
    amqp.read_to_end(&mut rest).expect("the end");
    eventually("the connection is gone", || of(&broker, "amqp").is_empty());
    let words = [&*format!("there is no connection {id}"), "'postroad connection list'"];
    broker.run(&["connection", "close", &id]).fails(1, &words);
    let mut wrong = postroad();
    wrong.args(["connection", "close", "everything"]);
    crate::harness::run(wrong, b"").fails(1, &["everything"]);
}
