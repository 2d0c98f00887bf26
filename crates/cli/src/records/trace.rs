//! `postroad trace`: state and history of records.

use std::fmt::Write as _;

use clap::{ArgGroup, Args};
use client::Client;
use operations::document::{Operation, StoredRecord};
use operations::history::{
    Event, FoundRecords, GroupHistory, GroupState, Presence, RecordEvent, RecordHistory, SearchKey,
    SessionSeen,
};
use operations::payload::Payload;
use operations::position::Position;
use operations::time::{human_time, now_ms};

use super::{RecordAddress, preview, until};
use crate::client_options::ClientOptions;
use crate::command_error::CommandError;
use crate::output::{Table, count, counted};
use crate::printable;

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("what").required(true)
    .args(["at", "key", "id", "message_id", "trace_id", "header"])))]
pub struct TraceArguments {
    #[command(flatten)]
    client: ClientOptions,
    /// Only in this topic; else in all that may be read
    topic: Option<String>,
    /// The record at this place of the topic
    #[arg(long, value_name = "PARTITION:OFFSET", requires = "topic")]
    at: Option<RecordAddress>,
    /// Records with this key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Records with this postroad.id
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Records with this message-id of AMQP
    #[arg(long, value_name = "ID")]
    message_id: Option<String>,
    /// Records of this trace: 32 hexadecimal digits, or a whole traceparent
    #[arg(long, value_name = "ID")]
    trace_id: Option<String>,
    /// Records with a header of this value
    #[arg(long, value_name = "NAME=VALUE")]
    header: Option<String>,
    /// Only records from this time on, such as '15m ago'
    #[arg(long, value_name = "TIME", conflicts_with = "at")]
    from: Option<String>,
    /// At most so many records
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    count: u32,
}

pub(crate) async fn run(arguments: TraceArguments) -> Result<(), CommandError> {
    let wanted = arguments.wanted()?;
    let from_ms = arguments.since_ms()?;
    let client = arguments.client.connect().await?;
    let mut histories = Vec::new();
    match (wanted, arguments.topic) {
        (TraceTarget::Place(place), Some(topic)) => {
            let place = place.into();
            histories.push(client.operate(&Operation::DescribeRecord { topic, place }).await?);
        }
        (TraceTarget::Place(_), None) => {
            return Err(CommandError::user("a place is one of a topic: name it"));
        }
        (TraceTarget::By(by), topic) => {
            histories = find(&client, topic, &by, from_ms, arguments.count).await?;
        }
    }
    arguments.client.output().show(&histories, |histories| match histories.is_empty() {
        true => "no such record\n".to_owned(),
        false => histories.iter().map(text).collect::<Vec<_>>().join("\n"),
    })?;
    Ok(())
}

enum TraceTarget {
    Place(RecordAddress),
    By(SearchKey),
}

impl TraceArguments {
    /// Clap ensures that one is set.
    fn wanted(&self) -> Result<TraceTarget, CommandError> {
        if let Some(place) = self.at {
            return Ok(TraceTarget::Place(place));
        }
        let bytes = |text: &str| Payload::copied(text.as_bytes());
        let header = match self.header.as_deref().map(|header| header.split_once('=')) {
            Some(Some((name, value))) if !name.is_empty() => {
                Some(SearchKey::Header { name: name.to_owned(), value: bytes(value) })
            }
            Some(_) => return Err(CommandError::user("--header: write NAME=VALUE")),
            None => None,
        };
        let by = self.key.as_deref().map(|key| SearchKey::Key(bytes(key)));
        let by = by.or_else(|| self.id.clone().map(SearchKey::Id));
        let by = by.or_else(|| self.message_id.clone().map(SearchKey::MessageId));
        let by = by.or_else(|| self.trace_id.clone().map(SearchKey::TraceId)).or(header);
        by.map(TraceTarget::By).ok_or_else(|| CommandError::user("say which record"))
    }

    fn since_ms(&self) -> Result<Option<i64>, CommandError> {
        let Some(text) = &self.from else { return Ok(None) };
        match Position::parse(text, now_ms()) {
            Ok(Position::Time(ms)) => Ok(Some(ms)),
            Ok(Position::Earliest) => Ok(None),
            _ => Err(CommandError::user(format!(
                "--from {text:?} is no time: write 2026-03-01T12:00:00Z or '15m ago'"
            ))),
        }
    }
}

