//! Valid and invalid tokens, with keys from a file and from a server over TLS.

#![expect(clippy::disallowed_types, reason = "a server in the kernel's network")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use test_tls::Authority;
use test_tokens::{
    AUDIENCE, ISSUER, Signer, Value, claims, document, json, now_secs, unsigned, with_secret,
};
use tokens::limits::{TOKEN_BYTES_MAX, TOKEN_LEEWAY};
use tokens::{KeySource, TokenError, TokenOptions, Tokens, looks_like_token};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};
use tokio_rustls::TlsAcceptor;
use world::World;

/// Verifies tokens against these signers' keys, stored in a file.
struct Reader {
    tokens: Tokens,
    path: PathBuf,
    _folder: tempfile::TempDir,
    _stop: watch::Sender<bool>,
}

fn follow(tokens: &Tokens) -> watch::Sender<bool> {
    let (stop, stopping) = watch::channel(false);
    tokio::spawn(tokens.clone().follow(World::real(), stopping));
    stop
}

impl Reader {
    fn of(keys: &[&Signer]) -> Self {
        Self::with(keys, |_| {})
    }

    fn with(keys: &[&Signer], change: impl FnOnce(&mut TokenOptions)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("keys.json");
        std::fs::write(&path, document(keys)).expect("is written");
        let source = KeySource::File(path.clone());
        let mut options =
            TokenOptions::new(ISSUER.into(), vec!["x".into(), AUDIENCE.into()], source);
        change(&mut options);
        let tokens = Tokens::new(options, World::real().clock);
        let stop = follow(&tokens);
        Self { tokens, path, _folder: folder, _stop: stop }
    }

    async fn refuses(&self, token: &str) -> TokenError {
        self.tokens.verify(token).await.expect_err(token)
    }
}

fn with(claim: &str, value: Value) -> Value {
    let mut claims = claims("app", 300);
    claims[claim] = value;
    claims
}

fn without(claim: &str) -> Value {
    let mut claims = claims("app", 300);
    claims.as_object_mut().expect("an object").remove(claim);
    claims
}

#[tokio::test]
async fn valid_token_gives_its_principal_and_expiry() {
    let signers = [Signer::rsa("r"), Signer::p256("e"), Signer::ed25519("d")];
    let reader = Reader::of(&signers.each_ref());
    for signer in &signers {
        let token = signer.token(&claims("app", 300));
        assert!(looks_like_token(&token));
        let verified = reader.tokens.verify(&token).await.expect("is good");
        assert_eq!(verified.name, "app");
        assert!((verified.ends_ms / 1_000 - now_secs() - 300).abs() < 30);
        // Without a key id any key may match.
        let header = json!({"alg": signer.algorithm()});
        let token = signer.token_with(&header, &claims("app", 300));
        reader.tokens.verify(&token).await.expect("is good");
    }
    let rsa = &signers[0];
    let padded = rsa.token_with(&json!({"alg": "PS256", "kid": "r"}), &claims("app", 300));
    reader.tokens.verify(&padded).await.expect("is good");
    let for_several = rsa.token(&with("aud", json!(["others", AUDIENCE])));
    reader.tokens.verify(&for_several).await.expect("is good");
    let fraction = rsa.token(&with("exp", json!(now_secs() as f64 + 100.5)));
    reader.tokens.verify(&fraction).await.expect("is good");
}

