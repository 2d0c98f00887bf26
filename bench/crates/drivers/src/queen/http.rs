//! Calls of the server's HTTP interface.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use driver::{Failure, Target};
use http_body_util::{BodyExt, Full};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

/// Longer than any wait for messages.
const PATIENCE: Duration = Duration::from_secs(30);

/// One client's connections to a server.
pub(super) struct Http {
    client: Client<HttpConnector, Full<Bytes>>,
    /// `http://host:port`
    base: String,
    user: String,
    authorization: Option<HeaderValue>,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("base", &self.base).finish_non_exhaustive()
    }
}

impl Http {
    pub(super) fn new(endpoint: &str, target: &Target) -> Result<Self, Failure> {
        let place = endpoint.trim_start_matches("http://").trim_end_matches('/');
        if place.contains("://") {
            let why = "it is not an http:// address; this driver has no TLS".into();
            return Err(Failure::Unreachable { endpoint: endpoint.to_owned(), why });
        }
        let user = target.user.clone().unwrap_or_default();
        let authorization = match &target.password {
            None => None,
            Some(token) => {
                let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
                    let why = "its characters cannot be sent".into();
                    Failure::Setting { name: "password".into(), why }
                })?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        Ok(Self { client: client(), base: format!("http://{place}"), user, authorization })
    }

    /// A client for the same server with its own connections.
    pub(super) fn another(&self) -> Self {
        let Self { base, user, authorization, .. } = self;
        let (base, user, authorization) = (base.clone(), user.clone(), authorization.clone());
        Self { client: client(), base, user, authorization }
    }

    /// The first call, which shows whether the server is up.
    pub(super) async fn first<A: DeserializeOwned>(&self, path: &str) -> Result<A, Failure> {
        let answer = self.call(Method::GET, path, None).await;
        let answer = answer.map_err(|failure| match failure {
            Failure::Unknown(why) => Failure::Unreachable { endpoint: self.base.clone(), why },
            other => other,
        })?;
        parsed(&answer)
    }

    pub(super) async fn post<A: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<A, Failure> {
        parsed(&self.call(Method::POST, path, Some(body)).await?)
    }

    /// `None`: the reply is empty (204).
    pub(super) async fn get<A: DeserializeOwned>(&self, path: &str) -> Result<Option<A>, Failure> {
        let answer = self.call(Method::GET, path, None).await?;
        if answer.is_empty() { Ok(None) } else { parsed(&answer).map(Some) }
    }

    /// Body of a successful reply. For a 204 it is empty, although the server sends the empty
    /// result with it (the client then opens another connection).
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Bytes, Failure> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let body = match body {
            None => Bytes::new(),
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                serde_json::to_vec(body).map_err(Failure::refused)?.into()
            }
        };
        let request = request.body(Full::new(body)).map_err(Failure::refused)?;
        let exchange = async {
            let response = self.client.request(request).await.map_err(|why| broken(&why))?;
            let status = response.status();
            let body = response.into_body().collect().await.map_err(|why| broken(&why))?;
            Ok((status, body.to_bytes()))
        };
        let Ok(exchanged) = timeout(PATIENCE, exchange).await else {
            return Err(Failure::unknown(format!("no answer within {PATIENCE:?}")));
        };
        let (status, body) = exchanged?;
        if status.is_success() {
            return Ok(body);
        }
        let why = said(status, &body);
        Err(match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let (endpoint, user) = (self.base.clone(), self.user.clone());
                Failure::NotAllowed { endpoint, user, why }
            }
            _ if status.is_server_error() => Failure::Unknown(why),
            _ => Failure::Refused(why),
        })
    }
}

fn client() -> Client<HttpConnector, Full<Bytes>> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    Client::builder(TokioExecutor::new()).build(connector)
}

fn parsed<A: DeserializeOwned>(answer: &[u8]) -> Result<A, Failure> {
    serde_json::from_slice(answer)
        .map_err(|why| Failure::unknown(format!("the answer cannot be read: {why}")))
}

/// The innermost cause; the outer errors carry no detail.
fn broken(error: &(dyn Error + 'static)) -> Failure {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    Failure::unknown(innermost)
}

fn said(status: StatusCode, body: &[u8]) -> String {
    let json: Option<Value> = serde_json::from_slice(body).ok();
    let error = json.as_ref().and_then(|json| json.get("error")).and_then(Value::as_str);
    error.map_or_else(|| status.to_string(), |error| format!("{status}: {error}"))
}
