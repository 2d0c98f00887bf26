//! Nodes that authenticate each other by a shared secret.
//!
//! Both ends derive the same key pair from it and present its public half (RFC 7250: a raw key, since a
//! certificate would add nothing). A peer that can sign with the key knows the secret. The two sides sign
//! different texts (RFC 8446, section 4.4.3), so that a signature cannot be reflected to its sender.

use std::sync::Arc;

use aws_lc_rs::hkdf;
use aws_lc_rs::signature::Ed25519KeyPair;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, aws_lc_rs as provider, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible,
    SignatureScheme,
};

use super::SecurityError;

/// A shorter secret could be found by brute force: a connecting client sees the public key.
pub(super) const SECRET_BYTES_MIN: usize = 32;

/// Names the use of the key. Another use of the secret, or another kind of key, has another text.
const SALT: &[u8] = b"postroad links";
const KEY_INFO: &[u8] = b"ed25519 key pair of all nodes, 1";

/// Derives the key pair from the secret.
pub(super) fn key_pair(secret: &[u8]) -> Result<CertifiedKey, SecurityError> {
    if secret.len() < SECRET_BYTES_MIN {
        return Err(SecurityError::ShortSecret { bytes: secret.len() });
    }
    let unusable = |_| SecurityError::Key;
    let pseudorandom = hkdf::Salt::new(hkdf::HKDF_SHA256, SALT).extract(secret);
    let mut seed = [0; 32];
    let expanded = pseudorandom.expand(&[KEY_INFO], hkdf::HKDF_SHA256);
    expanded.and_then(|expanded| expanded.fill(&mut seed)).map_err(unusable)?;
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| SecurityError::Key)?;
    let private = pair.to_pkcs8v1().map_err(unusable)?;
    let private = PrivatePkcs8KeyDer::from(private.as_ref());
    let key = provider::sign::any_eddsa_type(&private)?;
    let public = key.public_key().ok_or(SecurityError::Key)?;
    Ok(CertifiedKey::new(vec![CertificateDer::from(public.as_ref().to_vec())], key))
}

/// Accepts any peer with the one key.
#[derive(Debug)]
pub(super) struct SameKey {
    public: SubjectPublicKeyInfoDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl SameKey {
    pub(super) fn new(ours: &CertifiedKey) -> Result<Arc<Self>, SecurityError> {
        let public = ours.end_entity_cert()?.as_ref().to_vec();
        let algorithms = provider::default_provider().signature_verification_algorithms;
        Ok(Arc::new(Self { public: SubjectPublicKeyInfoDer::from(public), algorithms }))
    }

    fn compare(&self, presented: &CertificateDer<'_>) -> Result<(), Error> {
        // Public keys: the time of the comparison reveals no secret.
        if presented.as_ref() == self.public.as_ref() {
            Ok(())
        } else {
            Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
        }
    }

    fn check(
        &self,
        message: &[u8],
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature_with_raw_key(message, &self.public, signed, &self.algorithms)
    }
}

/// The error for other versions than TLS 1.3.
fn older_version() -> Error {
    Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered)
}

impl ServerCertVerifier for SameKey {
    fn verify_server_cert(
        &self,
        presented: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.compare(presented).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _presented: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(older_version())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        presented: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.compare(presented)?;
        self.check(message, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for SameKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        presented: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.compare(presented).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _presented: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(older_version())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        presented: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.compare(presented)?;
        self.check(message, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_secret_derives_the_same_key_and_another_a_different_one() {
        let public = |secret: u8| {
            let pair = key_pair(&[secret; SECRET_BYTES_MIN]).expect("long enough");
            pair.end_entity_cert().expect("a key").as_ref().to_vec()
        };
        assert_eq!(public(1), public(1));
        assert_ne!(public(1), public(2));
        let short = key_pair(&[1; SECRET_BYTES_MIN - 1]).map(drop);
        assert!(matches!(short, Err(SecurityError::ShortSecret { bytes: 31 })));
    }
}
