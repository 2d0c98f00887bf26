//! Encryption and logins, from the view of operators and their commands.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tasks::Task;

use crate::harness::{Broker, CommandOutput, postroad, run, serve, serve_at};

const SOON: Duration = Duration::from_secs(30);

fn path_of(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

fn make_pair(folder: &Path) {
    let mut command = postroad();
    command.args(["tls", "self-signed", "--dir"]).arg(folder);
    run(command, b"").ok();
}

fn with_files(command: &mut Command, folder: &Path) {
    command.args(["--kafka-tls", "127.0.0.1:0", "--tls-cert", &path_of(folder, "cert.pem")]);
    command.args(["--tls-key", &path_of(folder, "key.pem")]);
}

#[test]
fn self_signed_certificate_is_made_in_a_new_folder() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let new = folder.path().join("etc/postroad");
    let mut command = postroad();
    command.args(["tls", "self-signed", "--name", "broker.internal", "-o", "json", "--dir"]);
    command.arg(&new);
    let made = run(command, b"").json();
    assert!(new.join("key.pem").exists() && new.join("cert.pem").exists());
    let names = made["names"].as_array().expect("names");
    for name in ["localhost", "127.0.0.1", "broker.internal"] {
        assert!(names.iter().any(|it| it == name), "{names:?}");
    }
}

/// Enables TLS on a broker, with a new certificate in the folder.
pub(crate) fn encrypt(command: &mut Command, folder: &Path) {
    make_pair(folder);
    with_files(command, folder);
}

/// Makes a broker accept tokens of an issuer whose keys are in the folder.
pub(crate) fn trust_tokens(command: &mut Command, folder: &Path) {
    let keys = path_of(folder, "keys.json");
    if !Path::new(&keys).exists() {
        fs::write(&keys, KEYS).expect("is written");
    }
    command.args(["--oidc-issuer", "https://id.example.com", "--oidc-audience", "postroad"]);
    command.args(["--oidc-jwks", &keys]);
}

/// RFC 8037, appendix A.2.
const KEYS: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

/// A broker with a TLS port, and an admin whose password is in a file.
struct SecuredBroker {
    folder: tempfile::TempDir,
    broker: Broker,
}

impl SecuredBroker {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        make_pair(folder.path());
        fs::write(folder.path().join("password"), "se cret\n").expect("is written");
        let data = folder.path().join("data");
        let broker = Broker::start_with(Self::serve(folder.path()), &data);
        Self { folder, broker }
    }

    fn serve(folder: &Path) -> Command {
        let mut command = serve(&folder.join("data"));
        with_files(&mut command, folder);
        command.args(["--admin-user", "root"]);
        command.args(["--admin-password-file", &path_of(folder, "password")]);
        command
    }

    fn tls_address(&self) -> &str {
        let (_, rest) =
            self.broker.announcement.split_once("kafka-tls ").expect("the line says it");
        rest.split([',', ' ']).next().expect("an address")
    }

    /// A command over TLS without a token.
    fn tls(&self, arguments: &[&str]) -> Command {
        let mut command = postroad();
        command.args(arguments).args(["--tls-ca", &path_of(self.folder.path(), "cert.pem")]);
        command.env("POSTROAD_BOOTSTRAP", self.tls_address());
        command
    }

    fn as_root(&self, arguments: &[&str]) -> CommandOutput {
        let mut command = self.tls(arguments);
        command.args([
            "--login",
            "root",
            "--password-file",
            &path_of(self.folder.path(), "password"),
        ]);
        run(command, b"")
    }
}

#[test]
fn commands_log_in_over_tls_by_every_mechanism_and_not_with_a_wrong_password() {
    let safe = SecuredBroker::start();
    for mechanism in ["plain", "scram-sha-256", "scram-sha-512"] {
        let topic = format!("t-{mechanism}");
        safe.as_root(&["topic", "create", &topic, "--sasl", mechanism]).ok();
        let mut wrong = safe.tls(&["topic", "list", "--login", "root", "--sasl", mechanism]);
        wrong.env("POSTROAD_PASSWORD", "secret");
        run(wrong, b"").fails(1, &["cannot log in as root", "invalid credentials"]);
    }
    run(safe.tls(&["topic", "list"]), b"").fails(2, &["closed the connection", "--login"]);
    // The advertised port matches the connected one: produce requests use TLS, too.
    let mut produce = safe.tls(&["produce", "t-plain", "--login", "root"]);
    produce.args(["--password-file", &path_of(safe.folder.path(), "password")]);
    run(produce, b"one\ntwo\n").ok();
    let consumed = safe.as_root(&["consume", "t-plain", "--from", "earliest", "-n", "2"]).ok();
    assert!(consumed.contains("one") && consumed.contains("two"), "{consumed}");
}

