//! A connection to an HTTP server; requests run on it one at a time.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{Either, Fuse, select};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HOST, HeaderValue, USER_AGENT};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use world::Net;

use crate::address::Address;

const AGENT: &str = concat!("postroad/", env!("CARGO_PKG_VERSION"));

#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("the host has no name that a certificate could have: {0}")]
    Host(#[from] InvalidDnsNameError),
    #[error("no connection: {0}")]
    Connect(#[from] io::Error),
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    #[error("no request: {0}")]
    Request(#[from] hyper::http::Error),
    #[error("the answer is cut off, or has more than {0} bytes")]
    Body(usize),
}

/// Unusable after an error: open another one.
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// Polled only while a request waits for its response. Between two requests the connection is idle.
    driving: Fuse<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
    host: String,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("host", &self.host).finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects to the host of `address`. Over TLS, its certificate must be signed by an authority in `believed`.
    pub async fn open(
        address: &Address,
        believed: Option<RootCertStore>,
        net: Net,
    ) -> Result<Self, RequestError> {
        let stream = net.connect(&address.host_and_port()).await?;
        let host = address.host_header();
        if !address.is_encrypted {
            return Self::over(stream, host).await;
        }
        let tls = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(believed.unwrap_or_else(RootCertStore::empty))
            .with_no_client_auth();
        let name = ServerName::try_from(address.host.clone())?;
        let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await?;
        Self::over(stream, host).await
    }

    async fn over<S>(stream: S, host: String) -> Result<Self, RequestError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, driving) = http1::handshake(TokioIo::new(stream)).await?;
        let driving: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(driving);
        Ok(Self { sender, driving: driving.fuse(), host })
    }

    /// Sends a request and returns the response, with at most `body_bytes_max` bytes of body. Of the URI only the
    /// path is used. There is no timeout: the caller sets one.
    pub async fn send(
        &mut self,
        mut request: Request<Full<Bytes>>,
        body_bytes_max: usize,
    ) -> Result<Response<Bytes>, RequestError> {
        let host = HeaderValue::from_str(&self.host).map_err(hyper::http::Error::from)?;
        request.headers_mut().insert(HOST, host);
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let Self { sender, driving, .. } = self;
        let asking = pin!(async {
            sender.ready().await?;
            let (head, body) = sender.send_request(request).await?.into_parts();
            let body = Limited::new(body, body_bytes_max).collect().await;
            let body = body.map_err(|_| RequestError::Body(body_bytes_max))?;
            Ok::<_, RequestError>(Response::from_parts(head, body.to_bytes()))
        });
        match select(asking, driving).await {
            Either::Left((answer, _)) => answer,
            Either::Right((_, asking)) => asking.await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hyper::StatusCode;
    use rustls::ServerConfig;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use test_tls::Authority;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;
    use tokio_rustls::TlsAcceptor;
    use world::net::Listener;

    use super::*;

    const ANSWER: &[u8] = b"HTTP/1.1 202 Accepted\r\nContent-Length: 4\r\n\r\ntook";

    /// Reads a request with this body from `stream`, and returns its head.
    async fn request(stream: &mut (impl AsyncRead + Unpin), body: &[u8]) -> String {
        let mut read = Vec::new();
        while !read.ends_with(body) || !read.windows(4).any(|it| it == b"\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut read).await.expect("read"), 0, "it ended");
        }
        String::from_utf8(read).expect("text")
    }

    fn post(body: &'static [u8]) -> Request<Full<Bytes>> {
        Request::post("/v1/traces").body(Full::new(Bytes::from_static(body))).expect("a request")
    }

    async fn listening(scheme: &str) -> (Listener, Address) {
        let listener = Net::Kernel.listen(([127, 0, 0, 1], 0).into()).await.expect("bound");
        let port = listener.local_addr().expect("an address").port();
        let address = format!("{scheme}://127.0.0.1:{port}/v1/traces");
        (listener, Address::parse(&address).expect("valid"))
    }

    #[tokio::test]
    async fn connection_serves_requests_in_order_until_it_closes() {
        let (listener, address) = listening("http").await;
        let port = address.port;
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("accepted");
            for body in ["one", "two"] {
                let head = request(&mut stream, body.as_bytes()).await.to_lowercase();
                assert!(head.contains(&format!("host: 127.0.0.1:{port}\r\n")), "{head}");
                assert!(head.contains("user-agent: postroad/"), "{head}");
                stream.write_all(ANSWER).await.expect("written");
            }
        });
        let mut connection = Connection::open(&address, None, Net::Kernel).await.expect("opened");
        for body in [b"one", b"two"] {
            let answer = connection.send(post(body), 4).await.expect("answered");
            assert_eq!((answer.status(), &answer.body()[..]), (StatusCode::ACCEPTED, &b"took"[..]));
        }
        serving.await.expect("served");
        assert!(connection.send(post(b"three"), 4).await.is_err(), "it is closed");
        let again = timeout(Duration::from_secs(5), connection.send(post(b"four"), 4)).await;
        assert!(again.expect("at once").is_err());
    }

    #[tokio::test]
    async fn response_body_over_the_limit_is_rejected() {
        let (listener, address) = listening("http").await;
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("accepted");
            request(&mut stream, b"one").await;
            stream.write_all(ANSWER).await.expect("written");
        });
        let mut connection = Connection::open(&address, None, Net::Kernel).await.expect("opened");
        let error = connection.send(post(b"one"), 3).await.expect_err("refused");
        assert!(matches!(error, RequestError::Body(3)), "{error}");
    }

    fn tls_acceptor(authority: &Authority) -> TlsAcceptor {
        let pair = authority.server();
        let chain = CertificateDer::from_pem_slice(pair.chain.as_bytes()).expect("PEM");
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("PEM");
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![chain], key);
        TlsAcceptor::from(Arc::new(config.expect("a pair")))
    }

    #[tokio::test]
    async fn server_certificate_of_another_authority_is_rejected() {
        let authority = Authority::new();
        let (listener, mut address) = listening("https").await;
        address.host = "localhost".to_owned();
        let acceptor = tls_acceptor(&authority);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("accepted");
                if let Ok(mut stream) = acceptor.accept(stream).await {
                    request(&mut stream, b"one").await;
                    stream.write_all(ANSWER).await.expect("written");
                }
            }
        });
        let open = async |believed: &Authority| {
            let mut roots = RootCertStore::empty();
            let root = CertificateDer::from_pem_slice(believed.pem().as_bytes()).expect("PEM");
            roots.add(root).expect("an authority");
            Connection::open(&address, Some(roots), Net::Kernel).await
        };
        let mut connection = open(&authority).await.expect("believed");
        assert_eq!(connection.send(post(b"one"), 4).await.expect("answered").body(), "took");
        let error = open(&Authority::new()).await.expect_err("another authority");
        assert!(error.to_string().contains("certificate"), "{error}");
    }
}
