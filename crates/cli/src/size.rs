//! Sizes in bytes, as people write them.

/// A size in bytes, plain or with a unit: 1048576, 1024KiB, 1MiB, 1m.
pub fn size_in_bytes(text: &str) -> Result<u64, &'static str> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => Some(0),
        "k" | "kb" | "kib" => Some(10),
        "m" | "mb" | "mib" => Some(20),
        "g" | "gb" | "gib" => Some(30),
        "t" | "tb" | "tib" => Some(40),
        _ => None,
    };
    let parsed = shift.and_then(|shift| {
        digits.trim().replace('_', "").parse::<u64>().ok()?.checked_mul(1 << shift)
    });
    parsed.ok_or("is not a size, such as 134217728 or 128MiB")
}