/// Continues the search until it is complete, or enough is found.
async fn find(
    client: &Client,
    topic: Option<String>,
    by: &SearchKey,
    from_ms: Option<i64>,
    count: u32,
) -> Result<Vec<RecordHistory>, CommandError> {
    let (mut histories, mut after) = (Vec::new(), None);
    loop {
        let (topic, by) = (topic.clone(), by.clone());
        let records_max = count - histories.len() as u32;
        let operation = Operation::FindRecords { topic, by, from_ms, after, records_max };
        let found: FoundRecords = client.operate(&operation).await?;
        for found in found.records {
            let StoredRecord { partition, offset, .. } = found.record;
            let place = RecordAddress { partition, offset }.into();
            let operation = Operation::DescribeRecord { topic: found.topic, place };
            histories.push(client.operate(&operation).await?);
        }
        if found.next.is_none() || histories.len() >= count as usize {
            return Ok(histories);
        }
        after = found.next;
    }
}

// ------------------------------------------------------------------------------------------- text

fn text(history: &RecordHistory) -> String {
    let RecordHistory { topic, partition, offset, start, end, .. } = history;
    let topic = printable::text(topic);
    let mut text = format!("record {partition}:{offset} of topic {topic}: ");
    let _ = match (history.presence, &history.record) {
        (Presence::ToCome, _) => {
            writeln!(text, "nothing was appended there yet; the partition ends at {}", count(*end))
        }
        (_, Some(record)) => {
            let StoredRecord { timestamp_ms, key, value, .. } = record;
            let (key, value) = (preview(key.as_ref(), 40), preview(value.as_ref(), 60));
            let (key, value) = (printable::text(&key), printable::text(&value));
            writeln!(text, "{}, key {key}, value {value}", human_time(*timestamp_ms))
        }
        _ => writeln!(text, "deleted; the partition begins at {}", count(*start)),
    };
    if let Some(death) = &history.death {
        let of = |it: &Option<String>| printable::text(it.as_deref().unwrap_or("-"));
        let number = |it: Option<u64>| it.map_or_else(|| "-".to_owned(), |it| it.to_string());
        let (topic, reason, group) = (of(&death.topic), of(&death.reason), of(&death.group));
        let (partition, offset) = (number(death.partition.map(u64::from)), number(death.offset));
        let _ = writeln!(
            text,
            "a dead letter: it was {partition}:{offset} of topic {topic}, group {group}, reason {reason}"
        );
    }
    for group in &history.groups {
        text += &group_text(group);
    }
    for group in &history.offset_groups {
        let (name, offset) = (printable::text(&group.group), count(group.offset));
        let word = if group.read { "read" } else { "not read" };
        let _ = writeln!(text, "group {name}, by offset: {word}, it goes on at {offset}");
    }
    if history.truncated {
        text += "there are more groups than were asked\n";
    }
    if let Some(since) = history.remembered_since_ms.filter(|_| !history.groups.is_empty()) {
        let _ = writeln!(text, "what happened before {} is not remembered", human_time(since));
    }
    if history.traced.is_some_and(|traced| traced.cut_short) {
        text +=
            "not all that was written of such records could be looked through: there may be more\n";
    }
    for node in &history.silent_nodes {
        let _ = writeln!(text, "node {node} did not say what it remembers");
    }
    text
}

fn group_text(group: &GroupHistory) -> String {
    let now = now_ms();
    let left = |until_ms: Option<i64>| match until_ms {
        Some(at) => format!(" for {}", until(at, now)),
        None => String::new(),
    };
    let mut text = format!("group {}: ", printable::text(&group.group));
    text += &match group.state {
        GroupState::Settled => "settled".to_owned(),
        GroupState::Ready => "ready".to_owned(),
        GroupState::Blocked => match group.behind {
            Some(offset) => format!("blocked by record {offset} of its key"),
            None => "blocked by an earlier record of its key".to_owned(),
        },
        GroupState::Leased => {
            let who =
                group.session.as_ref().map(|session| format!(", by {}", session_text(session)));
            format!("leased{}{}", left(group.until_ms), who.unwrap_or_default())
        }
        GroupState::Delayed => format!("delayed{}", left(group.until_ms)),
        GroupState::DeadLettering => "on its way to the dead letters".to_owned(),
        GroupState::Gone => "gone".to_owned(),
        GroupState::Unknown => "unknown, since no leader has answered".to_owned(),
    };
    if group.attempts > 0 {
        let times = counted(u64::from(group.attempts), "time");
        let _ = write!(text, ", delivered and back {times}");
    }
    if group.paused {
        text += ", paused";
    }
    text.push('\n');
    if !group.events.is_empty() {
        let mut table = Table::new(&["  TIME", "WHAT", ">ATTEMPT", "NODE", "BY"]);
        for event in &group.events {
            table.row([
                format!("  {}", human_time(event.at_ms)),
                words(event, group.dead_letter_topic.as_deref()),
                event.attempt.map_or_else(|| "-".to_owned(), |attempt| attempt.to_string()),
                event.node.to_string(),
                event.session.as_ref().map_or_else(|| "-".to_owned(), session_text),
            ]);
        }
        text += &table.render();
    }
    text
}

