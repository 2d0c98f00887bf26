//! Address of a server.

use std::fmt;

use hyper::Uri;

/// `http://` or `https://`, a host, a port and a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    pub is_encrypted: bool,
    /// Without brackets, also for an IPv6 address.
    pub host: String,
    pub port: u16,
    /// Includes the query; at least `/`.
    pub path: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddressError {
    #[error("is no address that begins with http:// or https://")]
    Scheme,
    #[error("is no address")]
    Address,
    #[error("has a name or a password in it")]
    UserInfo,
}

impl Address {
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let (scheme, _) = text.split_once("://").ok_or(AddressError::Scheme)?;
        let is_encrypted = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(AddressError::Scheme),
        };
        let uri: Uri = text.parse().map_err(|_| AddressError::Address)?;
        let authority = uri.authority().ok_or(AddressError::Address)?;
        if authority.as_str().contains('@') {
            return Err(AddressError::UserInfo);
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(AddressError::Address);
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let port = authority.port_u16().unwrap_or(Self::default_port(is_encrypted));
        Ok(Self { is_encrypted, host, port, path })
    }

    fn default_port(is_encrypted: bool) -> u16 {
        if is_encrypted { 443 } else { 80 }
    }

    /// Host and port, as `connect` takes them.
    pub fn host_and_port(&self) -> String {
        format!("{}:{}", self.bracketed_host(), self.port)
    }

    /// `Host` header of a request (RFC 9110, section 7.2): with the port, unless it is the scheme's default.
    pub fn host_header(&self) -> String {
        match self.port == Self::default_port(self.is_encrypted) {
            true => self.bracketed_host(),
            false => self.host_and_port(),
        }
    }

    fn bracketed_host(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.host_header(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_parses_into_scheme_host_port_and_path() {
        let of = |text: &str| {
            let Address { is_encrypted, host, port, path } = Address::parse(text).expect("valid");
            (is_encrypted, host, port, path)
        };
        assert_eq!(of("https://id.example.com"), (true, "id.example.com".into(), 443, "/".into()));
        assert_eq!(of("HTTPS://id:8443/k?v=1"), (true, "id".into(), 8443, "/k?v=1".into()));
        assert_eq!(of("http://[::1]:4318/v1"), (false, "::1".into(), 4318, "/v1".into()));
        assert_eq!(of("http://collector"), (false, "collector".into(), 80, "/".into()));
    }

    #[test]
    fn invalid_address_is_rejected() {
        for (text, error) in [
            ("", AddressError::Scheme),
            ("collector:4318", AddressError::Scheme),
            ("grpc://collector", AddressError::Scheme),
            ("https://", AddressError::Address),
            ("https://a b/", AddressError::Address),
            ("https://a:b@id/keys", AddressError::UserInfo),
        ] {
            assert_eq!(Address::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn address_displays_as_it_was_parsed() {
        for text in ["https://id.example.com/", "http://[::1]:4318/v1", "https://id:8443/k?v=1"] {
            assert_eq!(Address::parse(text).expect("valid").to_string(), text);
        }
        let address = Address::parse("https://[::1]/").expect("valid");
        assert_eq!((&*address.host_header(), &*address.host_and_port()), ("[::1]", "[::1]:443"));
    }
}
