//! Encrypted listeners: certificate changes, stalled handshakes, and bytes that arrive complete.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gateway::limits::TLS_HANDSHAKE_WITHIN;
use gateway::tls::{ClientCertificates, Pem, TlsError};
use gateway::{Connections, ListenerOptions, Ports, SlowReader, Socket, Tls, UnsentOutput};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer,
    KeyIdMethod, KeyPair, RevokedCertParams, date_time_ymd,
};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tasks::Task;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use world::net::{Net, Stream};

const SOON: Duration = Duration::from_secs(20);
/// Within the validity of all certificates here but the expired ones.
const NOW: i64 = 1_800_000_000;

/// An authority.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key, in PEM.
struct PemPair {
    chain: String,
    key: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn pair(&self, change: impl FnOnce(&mut CertificateParams)) -> PemPair {
        let mut params = CertificateParams::new(vec!["localhost".into()]).expect("parameters");
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        PemPair { chain: certificate.pem(), key: key.serialize_pem() }
    }

    /// A list of revoked certificate numbers; it expires at the beginning of the year `ends`.
    fn revocations(&self, numbers: &[u64], ends: i32) -> String {
        let revoked = |number: &u64| RevokedCertParams {
            serial_number: (*number).into(),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(ends, 1, 1),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: numbers.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).expect("a list").pem().expect("PEM")
    }

    /// A client that trusts this authority, and presents its own certificate if it has one.
    fn client(&self, own: Option<&PemPair>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(self.pem.as_bytes()).expect("PEM");
        roots.add(root).expect("an authority");
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let chain = CertificateDer::from_pem_slice(pair.chain.as_bytes()).expect("PEM");
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("PEM");
                builder.with_client_auth_cert(vec![chain], key).expect("a pair")
            }
        };
        Arc::new(config)
    }
}

impl PemPair {
    fn pem(&self) -> Pem<'_> {
        self.with_authority(None)
    }

    fn with_authority<'a>(&'a self, authority: Option<&'a Authority>) -> Pem<'a> {
        Pem {
            chain: self.chain.as_bytes(),
            key: self.key.as_bytes(),
            client_authorities: authority.map(|authority| authority.pem.as_bytes()),
            client_revocations: None,
        }
    }
}

/// A listener on both ports, whose sessions echo their input.
struct Echo {
    plain: String,
    encrypted: String,
    tls: Tls,
    /// Whether each session ended without an error.
    ends: tokio::sync::Mutex<mpsc::UnboundedReceiver<bool>>,
    _stop: watch::Sender<bool>,
}

impl Echo {
    async fn start(pem: Pem<'_>, clients: ClientCertificates) -> Self {
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let [plain, encrypted] =
            [Net::Kernel.listen(any_port).await, Net::Kernel.listen(any_port).await];
        let (plain, encrypted) = (plain.expect("binds"), encrypted.expect("binds"));
        let at = |it: &world::net::Listener| it.local_addr().expect("is bound").to_string();
        let addresses = (at(&plain), at(&encrypted));
        let tls = Tls::new(pem, clients, NOW).expect("a good pair");
        let options = ListenerOptions {
            protocol: "echo",
            session: Task::KafkaSession,
            sessions_max: 10,
            drain_within: SOON,
            connections: Connections::default(),
            of_clients: true,
        };
        let (stop, stopping) = watch::channel(false);
        let ports = Ports { plain: Some(plain), tls: Some((encrypted, tls.clone())) };
        let (told, ends) = mpsc::unbounded_channel();
        let session = move |socket, _| {
            let told = told.clone();
            async move {
                let _ = told.send(echo(socket).await.is_ok());
            }
        };
        tokio::spawn(gateway::serve_ports(ports, options, stopping, session));
        let ends = tokio::sync::Mutex::new(ends);
        Self { plain: addresses.0, encrypted: addresses.1, tls, ends, _stop: stop }
    }

    /// Waits for one more session to end. Returns whether all ended sessions ended without an error.
    async fn ended(&self) -> bool {
        let mut ends = self.ends.lock().await;
        let mut well = ends.recv().await.expect("a session ends");
        while let Ok(next) = ends.try_recv() {
            well &= next;
        }
        well
    }

    async fn connect(&self, config: &Arc<ClientConfig>) -> std::io::Result<TlsStream<Stream>> {
        let stream = Net::Kernel.connect(&self.encrypted).await?;
        let name = ServerName::try_from("localhost").expect("a name");
        let mut stream = TlsConnector::from(Arc::clone(config)).connect(name, stream).await?;
        // A rejected client gets the alert with its first read.
        stream.write_all(b"x").await?;
        stream.read_u8().await?;
        Ok(stream)
    }
}

