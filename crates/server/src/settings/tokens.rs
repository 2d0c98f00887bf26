//! Settings of `serve` for logins by token: the issuer and the audience.

use std::path::PathBuf;

use tokens::{KeySource, TokenOptions};

use super::{SettingsError, invalid};

/// The settings as given.
#[derive(Debug, Default)]
pub(crate) struct RawTokenSettings {
    pub(crate) issuer: Option<String>,
    pub(crate) audiences: Option<Vec<String>>,
    pub(crate) jwks: Option<String>,
    pub(crate) principal_claim: Option<String>,
    pub(crate) authorities: Option<PathBuf>,
}

/// `None`: no login by token.
pub(crate) fn of(said: RawTokenSettings) -> Result<Option<TokenOptions>, SettingsError> {
    let RawTokenSettings { issuer, audiences, jwks, principal_claim, authorities } = said;
    let shown = authorities.as_ref().map(|path| path.display().to_string());
    let audience = audiences.as_ref().map(|all| all.join(" "));
    let any = [
        ("oidc-issuer", issuer.clone()),
        ("oidc-audience", audience),
        ("oidc-jwks", jwks.clone()),
        ("oidc-principal-claim", principal_claim.clone()),
        ("oidc-ca", shown),
    ];
    let Some((setting, value)) = any.into_iter().find_map(|(it, said)| Some((it, said?))) else {
        return Ok(None);
    };
    let missing = |what: &str| invalid(setting, &value, format!("needs to know {what}"));
    let issuer = issuer.ok_or_else(|| missing("the issuer of tokens: --oidc-issuer"))?;
    let audiences = audiences.ok_or_else(|| missing("the audience of tokens: --oidc-audience"))?;
    for (setting, text) in audiences
        .iter()
        .map(|audience| ("oidc-audience", audience))
        .chain([("oidc-issuer", &issuer)])
        .chain(principal_claim.iter().map(|claim| ("oidc-principal-claim", claim)))
    {
        if text.is_empty() {
            return Err(invalid(setting, text, "says nothing"));
        }
    }
    if audiences.is_empty() {
        return Err(invalid("oidc-audience", "", "says nothing"));
    }
    let keys = match &jwks {
        Some(jwks) => KeySource::parse(jwks, authorities.clone())
            .map_err(|error| invalid("oidc-jwks", jwks, error.to_string()))?,
        None => KeySource::discovered(&issuer, authorities.clone()).map_err(|error| {
            let problem = "cannot be asked where its keys are, say it: --oidc-jwks URL|FILE";
            invalid("oidc-issuer", &issuer, format!("{error}; {problem}"))
        })?,
    };
    if let (KeySource::File(_), Some(path)) = (&keys, authorities) {
        let problem =
            "is of no use with keys in a file: it names the authority of an HTTPS address";
        return Err(invalid("oidc-ca", &path.display().to_string(), problem));
    }
    let mut options = TokenOptions::new(issuer, audiences, keys);
    if let Some(claim) = principal_claim {
        options.principal_claim = claim;
    }
    Ok(Some(options))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said() -> RawTokenSettings {
        RawTokenSettings {
            issuer: Some("https://id.example.com".into()),
            audiences: Some(vec!["postroad".into()]),
            jwks: Some("https://id.example.com/keys".into()),
            ..RawTokenSettings::default()
        }
    }

    fn refused(said: RawTokenSettings) -> String {
        of(said).expect_err("refused").to_string()
    }

    #[test]
    fn token_logins_require_an_issuer_and_an_audience() {
        assert_eq!(of(RawTokenSettings::default()).expect("valid"), None);
        let options = of(said()).expect("valid").expect("is said");
        assert_eq!(options.principal_claim, "sub");
        let asked = of(RawTokenSettings { jwks: None, ..said() }).expect("valid").expect("is said");
        assert!(matches!(asked.keys, KeySource::Discovered { .. }));
        for (said, names) in [
            (RawTokenSettings { issuer: None, ..said() }, ["--oidc-audience", "--oidc-issuer"]),
            (RawTokenSettings { audiences: None, ..said() }, ["--oidc-issuer", "--oidc-audience"]),
            (
                RawTokenSettings { jwks: None, issuer: Some("us".into()), ..said() },
                ["--oidc-issuer", "--oidc-jwks"],
            ),
        ] {
            let error = refused(said);
            assert!(names.iter().all(|name| error.contains(name)), "{error}");
        }
        let only =
            RawTokenSettings { authorities: Some("ca.pem".into()), ..RawTokenSettings::default() };
        assert!(refused(only).contains("--oidc-ca"));
    }

    #[test]
    fn useless_token_settings_are_rejected() {
        let jwks = |text: &str| RawTokenSettings { jwks: Some(text.into()), ..said() };
        assert!(refused(jwks("http://id.example.com/keys")).contains("https://"));
        assert!(refused(jwks("https://a:b@id.example.com/keys")).contains("a name or a password"));
        let authorities = Some("ca.pem".into());
        let file = RawTokenSettings { authorities: authorities.clone(), ..jwks("keys.json") };
        assert!(refused(file).contains("--oidc-ca"));
        assert!(of(RawTokenSettings { authorities, ..said() }).is_ok());
        assert!(
            refused(RawTokenSettings { issuer: Some(String::new()), ..said() }).contains("issuer")
        );
        let audiences = Some(vec![String::new()]);
        assert!(refused(RawTokenSettings { audiences, ..said() }).contains("--oidc-audience"));
        let claim = Some("email".to_owned());
        let options = of(RawTokenSettings { principal_claim: claim, ..said() }).expect("valid");
        assert_eq!(options.expect("is said").principal_claim, "email");
    }
}
