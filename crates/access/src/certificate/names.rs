//! What a certificate says of its holder.

use std::fmt::Write;

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::AttributeTypeAndValue;

/// As RFC 2253 abbreviates attributes, which is what Kafka's principals have; any other is its number.
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
    /// When it ends, in seconds since the epoch.
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
    pub fn of_der(der: &[u8]) -> Result<Self, CertificateError> {
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
        // The most specific one comes first in text, and last in a certificate.
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
                // What cannot be read is not passed over: the next one would be taken for the first.
                GeneralName::Invalid(..) => return Err(CertificateError::AlternativeNames),
                _ => {}
            }
        }
        Ok(names)
    }
}

/// The value, if it is a text that all read alike.
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

/// RFC 2253, 2.3 and 2.4: what has a keyword and is a text is written as that, the rest as bytes.
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

/// As DER has it.
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
        CertificateNames::of_der(&der).expect("a certificate")
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
    fn a_subject_is_written_as_kafka_writes_it_the_most_specific_first() {
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
    fn no_value_passes_for_more_than_itself() {
        let hostile = subject(&[(DnType::CommonName, "app,CN=root")]);
        assert_eq!(hostile, "CN=app\\,CN=root");
        let hostile = subject(&[(DnType::CommonName, " a+b\\\"<c>;\0#d ")]);
        assert_eq!(hostile, "CN=\\ a\\+b\\\\\\\"\\<c\\>\\;\\00#d\\ ");
        assert_eq!(subject(&[(DnType::CommonName, "#a")]), "CN=\\#a");
        // An attribute without a keyword, and a text of a form that is read in more than one way, are bytes.
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
    fn alternative_names_are_kept_by_kind_in_their_order() {
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
    fn lengths_are_as_der_has_them() {
        assert_eq!(length(0x7f), [0x7f]);
        assert_eq!(length(0x80), [0x81, 0x80]);
        assert_eq!(length(0x1234), [0x82, 0x12, 0x34]);
    }

    #[test]
    fn what_is_no_certificate_is_refused() {
        for bytes in [&b""[..], b"x", &[0x30, 0x82, 0xff, 0xff], &[0xff; 64]] {
            assert_eq!(CertificateNames::of_der(bytes), Err(CertificateError::NoCertificate));
        }
    }
}