#[tokio::test]
async fn token_with_a_missing_or_wrong_claim_is_rejected() {
    let signer = Signer::p256("e");
    let reader = Reader::of(&[&signer]);
    let leeway = TOKEN_LEEWAY.as_secs() as i64;
    for (claims, expected) in [
        (with("iss", json!("https://id.example.com/realms/two")), TokenError::Issuer),
        (with("iss", json!([ISSUER])), TokenError::Issuer),
        (without("iss"), TokenError::Issuer),
        (with("aud", json!("others")), TokenError::Audience),
        (with("aud", json!([])), TokenError::Audience),
        (with("aud", json!({"a": AUDIENCE})), TokenError::Audience),
        (without("aud"), TokenError::Audience),
        (with("exp", json!(now_secs() - leeway - 1)), TokenError::Ended),
        (with("exp", json!("soon")), TokenError::Endless),
        (with("exp", json!(-1)), TokenError::Endless),
        (with("exp", json!(1e300)), TokenError::Endless),
        (without("exp"), TokenError::Endless),
        (with("nbf", json!(now_secs() + leeway + 60)), TokenError::Early),
        (with("nbf", json!("then")), TokenError::Early),
        (with("sub", json!(7)), TokenError::Nameless),
        (without("sub"), TokenError::Nameless),
    ] {
        assert_eq!(reader.refuses(&signer.token(&claims)).await, expected, "{claims}");
    }
    // Clock skew within the leeway is accepted.
    let late = signer.token(&with("exp", json!(now_secs() - leeway / 2)));
    let verified = reader.tokens.verify(&late).await.expect("is good");
    assert!(verified.ends_ms > now_secs() * 1_000);
    let early = signer.token(&with("nbf", json!(now_secs() + leeway / 2)));
    reader.tokens.verify(&early).await.expect("is good");
    let mail = Reader::with(&[&signer], |options| options.principal_claim = "email".into());
    let token = signer.token(&with("email", json!("a@b")));
    assert_eq!(mail.tokens.verify(&token).await.expect("is good").name, "a@b");
}

#[tokio::test]
async fn token_cannot_choose_its_algorithm_or_key() {
    let (signer, other) = (Signer::rsa("r"), Signer::rsa("r"));
    let reader = Reader::of(&[&signer]);
    let good = claims("app", 300);
    for algorithm in ["none", "None", "NONE", "", "RS1", "ES256K"] {
        let header = json!({"alg": algorithm, "kid": "r"});
        assert_eq!(reader.refuses(&unsigned(&header, &good)).await, TokenError::Malformed);
        assert_eq!(reader.refuses(&signer.token_with(&header, &good)).await, TokenError::Malformed);
    }
    // The public key used as an HMAC secret.
    let header = json!({"alg": "HS256", "kid": "r"});
    let published = document(&[&signer]);
    for secret in [&signer.public_bytes()[..], published.as_bytes(), b""] {
        let token = with_secret(secret, &header, &good);
        assert_eq!(reader.refuses(&token).await, TokenError::Algorithm);
    }
    // An algorithm of another kind of key, another key of the same name, and a key inside the token.
    let header = json!({"alg": "ES256", "kid": "r"});
    assert_eq!(reader.refuses(&signer.token_with(&header, &good)).await, TokenError::Key);
    assert_eq!(reader.refuses(&other.token(&good)).await, TokenError::Signature);
    let header = json!({"alg": "RS256", "jwk": other.public(), "jku": "https://evil.example.com"});
    assert_eq!(reader.refuses(&other.token_with(&header, &good)).await, TokenError::Signature);
    let header = json!({"alg": "RS256", "kid": "r", "crit": ["b64"], "b64": false});
    assert_eq!(reader.refuses(&signer.token_with(&header, &good)).await, TokenError::Critical);
    // The signature covers exactly the claims that are read.
    let token = signer.token(&good);
    let forged = signer.token(&claims("root", 300));
    let mixed: Vec<&str> = vec![
        token.split('.').next().expect("a part"),
        forged.split('.').nth(1).expect("a part"),
        token.split('.').nth(2).expect("a part"),
    ];
    assert_eq!(reader.refuses(&mixed.join(".")).await, TokenError::Signature);
}

#[tokio::test]
async fn malformed_token_of_any_size_is_rejected() {
    let signer = Signer::ed25519("d");
    let reader = Reader::of(&[&signer]);
    let huge = signer.token(&with("more", json!("x".repeat(TOKEN_BYTES_MAX))));
    assert_eq!(reader.refuses(&huge).await, TokenError::Large);
    let dots = ".".repeat(TOKEN_BYTES_MAX);
    let deep = format!("{}.{}.", "W1tb".repeat(2_000), "W1tb".repeat(2_000));
    for garbage in ["", ".", "..", "a.b", "a.b.c", "a.b.c.d", "e30.e30.e30", &dots, &deep, "é.é.é"]
    {
        assert_eq!(reader.refuses(garbage).await, TokenError::Malformed, "{garbage:.20}");
    }
    let encrypted = format!("{}.a.b.c.d", signer.token(&claims("app", 300)));
    assert_eq!(reader.refuses(&encrypted).await, TokenError::Malformed);
    let number = signer.token(&json!(7));
    assert_eq!(reader.refuses(&number).await, TokenError::Malformed);
    // Error messages contain no part of the token.
    for error in [TokenError::Malformed, TokenError::Signature, TokenError::Large] {
        assert!(!error.to_string().contains("eyJ"));
    }
    for password in ["secret", "eyJ.", "a.b.c", "eyJ.a.b.c"] {
        assert!(!looks_like_token(password), "{password}");
    }
}

