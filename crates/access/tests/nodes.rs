//! Users on three nodes: changes made on one apply on all.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use access::{Credentials, Users};
use passwords::hash_password;
use test_cluster::start_three;
use tokio::time::{sleep, timeout};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const SOON: Duration = Duration::from_secs(30);

fn says(password: &str) -> Credentials {
    Credentials { name: "alice".to_owned(), password: password.to_owned() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_created_at_one_node_logs_in_at_another_until_deleted() {
    let nodes = timeout(SOON, start_three()).await.expect("they start");
    let mut users = Vec::new();
    for node in &nodes {
        node.broker.ready().await.expect("each shard is led");
        let opened = Users::open(node.broker.clone(), Vec::new(), |name| name == "/").await;
        users.push(opened.expect("they open"));
    }
    let hash = |password: &str| hash_password(password).expect("a hash");
    users[1].add("alice", hash("first")).await.expect("she is new");
    users[2].log_in(says("first"), HERE).await.expect("she is known at once");
    users[0].set_password("alice", hash("second")).await.expect("it is changed");
    users[2].log_in(says("second"), HERE).await.expect("it is known at once");
    let mut changes = users[2].changes();
    changes.borrow_and_update();
    users[1].delete("alice").await.expect("she is there");
    timeout(SOON, changes.changed()).await.expect("her sessions hear of it").expect("it is open");
    users[2].log_in(says("second"), HERE).await.expect_err("she is gone");
    while users.iter().any(|users| users.exists("alice")) {
        sleep(Duration::from_millis(10)).await;
    }
}
