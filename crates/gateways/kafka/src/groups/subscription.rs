//! What a member wants to consume.

use crate::wire::primitives::Cursor;

/// The topics that a consumer of the classic protocol names in its metadata, whose form the group
/// otherwise leaves to its members (Kafka's `ConsumerProtocolSubscription`: a version, then names).
/// `None` if it has another form.
pub(crate) fn topics_of_subscription(metadata: &[u8]) -> Option<Vec<String>> {
    let mut cursor = Cursor::new(metadata);
    let version = cursor.int16().ok()?;
    if version < 0 {
        return None;
    }
    let count = cursor.count(false).ok()??;
    (0..count).map(|_| cursor.text(false).ok().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_read_from_a_consumers_metadata_and_from_nothing_else() {
        let metadata = [&[0, 1, 0, 0, 0, 2, 0, 1, b'a', 0, 2, b'b', b'c'][..], &[9; 20]].concat();
        assert_eq!(topics_of_subscription(&metadata), Some(vec!["a".into(), "bc".into()]));
        for len in 0..13 {
            assert_eq!(topics_of_subscription(&metadata[..len]), None, "{len}");
        }
        assert_eq!(topics_of_subscription(&[0, 0, 0x7f, 0xff, 0xff, 0xff]), None);
    }
}
