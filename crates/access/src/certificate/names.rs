//! Names in a certificate.

use std::fmt::Write;

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::AttributeTypeAndValue;

/// Attribute keywords of RFC 2253, which Kafka's principals use; any other attribute is written by its number.
const KEYWORDS: [(&str, &str); 9] = [
    (COMMON_NAME, "CN"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
];
const COMMON_NAME: &str = "2.5.4.3";

// Tags of ASN.1.
const UTF8_STRING: u32 = 12;
const NUMERIC_STRING: u32 = 18;
const PRINTABLE_STRING: u32 = 19;
const TELETEX_STRING: u32 = 20;
const IA5_STRING: u32 = 22;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CertificateNames {
    /// The subject, as RFC 2253 writes it.
    pub(crate) distinguished: String,
    pub(crate) common: Vec<String>,
    /// Alternative names of the subject, in their order.
    pub(crate) dns: Vec<String>,
    pub(crate) emails: Vec<String>,
    pub(crate) uris: Vec<String>,
    /// Expiry, in seconds since the epoch.
    pub(crate) ends_secs: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("it is none of X.509")]
    NoCertificate,
    #[error("its alternative names are malformed")]
    AlternativeNames,
}

impl CertificateNames {
    pub fn from_der(der: &[u8]) -> Result<Self, CertificateError> {
        let (_, certificate) =
            X509Certificate::from_der(der).map_err(|_| CertificateError::NoCertificate)?;
        let mut names =
            Self { ends_secs: certificate.validity().not_after.timestamp(), ..Self::default() };
        let mut distinguished: Vec<String> = Vec::new();
        for together in certificate.subject().iter_rdn() {
            let written: Vec<String> = together.iter().map(written).collect();
            distinguished.push(written.join("+"));
            let common = together.iter().filter(|it| it.attr_type().to_id_string() == COMMON_NAME);
            names.common.extend(common.filter_map(text).map(str::to_owned));
        }
        // RFC 2253 writes the most specific name first; a certificate has it last.
        distinguished.reverse();
        names.distinguished = distinguished.join(",");
        let alternatives = certificate
            .subject_alternative_name()
            .map_err(|_| CertificateError::AlternativeNames)?;
        for name in alternatives.iter().flat_map(|it| &it.value.general_names) {
            match name {
                GeneralName::DNSName(name) => names.dns.push((*name).to_owned()),
                GeneralName::RFC822Name(name) => names.emails.push((*name).to_owned()),
                GeneralName::URI(name) => names.uris.push((*name).to_owned()),
                // Unreadable names are not skipped: the next one would count as the first.
                GeneralName::Invalid(..) => return Err(CertificateError::AlternativeNames),
                _ => {}
            }
        }
        Ok(names)
    }
}

/// The value, if it is text in an unambiguous encoding.
fn text<'a>(attribute: &'a AttributeTypeAndValue<'_>) -> Option<&'a str> {
    let value = attribute.attr_value();
    let is_ascii = value.data.is_ascii();
    match value.tag().0 {
        UTF8_STRING => std::str::from_utf8(value.data).ok(),
        NUMERIC_STRING | PRINTABLE_STRING | TELETEX_STRING | IA5_STRING if is_ascii => {
            std::str::from_utf8(value.data).ok()
        }
        _ => None,
    }
}

/// RFC 2253, 2.3 and 2.4: text attributes with a keyword are written as text, all others as hex bytes.
fn written(attribute: &AttributeTypeAndValue<'_>) -> String {
    let number = attribute.attr_type().to_id_string();
    let keyword = KEYWORDS.iter().find(|(known, _)| *known == number).map(|(_, keyword)| *keyword);
    match (keyword, text(attribute)) {
        (Some(keyword), Some(text)) => {
            let mut written = format!("{keyword}=");
            escape(text, &mut written);
            written
        }
        (keyword, _) => {
            let value = attribute.attr_value();
            let mut written = format!("{}=#", keyword.unwrap_or(&number));
            // Tags of attributes are small.
            let bytes = std::iter::once(value.tag().0 as u8).chain(length(value.data.len()));
            for byte in bytes.chain(value.data.iter().copied()) {
                let _ = write!(written, "{byte:02x}");
            }
            written
        }
    }
}

