//! Lease tokens: partition, lease number and session of a lease. The node stores nothing for a token, so any node
//! accepts it. It is not a secret, since settling requires the right to consume.

use base::LeaseGroupId;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;

const VERSION: u8 = 1;
const BYTES: usize = 1 + 4 + 4 + 8 + 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::v1) struct LeaseName {
    pub(in crate::v1) group: LeaseGroupId,
    pub(in crate::v1) partition: u32,
    pub(in crate::v1) token: u64,
    pub(in crate::v1) session: u64,
}

impl LeaseName {
    pub(in crate::v1) fn to_text(self) -> String {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.push(VERSION);
        bytes.extend(self.group.0.to_be_bytes());
        bytes.extend(self.partition.to_be_bytes());
        bytes.extend(self.token.to_be_bytes());
        bytes.extend(self.session.to_be_bytes());
        BASE64.encode(bytes)
    }

    /// `None`: not a valid token.
    pub(in crate::v1) fn parse(text: &str) -> Option<Self> {
        // Longer texts cannot be tokens.
        if text.len() > BYTES * 2 {
            return None;
        }
        let bytes: [u8; BYTES] = BASE64.decode(text).ok()?.try_into().ok()?;
        let word = |at: usize| Some(u32::from_be_bytes(bytes[at..at + 4].try_into().ok()?));
        let long = |at: usize| Some(u64::from_be_bytes(bytes[at..at + 8].try_into().ok()?));
        if bytes[0] != VERSION {
            return None;
        }
        Some(Self {
            group: LeaseGroupId(word(1)?),
            partition: word(5)?,
            token: long(9)?,
            session: long(17)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_token_round_trips_and_malformed_ones_are_rejected() {
        let name = LeaseName {
            group: LeaseGroupId(7),
            partition: 3,
            token: u64::MAX - 1,
            session: 1 << 40 | 5,
        };
        let text = name.to_text();
        assert_eq!(LeaseName::parse(&text), Some(name));
        let cut = &text[..text.len() - 1];
        for wrong in ["", "x", cut, &format!("{text}A"), &"A".repeat(text.len()), "\u{fc}"] {
            assert_eq!(LeaseName::parse(wrong), None, "{wrong}");
        }
    }
}
