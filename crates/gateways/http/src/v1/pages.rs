//! Paged lists, in which each page names the next. All lists of `/v1` have this form.

use axum::Json;
use base::limits::HTTP_PAGE_MAX;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::limits::HTTP_PAGE_DEFAULT;
use crate::problem::{Kind, Problem};
use crate::v1::query::within;

/// How many of a list are asked for: 100 where nothing is said.
#[derive(Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = usize)]
pub(super) struct Limit(usize);

impl Default for Limit {
    fn default() -> Self {
        Self(HTTP_PAGE_DEFAULT)
    }
}

impl Limit {
    pub(super) fn checked(self) -> Result<usize, Problem> {
        within("limit", self.0, HTTP_PAGE_MAX)?;
        Ok(self.0)
    }
}

/// Query of a list without filters.
#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Page {
    /// At most so many, up to 1,000.
    #[param(value_type = usize)]
    pub(super) limit: Limit,
    /// As the page before said.
    pub(super) cursor: Option<String>,
}

/// Query of a list, filtered by name.
#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct FilteredListQuery {
    /// At most so many, up to 1,000.
    #[param(value_type = usize)]
    pub(super) limit: Limit,
    /// As the page before said.
    pub(super) cursor: Option<String>,
    /// Only those whose name has this in it, in whatever case.
    pub(super) filter: String,
}

/// Case-insensitive substring filter of names.
pub(super) struct NameFilter(String);

impl NameFilter {
    pub(super) fn of(text: &str) -> Self {
        Self(text.to_lowercase())
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn fits(&self, name: &str) -> bool {
        self.is_nothing() || name.to_lowercase().contains(&self.0)
    }
}

/// A page of a list.
#[derive(Serialize, ToSchema)]
pub(super) struct PageOf<T> {
    pub(super) items: Vec<T>,
    /// To be given as `cursor` for the next page; null: this is the last.
    pub(super) next: Option<String>,
}

impl<T> PageOf<T> {
    pub(super) fn new(items: Vec<T>, next: Option<String>) -> Json<Self> {
        Json(Self { items, next })
    }

    /// Builds a page from a list that was read one item beyond `limit`, to detect a next page. That page begins after
    /// the last item of this one.
    pub(super) fn cut(
        mut items: Vec<T>,
        limit: usize,
        cursor_of: impl FnOnce(&T) -> String,
    ) -> Json<Self> {
        let is_more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| is_more).map(cursor_of);
        Self::new(items, next)
    }
}

impl PageOf<Row> {
    /// A page of an in-memory list, whose cursors are indexes.
    pub(super) fn numbered(
        all: &[impl Serialize],
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Json<Self>, Problem> {
        let from = cursor.map_or(Ok(0), str::parse::<usize>).map_err(|_| not_of_this_list())?;
        let rest = all.get(from..).unwrap_or_default();
        let items = Row::all(&rest[..limit.min(rest.len())])?;
        let end = from.saturating_add(items.len());
        Ok(Self::new(items, (end < all.len()).then(|| end.to_string())))
    }
}

pub(super) fn not_of_this_list() -> Problem {
    Problem::new(Kind::BadRequest, "the cursor is none of this list")
}

/// A document of an operation, as it is.
#[derive(Serialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = Object)]
pub(super) struct Row(Value);

impl Row {
    pub(super) fn of(document: &impl Serialize) -> Result<Self, Problem> {
        let written = serde_json::to_value(document);
        written.map(Self).map_err(|error| Problem::new(Kind::Failed, error.to_string()))
    }

    pub(super) fn all(documents: &[impl Serialize]) -> Result<Vec<Self>, Problem> {
        documents.iter().map(Self::of).collect()
    }
}

/// Limit of source items that are read for one page, for filters that match hardly any.
const LOOKED_THROUGH_MAX: usize = 10_000;

/// Builds a filtered page of a list that is read elsewhere in chunks and cannot filter itself. After many items that
/// do not match, the page ends early; the client decides whether to continue.
pub(super) struct PageBuilder<T> {
    limit: usize,
    items: Vec<T>,
    /// Cursor of the last item that was read.
    after: Option<String>,
    looked_through: usize,
    is_full: bool,
    is_done: bool,
}

impl<T> PageBuilder<T> {
    pub(super) fn new(limit: usize, cursor: Option<String>) -> Self {
        let items = Vec::new();
        Self { limit, items, after: cursor, looked_through: 0, is_full: false, is_done: false }
    }

