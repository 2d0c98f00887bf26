//! Encrypted connections, and login by a password.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use kafka_protocol::messages::{SaslAuthenticateRequest, SaslHandshakeRequest};
use kafka_protocol::protocol::StrBytes;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use super::Connection;
use crate::connect::TlsTcp;
use crate::error::{CallError, accepted};
use crate::login::Mechanism;

/// Encryption and login of a connection; by default neither.
#[derive(Clone, Default)]
pub struct Access {
    /// Trusts a broker whose certificate has this address.
    pub tls: Option<TlsTcp>,
    /// A user and its password, sent by PLAIN.
    pub login: Option<(String, String)>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let login = self.login.as_ref().map(|(name, _)| name);
        f.debug_struct("Access").field("tls", &self.tls.is_some()).field("login", &login).finish()
    }
}

#[derive(Debug)]
pub(super) enum Socket {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Socket {
    pub(super) fn over(stream: TcpStream, to: SocketAddr, access: &Access) -> io::Result<Self> {
        let Some(tls) = &access.tls else { return Ok(Self::Plain(stream)) };
        let name = ServerName::from(to.ip());
        let connection = ClientConnection::new(Arc::clone(tls.config()), name);
        let connection = connection.map_err(io::Error::other)?;
        Ok(Self::Tls(Box::new(StreamOwned::new(connection, stream))))
    }

    pub(super) fn tcp(&mut self) -> &mut TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => &mut stream.sock,
        }
    }

    /// Decrypted bytes are left to read.
    pub(super) fn has_read_ahead(&mut self) -> bool {
        match self {
            Self::Plain(_) => false,
            // The next read reports an error.
            Self::Tls(stream) => stream
                .conn
                .process_new_packets()
                .is_ok_and(|state| state.plaintext_bytes_to_read() > 0),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(into),
            Self::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(from),
            Self::Tls(stream) => stream.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

impl Connection {
    pub(super) fn log_in(&mut self, name: &str, password: &str) -> Result<(), CallError> {
        let mechanism = Mechanism::Plain.name();
        let handshake =
            SaslHandshakeRequest::default().with_mechanism(StrBytes::from_static_str(mechanism));
        let answer = self.call(1, &handshake)?;
        accepted(answer.error_code, None, || format!("{mechanism} is not taken"))?;
        let said = format!("\0{name}\0{password}").into_bytes().into();
        let authenticate = SaslAuthenticateRequest::default().with_auth_bytes(said);
        let answer = self.call(2, &authenticate)?;
        Ok(accepted(answer.error_code, answer.error_message.as_deref(), || {
            format!("cannot log in as {name}")
        })?)
    }
}