#[tokio::test]
async fn changed_keys_are_found_and_a_failed_read_keeps_the_old_ones() {
    let (old, new) = (Signer::p256("old"), Signer::p256("new"));
    let reader = Reader::with(&[&old], |options| options.read_at_most_every = Duration::ZERO);
    let [of_old, of_new] = [&old, &new].map(|signer| signer.token(&claims("app", 300)));
    reader.tokens.verify(&of_old).await.expect("is good");
    assert_eq!(reader.refuses(&of_new).await, TokenError::Key);
    std::fs::write(&reader.path, document(&[&new])).expect("is written");
    reader.tokens.verify(&of_new).await.expect("its key is known by now");
    assert_eq!(reader.refuses(&of_old).await, TokenError::Key);
    std::fs::write(&reader.path, "no keys").expect("is written");
    assert_eq!(reader.refuses(&of_old).await, TokenError::Key);
    reader.tokens.verify(&of_new).await.expect("its key is known still");
}

// ------------------------------------------------------------------------------- over the network

/// A token issuer on its own port: replies as configured, and counts requests.
struct Server {
    address: SocketAddr,
    answer: Arc<Mutex<String>>,
    /// Its provider metadata.
    of_itself: Arc<Mutex<String>>,
    asked: Arc<AtomicUsize>,
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

impl Server {
    async fn start(authority: &Authority, answer: String) -> Self {
        let pair = authority.server();
        let chain = CertificateDer::from_pem_slice(pair.chain.as_bytes()).expect("PEM");
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("PEM");
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![chain], key)
            .expect("a pair");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("is bound");
        let (answer, asked) = (Arc::new(Mutex::new(answer)), Arc::new(AtomicUsize::new(0)));
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let of_itself = Arc::new(Mutex::new(String::new()));
        let (answered, counted) = (Arc::clone(&answer), Arc::clone(&asked));
        let configuration = Arc::clone(&of_itself);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => request.push(byte),
                        Err(_) => break,
                    }
                }
                let head = String::from_utf8_lossy(&request).to_lowercase();
                let of_itself =
                    head.starts_with("get /realms/one/.well-known/openid-configuration http/1.1");
                assert!(of_itself || head.starts_with("get /keys?v=1 http/1.1\r\n"), "{head}");
                assert!(
                    head.contains(&format!("host: localhost:{}\r\n", address.port())),
                    "{head}"
                );
                counted.fetch_add(1, Ordering::SeqCst);
                let answer = if of_itself { &configuration } else { &answered };
                let _ = stream.write_all(answer.lock().await.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        Self { address, answer, of_itself, asked }
    }

    fn tokens(&self, authorities: PathBuf, at_most_every: Duration) -> Tokens {
        let text = format!("https://localhost:{}/keys?v=1", self.address.port());
        let source = KeySource::parse(&text, Some(authorities)).expect("a source");
        let mut options = TokenOptions::new(ISSUER.into(), vec![AUDIENCE.into()], source);
        options.read_at_most_every = at_most_every;
        Tokens::new(options, World::real().clock)
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn authority_in(folder: &tempfile::TempDir, authority: &Authority) -> PathBuf {
    let path = folder.path().join("ca.pem");
    std::fs::write(&path, authority.pem()).expect("is written");
    path
}

#[tokio::test]
async fn unknown_key_triggers_a_rate_limited_read_over_tls() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().expect("a folder"));
    let (one, two) = (Signer::p256("1"), Signer::p256("2"));
    let server = Server::start(&authority, ok(&document(&[&one]))).await;
    let tokens = server.tokens(authority_in(&folder, &authority), Duration::from_secs(3600));
    let _stop = follow(&tokens);
    let [of_one, of_two] = [&one, &two].map(|signer| signer.token(&claims("app", 300)));
    tokens.verify(&of_one).await.expect("is good");
    for _ in 0..20 {
        assert_eq!(tokens.verify(&of_two).await, Err(TokenError::Key));
    }
    assert_eq!(server.asked(), 1, "unknown keys make nobody ask");

    let tokens = server.tokens(authority_in(&folder, &authority), Duration::ZERO);
    let _stop = follow(&tokens);
    tokens.verify(&of_one).await.expect("is good");
    *server.answer.lock().await = ok(&document(&[&one, &two]));
    tokens.verify(&of_two).await.expect("its key is known by now");
    let asked = server.asked();
    tokens.verify(&of_one).await.expect("is good");
    tokens.verify(&of_two).await.expect("is good");
    assert_eq!(server.asked(), asked, "known keys make nobody ask");
}

