//! Invariants of log-in messages and client certificates for any bytes: for fuzz targets, and for tests of their
//! findings.

use scram::{ClientFirst, Hash, Verifier};

use crate::certificate::{CertificateMapping, CertificateNames};
use crate::login::sasl;

/// A SASL message, by every mechanism.
pub fn message(data: &[u8]) {
    if let Ok(credentials) = sasl::plain(data) {
        let own = sasl::plain_as_oneself(data);
        assert!(own.is_err() || own.as_ref() == Ok(&credentials));
    }
    if let Ok(bearer) = sasl::bearer(data) {
        assert!(!bearer.token.is_empty());
        assert!(bearer.token.len() < data.len());
        let _ = bearer.is_as("app,=");
    }
    let nobody = || Verifier::decoy(Hash::Sha256, &[7; 16], 4_096);
    if let Ok(first) = ClientFirst::parse(data) {
        assert!(!first.name().is_empty());
        let written = first.name().replace('=', "=3D").replace(',', "=2C");
        let again = ClientFirst::parse(format!("n,,n={written},r=nonce").as_bytes());
        assert_eq!(again.expect("a name can be said again").name(), first.name());
        let (challenge, said) = first.challenge(nobody(), "ours");
        assert!(said.contains("ours,s="));
        assert!(challenge.finish(data).is_err(), "the first message is no proof");
    }
    let asked = ClientFirst::parse(b"n,,n=user,r=theirs").expect("well-formed");
    assert!(asked.challenge(nobody(), "ours").0.finish(data).is_err(), "nobody proves nothing");
}

/// A client's certificate, in DER. The length of its name is bounded by the certificate's.
pub fn certificate(data: &[u8]) {
    let Ok(names) = CertificateNames::from_der(data) else { return };
    for setting in
        ["cn", "dn", "san:dns", "san:email", "san:uri", "RULE:^CN=([^,]+).*$/$1/L,DEFAULT"]
    {
        let mapping: CertificateMapping = setting.parse().expect("a setting");
        if let Ok(name) = mapping.name_of(&names) {
            assert!(name.len() <= 16 * data.len(), "a name is not longer than what it is made of");
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn log_in_corpus_holds_the_invariants() {
        test_corpus::each("sasl_message", super::message);
        test_corpus::each("certificate", super::certificate);
    }
}