#[test]
fn token_of_the_data_directory_is_a_login_on_this_machine() {
    let safe = SecuredBroker::start();
    safe.broker.run(&["topic", "create", "t"]).ok();
    safe.broker.run(&["user", "add", "app", "secret"]).ok();
    let mut without = safe.broker.command(&["topic", "list"]);
    without.env("POSTROAD_DATA", "/nowhere");
    run(without, b"").fails(2, &["--login"]);
    // A user without the right to describe the cluster is not an operator.
    let mut app = safe.tls(&["user", "list", "--login", "app"]);
    app.env("POSTROAD_PASSWORD", "secret");
    run(app, b"").fails(1, &["may describe the cluster"]);
}

#[test]
fn rules_grant_rights_and_access_explain_names_the_rule() {
    let safe = SecuredBroker::start();
    safe.broker.run(&["user", "add", "app", "secret"]).ok();
    safe.broker.run(&["topic", "create", "orders"]).ok();
    let as_app = |arguments: &[&str]| {
        let mut command = safe.tls(arguments);
        command.args(["--login", "app"]).env("POSTROAD_PASSWORD", "secret");
        run(command, b"one\n")
    };
    as_app(&["produce", "orders"]).fails(1, &["may not do that to the topic"]);
    assert_eq!(as_app(&["topic", "list"]).ok(), "no topics that app may see\n");
    let explain = ["access", "explain", "app", "write", "topic", "orders.eu"];
    assert_eq!(safe.broker.run(&explain).ok(), "not allowed: nothing allows it\n");
    safe.broker.run(&["acl", "add", "app", "write", "topic", "orders", "--prefixed"]).ok();
    as_app(&["produce", "orders"]).ok();
    let why = safe.broker.run(&explain).ok();
    assert!(why.starts_with("allowed: the rule: allow User:app write of prefixed topic"), "{why}");
    let listed = "USER  VERDICT  ACTION  RESOURCE  NAME    PATTERN   FROM\n\
                  app   allow    write   topic     orders  prefixed  *\n";
    assert_eq!(safe.broker.run(&["acl", "list"]).ok(), listed);
    as_app(&["acl", "list"]).fails(1, &["may not do that to the cluster"]);
    safe.broker.run(&["acl", "remove"]).fails(1, &["--all"]);
    assert_eq!(safe.broker.run(&["acl", "remove", "--user", "app"]).ok(), "removed 1 rules\n");
    as_app(&["produce", "orders"]).fails(1, &["may not do that to the topic"]);
    // RabbitMQ's permissions apply to topics, too.
    safe.broker.run(&["user", "allow", "app", "", "^orders$", ""]).ok();
    as_app(&["produce", "orders"]).ok();
    let why = safe.broker.run(&["access", "explain", "root", "alter", "cluster"]).ok();
    assert_eq!(why, "allowed: it may do everything\n");
    safe.broker.run(&["acl", "add", "app", "fly", "topic", "t"]).fails(1, &["it is one of"]);
    let unnamed = ["the name of the topic is missing"];
    safe.broker.run(&["acl", "add", "app", "write", "topic"]).fails(1, &unnamed);
    safe.broker.run(&["access", "explain", "app", "write", "topic"]).fails(1, &unnamed);
}

#[test]
fn changed_certificate_is_used_after_a_signal() {
    let safe = SecuredBroker::start();
    let old = safe.folder.path().join("old.pem");
    let (cert, key) = (safe.folder.path().join("cert.pem"), safe.folder.path().join("key.pem"));
    fs::rename(&cert, &old).expect("is there");
    fs::remove_file(&key).expect("is there");
    make_pair(safe.folder.path());
    safe.broker.signal(Signal::HUP);
    let begun = Instant::now();
    // A client that trusts only the new certificate can connect once the broker uses it.
    while safe.as_root(&["topic", "list"]).code != Some(0) {
        assert!(begun.elapsed() < SOON, "the new certificate is not shown");
    }
    let mut before = safe.tls(&["topic", "list", "--login", "root"]);
    before.env("POSTROAD_PASSWORD", "se cret").args(["--tls-ca", &old.display().to_string()]);
    assert_ne!(run(before, b"").code, Some(0));
}