    /// Whether more of the list must be read.
    pub(super) fn wants_more(&self) -> bool {
        !self.is_full && !self.is_done
    }

    /// Cursor after which to continue.
    pub(super) fn after(&self) -> Option<&str> {
        self.after.as_deref()
    }

    /// Adds the next chunk; `is_more`: others follow it. `shown` returns `None` for items that do not match.
    pub(super) fn add<S>(
        &mut self,
        found: Vec<S>,
        is_more: bool,
        cursor_of: impl Fn(&S) -> String,
        shown: impl Fn(S) -> Result<Option<T>, Problem>,
    ) -> Result<(), Problem> {
        let count = found.len();
        self.looked_through += count;
        self.is_done = !is_more || count == 0;
        for (at, item) in found.into_iter().enumerate() {
            self.after = Some(cursor_of(&item));
            self.items.extend(shown(item)?);
            let is_last = at + 1 == count && self.is_done;
            if self.items.len() == self.limit && !is_last {
                self.is_full = true;
                return Ok(());
            }
        }
        self.is_full |= !self.is_done && self.looked_through >= LOOKED_THROUGH_MAX;
        Ok(())
    }

    pub(super) fn page(self) -> Json<PageOf<T>> {
        PageOf::new(self.items, self.after.filter(|_| self.is_full))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(page: &PageOf<usize>) -> (Vec<usize>, Option<&str>) {
        (page.items.clone(), page.next.as_deref())
    }

    /// Filters the numbers from 1, reading `at_once` at a time.
    fn filled(
        of: usize,
        at_once: usize,
        cursor: Option<usize>,
        fits: impl Fn(usize) -> bool,
    ) -> PageOf<usize> {
        let mut page = PageBuilder::new(2, cursor.map(|it| it.to_string()));
        while page.wants_more() {
            let from = page.after().map_or(0, |it| it.parse::<usize>().expect("a number"));
            let end = (from + at_once).min(of);
            let shown = |it: usize| Ok(fits(it).then_some(it));
            let added = page.add((from + 1..=end).collect(), end < of, ToString::to_string, shown);
            added.unwrap_or_else(|problem| panic!("{problem}"));
        }
        page.page().0
    }

    #[test]
    fn page_has_the_matching_items_whatever_the_chunk_size() {
        let even = |it: usize| it.is_multiple_of(2);
        for at_once in 1..8 {
            let of = |of, cursor| filled(of, at_once, cursor, even);
            assert_eq!(names(&of(7, None)), (vec![2, 4], Some("4")), "{at_once} at once");
            assert_eq!(names(&of(7, Some(4))), (vec![6], None), "{at_once} at once");
            assert_eq!(names(&of(4, None)), (vec![2, 4], None), "{at_once} at once");
            assert_eq!(names(&of(0, None)), (vec![], None), "{at_once} at once");
        }
    }

    #[test]
    fn page_ends_early_if_hardly_any_item_matches() {
        let page = filled(usize::MAX, 1_000, None, |_| false);
        assert_eq!(names(&page), (vec![], Some("10000")));
    }

    #[test]
    fn next_page_begins_where_the_page_was_cut() {
        let cut = |limit| {
            let Json(page) = PageOf::cut(vec![1, 2, 3], limit, ToString::to_string);
            (page.items, page.next)
        };
        assert_eq!(cut(2), (vec![1, 2], Some("2".to_owned())));
        assert_eq!(cut(3), (vec![1, 2, 3], None));
        let numbered = |cursor| {
            let found = PageOf::numbered(&[1, 2, 3], 2, cursor);
            found.ok().map(|Json(page)| (serde_json::json!(page.items), page.next))
        };
        assert_eq!(numbered(None), Some((serde_json::json!([1, 2]), Some("2".to_owned()))));
        assert_eq!(numbered(Some("2")), Some((serde_json::json!([3]), None)));
        assert_eq!(numbered(Some("9")), Some((serde_json::json!([]), None)));
        assert_eq!(numbered(Some("x")), None);
    }
}
