//! Lists: bare arrays, or pages where the query has RabbitMQ's paging parameters.

use axum::Json;
use axum::response::{IntoResponse, Response};
use regex::RegexBuilder;
use serde_json::{Map, Value, json};

use crate::api::request::api_error::ApiError;
use crate::api::request::path::Query;
use crate::limits::{HTTP_API_PAGE_DEFAULT, HTTP_API_PAGE_MAX, HTTP_API_ROWS_MAX};

/// Compiled size of a pattern.
const PATTERN_COMPILED_BYTES_MAX: usize = 1 << 20;

struct Page {
    number: usize,
    size: usize,
}

impl Page {
    /// Items on earlier pages. Both numbers come from the client.
    fn start(&self) -> usize {
        (self.number - 1).saturating_mul(self.size)
    }
}

/// Page, order and columns of a list.
pub(in crate::api) struct ListSelection {
    page: Option<Page>,
    total: usize,
    filtered: usize,
    /// Column, and whether descending.
    sort: Option<(String, bool)>,
    columns: Option<Vec<String>>,
}

fn number(query: &Query, name: &str, default: usize) -> Result<usize, ApiError> {
    let Some(text) = query.get(name) else { return Ok(default) };
    let number = text.parse().ok().filter(|number| *number >= 1);
    number.ok_or_else(|| ApiError::with_error("not_integer", format!("{name} is no number from 1")))
}

/// Selects items by name and page, before they are rendered.
pub(in crate::api) fn choose<T>(
    query: &Query,
    mut items: Vec<T>,
    name: impl Fn(&T) -> &str,
) -> Result<(Vec<T>, ListSelection), ApiError> {
    let total = items.len();
    let page = match query.get("page") {
        None => None,
        Some(_) => {
            let number_ = number(query, "page", 1)?;
            let size = number(query, "page_size", HTTP_API_PAGE_DEFAULT)?;
            if size > HTTP_API_PAGE_MAX {
                let reason = format!("page_size is at most {HTTP_API_PAGE_MAX}");
                return Err(ApiError::with_error("page_size_out_of_range", reason));
            }
            Some(Page { number: number_, size })
        }
    };
    if let Some(sought) = query.get("name").filter(|_| page.is_some()) {
        let pattern = match query.is_true("use_regex") {
            true => sought.to_owned(),
            false => regex::escape(sought),
        };
        let pattern = RegexBuilder::new(&pattern)
            .case_insensitive(true)
            .size_limit(PATTERN_COMPILED_BYTES_MAX)
            .build()
            .map_err(|error| ApiError::bad_request(format!("name: {error}")))?;
        items.retain(|item| pattern.is_match(name(item)));
    }
    let filtered = items.len();
    let sort = query.get("sort").map(|by| (by.to_owned(), query.is_true("sort_reverse")));
    if let (Some(page), None) = (&page, &sort) {
        check(page, filtered)?;
        items.truncate(page.start().saturating_add(page.size));
        items.drain(..page.start().min(filtered));
    } else if filtered > HTTP_API_ROWS_MAX {
        return Err(ApiError::bad_request(format!(
            "there are {filtered} of them, and an answer has at most {HTTP_API_ROWS_MAX}: ask for pages, sorted by name"
        )));
    }
    let columns = query.get("columns").map(|all| all.split(',').map(str::to_owned).collect());
    Ok((items, ListSelection { page, total, filtered, sort, columns }))
}

fn check(page: &Page, filtered: usize) -> Result<(), ApiError> {
    if page.number > 1 && page.start() >= filtered {
        let pages = filtered.div_ceil(page.size).max(1);
        let reason = format!(
            "page out of range, page: {} page size: {}, len: {filtered}, pages: {pages}",
            page.number, page.size
        );
        return Err(ApiError::with_error("page_out_of_range", reason));
    }
    Ok(())
}

