//! A RabbitMQ server, installed, started and stopped by the benchmark suite's `peers`.

use std::net::SocketAddr;
use std::path::Path;

use peers::{InstallError, Peers, StartError, StopError, Tier};

use crate::command::output_of;
use crate::failure::{Failure, Outcome};

const NAME: &str = "rabbitmq";

/// A running RabbitMQ without data. It stops when this is dropped.
#[derive(Debug)]
pub(crate) struct RabbitMq {
    peers: Peers,
    pub(crate) version: String,
    pub(crate) address: SocketAddr,
}

fn report(peer: &str, what: &str) {
    eprintln!("  {peer}: {what}");
}

impl RabbitMq {
    /// Starts RabbitMQ, and installs it below `folder` first if it is missing.
    pub(crate) fn start(folder: &Path) -> Outcome<RabbitMq> {
        let peers = Peers::open(folder).map_err(|failure| Failure::new(failure.to_string()))?;
        peers.install(NAME, &report)?;
        // Removes the server that a killed run left behind.
        peers.clear(NAME)?;
        let running = peers.start(NAME, Tier::T3, 1, &report)?;
        let address = running.addresses("amqp").first().and_then(|address| address.parse().ok());
        let Some(address) = address else {
            peers.clear(NAME)?;
            return Err(Failure::new("rabbitmq says no address of AMQP"));
        };
        Ok(RabbitMq { peers, version: running.version, address })
    }

    /// Sets policies and users: the words of `tests/compat/servers/postroad-admin`.
    pub(crate) fn administer(&self, words: &[String]) -> Outcome {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let arguments = match words[..] {
            ["vhost", name] => vec!["add_vhost", name],
            ["no-vhost", name] => vec!["delete_vhost", name],
            ["policy", vhost, name, pattern, apply_to, definition] => {
                vec!["set_policy", "-p", vhost, "--apply-to", apply_to, name, pattern, definition]
            }
            ["no-policy", vhost, name] => vec!["clear_policy", "-p", vhost, name],
            ["user", name, password] => vec!["add_user", name, password],
            ["no-user", name] => vec!["delete_user", name],
            ["allow", name, vhost, configure, write, read] => {
                vec!["set_permissions", "-p", vhost, name, configure, write, read]
            }
            _ => return Err(Failure::new(format!("what is {words:?}?"))),
        };
        let Some(mut console) = self.peers.console(NAME)? else {
            return Err(Failure::new("rabbitmq has no rabbitmqctl"));
        };
        console.args(arguments);
        output_of(console, "rabbitmqctl").map(drop)
    }

    /// Stops it and removes its data.
    pub(crate) fn stop(self) -> Outcome {
        Ok(self.peers.clear(NAME)?)
    }
}

impl Drop for RabbitMq {
    fn drop(&mut self) {
        // It has been stopped already, or a scenario has failed and its error is reported.
        let _ = self.peers.stop(NAME);
    }
}

impl From<InstallError> for Failure {
    fn from(failure: InstallError) -> Failure {
        Failure::new(failure.with_details())
    }
}

impl From<StartError> for Failure {
    fn from(failure: StartError) -> Failure {
        Failure::new(failure.with_details())
    }
}

impl From<StopError> for Failure {
    fn from(failure: StopError) -> Failure {
        Failure::new(failure.to_string())
    }
}
