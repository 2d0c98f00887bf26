//! Browser sessions: after log-in on the console, requests need no password.
//!
//! A browser holds a random id in a cookie that scripts cannot read. The node keeps only its digest, so that a memory
//! dump logs in no attacker. Sessions are local to the node. They end with it, after half an hour without a request,
//! after eight hours, and at once when the password changes.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;
use std::time::Duration;

use crate::limits::{
    HTTP_SESSION_IDLE_MAX, HTTP_SESSION_MAX, HTTP_SESSIONS_MAX, HTTP_SESSIONS_OF_A_USER_MAX,
};
use access::{CredentialFingerprint, Principal, Users};
use aws_lc_rs::digest::{SHA256, digest};
use axum::http::HeaderMap;
use axum::http::header::COOKIE;
use parking_lot::Mutex;
use world::{Entropy, Instant};

/// Cookie over TLS. Browsers accept this prefix only from this host, for all paths, and encrypted.
const COOKIE_ENCRYPTED: &str = "__Host-postroad";
/// Cookie without TLS, which is mostly used on the node's own machine.
const COOKIE_PLAIN: &str = "postroad";
const ID_BYTES: usize = 32;

type Digest = [u8; 32];

/// All sessions of a node.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<BTreeMap<Digest, Session>>);

#[derive(Clone, Debug)]
struct Session {
    principal: Principal,
    standing: CredentialFingerprint,
    begun: Instant,
    used: Instant,
}

impl Session {
    fn ends_in(&self) -> Duration {
        let idle = HTTP_SESSION_IDLE_MAX.saturating_sub(self.used.elapsed());
        idle.min(HTTP_SESSION_MAX.saturating_sub(self.begun.elapsed()))
    }
}

/// A resumed session.
#[derive(Clone, Debug)]
pub(crate) struct ResumedSession {
    pub(crate) principal: Principal,
    /// Remaining time without further requests.
    pub(crate) ends_in: Duration,
}

impl Sessions {
    /// Begins a session; returns its id, which is not stored. `None`: the user has just been deleted.
    pub(crate) fn begin(
        &self,
        principal: Principal,
        users: &Users,
        entropy: &dyn Entropy,
    ) -> Option<String> {
        let standing = users.standing(&principal)?;
        let mut bytes = [0; ID_BYTES];
        entropy.fill(&mut bytes);
        let mut id = String::with_capacity(2 * ID_BYTES);
        for byte in bytes {
            let _ = write!(id, "{byte:02x}");
        }
        let now = Instant::now();
        let mut sessions = self.0.lock();
        sessions.retain(|_, session| !session.ends_in().is_zero());
        make_room(&mut sessions, HTTP_SESSIONS_MAX, |_| true);
        let name = principal.name().clone();
        make_room(&mut sessions, HTTP_SESSIONS_OF_A_USER_MAX, |of| *of.principal.name() == name);
        let session = Session { principal, standing, begun: now, used: now };
        sessions.insert(id_digest(&id), session);
        Some(id)
    }

    /// The session with this id, if it has not ended.
    pub(crate) fn resume(&self, id: &str, users: &Users, peer: IpAddr) -> Option<ResumedSession> {
        let mut sessions = self.0.lock();
        let key = id_digest(id);
        let session = sessions.get_mut(&key)?;
        let holds = !session.ends_in().is_zero()
            && users.still_admits(&session.principal, session.standing, peer);
        if !holds {
            sessions.remove(&key);
            return None;
        }
        session.used = Instant::now();
        Some(ResumedSession { principal: session.principal.clone(), ends_in: session.ends_in() })
    }

    pub(crate) fn end(&self, id: &str) {
        self.0.lock().remove(&id_digest(id));
    }

    /// Ends all sessions of a user; returns their number.
    pub(crate) fn end_all_of(&self, name: &str) -> usize {
        let mut sessions = self.0.lock();
        let before = sessions.len();
        sessions.retain(|_, session| &**session.principal.name() != name);
        before - sessions.len()
    }
}

/// Ends the least recently used of the counted sessions until one more fits.
fn make_room(
    sessions: &mut BTreeMap<Digest, Session>,
    most: usize,
    counts: impl Fn(&Session) -> bool,
) {
    while sessions.values().filter(|session| counts(session)).count() >= most {
        let counted = sessions.iter().filter(|(_, session)| counts(session));
        let Some(oldest) = counted.min_by_key(|(_, session)| session.used).map(|(key, _)| *key)
        else {
            return;
        };
        sessions.remove(&oldest);
    }
}

fn id_digest(id: &str) -> Digest {
    let mut key = Digest::default();
    key.copy_from_slice(digest(&SHA256, id.as_bytes()).as_ref());
    key
}

fn cookie_name(encrypted: bool) -> &'static str {
    if encrypted { COOKIE_ENCRYPTED } else { COOKIE_PLAIN }
}

/// The session id in a request's cookies, if it is well-formed.
pub(crate) fn session_id(headers: &HeaderMap, encrypted: bool) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';'));
    pairs.find_map(|pair| {
        let (name, id) = pair.trim().split_once('=')?;
        let is_id = id.len() == 2 * ID_BYTES && id.bytes().all(|b| b.is_ascii_hexdigit());
        (name == cookie_name(encrypted) && is_id).then_some(id)
    })
}

/// Value of `Set-Cookie` for a session; `None` deletes the cookie.
pub(crate) fn cookie(id: Option<&str>, encrypted: bool) -> String {
    let name = cookie_name(encrypted);
    let secure = if encrypted { "; Secure" } else { "" };
    match id {
        Some(id) => format!("{name}={id}; Path=/; HttpOnly; SameSite=Strict{secure}"),
        None => format!("{name}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0{secure}"),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn of(text: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, HeaderValue::from_str(text).expect("a value"));
        headers
    }

    #[test]
    fn session_id_is_found_among_other_cookies() {
        let id = "0123456789abcdef".repeat(4);
        assert_eq!(session_id(&of(&format!("a=b; postroad={id}; c=d")), false), Some(&*id));
        assert_eq!(session_id(&of(&format!("__Host-postroad={id}")), true), Some(&*id));
        // An unencrypted page must not be able to set the session of an encrypted one.
        assert_eq!(session_id(&of(&format!("postroad={id}")), true), None);
        assert_eq!(session_id(&of(&format!("__Host-postroad={id}")), false), None);
        for wrong in ["", "postroad", "postroad=", "postroad=abc", &format!("postroad={id}0")] {
            assert_eq!(session_id(&of(wrong), false), None, "{wrong}");
        }
    }

    #[test]
    fn session_cookie_is_http_only_and_same_site() {
        for (id, encrypted) in [(Some("x"), true), (Some("x"), false), (None, true), (None, false)]
        {
            let cookie = cookie(id, encrypted);
            assert!(cookie.contains("; HttpOnly") && cookie.contains("; SameSite=Strict"));
            assert!(cookie.contains("; Path=/") && !cookie.contains("Domain"));
            assert_eq!(cookie.ends_with("; Secure"), encrypted);
            assert_eq!(cookie.contains("Max-Age=0"), id.is_none());
        }
    }
}
