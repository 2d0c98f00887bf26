//! Users over a broker on a simulated disk: what a restart keeps, and changes at the same time.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use broker::{Broker, BrokerOptions};
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
async fn a_user_logs_in_by_its_password_and_is_kept() {
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
    assert!(matches!(again, Some(Ok(_))), "the password was right before");
    let grant = app.grant("/").expect("may open it");
    assert!(grant.allows(Permission::Read, "q") && app.grant("other").is_none());
    users.delete("app").await.expect("deleted");
    assert!(!app.exists() && app.grant("/").is_none());
    broker.shutdown().await;
}

#[tokio::test]
async fn guest_is_there_until_it_is_deleted_and_comes_from_this_machine() {
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
async fn changes_of_one_user_at_the_same_time_are_all_made() {
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
async fn the_settings_users_are_not_changed_and_may_do_everything() {
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