/// A length in DER.
fn length(bytes: usize) -> Vec<u8> {
    if bytes < 0x80 {
        return vec![bytes as u8];
    }
    let all = bytes.to_be_bytes();
    let significant = &all[bytes.leading_zeros() as usize / 8..];
    let mut length = vec![0x80 | significant.len() as u8];
    length.extend_from_slice(significant);
    length
}

fn escape(text: &str, out: &mut String) {
    let last = text.len().saturating_sub(1);
    for (at, char) in text.char_indices() {
        match char {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => {
                out.push('\\');
                out.push(char);
            }
            '#' if at == 0 => out.push_str("\\#"),
            ' ' if at == 0 || at == last => out.push_str("\\ "),
            '\0' => out.push_str("\\00"),
            char => out.push(char),
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::string::{BmpString, Ia5String};
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair, SanType};

    use super::*;

    fn names_of(change: impl FnOnce(&mut CertificateParams)) -> CertificateNames {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name = DistinguishedName::new();
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let der = params.self_signed(&key).expect("a certificate").der().to_vec();
        CertificateNames::from_der(&der).expect("a certificate")
    }

    fn subject(attributes: &[(DnType, &str)]) -> String {
        names_of(|params| {
            for (kind, value) in attributes {
                params.distinguished_name.push(kind.clone(), *value);
            }
        })
        .distinguished
    }

    #[test]
    fn subject_is_written_as_in_kafka_most_specific_first() {
        let written = subject(&[
            (DnType::CountryName, "US"),
            (DnType::LocalityName, "PaloAlto"),
            (DnType::OrganizationName, "Sales"),
            (DnType::OrganizationalUnitName, "TEST"),
            (DnType::CommonName, "quickstart.example.com"),
        ]);
        assert_eq!(written, "CN=quickstart.example.com,OU=TEST,O=Sales,L=PaloAlto,C=US");
    }

    #[test]
    fn subject_values_are_escaped() {
        let hostile = subject(&[(DnType::CommonName, "app,CN=root")]);
        assert_eq!(hostile, "CN=app\\,CN=root");
        let hostile = subject(&[(DnType::CommonName, " a+b\\\"<c>;\0#d ")]);
        assert_eq!(hostile, "CN=\\ a\\+b\\\\\\\"\\<c\\>\\;\\00#d\\ ");
        assert_eq!(subject(&[(DnType::CommonName, "#a")]), "CN=\\#a");
        // Attributes without a keyword, and text in an ambiguous encoding, are written as bytes.
        let email = DnType::CustomDnType(vec![1, 2, 840, 113549, 1, 9, 1]);
        let names = names_of(|params| {
            let address = Ia5String::try_from("a@b").expect("ASCII");
            params.distinguished_name.push(email, DnValue::Ia5String(address));
        });
        assert_eq!(names.distinguished, "1.2.840.113549.1.9.1=#1603614062");
        let names = names_of(|params| {
            let wide = BmpString::try_from("ab").expect("a text");
            params.distinguished_name.push(DnType::CommonName, DnValue::BmpString(wide));
        });
        assert_eq!(names.distinguished, "CN=#1e0400610062");
        assert!(names.common.is_empty());
    }

    #[test]
    fn alternative_names_keep_their_kind_and_order() {
        let names = names_of(|params| {
            let text = |text: &str| Ia5String::try_from(text).expect("ASCII");
            params.subject_alt_names = vec![
                SanType::URI(text("spiffe://example.com/app")),
                SanType::DnsName(text("one.example.com")),
                SanType::Rfc822Name(text("app@example.com")),
                SanType::DnsName(text("two.example.com")),
            ];
        });
        assert_eq!(names.dns, ["one.example.com", "two.example.com"]);
        assert_eq!(names.emails, ["app@example.com"]);
        assert_eq!(names.uris, ["spiffe://example.com/app"]);
        assert_eq!(names.distinguished, "");
    }

    #[test]
    fn lengths_are_encoded_as_in_der() {
        assert_eq!(length(0x7f), [0x7f]);
        assert_eq!(length(0x80), [0x81, 0x80]);
        assert_eq!(length(0x1234), [0x82, 0x12, 0x34]);
    }

    #[test]
    fn malformed_certificate_is_rejected() {
        for bytes in [&b""[..], b"x", &[0x30, 0x82, 0xff, 0xff], &[0xff; 64]] {
            assert_eq!(CertificateNames::from_der(bytes), Err(CertificateError::NoCertificate));
        }
    }
}
