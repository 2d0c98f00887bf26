//! Body of a transaction. Its numbers of settles, appends and records, and their memory, are limited while it is
//! parsed.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use utoipa::ToSchema;

use crate::limits::{HTTP_APPENDS_MAX, HTTP_SETTLES_MAX};
use crate::problem::Problem;
use crate::request_input;
use crate::v1::records::document::NewRecord;
use crate::v1::records::new_records::{OneList, Records};

/// Settles and appends that take effect together.
#[derive(ToSchema)]
#[allow(dead_code, reason = "the schema of what `Transaction` reads")]
pub(super) struct NewTransaction {
    settles: Option<Vec<TransactionSettle>>,
    appends: Option<Vec<NewAppend>>,
}

/// Records for one topic.
#[derive(ToSchema)]
#[allow(dead_code, reason = "the schema of what `TopicAppend` reads")]
struct NewAppend {
    topic: String,
    /// Partition of records that name none.
    partition: Option<u32>,
    /// Only if the first record gets this offset. All records are of one partition.
    expect_offset: Option<u64>,
    /// Without ids: they are not deduplicated.
    #[schema(min_items = 1, max_items = 10000)]
    records: Vec<NewRecord>,
}

#[derive(Debug, Default)]
pub(in crate::v1) struct Transaction {
    pub(in crate::v1) settles: Vec<TransactionSettle>,
    pub(in crate::v1) appends: Vec<TopicAppend>,
}

/// How a lease ends.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::v1) struct TransactionSettle {
    pub(in crate::v1) token: String,
    pub(in crate::v1) action: SettleAction,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::v1) enum SettleAction {
    /// It is done.
    Accept,
    /// It is never to be delivered again: a dead letter.
    Reject,
}

#[derive(Debug)]
pub(in crate::v1) struct TopicAppend {
    pub(in crate::v1) topic: String,
    pub(in crate::v1) partition: Option<u32>,
    pub(in crate::v1) expect_offset: Option<u64>,
    pub(in crate::v1) records: Vec<NewRecord>,
}

pub(in crate::v1) fn parse(body: &[u8]) -> Result<Transaction, Problem> {
    let mut records = Records::default();
    let mut document = serde_json::Deserializer::from_slice(body);
    let read = TransactionSeed(&mut records).deserialize(&mut document);
    let read = read.and_then(|read| document.end().map(|()| read));
    records.check()?;
    read.map_err(|error| request_input::malformed(&error))
}

struct TransactionSeed<'a>(&'a mut Records);

impl<'de> DeserializeSeed<'de> for TransactionSeed<'_> {
    type Value = Transaction;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Transaction, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TransactionSeed<'_> {
    type Value = Transaction;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with settles and appends")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Transaction, A::Error> {
        #[derive(Deserialize)]
        #[serde(field_identifier, rename_all = "snake_case")]
        enum Name {
            Settles,
            Appends,
        }

        let (mut settles, mut appends) = (None, None);
        while let Some(name) = object.next_key::<Name>()? {
            match name {
                Name::Settles => {
                    let list = object.next_value_seed(List::of(&mut *self.0))?;
                    once(&mut settles, "settles", list)?;
                }
                Name::Appends => {
                    let list = object.next_value_seed(List::of(&mut *self.0))?;
                    once(&mut appends, "appends", list)?;
                }
            }
        }
        let (settles, appends) = (settles.unwrap_or_default(), appends.unwrap_or_default());
        Ok(Transaction { settles, appends })
    }
}

struct AppendSeed<'a>(&'a mut Records);

impl<'de> DeserializeSeed<'de> for AppendSeed<'_> {
    type Value = TopicAppend;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<TopicAppend, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for AppendSeed<'_> {
    type Value = TopicAppend;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a topic and records")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<TopicAppend, A::Error> {
        #[derive(Deserialize)]
        #[serde(field_identifier, rename_all = "snake_case")]
        enum Name {
            Topic,
            Partition,
            ExpectOffset,
            Records,
        }

        let (mut topic, mut partition, mut expect_offset, mut records) = (None, None, None, None);
        while let Some(name) = object.next_key::<Name>()? {
            match name {
                Name::Topic => once(&mut topic, "topic", object.next_value()?)?,
                Name::Partition => once(&mut partition, "partition", object.next_value()?)?,
                Name::ExpectOffset => {
                    once(&mut expect_offset, "expect_offset", object.next_value()?)?;
                }
                Name::Records => {
                    let list = object.next_value_seed(OneList(&mut *self.0))?;
                    once(&mut records, "records", list)?;
                }
            }
        }
        let records: Vec<NewRecord> = records.ok_or_else(|| de::Error::missing_field("records"))?;
        if records.is_empty() {
            return Err(de::Error::custom("records is empty"));
        }
        Ok(TopicAppend {
            topic: topic.ok_or_else(|| de::Error::missing_field("topic"))?,
            partition: partition.flatten(),
            expect_offset: expect_offset.flatten(),
            records,
        })
    }
}