/// Reads and writes concurrently, as a session of Kafka does.
async fn echo(mut socket: Socket) -> std::io::Result<()> {
    let (mut read, mut write) = socket.split();
    let (chunks, mut to_send) = mpsc::channel::<Bytes>(4);
    let reading = async move {
        loop {
            std::future::poll_fn(|context| read.poll_read_ready(context)).await?;
            let mut chunk = bytes::BytesMut::with_capacity(100_000);
            if read.read_buf(&mut chunk).await? == 0 {
                return Ok::<_, std::io::Error>(());
            }
            if chunks.send(chunk.freeze()).await.is_err() {
                return Ok(());
            }
        }
    };
    let writing = async move {
        let mut unsent = UnsentOutput::default();
        while let Some(chunk) = to_send.recv().await {
            // In pieces, some of which are small: copied, shared, copied.
            let half = chunk.len() / 2;
            unsent.write(|out| out.extend_from_slice(&chunk[..half]));
            unsent.push(chunk.slice(half..));
            while !unsent.is_empty() {
                SlowReader::new(SOON, 1).wait(&mut unsent, &mut write).await.expect("is taken");
            }
        }
    };
    tokio::join!(reading, writing).0
}

/// The server's certificate as the client sees it.
fn shown(stream: &TlsStream<Stream>) -> Vec<u8> {
    let certificates = stream.get_ref().1.peer_certificates().expect("was shown");
    certificates[0].to_vec()
}

