//! Operator commands from other machines need the token.

use std::net::{IpAddr, UdpSocket};

use crate::harness::*;

/// A non-loopback address of this machine, if it has one. Nothing is sent.
fn outer_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[test]
fn command_from_another_machine_needs_the_operator_token() {
    let Some(outer) = outer_address() else {
        eprintln!("this machine has no address but loopback: nothing was tested");
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    let mut command = serve_at(&data, &format!("{outer}:0"));
    command.arg("--insecure");
    let broker = Broker::start_with(command, &data);
    let add = ["user", "add", "intruder", "secret"];

    run(broker.command(&add), b"").fails(1, &["operator.token", "--token-file", "POSTROAD_TOKEN"]);
    let mut wrong = broker.command(&add);
    wrong.env("POSTROAD_TOKEN", "guess");
    run(wrong, b"").fails(1, &["not that of a node of this cluster"]);
    let mut missing = broker.command(&add);
    missing.args(["--token-file", "/nowhere"]);
    run(missing, b"").fails(1, &["/nowhere"]);

    let file = data.join("operator.token");
    let mut with_file = broker.command(&["user", "list"]);
    with_file.arg("--token-file").arg(&file);
    let users = run(with_file, b"").ok();
    assert!(!users.contains("intruder"), "what was refused did nothing: {users}");
    let token = std::fs::read_to_string(&file).expect("is there");
    let mut with_variable = broker.command(&add);
    with_variable.env("POSTROAD_TOKEN", token.trim());
    run(with_variable, b"").ok();

    // Kafka's own requests need no token, as before.
    run(broker.command(&["topic", "create", "orders"]), b"").ok();
}

#[test]
fn on_loopback_a_command_needs_no_token() {
    let broker = Broker::start();
    run(broker.command(&["user", "list"]), b"").ok();
}