fn session_text(session: &SessionSeen) -> String {
    let SessionSeen { session, protocol, user, client, peer, .. } = session;
    let said = [protocol, user, client, peer].into_iter().flatten();
    let mut words: Vec<&str> = said.map(String::as_str).collect();
    let number = format!("session {session}");
    words.push(&number);
    printable::text(&words.join(" "))
}

fn words(event: &Event, dead_letter_topic: Option<&str>) -> String {
    let word = match event.what {
        RecordEvent::Delivered => "delivered",
        RecordEvent::DeliveredAndSettled => "delivered and settled",
        RecordEvent::Accepted => "accepted",
        RecordEvent::Released => "released",
        RecordEvent::Rejected => "rejected",
        RecordEvent::TimedOut => "its lease ran out",
        RecordEvent::SessionEnded => "its session ended",
        RecordEvent::AcceptedInTransaction => "accepted in a transaction",
        RecordEvent::GivenBack => "given back",
        RecordEvent::Voided => "void: the group was moved",
        RecordEvent::Died => "died",
        RecordEvent::Settled => "settled in the log",
        RecordEvent::Removed => "settled by an operator",
    };
    match (event.what, event.reason.as_deref(), dead_letter_topic) {
        (RecordEvent::Died, Some(reason), Some(topic)) => format!("{word}: {reason}, to {topic}"),
        (RecordEvent::Died, Some(reason), None) => format!("{word}: {reason}"),
        _ => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use operations::history::TracedSeen;

    use super::*;

    #[test]
    fn history_is_printed_in_words() {
        let session = SessionSeen {
            session: 7,
            protocol: Some("amqp".to_owned()),
            user: Some("ada".to_owned()),
            client: None,
            peer: Some("10.0.0.1:5".to_owned()),
            connection: Some(3),
        };
        let event = |at_ms, what, reason: Option<&str>| Event {
            at_ms,
            node: 1,
            what,
            reason: reason.map(str::to_owned),
            attempt: Some(1),
            session: Some(session.clone()),
        };
        let group = GroupHistory {
            group: "main".to_owned(),
            state: GroupState::Settled,
            until_ms: None,
            attempts: 0,
            behind: None,
            session: None,
            paused: false,
            dead_letter_topic: Some("dead".to_owned()),
            events: vec![
                event(1_000, RecordEvent::Delivered, None),
                event(2_000, RecordEvent::Died, Some("rejected")),
            ],
        };
        let history = RecordHistory {
            topic: "orders".to_owned(),
            partition: 0,
            offset: 7,
            presence: Presence::Deleted,
            start: 9,
            end: 12,
            record: None,
            death: None,
            groups: vec![group],
            offset_groups: Vec::new(),
            truncated: false,
            remembered_since_ms: Some(500),
            silent_nodes: vec![2],
            traced: Some(TracedSeen { cut_short: true }),
        };
        let expected = "\
record 0:7 of topic orders: deleted; the partition begins at 9
group main: settled
  TIME                      WHAT                     ATTEMPT  NODE  BY
  1970-01-01T00:00:01.000Z  delivered                      1  1     amqp ada 10.0.0.1:5 session 7
  1970-01-01T00:00:02.000Z  died: rejected, to dead        1  1     amqp ada 10.0.0.1:5 session 7
what happened before 1970-01-01T00:00:00.500Z is not remembered
not all that was written of such records could be looked through: there may be more
node 2 did not say what it remembers
";
        assert_eq!(text(&history), expected);
    }
}
