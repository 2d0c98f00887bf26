//! Settings of `serve` for a trace collector.

use std::path::PathBuf;

use outbound::{Address, AddressError};
use spans::ExportOptions;

use super::{SettingsError, invalid};

/// The settings as given.
#[derive(Debug, Default)]
pub(crate) struct RawTraceSettings {
    pub(crate) endpoint: Option<String>,
    pub(crate) headers: Option<PathBuf>,
    pub(crate) authorities: Option<PathBuf>,
}

/// `None`: no spans are made.
pub(crate) fn of(said: RawTraceSettings) -> Result<Option<ExportOptions>, SettingsError> {
    let RawTraceSettings { endpoint, headers, authorities } = said;
    let Some(endpoint) = endpoint else {
        let of_no_use = [("otel-headers", &headers), ("otel-ca", &authorities)];
        return match of_no_use.into_iter().find_map(|(it, path)| Some((it, path.as_ref()?))) {
            None => Ok(None),
            Some((setting, path)) => {
                let problem = "needs to know where spans go: --otel-endpoint";
                Err(invalid(setting, &path.display().to_string(), problem))
            }
        };
    };
    let wrong = |error: AddressError| {
        let problem = format!("{error}; a collector is said as http://127.0.0.1:4318");
        invalid("otel-endpoint", &endpoint, problem)
    };
    let address = Address::parse(&endpoint).map_err(wrong)?;
    if let (Some(path), false) = (&authorities, address.is_encrypted) {
        let problem = "is of no use with http://: it names the authority of the collector";
        return Err(invalid("otel-ca", &path.display().to_string(), problem));
    }
    let headers = match headers {
        None => Vec::new(),
        Some(path) => {
            let shown = path.display().to_string();
            let said = std::fs::read_to_string(&path).map_err(|error| {
                invalid("otel-headers", &shown, format!("cannot be read: {error}"))
            })?;
            ExportOptions::parse_headers(&said).map_err(|error| {
                invalid("otel-headers", &shown, format!("is not right: {error}"))
            })?
        }
    };
    Ok(Some(ExportOptions { endpoint: address, authorities, headers }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(endpoint: &str) -> RawTraceSettings {
        RawTraceSettings { endpoint: Some(endpoint.to_owned()), ..RawTraceSettings::default() }
    }

    fn refused(said: RawTraceSettings) -> String {
        of(said).expect_err("refused").to_string()
    }

    #[test]
    fn spans_require_an_endpoint() {
        assert_eq!(of(RawTraceSettings::default()).expect("valid"), None);
        let options = of(said("http://127.0.0.1:4318")).expect("valid").expect("is said");
        assert_eq!(options.endpoint.port, 4318);
        let authorities = Some(PathBuf::from("ca.pem"));
        let encrypted = RawTraceSettings { authorities: authorities.clone(), ..said("https://c") };
        assert_eq!(of(encrypted).expect("valid").expect("is said").authorities, authorities);
    }

    #[test]
    fn wrong_or_useless_trace_settings_are_rejected_with_the_setting() {
        assert!(refused(said("127.0.0.1:4318")).contains("--otel-endpoint"));
        let file = Some(PathBuf::from("no/such/file"));
        let only = RawTraceSettings { headers: file.clone(), ..RawTraceSettings::default() };
        assert!(refused(only).contains("--otel-headers"));
        let only = RawTraceSettings { authorities: file.clone(), ..RawTraceSettings::default() };
        assert!(refused(only).contains("--otel-endpoint"));
        let plain = RawTraceSettings { authorities: file.clone(), ..said("http://c") };
        assert!(refused(plain).contains("--otel-ca"));
        let headers = RawTraceSettings { headers: file, ..said("http://c") };
        assert!(refused(headers).contains("cannot be read"));
    }

    #[test]
    fn headers_are_a_file_of_names_and_values() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("headers");
        std::fs::write(&path, "# of the collector\n\nx-key: s3cret\n").expect("written");
        let of_file = || RawTraceSettings { headers: Some(path.clone()), ..said("http://c") };
        let options = of(of_file()).expect("valid").expect("is said");
        assert_eq!(options.headers.len(), 1);
        assert!(!format!("{options:?}").contains("s3cret"), "it is shown nowhere");
        std::fs::write(&path, "x-key s3cret\n").expect("written");
        let error = refused(of_file());
        assert!(error.contains("line 1") && !error.contains("s3cret"), "{error}");
    }
}