fn once<T, E: de::Error>(known: &mut Option<T>, name: &'static str, value: T) -> Result<(), E> {
    match known.replace(value) {
        None => Ok(()),
        Some(_) => Err(E::duplicate_field(name)),
    }
}

/// Element of a list of limited length.
trait Element: Sized {
    const MAX: usize;

    fn next<'de, A: SeqAccess<'de>>(
        list: &mut A,
        records: &mut Records,
    ) -> Result<Option<Self>, A::Error>;
}

impl Element for TransactionSettle {
    const MAX: usize = HTTP_SETTLES_MAX;

    fn next<'de, A: SeqAccess<'de>>(
        list: &mut A,
        _: &mut Records,
    ) -> Result<Option<Self>, A::Error> {
        list.next_element()
    }
}

impl Element for TopicAppend {
    const MAX: usize = HTTP_APPENDS_MAX;

    fn next<'de, A: SeqAccess<'de>>(
        list: &mut A,
        records: &mut Records,
    ) -> Result<Option<Self>, A::Error> {
        list.next_element_seed(AppendSeed(records))
    }
}

struct List<'a, T>(&'a mut Records, PhantomData<T>);

impl<'a, T> List<'a, T> {
    fn of(records: &'a mut Records) -> Self {
        Self(records, PhantomData)
    }
}

impl<'de, T: Element> DeserializeSeed<'de> for List<'_, T> {
    type Value = Vec<T>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Vec<T>, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de, T: Element> Visitor<'de> for List<'_, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {} elements", T::MAX)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(element) = T::next(&mut list, &mut *self.0)? {
            if all.len() == T::MAX {
                return Err(de::Error::invalid_length(T::MAX + 1, &self));
            }
            all.push(element);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::HTTP_RECORDS_MAX;
    use crate::problem::Kind;

    #[test]
    fn transaction_has_settles_and_appends_with_their_members_by_name() {
        let body = r#"{"appends": [{"topic": "a", "expect_offset": 7, "records": [{"value": "x"}, {}]},
            {"records": [{}], "topic": "b", "partition": null}],
            "settles": [{"token": "t", "action": "reject"}]}"#;
        let Transaction { settles, appends } = parse(body.as_bytes()).expect("it is valid");
        assert_eq!((&*settles[0].token, settles[0].action), ("t", SettleAction::Reject));
        let sizes: Vec<usize> = appends.iter().map(|append| append.records.len()).collect();
        assert_eq!(sizes, [2, 1]);
        assert_eq!((&*appends[0].topic, appends[0].expect_offset), ("a", Some(7)));
        assert_eq!((appends[1].partition, appends[1].expect_offset), (None, None));
        for wrong in [
            "",
            "[]",
            "{} 1",
            r#"{"settle": []}"#,
            r#"{"settles": [], "settles": []}"#,
            r#"{"settles": [{"token": "t", "action": "release"}]}"#,
            r#"{"appends": [{"topic": "a"}]}"#,
            r#"{"appends": [{"topic": "a", "records": []}]}"#,
            r#"{"appends": [{"topic": "a", "topic": "b", "records": [{}]}]}"#,
            r#"{"appends": [{"topic": "a", "records": [{}], "expect": 1}]}"#,
            r#"{"appends": [{"topic": "a", "records": [{}], "expect_offset": -1}]}"#,
        ] {
            let problem = parse(wrong.as_bytes()).expect_err(wrong);
            assert_eq!(problem.kind(), Kind::BadRequest, "{wrong}");
        }
    }

    #[test]
    fn parsing_stops_at_the_limit_of_each_list() {
        let settles = |count: usize, end: &str| {
            let settle = r#"{"token":"t","action":"accept"}"#;
            format!("{{\"settles\":[{}{end}", vec![settle; count].join(","))
        };
        assert!(parse(settles(HTTP_SETTLES_MAX, "]}").as_bytes()).is_ok());
        let problem = parse(settles(HTTP_SETTLES_MAX + 2, "?").as_bytes()).expect_err("too many");
        assert!(problem.detail().contains("at most 1000 elements"), "{problem}");
        // All appends together have the records of one request.
        let half = HTTP_RECORDS_MAX / 2 + 1;
        let append = format!("{{\"topic\":\"t\",\"records\":[{}]}}", vec!["{}"; half].join(","));
        let both = format!("{{\"appends\":[{append},{append}]}}");
        let problem = parse(both.as_bytes()).expect_err("too many");
        assert!(problem.detail().contains("1 to 10000 records"), "{problem}");
    }
}
