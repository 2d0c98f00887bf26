//! Errors name the problem and the remedy. Their exit codes distinguish errors of the user (1) from errors of the
//! server (2).

use crate::harness::{Broker, postroad, run, serve};

fn say(arguments: &[&str]) -> crate::harness::CommandOutput {
    let mut command = postroad();
    command.args(arguments);
    run(command, b"")
}

#[test]
fn unreachable_broker_is_named_with_the_remedy() {
    // No process of this test listens on port 1.
    for arguments in [
        &["topic", "list"][..],
        &["produce", "t"],
        &["consume", "t"],
        &["consume", "t", "-g", "g"],
        &["group", "list"],
    ] {
        let arguments = [arguments, &["-b", "127.0.0.1:1"]].concat();
        let words = [
            "cannot reach 127.0.0.1:1: connection refused",
            "start it with 'postroad serve'",
            "--bootstrap",
        ];
        say(&arguments).fails(2, &words);
    }
}

#[test]
fn the_next_of_several_addresses_is_tried() {
    let broker = Broker::start();
    let several = format!("127.0.0.1:1,{}", broker.address);
    say(&["topic", "list", "-b", &several]).ok();
}

#[test]
fn server_of_another_protocol_is_distinguished_from_a_broker() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            use std::io::Write;
            let _ = (&stream).write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            std::thread::sleep(std::time::Duration::from_secs(5));
        }
    });
    let words = ["cannot be read", "does it speak Kafka?"];
    say(&["topic", "list", "-b", &address]).fails(2, &words);
}

#[test]
fn address_with_a_scheme_is_rejected_with_the_accepted_form() {
    for address in ["http://localhost:9092", "kafka://broker", "a:b:9092"] {
        say(&["topic", "list", "-b", address]).fails(1, &[address, "HOST:PORT without a scheme"]);
    }
}

#[test]
fn errors_are_json_with_output_json() {
    let broker = Broker::start();
    broker.run(&["topic", "create", "there"]).ok();
    let said = broker.run(&["topic", "create", "new", "there", "--output", "json"]);
    assert_eq!(said.code, Some(1));
    let error: serde_json::Value = serde_json::from_str(&said.err).expect("an error in JSON");
    assert_eq!(error["error"]["code"], 1);
    let topics: serde_json::Value = serde_json::from_str(&said.out).expect("topics in JSON");
    assert_eq!((&topics[0]["created"], &topics[1]["created"]), (&true.into(), &false.into()));
    let why = topics[1]["error"].as_str().expect("a reason");
    assert!(why.contains("exists"), "{why}");
}

#[test]
fn offset_beyond_the_end_is_named_with_the_end() {
    let broker = Broker::start();
    broker.run(&["topic", "create", "t"]).ok();
    broker.feed(&["produce", "t"], "1\n2\n").ok();
    let said = broker.run(&["consume", "t", "--from", "99999999"]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), ""));
    assert!(said.err.contains("t/0 ends at offset 2"), "{}", said.err);
}

#[test]
fn data_directory_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("is written");
    let path = file.display().to_string();
    let data = ["serve", "--kafka", "127.0.0.1:0", "--amqp", "off", "--http", "off", "--data"];
    say(&[&data[..], &[&path]].concat()).fails(2, &[&path, "is a file", "--data"]);
}

#[test]
fn wrong_setting_is_blamed_on_the_file_or_the_variable() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("b.toml");
    std::fs::write(&file, "kafka = \"nope\"\n").expect("is written");
    let path = file.display().to_string();
    say(&["serve", "--config", &path]).fails(1, &[&format!("kafka in {path} \"nope\"")]);
    let mut command = postroad();
    command.arg("serve").env("POSTROAD_KAFKA", "nope");
    run(command, b"").fails(1, &["the variable POSTROAD_KAFKA \"nope\""]);
    let mut command = postroad();
    command.arg("serve").env("POSTROAD_SHARDS", "abc");
    run(command, b"").fails(1, &["the value is that of the variable POSTROAD_SHARDS"]);
}

#[test]
fn wrong_flags_are_errors_of_the_user() {
    for (arguments, words) in [
        (&["frobnicate"][..], "unrecognized subcommand"),
        (&["topic", "create"], "required"),
        (&["topic", "list", "--outptu", "json"], "--outptu"),
        (&["topic", "list", "-b", "127.0.0.1:x"], "is not an address"),
        (&["produce", "t", "--acks", "2"], "possible values"),
        (&["consume", "t", "--from", "somewhere"], "is not a position"),
        (&["consume", "t", "-o", "json", "-s", ":"], "JSON has both"),
        (&["group", "reset", "g", "--to", "sometime"], "is not a position"),
        (&["serve", "--kafka", "nowhere"], "is not an address and port"),
        (&["serve", "--segment-bytes", "1"], "--segment-bytes"),
        (&["serve", "--threads", "0"], "must be at least 1"),
        (&["serve", "--config", "/nonexistent.toml"], "cannot be read"),
        (&["serve", "--log", "a=b=c"], "log filter"),
    ] {
        say(arguments).fails(1, &[words]);
    }
    say(&["topic", "list", "--nonsense"]).fails(1, &["postroad: unexpected argument '--nonsense'"]);
}

#[test]
fn help_version_and_completion_go_to_standard_output() {
    assert!(say(&["--help"]).ok().contains("Usage: postroad"));
    let version = say(&["--version"]).ok();
    assert!(version.starts_with("postroad "));
    assert_eq!(say(&["version"]).ok(), version);
    for shell in ["bash", "zsh", "fish"] {
        assert!(say(&["completion", shell]).ok().contains("postroad"));
    }
}

#[test]
fn only_a_survivor_of_a_cluster_is_recovered_and_only_while_it_does_not_run() {
    let folder = tempfile::tempdir().expect("a directory");
    let place = folder.path().join("alone");
    let data = place.display().to_string();
    let missing = folder.path().join("missing").display().to_string();
    let recover = |data: &str, lost: &str| say(&["recover", "--data", data, "--lost", lost]);
    recover(&missing, "2")
        .fails(1, &["is of no node of a founded cluster", "postroad serve --data"]);
    say(&["recover", "--data", &data]).fails(1, &["--lost"]);
    let broker = Broker::start_on(&place);
    broker.terminate();
    recover(&data, "2").fails(1, &["is of no node of a founded cluster"]);

    let place = folder.path().join("member");
    let data = place.display().to_string();
    let peer =
        format!("127.77.{}.{}:7701", std::process::id() / 250 % 250, std::process::id() % 250);
    let mut command = serve(&place);
    command.args(["--peer", &peer, "--seeds", &peer]);
    let broker = Broker::start_with(command, &place);
    recover(&data, "2").fails(1, &["another process uses", "stop it"]);
    broker.terminate();
    recover(&data, "1").fails(1, &["node 1 is the one that this directory is of"]);
    recover(&data, "2,3").fails(1, &["node 2 votes in no shard", "[1]"]);
}
