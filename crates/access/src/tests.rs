//! Users over a broker on a simulated disk: persistence and concurrent changes.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use access_rules::acl::{Action, Pattern, Resource, Rule, Verdict};
use access_rules::{OPERATOR, Permissions};
use broker::{Broker, BrokerOptions};
use passwords::rabbitmq_hash::RabbitMqHash;
use passwords::{Verifiers, hash_password};
use scram::Hash;
use world::{SimulatedDisk, World};

use super::*;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

async fn open_on(disk: &SimulatedDisk, settings: &[SettingsUser]) -> (Broker, Users) {
    let options = BrokerOptions {
        journal: journal::Options {
            segment_bytes: 1 << 20,
            disk_reserve_bytes: 0,
            ..journal::Options::default()
        },
        ..BrokerOptions::default()
    };
    let broker = Broker::open(World::on(Arc::new(disk.clone())), Path::new("/data"), options).await;
    let broker = broker.expect("the broker opens");
    let users = Users::open(broker.clone(), settings.to_vec(), |name| name != "gone").await;
    (broker, users.expect("users are read"))
}

fn credentials(name: &str, password: &str) -> Credentials {
    Credentials::from_bytes(name.as_bytes(), password.as_bytes())
}

fn everything() -> Permissions {
    let all = || ".*".to_owned();
    Permissions { configure: all(), write: all(), read: all() }
}

fn hash(password: &str) -> String {
    hash_password(password).expect("a hash")
}

#[tokio::test]
async fn user_logs_in_by_password_and_survives_a_restart() {
    let disk = SimulatedDisk::default();
    let (broker, users) = open_on(&disk, &[]).await;
    users.add("app", hash("secret")).await.expect("added");
    users.allow("app", "/", everything()).await.expect("allowed");
    let exists = UserError::Exists("app".to_owned());
    assert_eq!(users.add("app", hash("other")).await, Err(exists));
    broker.shutdown().await;
    drop((broker, users));
    let (broker, users) = open_on(&disk, &[]).await;
    let wrong = users.log_in(credentials("app", "wrong"), ELSEWHERE).await;
    let refused = LoginError::InvalidCredentials { user: "app".to_owned() };
    assert_eq!(wrong.err(), Some(refused));
    let app = users.log_in(credentials("app", "secret"), ELSEWHERE).await.expect("logged in");
    let again = users.log_in_at_once(&credentials("app", "secret"), ELSEWHERE);
    assert!(again.is_some(), "the password was right before");
    let grant = app.grant("/").expect("may open it");
    assert!(grant.allows(Permission::Read, "q") && app.grant("other").is_none());
    users.delete("app").await.expect("deleted");
    assert!(!app.exists() && app.grant("/").is_none());
    broker.shutdown().await;
}

#[tokio::test]
async fn guest_exists_until_deleted_and_connects_from_localhost_only() {
    let disk = SimulatedDisk::default();
    let (broker, users) = open_on(&disk, &[]).await;
    let guest = credentials("guest", "guest");
    let refused = LoginError::LoopbackOnly { user: "guest".to_owned() };
    assert_eq!(users.log_in(guest.clone(), ELSEWHERE).await.err(), Some(refused));
    users.log_in(guest.clone(), HERE).await.expect("logged in");
    users.delete("guest").await.expect("deleted");
    broker.shutdown().await;
    drop((broker, users));
    let (broker, users) = open_on(&disk, &[]).await;
    assert!(!users.exists("guest"));
    users.add("guest", hash("guest")).await.expect("added anew");
    users.log_in(guest, HERE).await.expect("logged in");
    broker.shutdown().await;
}

#[tokio::test]
async fn concurrent_changes_of_one_user_are_all_applied() {
    let disk = SimulatedDisk::default();
    let (broker, users) = open_on(&disk, &[]).await;
    users.add("app", hash("secret")).await.expect("added");
    let names: Vec<String> = (0..16).map(|number| format!("host{number}")).collect();
    let changes = names.iter().map(|name| users.allow("app", name, everything()));
    futures_util::future::try_join_all(changes).await.expect("allowed");
    let app = users.list().into_iter().find(|user| &*user.name == "app").expect("listed");
    assert_eq!(app.permissions.len(), names.len());
    let twice = [users.delete("app"), users.delete("app")];
    let deleted = futures_util::future::join_all(twice).await;
    assert_eq!(deleted.iter().filter(|deleted| deleted.is_ok()).count(), 1);
    broker.shutdown().await;
}

