//! Whether a command printed the output that a page shows.
//!
//! The rule: each shown line has to be printed, in the order of the page. Two lines are equal if they are equal after
//!
//! * each word with a digit became `#` (numbers, times, addresses, ids), and so did a word of 20 letters or more in
//!   upper and lower case, which is an id,
//! * a unit after a number was left out (`3 KiB`, `13 ms`), and `#` stands once for several in a row,
//! * spaces between words became one, so that widths of columns do not count.
//!
//! In a JSON document names and types have to be equal, strings by the rule for lines, and `true`, `false` and `null`
//! themselves. `[...]` in a shown line stands for any words, and a line `...` for any lines. More lines than the page
//! shows may be printed, but no `note: ` and no error: a page must not hide those.

use serde_json::Value;

const ANY_WORDS: &str = "[...]";
const ANY_LINES: &str = "...";
const ID_LENGTH: usize = 20;
const UNITS: [&str; 12] =
    ["B", "KiB", "MiB", "GiB", "TiB", "KB", "MB", "ms", "s", "%", "B/s", "KiB/s"];
/// Beginnings of lines that a page must show if they are printed.
const NOT_HIDDEN: [&str; 3] = ["note: ", "warning: ", "postroad: "];

/// The first difference, described for the reader.
pub(super) fn difference(shown: &[String], printed: &str) -> Option<String> {
    let mut rest = printed.lines();
    let mut passed: Vec<&str> = Vec::new();
    for line in shown.iter().filter(|line| !line.is_empty() && line.as_str() != ANY_LINES) {
        loop {
            match rest.next() {
                Some(candidate) if is_same(line, candidate) => break,
                Some(candidate) => passed.push(candidate),
                None => {
                    return Some(format!(
                        "the page shows this line, which was not printed: {line}"
                    ));
                }
            }
        }
    }
    let hidden = passed.into_iter().chain(rest).find(|line| {
        !shown.is_empty() && NOT_HIDDEN.iter().any(|beginning| line.starts_with(beginning))
    });
    hidden.map(|line| format!("this was printed, which the page does not show: {line}"))
}

fn is_same(shown: &str, printed: &str) -> bool {
    if let (Some(shown), Some(printed)) = (document(shown), document(printed)) {
        return stable(shown.0) == stable(printed.0) && is_same_value(&shown.1, &printed.1);
    }
    let printed = stable(printed);
    // A comma may belong to the words that it stands for.
    let mut parts = shown.split(ANY_WORDS).map(|part| stable(part.trim_start_matches(',')));
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = printed.strip_prefix(first.as_str()) else { return false };
    let parts: Vec<_> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return rest.is_empty() };
    for part in between {
        let Some(at) = rest.find(part.as_str()) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last.as_str())
}

/// Splits a line that ends with a JSON object into its text and the object.
fn document(line: &str) -> Option<(&str, Value)> {
    let at = line.find('{')?;
    let value = serde_json::from_str(&line[at..]).ok()?;
    Some((&line[..at], value))
}

fn is_same_value(shown: &Value, printed: &Value) -> bool {
    match (shown, printed) {
        (Value::Number(_), Value::Number(_)) => true,
        (Value::String(shown), Value::String(printed)) => stable(shown) == stable(printed),
        (Value::Array(shown), Value::Array(printed)) => {
            shown.len() == printed.len()
                && shown.iter().zip(printed).all(|(shown, printed)| is_same_value(shown, printed))
        }
        (Value::Object(shown), Value::Object(printed)) => {
            shown.len() == printed.len()
                && shown.iter().all(|(name, shown)| {
                    printed.get(name).is_some_and(|printed| is_same_value(shown, printed))
                })
        }
        (shown, printed) => shown == printed,
    }
}

/// A line without the parts that differ between runs.
fn stable(line: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in line.split_whitespace() {
        let is_number = word.contains(|letter: char| letter.is_ascii_digit()) || is_id(word);
        let word = if is_number { "#" } else { word };
        let bare = word.trim_end_matches([',', ')']);
        let follows_number = words.last() == Some(&"#");
        if follows_number && (word == "#" || UNITS.contains(&bare)) {
            continue;
        }
        words.push(word);
    }
    words.join(" ")
}

fn is_id(word: &str) -> bool {
    let word = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
    word.len() >= ID_LENGTH
        && word
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_')
        && word.contains(|letter: char| letter.is_ascii_uppercase())
        && word.contains(|letter: char| letter.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differs(shown: &str, printed: &str) -> bool {
        let shown: Vec<_> = shown.lines().map(str::to_owned).collect();
        difference(&shown, printed).is_some()
    }

    #[test]
    fn numbers_times_ids_sizes_and_widths_of_columns_are_equal() {
        assert!(!differs(
            "TOPIC  RECORDS  SIZE\norders  1,001  3.0 MiB  -",
            "TOPIC  RECORDS   SIZE\norders      7    12 B  -"
        ));
        assert!(!differs("started in 88 ms", "started in 1.2 s"));
        assert!(!differs("cluster qGiLioeZRNaLlJuIoTGeLw", "cluster aaGiLioeZRNa9lJuI9TGe0"));
        assert!(!differs("IN\n1h 59m  orders", "IN\n2h  orders"));
    }

    #[test]
    fn different_words_differ() {
        assert!(differs("TOPIC  RECORDS", "TOPIC  BYTES"));
        assert!(differs("created topic orders", "created topic order"));
        assert!(differs("app  -", "app  3"));
        assert!(differs("a", ""));
    }

    #[test]
    fn shown_lines_are_printed_in_their_order_among_others() {
        assert!(!differs("a\n...\nc", "x\na\nb\nc\nd"));
        assert!(differs("c\na", "a\nb\nc"));
    }

    #[test]
    fn placeholder_stands_for_any_words() {
        assert!(!differs(
            "data x, [...], open: kafka, [...]",
            "data x, http 1, open: kafka, and more"
        ));
        assert!(!differs("data x, [...]", "data x, http"));
        assert!(!differs("data x, [...], log-in: amqp", "data x, http 1, log-in: amqp"));
        assert!(differs("data x, [...], open: kafka, [...]", "data x, http 1, open: amqp, more"));
    }

    #[test]
    fn documents_are_equal_by_names_types_and_strings() {
        assert!(!differs(r#"{"a":1,"b":["x 1"]}"#, r#"{"b":["x 2"],"a":30}"#));
        assert!(!differs(r#"data: {"a":1}"#, r#"data: {"a":2}"#));
        assert!(differs(r#"{"a":1}"#, r#"{"a":1,"b":2}"#));
        assert!(differs(r#"{"a":true}"#, r#"{"a":false}"#));
        assert!(differs(r#"{"a":"x"}"#, r#"{"a":"y"}"#));
        assert!(differs(r#"{"a":[1]}"#, r#"{"a":[]}"#));
    }

    #[test]
    fn hidden_note_differs_where_output_is_shown() {
        assert!(differs("created user app", "created user app\nnote: there are users now"));
        assert!(!differs("", "note: there are users now"));
    }
}
