//! Login requirements of the node's ports, for its users and its log.

use access::login_ports::{LoginPort, LoginPorts};
use access::{Admission, Users};
use gateway_http::LoginOptions as HttpLogins;
use gateway_kafka::LoginOptions;

use crate::listeners::Bound;
use crate::security_settings::Auth;
use crate::settings::Settings;

/// The open ports, each with its login requirement.
pub(crate) fn ports(
    settings: &Settings,
    bound: &Bound,
    kafka: &LoginOptions,
    http: &HttpLogins,
) -> LoginPorts {
    let amqp = match settings.amqp_anonymous {
        Some(_) => Admission::Open,
        None => Admission::Required,
    };
    let all = [
        ("kafka", Some(bound.kafka), kafka.plain),
        ("kafka-tls", bound.kafka_tls, kafka.tls),
        ("amqp", bound.amqp, amqp),
        ("amqp-tls", bound.amqp_tls, amqp),
        ("http", bound.http, http.plain),
        ("http-tls", bound.http_tls, http.tls),
    ];
    let ports = all.into_iter().filter_map(|(setting, address, admission)| {
        Some(LoginPort { setting, address: address?, admission })
    });
    LoginPorts { ports: ports.collect(), by_users: settings.security.auth == Auth::Auto }
}

/// Logs at each start what an operator has to know of logins.
pub(crate) fn log_requirements(settings: &Settings, users: &Users) {
    tracing::info!("{}", users.login_line());
    if settings.security.insecure {
        tracing::warn!("--insecure: where no log-in is asked for, everybody may do everything");
    }
    if settings.security.plaintext {
        tracing::warn!("--allow-plaintext-auth: passwords may be read on their way to this node");
    }
}