impl ListSelection {
    /// Sorts, pages and renders the rows of the selected items.
    pub(in crate::api) fn answer(self, mut rows: Vec<Value>) -> Result<Response, ApiError> {
        if let Some((by, reverse)) = &self.sort {
            rows.sort_by(|a, b| order(at(a, by), at(b, by)));
            if *reverse {
                rows.reverse();
            }
            if let Some(page) = &self.page {
                check(page, self.filtered)?;
                rows = rows.into_iter().skip(page.start()).take(page.size).collect();
            }
        }
        if let Some(columns) = &self.columns {
            rows = rows.iter().map(|row| only(row, columns)).collect();
        }
        let Some(Page { number, size }) = self.page else { return Ok(Json(rows).into_response()) };
        Ok(Json(json!({
            "total_count": self.total,
            "item_count": rows.len(),
            "filtered_count": self.filtered,
            "page": number,
            "page_size": size,
            "page_count": self.filtered.div_ceil(size).max(1),
            "items": rows,
        }))
        .into_response())
    }
}

/// One object, reduced to the columns in the query.
pub(in crate::api) fn one(query: &Query, row: Value) -> Response {
    let columns: Option<Vec<String>> =
        query.get("columns").map(|all| all.split(',').map(str::to_owned).collect());
    match columns {
        Some(columns) => Json(only(&row, &columns)).into_response(),
        None => Json(row).into_response(),
    }
}

/// `a.b`: the member `b` of `a`.
fn at<'a>(row: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(row, |value, name| value.get(name))
}

fn order(a: Option<&Value>, b: Option<&Value>) -> std::cmp::Ordering {
    let rank = |value: Option<&Value>| match value {
        None | Some(Value::Null) => 0,
        Some(Value::Bool(_)) => 1,
        Some(Value::Number(_)) => 2,
        Some(_) => 3,
    };
    match (a, b) {
        (Some(Value::Number(a)), Some(Value::Number(b))) => {
            let float = |number: &serde_json::Number| number.as_f64().unwrap_or_default();
            float(a).total_cmp(&float(b))
        }
        (Some(Value::String(a)), Some(Value::String(b))) => a.cmp(b),
        (Some(Value::Bool(a)), Some(Value::Bool(b))) => a.cmp(b),
        (a, b) => rank(a).cmp(&rank(b)),
    }
}

fn only(row: &Value, columns: &[String]) -> Value {
    let mut out = Map::new();
    for column in columns {
        if let Some(value) = at(row, column) {
            put(&mut out, column, value.clone());
        }
    }
    Value::Object(out)
}

fn put(out: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => drop(out.insert(path.to_owned(), value)),
        Some((first, rest)) => {
            let inner = out.entry(first).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(inner) = inner {
                put(inner, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(query: &str) -> Result<(Vec<String>, ListSelection), ApiError> {
        let names = ["a1", "A2", "b1", "b2", "c"].map(str::to_owned).to_vec();
        choose(&Query::of(Some(query)).expect("a query"), names, |name| name)
    }

    #[test]
    fn list_is_paged_after_filtering_by_name() {
        assert_eq!(of("").expect("all").0.len(), 5);
        assert_eq!(of("name=b").expect("no page: no filter").0.len(), 5);
        assert_eq!(of("page=1&name=A").expect("caseless").0, ["a1", "A2"]);
        assert_eq!(of("page=2&page_size=2").expect("a page").0, ["b1", "b2"]);
        assert_eq!(of("page=1&use_regex=true&name=^b").expect("regex").0, ["b1", "b2"]);
        assert_eq!(of("page=1&name=.").expect("no regex").0, Vec::<String>::new());
        for wrong in
            ["page=0", "page=x", "page=9", "page=1&page_size=501", "page=1&use_regex=true&name=("]
        {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn columns_select_nested_members() {
        let row = json!({"name": "q", "a": {"b": 1, "c": 2}, "d": 3});
        let columns = ["name".to_owned(), "a.b".to_owned(), "nothing".to_owned()];
        assert_eq!(only(&row, &columns), json!({"name": "q", "a": {"b": 1}}));
    }
}
