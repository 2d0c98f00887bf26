//! The trace context of a record: the headers `traceparent` and `tracestate` of the W3C's Trace Context.

use record::RecordView;

const TRACEPARENT: &[u8] = b"traceparent";
const TRACESTATE: &[u8] = b"tracestate";

/// The flag that the caller may have recorded the trace (`sampled`).
const SAMPLED: u8 = 1;
/// Longer values are dropped, as the specification allows (section 3.3.1.5).
const STATE_BYTES_MAX: usize = 512;

/// The span that sent a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Context {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    /// `tracestate` as received; empty if absent.
    pub state: Box<str>,
}

impl Context {
    /// Returns the context of a record whose trace is sampled.
    pub fn of(record: &RecordView<'_>) -> Option<Self> {
        let parent = record.headers.last(TRACEPARENT)??;
        let (trace, span) = parse(parent)?;
        let state = record.headers.last(TRACESTATE).flatten();
        let state = state.filter(|state| state.len() <= STATE_BYTES_MAX);
        let state = state.and_then(|state| std::str::from_utf8(state).ok()).unwrap_or_default();
        Some(Self { trace, span, state: state.into() })
    }
}

/// Trace and span of a sampled `version-trace-span-flags` (section 3.2). Versions after `00` may append more fields.
fn parse(value: &[u8]) -> Option<([u8; 16], [u8; 8])> {
    let text = std::str::from_utf8(value).ok()?;
    let mut parts = text.splitn(5, '-');
    let version = hex::<1>(parts.next()?)?[0];
    let (trace, span) = (hex::<16>(parts.next()?)?, hex::<8>(parts.next()?)?);
    let flags = hex::<1>(parts.next()?)?[0];
    let is_known = match version {
        0 => parts.next().is_none(),
        0xff => false,
        _ => true,
    };
    let is_some = trace != [0; 16] && span != [0; 8];
    (is_known && is_some && flags & SAMPLED != 0).then_some((trace, span))
}

/// Exactly `N` bytes, in lower case.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn sampled_trace_is_parsed() {
        let found = parse(format!("00-{TRACE}-{SPAN}-01").as_bytes()).expect("sampled");
        assert_eq!(found.0[..2], [0x4b, 0xf9]);
        assert_eq!(found.1, [0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
        assert!(parse(format!("00-{TRACE}-{SPAN}-03").as_bytes()).is_some());
        let later = format!("cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like");
        assert!(parse(later.as_bytes()).is_some());
    }

    #[test]
    fn unsampled_or_malformed_context_is_ignored() {
        let zeros = "0".repeat(32);
        for text in [
            String::new(),
            format!("00-{TRACE}-{SPAN}-00"),
            format!("00-{TRACE}-{SPAN}-02"),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{zeros}-{SPAN}-01"),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}0-{SPAN}-01"),
            format!("0-{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-1"),
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse(&[0xff; 55]), None);
    }
}
