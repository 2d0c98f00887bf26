//! Who may coordinate an agent, and what is no agent: one line each.

use agents::{Coordinator, Server};
use driver::Target;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn agent(token: Option<&str>) -> String {
    let server = Server::bind("127.0.0.1:0", token.map(str::to_owned), drivers::connect).await;
    let server = server.expect("listens");
    let address = server.address().to_string();
    tokio::spawn(server.serve());
    address
}

/// What the coordinator says when it does not get in.
async fn said(address: &str, token: Option<&str>) -> String {
    let token = token.map(str::to_owned);
    let coordinator = Coordinator::new(vec![address.to_owned()], token, Target::default());
    let gone = coordinator.greet().await.remove(0).expect_err("is not let in").to_string();
    assert_eq!(gone.lines().count(), 1, "{gone}");
    assert!(gone.starts_with(&format!("agent {address}: ")), "{gone}");
    gone
}

/// One that answers everybody the same, whatever was asked.
async fn answers(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("has one").to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream.write_all(answer).await;
        }
    });
    address
}

fn frame(text: &str) -> Vec<u8> {
    let mut frame = ((text.len() + 4) as u32).to_be_bytes().to_vec();
    frame.extend((text.len() as u32).to_be_bytes());
    frame.extend(text.as_bytes());
    frame
}

#[tokio::test]
async fn the_token_must_be_the_agents() {
    let agent = agent(Some("right")).await;
    assert!(said(&agent, Some("wrong")).await.contains("token"));
    assert!(said(&agent, None).await.contains("--token-file"));
    let coordinator = Coordinator::new(vec![agent], Some("right".to_owned()), Target::default());
    let host = coordinator.greet().await.remove(0).expect("is let in");
    assert!(host.cores > 0);
}

#[tokio::test]
async fn another_version_is_not_driven() {
    let other = r#"{"Come":{"protocol":99,"version":"9.9.9","host":{"cpu":"","cores":1,"memory_bytes":0,"kernel":"","system":"","disk":"","sync_4k":null,"sync_128k":null}}}"#;
    let other = answers(frame(other).leak()).await;
    let gone = said(&other, None).await;
    assert!(gone.contains("9.9.9 (protocol 99)") && gone.contains("the same"), "{gone}");
}

#[tokio::test]
async fn another_version_does_not_drive() {
    let mut stream = TcpStream::connect(agent(None).await).await.expect("connects");
    let hello = r#"{"protocol":99,"version":"9.9.9","token":null,"what came later":true}"#;
    stream.write_all(&frame(hello)).await.expect("is sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("is answered, and closed");
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("Refused") && answer.contains("9.9.9 (protocol 99)"), "{answer}");
}

#[tokio::test]
async fn what_is_not_there_or_no_agent_is_told() {
    let gone = said("127.0.0.1:1", None).await;
    assert!(gone.contains("cannot be reached"), "{gone}");
    let web = answers(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    assert!(said(&web, None).await.contains("no agent"));
}

#[tokio::test]
async fn an_agent_works_for_one_coordinator_at_a_time() {
    let agent = agent(None).await;
    let mut first = TcpStream::connect(&agent).await.expect("connects");
    let version = env!("CARGO_PKG_VERSION");
    let hello = format!(r#"{{"protocol":1,"version":"{version}","token":null}}"#);
    first.write_all(&frame(&hello)).await.expect("is sent");
    first.read_u32().await.expect("is welcome");
    let gone = said(&agent, None).await;
    assert!(gone.contains("another coordinator at 127.0.0.1:"), "{gone}");
    drop(first);
    let coordinator = Coordinator::new(vec![agent], None, Target::default());
    coordinator.greet().await.remove(0).expect("is free again");
}
