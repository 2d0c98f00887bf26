//! Admission of coordinators by an agent, and peers that are not agents. Each error is one line.

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

/// Returns the coordinator's error when the agent refuses it.
async fn greet_error(address: &str, token: Option<&str>) -> String {
    let token = token.map(str::to_owned);
    let coordinator = Coordinator::new(vec![address.to_owned()], token, Target::default());
    let gone = coordinator.greet().await.remove(0).expect_err("is not let in").to_string();
    assert_eq!(gone.lines().count(), 1, "{gone}");
    assert!(gone.starts_with(&format!("agent {address}: ")), "{gone}");
    gone
}

/// Starts a server that sends the same reply to every request.
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
async fn coordinator_needs_the_agents_token() {
    let agent = agent(Some("right")).await;
    assert!(greet_error(&agent, Some("wrong")).await.contains("token"));
    assert!(greet_error(&agent, None).await.contains("--token-file"));
    let coordinator = Coordinator::new(vec![agent], Some("right".to_owned()), Target::default());
    let host = coordinator.greet().await.remove(0).expect("is let in");
    assert!(host.cores > 0);
}

#[tokio::test]
async fn coordinator_rejects_an_agent_of_another_version() {
    let other = r#"{"Come":{"protocol":99,"version":"9.9.9","host":{"cpu":"","cores":1,"memory_bytes":0,"kernel":"","system":"","disk":"","sync_4k":null,"sync_128k":null}}}"#;
    let other = answers(frame(other).leak()).await;
    let gone = greet_error(&other, None).await;
    assert!(gone.contains("9.9.9 (protocol 99)") && gone.contains("the same"), "{gone}");
}

#[tokio::test]
async fn agent_rejects_a_coordinator_of_another_version() {
    let mut stream = TcpStream::connect(agent(None).await).await.expect("connects");
    let hello = r#"{"protocol":99,"version":"9.9.9","token":null,"what came later":true}"#;
    stream.write_all(&frame(hello)).await.expect("is sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("is answered, and closed");
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("Refused") && answer.contains("9.9.9 (protocol 99)"), "{answer}");
}

#[tokio::test]
async fn unreachable_and_foreign_peers_are_reported() {
    let gone = greet_error("127.0.0.1:1", None).await;
    assert!(gone.contains("cannot be reached"), "{gone}");
    let web = answers(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    assert!(greet_error(&web, None).await.contains("no agent"));
}

#[tokio::test]
async fn an_agent_works_for_one_coordinator_at_a_time() {
    let agent = agent(None).await;
    let mut first = TcpStream::connect(&agent).await.expect("connects");
    let version = env!("CARGO_PKG_VERSION");
    let hello = format!(r#"{{"protocol":1,"version":"{version}","token":null}}"#);
    first.write_all(&frame(&hello)).await.expect("is sent");
    first.read_u32().await.expect("is welcome");
    let gone = greet_error(&agent, None).await;
    assert!(gone.contains("another coordinator at 127.0.0.1:"), "{gone}");
    drop(first);
    let coordinator = Coordinator::new(vec![agent], None, Target::default());
    coordinator.greet().await.remove(0).expect("is free again");
}