#[tokio::test]
async fn bad_response_or_untrusted_server_gives_no_keys() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().expect("a folder"));
    let signer = Signer::p256("1");
    let token = signer.token(&claims("app", 300));
    let document = document(&[&signer]);
    let moved = "HTTP/1.1 302 Found\r\nlocation: https://localhost/\r\ncontent-length: 0\r\n\r\n";
    let cut =
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{document}", document.len() + 1);
    let huge = ok(&" ".repeat(2 << 20));
    for answer in [moved, &cut, &huge, "HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n", "what?", ""]
    {
        let server = Server::start(&authority, answer.to_owned()).await;
        let tokens = server.tokens(authority_in(&folder, &authority), Duration::ZERO);
        let _stop = follow(&tokens);
        assert_eq!(tokens.verify(&token).await, Err(TokenError::Key), "{answer:.30}");
        assert!(server.asked() >= 1);
    }
    let server = Server::start(&Authority::new(), ok(&document)).await;
    let tokens = server.tokens(authority_in(&folder, &authority), Duration::ZERO);
    let _stop = follow(&tokens);
    assert_eq!(tokens.verify(&token).await, Err(TokenError::Key));
    assert_eq!(server.asked(), 0, "it is told nothing");
}

#[tokio::test]
async fn keys_are_discovered_through_the_issuers_metadata() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().expect("a folder"));
    let signer = Signer::p256("1");
    let server = Server::start(&authority, ok(&document(&[&signer]))).await;
    let base = format!("https://localhost:{}", server.address.port());
    let (issuer, keys) = (format!("{base}/realms/one"), format!("{base}/keys?v=1"));
    let mut claims = claims("app", 300);
    claims["iss"] = json!(issuer);
    let token = signer.token(&claims);
    let tokens = || {
        let authorities = Some(authority_in(&folder, &authority));
        let source = KeySource::discovered(&issuer, authorities).expect("a source");
        let options = TokenOptions::new(issuer.clone(), vec![AUDIENCE.into()], source);
        Tokens::new(options, World::real().clock)
    };
    let says = |said: Value| ok(&said.to_string());
    for wrong in [
        says(json!({"issuer": "https://another.example.com", "jwks_uri": keys})),
        says(json!({"issuer": issuer})),
        says(json!({"issuer": issuer, "jwks_uri": "http://localhost/keys"})),
        says(json!({"issuer": issuer, "jwks_uri": "keys.json"})),
        ok("<html>"),
        "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
    ] {
        *server.of_itself.lock().await = wrong.clone();
        let (tokens, asked) = (tokens(), server.asked());
        let _stop = follow(&tokens);
        assert_eq!(tokens.verify(&token).await, Err(TokenError::Key), "{wrong}");
        assert_eq!(server.asked(), asked + 1, "its keys are not asked for: {wrong}");
    }
    *server.of_itself.lock().await = says(json!({"issuer": issuer, "jwks_uri": keys}));
    let tokens = tokens();
    let _stop = follow(&tokens);
    tokens.verify(&token).await.expect("is good");
}
