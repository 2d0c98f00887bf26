//! `postroad vhost`, `policy` and `user`.

use serde_json::json;

use crate::harness::{Broker, postroad, run, serve};

#[test]
fn vhosts_are_added_listed_and_deleted() {
    let broker = Broker::start();
    assert_eq!(broker.run(&["vhost", "add", "shop/eu"]).ok(), "created vhost shop/eu\n");
    assert_eq!(broker.run(&["vhost", "add", "shop/eu"]).ok(), "found vhost shop/eu\n");
    let listed = broker.run(&["vhost", "list"]).ok();
    let expected = "VHOST    QUEUES  EXCHANGES  POLICIES\n\
                    /             0          7         0\n\
                    shop/eu       0          7         0\n";
    assert_eq!(listed, expected);
    let json = broker.run(&["vhost", "list", "-o", "json"]).json();
    let shop = json!({"name": "shop/eu", "queues": 0, "exchanges": 7, "policies": 0});
    assert_eq!(json[1], shop);
    assert_eq!(broker.run(&["vhost", "delete", "shop/eu"]).ok(), "deleted vhost shop/eu\n");
    let words = ["there is no vhost shop/eu", "'postroad vhost add shop/eu'"];
    broker.run(&["vhost", "delete", "shop/eu"]).fails(1, &words);
    broker.run(&["vhost", "delete", "/"]).fails(1, &["the default vhost / cannot be deleted"]);
    broker.run(&["vhost", "add", ""]).fails(1, &["a vhost has a name of 1 to 255 bytes"]);
}