#[tokio::test]
async fn deleted_user_leaves_no_rules_to_a_later_user_of_its_name() {
    let disk = SimulatedDisk::default();
    let (broker, users) = open_on(&disk, &[]).await;
    let of = |principal: &str| Rule {
        resource: Resource::Topic,
        pattern: Pattern::Literal,
        name: "t".to_owned(),
        principal: principal.to_owned(),
        host: "*".to_owned(),
        action: Action::Read,
        verdict: Verdict::Allow,
    };
    for name in ["app", "guest"] {
        if name != "guest" {
            users.add(name, hash("secret")).await.expect("added");
        }
        let principal = format!("User:{name}");
        let rules = vec![of(&principal), of("User:apply"), of("User:*")];
        users.add_rules(rules).await.expect("added");
        users.delete(name).await.expect("deleted");
        assert_eq!(*users.rules(), [of("User:*"), of("User:apply")], "{name}");
        users.add(name, hash("other")).await.expect("added");
        assert_eq!(users.rules().len(), 2, "{name}");
    }
    broker.shutdown().await;
    drop((broker, users));
    let (broker, users) = open_on(&disk, &[]).await;
    assert_eq!(users.rules().len(), 2);
    broker.shutdown().await;
}

#[tokio::test]
async fn users_of_the_settings_cannot_be_changed_and_may_do_everything() {
    let disk = SimulatedDisk::default();
    let admin = SettingsUser { name: "admin".to_owned(), password: "secret".to_owned() };
    let (broker, users) = open_on(&disk, &[admin]).await;
    assert!(!users.exists("guest"));
    let admin = users.log_in(credentials("admin", "secret"), ELSEWHERE).await.expect("logged in");
    let grant = admin.grant("any").expect("may open it");
    assert!(grant.allows(Permission::Configure, "q"));
    let refused = UserError::OfSettings("admin".to_owned());
    assert_eq!(users.delete("admin").await, Err(refused));
    let missing = UserError::NoSuchVirtualHost("gone".to_owned());
    users.add("app", hash("secret")).await.expect("added");
    assert_eq!(users.allow("app", "gone", everything()).await, Err(missing));
    broker.shutdown().await;
}

fn verifiers(password: &str) -> Verifiers {
    Verifiers::from_password(password).expect("made")
}

/// Logs in by SCRAM, as a client does. Returns the salt, too.
async fn prove(
    users: &Users,
    name: &str,
    password: &str,
    peer: IpAddr,
) -> (String, Result<Principal, LoginError>) {
    let client = scram::client::Client::new(Hash::Sha256, name, password, "nonce");
    let first = client.first();
    let challenged = users.challenge(Hash::Sha256, first.as_bytes(), peer).await;
    let (proof, challenge) = challenged.expect("a challenge, whoever asks");
    let salt = challenge.split_once(",s=").expect("a salt").1.to_owned();
    let (last, expected) = client.answer(challenge.as_bytes()).expect("well-formed");
    let proved = users.proved(proof, last.as_bytes(), peer).await;
    let proved = proved.map(|(principal, answer)| {
        expected.check(answer.as_bytes()).expect("the node knows the password");
        principal
    });
    (salt, proved)
}

#[tokio::test]
async fn scram_proves_a_password_and_does_not_reveal_unknown_users() {
    let disk = SimulatedDisk::default();
    let settings = [SettingsUser { name: "root".into(), password: "toor".into() }];
    let (broker, users) = open_on(&disk, &settings).await;
    users.add("app", verifiers("secret")).await.expect("added");
    for (name, password) in [("app", "secret"), ("root", "toor")] {
        let (_, proved) = prove(&users, name, password, ELSEWHERE).await;
        assert_eq!(&**proved.expect("is right").name(), name);
        assert!(prove(&users, name, "wrong", ELSEWHERE).await.1.is_err());
    }
    let (salt, nobody) = prove(&users, "nobody", "secret", ELSEWHERE).await;
    assert!(matches!(nobody, Err(LoginError::NotProved { .. })), "{nobody:?}");
    assert!(salt.ends_with(",i=16384"), "{salt}");
    assert_eq!(prove(&users, "nobody", "x", ELSEWHERE).await.0, salt);
    assert_ne!(prove(&users, "somebody", "x", ELSEWHERE).await.0, salt);
    users.challenge(Hash::Sha256, b"rubbish", ELSEWHERE).await.expect_err("is no message");
    assert_eq!(users.failed_logins(), 6);
    broker.shutdown().await;
    drop((broker, users));
    // A restart does not reveal it either.
    let (broker, users) = open_on(&disk, &settings).await;
    assert_eq!(prove(&users, "nobody", "x", ELSEWHERE).await.0, salt);
    prove(&users, "app", "secret", ELSEWHERE).await.1.expect("is kept");
    broker.shutdown().await;
}