fn refused(folder: &Path, arguments: &[&str]) -> CommandOutput {
    let mut command = serve_at(&folder.join("data"), "0.0.0.0:0");
    command.args(arguments).env("POSTROAD_LOG", "error");
    command.stderr(std::process::Stdio::piped());
    run(command, b"")
}

#[test]
fn port_open_to_everyone_is_not_opened() {
    let folder = tempfile::tempdir().expect("a folder");
    let ways = ["--admin-user NAME --admin-password-file FILE", "127.0.0.1:", "--insecure"];
    refused(folder.path(), &[]).fails(1, &ways);
    refused(folder.path(), &["--auth", "off"]).fails(1, &ways);
    make_pair(folder.path());
    fs::set_permissions(
        folder.path().join("key.pem"),
        std::os::unix::fs::PermissionsExt::from_mode(0o644),
    )
    .expect("is set");
    let (cert, key) = (path_of(folder.path(), "cert.pem"), path_of(folder.path(), "key.pem"));
    let tls = ["--insecure", "--kafka-tls", "127.0.0.1:0", "--tls-cert", &cert, "--tls-key", &key];
    refused(folder.path(), &tls).fails(1, &["chmod 600"]);
}

#[test]
fn panic_while_the_files_are_read_keeps_the_certificate() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, trigger) = (folder.path().join("data"), folder.path().join("panic"));
    let mut command = serve(&data);
    encrypt(&mut command, folder.path());
    let task = Task::CertificateFiles;
    command.env(tasks::inject::VARIABLE, format!("{}:{}", task.name(), trigger.display()));
    let broker = Broker::start_with(command, &data);
    fs::write(&trigger, "").expect("is written");
    broker.signal(Signal::HUP);
    let begun = Instant::now();
    while trigger.exists() {
        assert!(begun.elapsed() < SOON, "the files are not read");
        std::thread::sleep(Duration::from_millis(1));
    }
    let (_, rest) = broker.announcement.split_once("kafka-tls ").expect("the line says it");
    let mut list = postroad();
    list.args(["topic", "list", "--tls-ca", &path_of(folder.path(), "cert.pem"), "-b"]);
    list.arg(rest.split([',', ' ']).next().expect("an address"));
    run(list, b"").ok();
    assert_eq!(broker.terminate().0.code(), Some(0));
}

#[test]
fn token_logins_are_required_and_survive_a_panic_while_keys_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, trigger) = (folder.path().join("data"), folder.path().join("panic"));
    let mut command = serve(&data);
    trust_tokens(&mut command, folder.path());
    let task = Task::TokenKeyFile;
    command.env(tasks::inject::VARIABLE, format!("{}:{}", task.name(), trigger.display()));
    let broker = Broker::start_with(command, &data);
    fs::write(&trigger, "").expect("is written");
    let begun = Instant::now();
    while trigger.exists() {
        assert!(begun.elapsed() < SOON, "the keys are not read");
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut nobody = broker.command(&["topic", "list"]);
    nobody.env("POSTROAD_DATA", "/nowhere");
    run(nobody, b"").fails(2, &["--login"]);
    broker.run(&["topic", "list"]).ok();
    assert_eq!(broker.terminate().0.code(), Some(0));
    let mut half = serve(&data);
    half.args(["--oidc-issuer", "https://id.example.com"]);
    run(half, b"").fails(1, &["--oidc-issuer", "--oidc-audience"]);
}

#[test]
fn certificate_principals_need_a_client_ca_and_open_no_port() {
    let folder = tempfile::tempdir().expect("a folder");
    make_pair(folder.path());
    let mut command = serve(&folder.path().join("data"));
    with_files(&mut command, folder.path());
    command.args(["--tls-principal", "cn"]);
    run(command, b"").fails(1, &["--tls-principal", "--tls-client-ca"]);
    let data = folder.path().join("data");
    let mut command = serve(&data);
    with_files(&mut command, folder.path());
    command.args(["--tls-principal", "cn", "--tls-client-auth", "optional"]);
    command.args(["--tls-client-ca", &path_of(folder.path(), "cert.pem")]);
    let broker = Broker::start_with(command, &data);
    // Without encryption, from this machine, access stays open: there are no users.
    let mut plain = broker.command(&["topic", "list"]);
    plain.env("POSTROAD_DATA", "/nowhere");
    run(plain, b"").ok();
    let mut list = postroad();
    list.args(["topic", "list", "--tls-ca", &path_of(folder.path(), "cert.pem"), "-b"]);
    list.arg(broker.port("kafka-tls ").to_string());
    run(list, b"").fails(2, &["--login"]);
}
