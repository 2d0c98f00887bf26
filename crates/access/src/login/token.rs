//! Principal of a client by a token of an external issuer (the crate `tokens`).
//!
//! The name in a token need not be a user, as with certificates: the issuer knows its users. Rules and permissions
//! for the name apply. The log-in ends with the token.

use std::net::IpAddr;
use std::sync::Arc;

use tokens::{TokenError, Tokens};

use super::LoginError;
use crate::principal::Principal;
use crate::user_name::{NameError, check_name};
use crate::users::Users;

/// Reason why a token is rejected, without any part of the token.
#[derive(Debug, thiserror::Error)]
enum UnnamedError {
    #[error("its token is refused: {0}")]
    Token(#[from] TokenError),
    #[error("the name that its token gives is none: {0}")]
    Name(#[from] NameError),
    #[error("log-in by token is off")]
    None,
}

impl Users {
    /// Enables log-in by these tokens; called once, before clients connect.
    pub fn trust_tokens(&self, tokens: Tokens) {
        let believed = self.0.tokens.set(tokens);
        debug_assert!(believed.is_ok(), "they were believed before");
    }

    /// Whether log-in by token is enabled.
    pub fn takes_tokens(&self) -> bool {
        self.0.tokens.get().is_some()
    }

    /// Whether a password is to be treated as a token.
    pub fn is_token(&self, password: &str) -> bool {
        self.takes_tokens() && tokens::looks_like_token(password)
    }

    /// Logs in by a token. Replies to repeated failures are delayed.
    pub async fn log_in_by_token(
        &self,
        token: &str,
        peer: IpAddr,
    ) -> Result<Principal, LoginError> {
        let refused = match self.named_by(token).await {
            Ok((name, ends_ms)) => match self.admitted(&name, peer) {
                Ok(principal) => return Ok(principal.vouched_for().until(ends_ms)),
                Err(error) => error,
            },
            Err(error) => LoginError::Token { reason: Arc::from(error.to_string()) },
        };
        Err(self.refuse("", peer, refused).await)
    }

    async fn named_by(&self, token: &str) -> Result<(String, i64), UnnamedError> {
        let tokens = self.0.tokens.get().ok_or(UnnamedError::None)?;
        let verified = tokens.verify(token).await?;
        check_name(&verified.name)?;
        Ok((verified.name, verified.ends_ms))
    }
}