#[tokio::test]
async fn slowly_read_bytes_arrive_complete_with_and_without_tls() {
    let authority = Authority::new();
    let pair = authority.pair(|_| ());
    let echo = Echo::start(pair.pem(), ClientCertificates::None).await;
    let sent: Vec<u8> =
        (0..20_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();

    let encrypted = echo.connect(&authority.client(None)).await.expect("connects");
    let (mut read, mut write) = tokio::io::split(encrypted);
    let to_send = sent.clone();
    let writing = tokio::spawn(async move { write.write_all(&to_send).await.map(|()| write) });
    // The socket fills up before anything is taken.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut received = vec![0; sent.len()];
    timeout(SOON, read.read_exact(&mut received)).await.expect("in time").expect("is read");
    assert!(received == sent, "other bytes came back");
    let mut write = writing.await.expect("no panic").expect("is written");
    write.shutdown().await.expect("says goodbye");
    // The server closes too, without an error.
    assert_eq!(timeout(SOON, read.read(&mut [0; 1])).await.expect("in time").expect("the end"), 0);

    // A client that closes without `close_notify` has closed the connection, which is no error.
    let silent = echo.connect(&authority.client(None)).await.expect("connects");
    drop(silent.into_inner().0);
    assert!(timeout(SOON, echo.ended()).await.expect("in time"), "the end was an error");

    let mut plain = Net::Kernel.connect(&echo.plain).await.expect("connects");
    plain.write_all(b"as it is").await.expect("is written");
    let mut received = [0; 8];
    plain.read_exact(&mut received).await.expect("is read");
    assert_eq!(&received, b"as it is");
}

#[tokio::test]
async fn new_connections_get_a_new_certificate_and_an_invalid_one_is_rejected() {
    let authority = Authority::new();
    let [one, two] = [(); 2].map(|()| authority.pair(|_| ()));
    let echo = Echo::start(one.pem(), ClientCertificates::None).await;
    let client = authority.client(None);
    let mut before = echo.connect(&client).await.expect("connects");

    let mixed = PemPair { chain: two.chain.clone(), key: one.key.clone() };
    let ended = authority.pair(|params| params.not_after = date_time_ymd(2020, 1, 1));
    for (pem, is_so) in [
        (mixed.pem(), (|error| matches!(error, TlsError::Pair(_))) as fn(&TlsError) -> bool),
        (ended.pem(), |error| matches!(error, TlsError::Ended)),
        (Pem { chain: b"", ..one.pem() }, |error| matches!(error, TlsError::NoCertificate(_))),
        (Pem { key: b"no key", ..one.pem() }, |error| matches!(error, TlsError::Pem { .. })),
    ] {
        let error = echo.tls.replace(pem, NOW).expect_err("is refused");
        assert!(is_so(&error), "{error}");
    }
    let still = echo.connect(&client).await.expect("connects");
    assert_eq!(shown(&still), shown(&before));

    echo.tls.replace(two.pem(), NOW).expect("is taken");
    let after = echo.connect(&client).await.expect("connects");
    assert_ne!(shown(&after), shown(&before));
    // Open connections are kept.
    before.write_all(b"y").await.expect("is written");
    assert_eq!(before.read_u8().await.expect("is read"), b'y');
}

#[tokio::test]
async fn client_certificates_are_verified_and_a_new_authority_ends_resumption() {
    let (servers, ours, others) = (Authority::new(), Authority::new(), Authority::new());
    let pair = servers.pair(|_| ());
    let (good, bad) = (ours.pair(|_| ()), others.pair(|_| ()));
    let echo = Echo::start(pair.with_authority(Some(&ours)), ClientCertificates::Required).await;
    let client = servers.client(Some(&good));
    echo.connect(&client).await.expect("its certificate is good");
    // It gets the alert, whatever it has sent already.
    for (own, alert) in [(None, "CertificateRequired"), (Some(&bad), "fatal alert")] {
        let refused = echo.connect(&servers.client(own)).await.expect_err("is refused");
        assert!(refused.to_string().contains(alert), "{refused}");
    }

    // The same client reconnects with a resumable session.
    echo.tls.replace(pair.with_authority(Some(&others)), NOW).expect("is taken");
    assert!(echo.connect(&client).await.is_err(), "its authority has gone");

    let optional =
        Echo::start(pair.with_authority(Some(&ours)), ClientCertificates::Optional).await;
    optional.connect(&servers.client(None)).await.expect("none is needed");
    assert!(optional.connect(&servers.client(Some(&bad))).await.is_err(), "a bad one is refused");
    let none = Tls::new(pair.pem(), ClientCertificates::Optional, NOW);
    assert!(matches!(none, Err(TlsError::NoAuthority)));
}

#[tokio::test]
async fn revoked_client_certificate_is_rejected() {
    const REVOKED: u64 = 7;
    let (servers, ours, others) = (Authority::new(), Authority::new(), Authority::new());
    let pair = servers.pair(|_| ());
    let numbered = |number: u64| ours.pair(|it| it.serial_number = Some(number.into()));
    let (good, bad) = (numbered(REVOKED + 1), numbered(REVOKED));
    let echo = Echo::start(pair.with_authority(Some(&ours)), ClientCertificates::Required).await;
    let client = servers.client(Some(&bad));
    echo.connect(&client).await.expect("it is not revoked yet");

    let all = |lists: &'static str| Pem {
        client_revocations: Some(lists.as_bytes()),
        ..pair.with_authority(Some(&ours))
    };
    let list = |authority: &Authority, revoked: &[u64], ends: i32| -> &'static str {
        authority.revocations(revoked, ends).leak()
    };
    echo.tls.replace(all(list(&ours, &[REVOKED], 2100)), NOW).expect("is taken");
    echo.connect(&servers.client(Some(&good))).await.expect("it is not revoked");
    let refused = echo.connect(&client).await.expect_err("it may not resume what it had either");
    assert!(refused.to_string().contains("CertificateRevoked"), "{refused}");

    // An authority without a current list may have revoked any certificate.
    for lists in [list(&others, &[], 2100), list(&ours, &[], 2021)] {
        echo.tls.replace(all(lists), NOW).expect("is taken");
        assert!(echo.connect(&servers.client(Some(&good))).await.is_err());
    }
    for (none, is_so) in [
        ("", (|error| matches!(error, TlsError::NoRevocations)) as fn(&TlsError) -> bool),
        ("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n", |error| {
            matches!(error, TlsError::Authorities(_))
        }),
    ] {
        let error = echo.tls.replace(all(none), NOW).expect_err("is refused");
        assert!(is_so(&error), "{error}");
    }
    echo.tls.replace(all(list(&ours, &[], 2100)), NOW).expect("is taken");
    echo.connect(&client).await.expect("it is not revoked any more");
}

#[tokio::test(start_paused = true)]
async fn stalled_and_non_tls_handshakes_are_disconnected() {
    let authority = Authority::new();
    let pair = authority.pair(|_| ());
    let echo = Echo::start(pair.pem(), ClientCertificates::None).await;
    let began = Instant::now();
    let mut silent = Net::Kernel.connect(&echo.encrypted).await.expect("connects");
    // The head of a record that announces a handshake message, which does not come.
    silent.write_all(&[22, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3]).await.expect("is written");
    let ended = silent.read(&mut [0; 1]).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    assert!(began.elapsed() >= TLS_HANDSHAKE_WITHIN, "{:?}", began.elapsed());

    let mut plain = Net::Kernel.connect(&echo.encrypted).await.expect("connects");
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("is written");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(answer.len() < 100, "an alert at most");
}
