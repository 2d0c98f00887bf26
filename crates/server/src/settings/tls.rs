//! TLS settings of `serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use access::CertificateMapping;
use access::certificate::MappingError;
use clap::ValueEnum;
use gateway::tls::ClientCertificates;
use serde::Deserialize;

use super::{SettingsError, host_port, invalid, listen};

/// Whether clients present certificates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ClientAuth {
    None,
    Optional,
    Required,
}

/// The settings as given.
#[derive(Debug, Default)]
pub(crate) struct RawTlsSettings {
    pub(crate) kafka: Option<String>,
    pub(crate) advertise_kafka: Option<String>,
    pub(crate) amqp: Option<String>,
    pub(crate) http: Option<String>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) client_ca: Option<PathBuf>,
    pub(crate) client_crl: Option<PathBuf>,
    pub(crate) client_auth: Option<ClientAuth>,
    pub(crate) principal: Option<String>,
}

/// The ports with TLS, and their files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TlsSettings {
    pub(crate) kafka: Option<SocketAddr>,
    /// `None`: the listen address.
    pub(crate) advertise_kafka: Option<(String, u16)>,
    pub(crate) amqp: Option<SocketAddr>,
    pub(crate) http: Option<SocketAddr>,
    pub(crate) files: TlsPaths,
    pub(crate) clients: ClientCertificates,
    /// `None`: client certificates permit the connection but name no user.
    pub(crate) principal: Option<CertificateMapping>,
}

/// Files in PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TlsPaths {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) client_ca: Option<PathBuf>,
    pub(crate) client_crl: Option<PathBuf>,
}