#[tokio::test]
async fn guest_logs_in_by_scram_from_localhost_only() {
    let (broker, users) = open_on(&SimulatedDisk::default(), &[]).await;
    prove(&users, "guest", "guest", HERE).await.1.expect("logged in");
    let elsewhere = prove(&users, "guest", "guest", ELSEWHERE).await.1;
    assert!(matches!(elsewhere, Err(LoginError::LoopbackOnly { .. })), "{elsewhere:?}");
    assert!(!users.has_any());
    users.add("app", hash("x")).await.expect("added");
    assert!(users.has_any());
    // A hash that is older than SCRAM support proves nothing.
    assert!(prove(&users, "app", "x", HERE).await.1.is_err());
    broker.shutdown().await;
}

#[tokio::test]
async fn scram_credential_of_one_mechanism_replaces_the_old_password() {
    let (broker, users) = open_on(&SimulatedDisk::default(), &[]).await;
    let made = |password| {
        scram::Verifier::from_password(Hash::Sha256, password, &[7; 16], 8_192).expect("made")
    };
    users.set_scram_credential("tool", made("one")).await.expect("the user is made");
    prove(&users, "tool", "one", ELSEWHERE).await.1.expect("is right");
    users.log_in(credentials("tool", "one"), ELSEWHERE).await.expect("said, not proved");
    let known = [ScramCredential { hash: Hash::Sha256, iterations: 8_192 }];
    assert_eq!(users.scram_credentials("tool").as_deref(), Some(&known[..]));
    users.delete_scram_credential("tool", Hash::Sha512).await.expect_err("is not there");
    users.delete_scram_credential("tool", Hash::Sha256).await.expect("is there");
    assert!(!users.exists("tool"), "there is nothing to log in by");

    users.add("app", verifiers("old")).await.expect("added");
    users.set_scram_credential("app", made("new")).await.expect("set");
    users.log_in(credentials("app", "new"), ELSEWHERE).await.expect("is right");
    users.log_in(credentials("app", "old"), ELSEWHERE).await.expect_err("was before");
    let reserved = users.add(OPERATOR, hash("x")).await;
    assert_eq!(reserved, Err(UserError::Name));
    broker.shutdown().await;
}

#[tokio::test]
async fn standing_ends_when_the_password_changes_or_the_user_is_deleted() {
    let root = SettingsUser { name: "root".to_owned(), password: "toor".to_owned() };
    let (_broker, users) = open_on(&SimulatedDisk::default(), &[root]).await;
    users.add("app", hash("secret")).await.expect("added");
    let app = users.log_in(credentials("app", "secret"), HERE).await.expect("logged in");
    let standing = users.standing(&app).expect("is there");
    users.allow("app", "/", everything()).await.expect("allowed");
    assert!(users.still_admits(&app, standing, HERE), "what it may do is something else");
    users.set_password("app", hash("secret")).await.expect("set");
    assert!(!users.still_admits(&app, standing, HERE));
    let standing = users.standing(&app).expect("is there");
    users.delete("app").await.expect("deleted");
    assert_eq!(users.standing(&app), None);
    users.add("app", hash("secret")).await.expect("added");
    assert!(!users.still_admits(&app, standing, HERE), "another user of that name");
    // A hash that was imported from RabbitMQ: here that of password test12, and then another one.
    let imported = |hash: &str| Verifiers {
        password_hash: None,
        rabbitmq: Some(RabbitMqHash::with_guessed_algorithm(hash)),
        scram: Vec::new(),
    };
    let documented = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR";
    users.add("moved", imported(documented)).await.expect("added");
    let moved = users.log_in(credentials("moved", "test12"), HERE).await.expect("logged in");
    let standing = users.standing(&moved).expect("is there");
    assert!(users.still_admits(&moved, standing, HERE));
    users.set_password("moved", imported(&documented.replace('k', "l"))).await.expect("set");
    assert!(!users.still_admits(&moved, standing, HERE));
    // Principals without a document.
    let root = users.log_in(credentials("root", "toor"), ELSEWHERE).await.expect("logged in");
    let operator = Principal::operator(&users);
    for principal in [root, operator] {
        let standing = users.standing(&principal).expect("is there");
        assert!(users.still_admits(&principal, standing, ELSEWHERE));
    }
    let (_broker, users) = open_on(&SimulatedDisk::default(), &[]).await;
    let guest = users.log_in(credentials("guest", "guest"), HERE).await.expect("logged in");
    let standing = users.standing(&guest).expect("is there");
    assert!(users.still_admits(&guest, standing, HERE));
    assert!(!users.still_admits(&guest, standing, ELSEWHERE), "guest is of this machine");
}

