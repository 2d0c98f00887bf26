//! Connection of a command: address, encryption and authentication.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use client::{Client, Login, Mechanism, Tcp, TlsTcp};
use world::{Entropy, OsEntropy};

use crate::command_error::CommandError;
use crate::failure;
use crate::operator_token;
use crate::output::{OutputFormat, OutputOption};

/// Where the broker is, and how to print what it says.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClientOptions {
    /// Broker to connect to; several, separated by commas, are tried in turn
    #[arg(
        short,
        long,
        global = true,
        value_name = "HOST:PORT",
        env = "POSTROAD_BOOTSTRAP",
        default_value = "127.0.0.1:9092"
    )]
    pub(crate) bootstrap: String,
    /// File with the operators' token: a copy of `operator.token` in the data directory of a server
    /// that is on another machine
    #[arg(long, global = true, value_name = "FILE", env = "POSTROAD_TOKEN_FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The token itself: not for the command line, where others see it
    #[arg(skip = variable("POSTROAD_TOKEN"))]
    pub(crate) token: Option<String>,
    /// Connect over TLS, and believe brokers whose certificates are in this file, or follow from one there
    #[arg(long, global = true, value_name = "FILE", env = "POSTROAD_TLS_CA")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Log in as this user
    #[arg(long, global = true, value_name = "NAME", env = "POSTROAD_LOGIN")]
    pub(crate) login: Option<String>,
    /// File whose first line is the user's password [default: the variable POSTROAD_PASSWORD]
    #[arg(long, global = true, value_name = "FILE", env = "POSTROAD_PASSWORD_FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// The password itself: not for the command line
    #[arg(skip = variable("POSTROAD_PASSWORD"))]
    pub(crate) password: Option<String>,
    /// How the password is told
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "MECHANISM",
        env = "POSTROAD_SASL",
        default_value = "scram-sha-512"
    )]
    pub(crate) sasl: Sasl,
    #[command(flatten)]
    pub(crate) output: OutputOption,
}

/// Mechanism for sending the password.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Sasl {
    Plain,
    #[value(name = "scram-sha-256")]
    ScramSha256,
    #[value(name = "scram-sha-512")]
    ScramSha512,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl ClientOptions {
    pub(crate) async fn connect(&self) -> Result<Client, CommandError> {
        let token = match (&self.token_file, &self.token) {
            (Some(path), _) => {
                let path = path.clone();
                let read = operator_token::read(&path);
                let unreadable = |source| CommandError::user(failure::TokenFile { path, source });
                Some(read.map_err(unreadable)?)
            }
            (None, token) => token.clone(),
        };
        let login = match &self.login {
            Some(name) => Some(self.user(name)?),
            None => self.operator(token.as_deref()),
        };
        let bootstrap = &self.bootstrap;
        let client = match &self.tls_ca {
            None => Client::connect_as(Tcp, bootstrap, token, login).await,
            Some(path) => {
                let read = |path: &Path| std::fs::read(path).map_err(|error| error.to_string());
                let connector =
                    read(path).and_then(|pem| TlsTcp::new(&pem).map_err(|error| error.to_string()));
                let connector = connector.map_err(|reason| {
                    CommandError::user(format!("--tls-ca {}: {reason}", path.display()))
                })?;
                Client::connect_as(connector, bootstrap, token, login).await
            }
        };
        Ok(client?)
    }

    fn user(&self, name: &str) -> Result<Login, CommandError> {
        let password = match (&self.password_file, &self.password) {
            (Some(path), _) => {
                let text = std::fs::read_to_string(path).map_err(|error| {
                    CommandError::user(format!("--password-file {}: {error}", path.display()))
                })?;
                text.lines().next().unwrap_or_default().to_owned()
            }
            (None, Some(password)) => password.clone(),
            (None, None) => {
                return Err(CommandError::user(format!(
                    "the password of {name} is not known: name a file with --password-file, or set \
                     POSTROAD_PASSWORD"
                )));
            }
        };
        let mechanism = match self.sasl {
            Sasl::Plain => Mechanism::Plain,
            Sasl::ScramSha256 => Mechanism::Scram(scram::Hash::Sha256),
            Sasl::ScramSha512 => Mechanism::Scram(scram::Hash::Sha512),
        };
        Ok(login(mechanism, name, password, false))
    }

    /// Operator token as a login, for brokers that require one when none is given: the configured token, or that of a
    /// data directory on this machine. It is sent only over TLS or loopback.
    fn operator(&self, token: Option<&str>) -> Option<Login> {
        if self.tls_ca.is_none() && !self.bootstrap.split(',').all(is_this_machine) {
            return None;
        }
        let token = match token {
            Some(token) => token.to_owned(),
            None => {
                let data = variable("POSTROAD_DATA").unwrap_or_else(|| "postroad-data".into());
                operator_token::read(&operator_token::path(Path::new(&data))).ok()?
            }
        };
        Some(login(Mechanism::Plain, access_rules::OPERATOR, token, true))
    }

    pub(crate) fn output(&self) -> OutputFormat {
        self.output.output
    }
}

fn login(mechanism: Mechanism, name: &str, password: String, only_where_needed: bool) -> Login {
    let nonce = || OsEntropy.uuid().simple().to_string();
    Login { mechanism, name: name.to_owned(), password, only_where_needed, nonce: Arc::new(nonce) }
}

fn is_this_machine(address: &str) -> bool {
    let address = address.trim();
    let address = if address.contains(':') { address.to_owned() } else { format!("{address}:0") };
    let is_loopback = |ip: IpAddr| ip.to_canonical().is_loopback();
    address.to_socket_addrs().is_ok_and(|mut found| found.all(|address| is_loopback(address.ip())))
}