impl TlsSettings {
    /// `None`: no port encrypts.
    pub(crate) fn of(said: RawTlsSettings) -> Result<Option<Self>, SettingsError> {
        let port = |setting, said: Option<String>| {
            said.map(|address| listen(setting, &address)).transpose()
        };
        let (kafka, amqp) = (port("kafka-tls", said.kafka)?, port("amqp-tls", said.amqp)?);
        let http = port("http-tls", said.http)?;
        if let (Some(address), None) = (&said.advertise_kafka, kafka) {
            let problem = "is of no use without --kafka-tls";
            return Err(invalid("advertise-kafka-tls", address, problem));
        }
        let advertise_kafka = said
            .advertise_kafka
            .map(|address| host_port("advertise-kafka-tls", &address))
            .transpose()?;
        let ports = [("kafka-tls", kafka), ("amqp-tls", amqp), ("http-tls", http)];
        let Some((setting, port)) = ports.into_iter().find_map(|(it, port)| Some((it, port?)))
        else {
            let files = [
                ("tls-cert", said.cert),
                ("tls-key", said.key),
                ("tls-client-ca", said.client_ca),
                ("tls-client-crl", said.client_crl),
            ];
            let said = files
                .into_iter()
                .find_map(|(setting, path)| Some((setting, path?.display().to_string())))
                .or(said.principal.map(|principal| ("tls-principal", principal)));
            return match said {
                None => Ok(None),
                Some((setting, said)) => {
                    let problem = "is of no use without --kafka-tls, --amqp-tls or --http-tls";
                    Err(invalid(setting, &said, problem))
                }
            };
        };
        let (Some(cert), Some(key)) = (said.cert, said.key) else {
            let problem = "needs a certificate and its key: --tls-cert and --tls-key \
                           ('postroad tls self-signed' makes a pair to try it with)";
            return Err(invalid(setting, &port.to_string(), problem));
        };
        let clients = match (said.client_auth, &said.client_ca) {
            (None | Some(ClientAuth::None), None) => ClientCertificates::None,
            (Some(ClientAuth::None), Some(path)) => {
                let problem = "is of no use with --tls-client-auth none";
                return Err(invalid("tls-client-ca", &path.display().to_string(), problem));
            }
            (Some(ClientAuth::Optional), Some(_)) => ClientCertificates::Optional,
            (Some(ClientAuth::Required) | None, Some(_)) => ClientCertificates::Required,
            (Some(_), None) => {
                let problem =
                    "needs the authority that signs clients' certificates: --tls-client-ca FILE";
                return Err(invalid("tls-client-auth", "optional or required", problem));
            }
        };
        if let (ClientCertificates::None, Some(path)) = (clients, &said.client_crl) {
            let problem = "needs certificates of clients: --tls-client-ca FILE";
            return Err(invalid("tls-client-crl", &path.display().to_string(), problem));
        }
        let principal = said.principal.map(|text| match clients {
            ClientCertificates::None => {
                let problem = "needs certificates of clients: --tls-client-ca FILE";
                Err(invalid("tls-principal", &text, problem))
            }
            _ => text
                .parse()
                .map_err(|error: MappingError| invalid("tls-principal", &text, error.to_string())),
        });
        let principal = principal.transpose()?;
        let (client_ca, client_crl) = (said.client_ca, said.client_crl);
        let files = TlsPaths { cert, key, client_ca, client_crl };
        Ok(Some(Self { kafka, advertise_kafka, amqp, http, files, clients, principal }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said() -> RawTlsSettings {
        RawTlsSettings {
            kafka: Some("127.0.0.1:9093".into()),
            cert: Some("cert.pem".into()),
            key: Some("key.pem".into()),
            ..RawTlsSettings::default()
        }
    }

    fn refused(said: RawTlsSettings) -> String {
        TlsSettings::of(said).expect_err("refused").to_string()
    }

    #[test]
    fn no_port_uses_tls_by_default() {
        assert_eq!(TlsSettings::of(RawTlsSettings::default()).expect("valid"), None);
        let settings = TlsSettings::of(said()).expect("valid").expect("encrypts");
        assert_eq!(settings.kafka.map(|address| address.port()), Some(9093));
        assert_eq!((settings.amqp, settings.clients), (None, ClientCertificates::None));
    }

    #[test]
    fn incomplete_tls_settings_are_rejected() {
        let error = refused(RawTlsSettings { key: None, ..said() });
        assert!(error.contains("--kafka-tls") && error.contains("--tls-key"), "{error}");
        let error = refused(RawTlsSettings { kafka: None, ..said() });
        assert!(error.contains("--tls-cert") && error.contains("--amqp-tls"), "{error}");
        let error = refused(RawTlsSettings { client_auth: Some(ClientAuth::Required), ..said() });
        assert!(error.contains("--tls-client-ca"), "{error}");
        let client_crl = Some(PathBuf::from("revoked.pem"));
        let error = refused(RawTlsSettings { client_crl: client_crl.clone(), ..said() });
        assert!(error.contains("tls-client-crl") && error.contains("--tls-client-ca"), "{error}");
        let error = refused(RawTlsSettings { client_crl, ..RawTlsSettings::default() });
        assert!(error.contains("--kafka-tls"), "{error}");
        let advertise_kafka = Some("broker:9093".into());
        let error = refused(RawTlsSettings { advertise_kafka, ..RawTlsSettings::default() });
        assert!(error.contains("--advertise-kafka-tls"), "{error}");
    }

    #[test]
    fn certificate_principal_requires_client_certificates() {
        let of = |principal: &str, client_ca: Option<&str>| {
            let principal = Some(principal.to_owned());
            let client_ca = client_ca.map(Into::into);
            TlsSettings::of(RawTlsSettings { principal, client_ca, ..said() })
        };
        assert!(of("cn", Some("ca.pem")).expect("valid").expect("encrypts").principal.is_some());
        let error = of("cn", None).expect_err("refused").to_string();
        assert!(error.contains("--tls-principal") && error.contains("--tls-client-ca"), "{error}");
        let error = of("RULE:(/x/", Some("ca.pem")).expect_err("refused").to_string();
        assert!(error.contains("no regular expression"), "{error}");
        let principal = Some("dn".into());
        let error = refused(RawTlsSettings { principal, ..RawTlsSettings::default() });
        assert!(error.contains("--tls-principal") && error.contains("--kafka-tls"), "{error}");
    }

    #[test]
    fn client_ca_requires_client_certificates_by_default() {
        let client_ca = || Some("ca.pem".into());
        let of = |client_auth| {
            let settings =
                TlsSettings::of(RawTlsSettings { client_ca: client_ca(), client_auth, ..said() });
            settings.expect("valid").expect("encrypts").clients
        };
        assert_eq!(of(None), ClientCertificates::Required);
        assert_eq!(of(Some(ClientAuth::Optional)), ClientCertificates::Optional);
    }
}
