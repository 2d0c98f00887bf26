//! `postroad doctor`: its findings, and its redaction.

use std::fs;
use std::path::Path;

use crate::harness::{Broker, log, run, serve};

/// Each is a secret given to the node or the command in a different way.
const CANARIES: [&str; 7] = [
    "canary-admin",
    "canary-amqp",
    "canary-user",
    "canary-env",
    "canary-log",
    "canary-header",
    "canary-address",
];

fn all_of(folder: &Path) -> Vec<(String, String)> {
    let files = fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file"));
    let text = |file: fs::DirEntry| {
        let name = file.file_name().to_string_lossy().into_owned();
        (name, fs::read_to_string(file.path()).expect("text"))
    };
    files.map(text).collect()
}

#[test]
fn bundle_has_the_inspected_items_and_no_secrets() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let [admin, amqp, user, env, in_log, header, address] = CANARIES;
    fs::write(path("admin"), format!("{admin}\n")).expect("is written");
    let config = format!(
        "admin-user = \"root\"\nadmin-password-file = \"{}\"\namqp-user = [\"app:{amqp}\"]\n\
         allow-plaintext-auth = true\naudit = \"on\"\n",
        path("admin").display()
    );
    fs::write(path("postroad.toml"), config).expect("is written");
    let mut command = serve(&path("data"));
    command.arg("--config").arg(path("postroad.toml"));
    let broker = Broker::start_with(command, &path("data"));
    broker.run(&["user", "add", "somebody", user]).ok();
    broker.run(&["topic", "create", "orders"]).ok();
    let lines = format!(
        "password={in_log} for app\nAuthorization: Basic {header}\nto amqp://app:{address}@host:5672/v\n"
    );
    fs::write(path("node.log"), log(&path("data")) + &lines).expect("is written");

    let http = broker.http().to_string();
    let mut doctor = broker.command(&["doctor", "--http", &http, "-o", "json"]);
    doctor.env("POSTROAD_PASSWORD", env).arg("--config").arg(path("postroad.toml"));
    doctor.arg("--data").arg(path("data")).arg("--log").arg(path("node.log"));
    doctor.arg("--out").arg(path("bundle"));
    let said = run(doctor, b"");
    let text = said.out.clone();
    assert!(text.contains("\"checks\""), "{text}");

    let bundle = all_of(&path("bundle"));
    let token = fs::read_to_string(path("data").join("operator.token")).expect("a token");
    for (name, text) in &bundle {
        for secret in CANARIES.iter().copied().chain([token.trim()]) {
            assert!(!text.contains(secret), "{secret} is in {name}");
        }
    }
    let of = |name: &str| {
        let found = bundle.iter().find(|(known, _)| known == name);
        found.map(|(_, text)| text.as_str()).unwrap_or_else(|| panic!("no {name}"))
    };
    assert!(of("version.json").contains(env!("CARGO_PKG_VERSION")));
    assert!(of("settings.json").contains("app:(left out)"), "{}", of("settings.json"));
    assert!(of("metrics.txt").contains("postroad_build_info"));
    assert!(of("shards.json").contains("shard"));
    assert!(of("kernel.json").contains("open_files_max"));
    assert!(of("disk.json").contains("sync_micros"));
    assert!(of("log.txt").contains("password=(left out) for app"));
    let findings: Vec<serde_json::Value> = serde_json::from_str(of("findings.json")).expect("JSON");
    let finding = |name: &str| findings.iter().find(|it| it["name"] == name).expect(name);
    assert_eq!(finding("node")["verdict"], "well");
    assert_eq!(finding("metrics")["verdict"], "well");
    let notes = findings.iter().filter(|it| it["name"] == "settings").count();
    assert_eq!(notes, 2, "{findings:?}");
    // An existing bundle is not overwritten.
    let mut again = broker.command(&["doctor", "--http", "off"]);
    again.arg("--data").arg(path("data")).arg("--out").arg(path("bundle"));
    run(again, b"").fails(1, &["bundle"]);
}

#[test]
fn unreachable_node_is_a_finding() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut doctor = crate::harness::postroad();
    doctor.args(["doctor", "-b", "127.0.0.1:1", "--http", "127.0.0.1:1", "--data"]);
    doctor.arg(folder.path());
    let said = run(doctor, b"");
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("BAD") && said.out.contains("--bootstrap"), "{said:?}");
}