#[tokio::test]
async fn flood_of_guesses_from_one_address_does_not_delay_the_log_in_of_another() {
    let (broker, users) = open_on(&SimulatedDisk::default(), &[]).await;
    users.add("app", hash("secret")).await.expect("added");
    let guess = |number: usize| {
        let users = users.clone();
        let name = format!("guess-{}", number % 100);
        async move { users.log_in(credentials(&name, "wrong"), ELSEWHERE).await.is_ok() }
    };
    let flood: Vec<_> = (0..400).map(|number| tokio::spawn(guess(number))).collect();
    // All of them wait. A failure is counted once its password is checked.
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    let before = users.failed_logins();
    users.log_in(credentials("app", "secret"), HERE).await.expect("logged in");
    let checked = users.failed_logins() - before;
    assert!(checked <= 5, "{checked} of the flood were checked before it");
    assert!(flood.iter().filter(|guess| !guess.is_finished()).count() > 300);
    flood.iter().for_each(|guess| guess.abort());
    broker.shutdown().await;
}

#[tokio::test]
async fn parallel_guesses_of_one_name_are_no_faster_than_sequential_ones() {
    let (broker, users) = open_on(&SimulatedDisk::default(), &[]).await;
    users.add("app", hash("secret")).await.expect("added");
    let guess = || {
        let users = users.clone();
        async move { users.log_in(credentials("app", "wrong"), ELSEWHERE).await.is_ok() }
    };
    let guesses: Vec<_> = (0..60).map(|_| tokio::spawn(guess())).collect();
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    let answered = guesses.iter().filter(|guess| guess.is_finished()).count();
    // Four at a time, which wait for 0.1 to 3 seconds each.
    assert!((1..=16).contains(&answered), "{answered}");
    guesses.iter().for_each(|guess| guess.abort());
    broker.shutdown().await;
}

#[tokio::test]
async fn first_user_gives_a_notice_of_ports_that_require_log_in() {
    use crate::login_ports::{LoginPort, LoginPorts};
    let port = |setting, admission| {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 9_092));
        LoginPort { setting, address, admission }
    };
    for (admission, by_users, expected) in [
        (Admission::Open, true, Some("from the next start of this node on")),
        (Admission::OpenWithoutUsers, true, Some("from now on")),
        (Admission::Open, false, None),
        (Admission::Required, true, None),
    ] {
        let (broker, users) = open_on(&SimulatedDisk::default(), &[]).await;
        let ports = vec![port("kafka", admission), port("amqp", Admission::Required)];
        users.set_login_ports(LoginPorts { ports, by_users });
        assert_eq!(users.login_notice(), None, "there are none yet");
        let open = admission != Admission::Required;
        let line = if open { "amqp, open to everybody: kafka" } else { "kafka, amqp" };
        assert_eq!(users.login_line(), format!("log-in required: {line}"));
        users.add("app", hash("secret")).await.expect("added");
        let notice = users.login_notice();
        assert_eq!(notice.is_some(), expected.is_some(), "{admission:?} {notice:?}");
        if let (Some(notice), Some(expected)) = (notice, expected) {
            assert!(
                notice.contains(expected) && notice.contains("kafka 127.0.0.1:9092"),
                "{notice}"
            );
            assert!(notice.contains("--auth off") && !notice.contains("amqp"), "{notice}");
        }
        if admission == Admission::OpenWithoutUsers {
            assert_eq!(users.login_line(), "log-in required: kafka, amqp", "at once");
            users.add("second", hash("secret")).await.expect("added");
            assert_eq!(users.login_notice(), None, "it changes nothing");
        }
        broker.shutdown().await;
    }
}
