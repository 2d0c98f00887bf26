//! Readiness checks: the first few bytes of a server's own protocol, and the expected reply. A log
//! line would not prove that the server serves.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A request to which only a ready server replies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ready {
    /// Kafka's Metadata lists as many brokers as there are nodes.
    Kafka(u16),
    /// AMQP 0-9-1: the reply to the protocol header is `connection.start`.
    Amqp(u16),
    /// AMQP 1.0: the reply to the protocol header is one, too.
    Amqp1(u16),
    /// The reply to a GET of this path is 200.
    Http(u16, &'static str),
    /// The reply to `PING` is `+PONG`, and not an error while data is loaded.
    Redis(u16),
    /// The reply to a start-up message is an authentication request, and not an error.
    Postgres(u16),
    /// The reply to CONNECT is CONNACK.
    Mqtt(u16),
    /// The name server knows a broker, and the proxy accepts connections.
    RocketMq { names: u16, proxy: u16 },
    /// The port accepts connections.
    Listens(u16),
}

const ANSWER_WITHIN: Duration = Duration::from_secs(5);

impl Ready {
    /// Probes once. `live_nodes`: the expected number of nodes.
    pub(crate) fn probe(&self, live_nodes: u32) -> bool {
        let answer = match self {
            Self::Kafka(port) => kafka_brokers(*port).map(|brokers| brokers >= live_nodes),
            Self::Amqp(port) => begins(*port, b"AMQP\x00\x00\x09\x01", b"\x01\x00\x00"),
            Self::Amqp1(port) => begins(*port, b"AMQP\x03\x01\x00\x00", b"AMQP"),
            Self::Http(port, path) => http(*port, path),
            Self::Redis(port) => begins(*port, b"PING\r\n", b"+PONG"),
            Self::Postgres(port) => begins(*port, &postgres_start(), b"R"),
            Self::Mqtt(port) => begins(*port, MQTT_CONNECT, b"\x20\x02\x00\x00"),
            Self::RocketMq { names, proxy } => {
                rocketmq(*names).and_then(|knows| connect(*proxy).map(|_| knows))
            }
            Self::Listens(port) => connect(*port).map(|_| true),
        };
        answer.unwrap_or(false)
    }
}

fn connect(port: u16) -> io::Result<TcpStream> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let stream = TcpStream::connect_timeout(&address, ANSWER_WITHIN)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    stream.set_write_timeout(Some(ANSWER_WITHIN))?;
    Ok(stream)
}

/// Whether the reply to `question` begins with `beginning`.
fn begins(port: u16, question: &[u8], beginning: &[u8]) -> io::Result<bool> {
    let mut stream = connect(port)?;
    stream.write_all(question)?;
    let mut answer = vec![0; beginning.len()];
    stream.read_exact(&mut answer)?;
    Ok(answer == beginning)
}

/// MQTT 3.1.1 CONNECT, clean session, client id `ready`.
const MQTT_CONNECT: &[u8] = b"\x10\x11\x00\x04MQTT\x04\x02\x00\x3c\x00\x05ready";

/// StartupMessage of protocol 3.0.
fn postgres_start() -> Vec<u8> {
    let parameters = b"user\0postgres\0database\0postgres\0\0";
    let mut message = ((parameters.len() + 8) as i32).to_be_bytes().to_vec();
    message.extend(196_608_i32.to_be_bytes());
    message.extend(parameters);
    message
}

fn http(port: u16, path: &str) -> io::Result<bool> {
    let mut stream = connect(port)?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut line = [0; 12];
    stream.read_exact(&mut line)?;
    Ok(line.starts_with(b"HTTP/1.") && line.ends_with(b" 200"))
}

/// Number of brokers that Metadata (version 4, without topics) lists. Fenced ones are not listed.
fn kafka_brokers(port: u16) -> io::Result<u32> {
    const METADATA: [u8; 2] = 3_i16.to_be_bytes();
    const VERSION: [u8; 2] = 4_i16.to_be_bytes();
    const CORRELATION: [u8; 4] = 1_i32.to_be_bytes();
    const NO_CLIENT: [u8; 2] = (-1_i16).to_be_bytes();
    const NO_TOPICS: [u8; 4] = 0_i32.to_be_bytes();
    const CREATE_NONE: [u8; 1] = [0];
    let parts: [&[u8]; 6] =
        [&METADATA, &VERSION, &CORRELATION, &NO_CLIENT, &NO_TOPICS, &CREATE_NONE];
    let request = parts.concat();
    let mut stream = connect(port)?;
    stream.write_all(&(request.len() as i32).to_be_bytes())?;
    stream.write_all(&request)?;
    // Size, correlation, throttle time, number of brokers.
    let mut answer = [0; 16];
    stream.read_exact(&mut answer)?;
    let [_, _, _, _, correlation @ .., _, _, _, _, _, _, _, _] = answer;
    let [.., a, b, c, d] = answer;
    Ok(if correlation == CORRELATION { u32::from_be_bytes([a, b, c, d]) } else { 0 })
}

/// GET_BROKER_CLUSTER_INFO (106) of RocketMQ's remoting protocol, with a JSON header.
fn rocketmq(port: u16) -> io::Result<bool> {
    const LONGEST: usize = 1 << 20;
    let header =
        br#"{"code":106,"extFields":{},"flag":0,"language":"JAVA","opaque":1,"version":0}"#;
    let mut stream = connect(port)?;
    stream.write_all(&(header.len() as u32 + 4).to_be_bytes())?;
    stream.write_all(&(header.len() as u32).to_be_bytes())?;
    stream.write_all(header)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; (u32::from_be_bytes(length) as usize).min(LONGEST)];
    stream.read_exact(&mut answer)?;
    let text = String::from_utf8_lossy(&answer);
    Ok(text.contains(r#""brokerAddrs""#))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A server that sends these bytes to one connection, whatever the request.
    fn answering(bytes: &'static [u8]) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept()?;
            let mut asked = [0; 512];
            let _ = stream.read(&mut asked)?;
            stream.write_all(bytes)
        });
        port
    }

    #[test]
    fn redis_loading_its_data_is_not_ready() {
        assert!(Ready::Redis(answering(b"+PONG\r\n")).probe(1));
        assert!(!Ready::Redis(answering(b"-LOADING Redis is loading\r\n")).probe(1));
    }

    #[test]
    fn postgres_starting_up_is_not_ready() {
        assert!(Ready::Postgres(answering(b"R\0\0\0\x08\0\0\0\0")).probe(1));
        assert!(!Ready::Postgres(answering(b"E\0\0\0\x08FATAL")).probe(1));
    }

    #[test]
    fn only_status_200_is_ready() {
        assert!(Ready::Http(answering(b"HTTP/1.1 200 OK\r\n\r\n"), "/").probe(1));
        assert!(!Ready::Http(answering(b"HTTP/1.1 503 no leader\r\n\r\n"), "/").probe(1));
    }

    #[test]
    fn kafka_cluster_is_ready_once_all_brokers_are_listed() {
        const TWO: &[u8] = b"\0\0\0\x10\0\0\0\x01\0\0\0\0\0\0\0\x02";
        assert!(Ready::Kafka(answering(TWO)).probe(2));
        assert!(!Ready::Kafka(answering(TWO)).probe(3));
    }

    #[test]
    fn closed_port_is_not_ready() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        drop(listener);
        assert!(!Ready::Listens(port).probe(1));
    }
}