#[test]
fn policies_are_set_listed_in_order_and_cleared() {
    let broker = Broker::start();
    broker.run(&["vhost", "add", "shop"]).ok();
    let set = ["policy", "set", "short", "^app", r#"{"max-length": 5, "expires": 1000}"#];
    assert_eq!(broker.run(&set).ok(), "created policy short of vhost /\n");
    assert_eq!(broker.run(&set).ok(), "changed policy short of vhost /\n");
    let flags = ["--priority", "7", "--apply-to", "classic_queues"];
    let first = ["policy", "set", "first", "^app", r#"{"message-ttl": 5}"#];
    broker.run(&[&first[..], &flags].concat()).ok();
    let other = ["policy", "set", "lost", "", r#"{"alternate-exchange": "x"}"#, "--vhost", "shop"];
    broker.run(&[&other[..], &["--apply-to", "exchanges"]].concat()).ok();
    let expected = "VHOST  POLICY  PATTERN  APPLIES TO      PRIORITY  DEFINITION\n\
                    /      first   ^app     classic_queues         7  {\"message-ttl\":5}\n\
                    /      short   ^app     all                    0  {\"expires\":1000,\"max-length\":5}\n\
                    shop   lost             exchanges              0  {\"alternate-exchange\":\"x\"}\n";
    assert_eq!(broker.run(&["policy", "list"]).ok(), expected);
    let json = broker.run(&["policy", "list", "--vhost", "shop", "-o", "json"]).json();
    let lost = json!([{
        "vhost": "shop",
        "name": "lost",
        "pattern": "",
        "apply-to": "exchanges",
        "priority": 0,
        "definition": {"alternate-exchange": "x"}
    }]);
    assert_eq!(json, lost);
    let cleared = broker.run(&["policy", "clear", "lost", "--vhost", "shop"]).ok();
    assert_eq!(cleared, "cleared policy lost of vhost shop\n");
    let none = broker.run(&["policy", "list", "--vhost", "shop"]).ok();
    assert_eq!(none, "no policies\n");
    broker.run(&["policy", "clear", "lost"]).fails(1, &["vhost / has no policy lost"]);
    broker.run(&["policy", "list", "--vhost", "no"]).fails(1, &["there is no vhost no"]);
    for (pattern, definition, words) in [
        ("(", r#"{"expires": 1}"#, "pattern should be regular expression"),
        ("", r#"{"ha-mode": "all"}"#, "\"ha-mode\" is not recognised as a policy setting"),
        ("", r#"{"message-ttl": "1h"}"#, "\"1h\" is not a valid message TTL"),
        ("", "max-length: 5", "write a JSON object"),
        ("", "{}", "no policy provided"),
    ] {
        broker.run(&["policy", "set", "p", pattern, definition]).fails(1, &[words]);
    }
}

#[test]
fn users_have_passwords_and_permissions_and_survive_a_crash() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    let broker = Broker::start_on(&data);
    let added = broker.feed(&["user", "add", "app"], "se:cret\n").ok();
    let note = added.strip_prefix("created user app\nnote: ").expect("what it means");
    for said in ["from the next start of this node on", "kafka 127.0.0.1:", "--auth off"] {
        assert!(note.contains(said), "{note}");
    }
    broker.run(&["user", "add", "other", "pass"]).ok();
    let changed = broker.feed(&["user", "password", "app"], "better").ok();
    assert_eq!(changed, "changed the password of user app\n");
    broker.run(&["vhost", "add", "shop"]).ok();
    let allowed =
        broker.run(&["user", "allow", "app", "--vhost", "shop", "^app", "^(app|amq\\.)", ""]).ok();
    assert_eq!(allowed, "set the permissions of user app in vhost shop\n");
    broker.run(&["user", "allow", "other", ".*", ".*", ".*"]).ok();
    assert_eq!(broker.run(&["user", "delete", "other"]).ok(), "deleted user other\n");
    broker.kill();

    let broker = Broker::start_on(&data);
    let expected = "USER   SET BY    CONNECTS FROM  VHOSTS\n\
                    app    commands  anywhere       shop\n\
                    guest  commands  this machine   /\n";
    assert_eq!(broker.run(&["user", "list"]).ok(), expected);
    let expected = "USER  VHOST  CONFIGURE  WRITE           READ\n\
                    app   shop   '^app'     '^(app|amq\\.)'  ''\n";
    assert_eq!(broker.run(&["user", "permissions", "app"]).ok(), expected);
    let json = broker.run(&["user", "permissions", "--vhost", "/", "-o", "json"]).json();
    let guest = json!([
        {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
    ]);
    assert_eq!(json, guest);
    let denied = broker.run(&["user", "deny", "app", "--vhost", "shop"]).ok();
    assert_eq!(denied, "user app may do nothing in vhost shop now\n");
    let words = ["user app has no permissions in vhost shop"];
    broker.run(&["user", "deny", "app", "--vhost", "shop"]).fails(1, &words);
    // Passwords are neither in the log nor in the data.
    let (status, log) = broker.terminate();
    assert!(status.success(), "{log}");
    assert!(log.contains("user \"app\" is added"), "{log}");
    for text in ["se:cret", "better", "argon2"] {
        assert!(!log.contains(text), "{text} in {log}");
    }
    assert!(!contains(&data, b"se:cret") && contains(&data, b"$argon2id$"));
}

fn contains(folder: &std::path::Path, wanted: &[u8]) -> bool {
    let entries = std::fs::read_dir(folder).expect("a folder");
    entries.map(|entry| entry.expect("an entry").path()).any(|path| match path.is_dir() {
        true => contains(&path, wanted),
        false => {
            let bytes = std::fs::read(&path).expect("a file");
            bytes.windows(wanted.len()).any(|window| window == wanted)
        }
    })
}

#[test]
fn mistakes_about_users_are_reported_with_a_remedy() {
    let broker = Broker::start();
    let guest = ["user guest is there already", "'postroad user password guest'"];
    broker.run(&["user", "add", "guest", "x"]).fails(1, &guest);
    broker.feed(&["user", "add", "app"], "\n").fails(1, &["at least one character"]);
    broker.feed(&["user", "add", "app"], "").fails(1, &["at least one character"]);
    let nobody = ["there is no user nobody", "'postroad user add nobody'"];
    broker.run(&["user", "delete", "nobody"]).fails(1, &nobody);
    broker.run(&["user", "password", "nobody", "x"]).fails(1, &nobody);
    broker.run(&["user", "allow", "nobody", "", "", ""]).fails(1, &nobody);
    broker.run(&["user", "permissions", "nobody"]).fails(1, &["there is no user nobody"]);
    let allow = ["user", "allow", "guest", "--vhost"];
    let missing = [&allow[..], &["no", "", "", ""]].concat();
    broker.run(&missing).fails(1, &["there is no vhost no"]);
    let wrong = [&allow[..], &["/", "(", "", ""]].concat();
    broker.run(&wrong).fails(1, &["the pattern for configure is no regular expression"]);
}

#[test]
fn users_from_the_settings_are_listed_and_cannot_be_changed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    let mut command = serve(&data);
    command.args(["--amqp-user", "root:toor"]);
    let broker = Broker::start_with(command, &data);
    let expected = "USER  SET BY    CONNECTS FROM  VHOSTS\n\
                    root  settings  anywhere       all\n";
    assert_eq!(broker.run(&["user", "list"]).ok(), expected);
    for command in ["delete", "password", "deny"] {
        let more = if command == "password" { &["x"][..] } else { &[] };
        let said = broker.run(&[&["user", command, "root"], more].concat());
        said.fails(1, &["user root is one of the node's settings (amqp-user or admin-user)"]);
    }
}

#[test]
fn unreachable_broker_is_named() {
    let mut command = postroad();
    command.args(["user", "list", "--bootstrap", "127.0.0.1:1"]);
    run(command, b"").fails(2, &["cannot reach 127.0.0.1:1", "postroad serve"]);
}
