//! The messages of the Streams group protocol (KIP-1071), which the message crate does not have:
//! `StreamsGroupHeartbeat` (key 88) and `StreamsGroupDescribe` (key 89), each in version 0.

use std::collections::BTreeSet;

use bytes::{BufMut, BytesMut};
use coordinator::streams::tasks::{Task, Tasks, by_subtopology};
use coordinator::streams::topology::{CopartitionGroup, InternalTopic, Subtopology, Topology};
use coordinator::streams::{Endpoint, EndpointPartitions, Member, Status, StreamsGroup};
use coordinator::{Text, text};
use thiserror::Error;

use kafka_wire::primitives::{Cursor, MalformedValue, PutPrimitives};

/// Protocol violations of a request.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(crate) enum StreamsError {
    #[error("api key {api_key} version {version} is not supported (supported: 0)")]
    Version { api_key: i16, version: i16 },
    #[error("api key {api_key} is malformed: {malformed}")]
    Malformed { api_key: i16, malformed: MalformedValue },
}

/// Fields are `None` if unchanged since the member's last heartbeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HeartbeatRequest {
    pub(crate) group: Text,
    pub(crate) member_id: Text,
    pub(crate) epoch: i32,
    pub(crate) endpoint_epoch: i32,
    pub(crate) instance_id: Option<Text>,
    pub(crate) rack_id: Option<Text>,
    pub(crate) rebalance_timeout_ms: i32,
    pub(crate) topology: Option<Topology>,
    pub(crate) active: Option<BTreeSet<Task>>,
    pub(crate) standby: Option<BTreeSet<Task>>,
    pub(crate) warmup: Option<BTreeSet<Task>>,
    pub(crate) process_id: Option<Text>,
    pub(crate) endpoint: Option<Endpoint>,
    pub(crate) tags: Option<Vec<(Text, Text)>>,
    pub(crate) has_task_offsets: bool,
    pub(crate) shutdown: bool,
}

fn owned(cursor: &mut Cursor<'_>) -> Result<Text, MalformedValue> {
    cursor.text(true).map(text)
}

fn nullable(cursor: &mut Cursor<'_>) -> Result<Option<Text>, MalformedValue> {
    Ok(cursor.nullable_text(true)?.map(text))
}

fn nullable_list<T>(
    cursor: &mut Cursor<'_>,
    mut element: impl FnMut(&mut Cursor<'_>) -> Result<T, MalformedValue>,
) -> Result<Option<Vec<T>>, MalformedValue> {
    let Some(count) = cursor.count(true)? else { return Ok(None) };
    (0..count).map(|_| element(cursor)).collect::<Result<_, _>>().map(Some)
}

fn list<T>(
    cursor: &mut Cursor<'_>,
    element: impl FnMut(&mut Cursor<'_>) -> Result<T, MalformedValue>,
) -> Result<Vec<T>, MalformedValue> {
    nullable_list(cursor, element)?.ok_or(MalformedValue::Null)
}

/// A struct with its tagged fields, which are skipped.
fn row<T>(
    cursor: &mut Cursor<'_>,
    fields: impl FnOnce(&mut Cursor<'_>) -> Result<T, MalformedValue>,
) -> Result<T, MalformedValue> {
    let read = fields(cursor)?;
    cursor.skip_tagged_fields()?;
    Ok(read)
}

/// A message without trailing bytes.
fn whole<T>(
    body: &[u8],
    fields: impl FnOnce(&mut Cursor<'_>) -> Result<T, MalformedValue>,
) -> Result<T, MalformedValue> {
    let mut cursor = Cursor::new(body);
    let read = row(&mut cursor, fields)?;
    match cursor.left() {
        0 => Ok(read),
        _ => Err(MalformedValue::Length { length: body.len() as i64 }),
    }
}

/// A nullable struct: its first byte is negative for null.
fn nullable_row<T>(
    cursor: &mut Cursor<'_>,
    fields: impl FnOnce(&mut Cursor<'_>) -> Result<T, MalformedValue>,
) -> Result<Option<T>, MalformedValue> {
    if cursor.int8()? < 0 { Ok(None) } else { row(cursor, fields).map(Some) }
}

fn pair(cursor: &mut Cursor<'_>) -> Result<(Text, Text), MalformedValue> {
    row(cursor, |cursor| Ok((owned(cursor)?, owned(cursor)?)))
}

fn tasks(cursor: &mut Cursor<'_>) -> Result<Option<BTreeSet<Task>>, MalformedValue> {
    let rows = nullable_list(cursor, |cursor| {
        row(cursor, |cursor| Ok((owned(cursor)?, list(cursor, |cursor| cursor.int32())?)))
    })?;
    Ok(rows.map(|rows| {
        let of_row = |(subtopology, partitions): (Text, Vec<i32>)| {
            partitions.into_iter().map(move |partition| Task::new(&subtopology, partition))
        };
        rows.into_iter().flat_map(of_row).collect()
    }))
}

fn internal_topic(cursor: &mut Cursor<'_>) -> Result<InternalTopic, MalformedValue> {
    row(cursor, |cursor| {
        Ok(InternalTopic {
            name: owned(cursor)?,
            partitions: cursor.int32()?,
            replication_factor: cursor.int16()?,
            configs: list(cursor, pair)?,
        })
    })
}

fn subtopology(cursor: &mut Cursor<'_>) -> Result<Subtopology, MalformedValue> {
    row(cursor, |cursor| {
        Ok(Subtopology {
            id: owned(cursor)?,
            source_topics: list(cursor, owned)?,
            source_patterns: list(cursor, owned)?,
            changelogs: list(cursor, internal_topic)?,
            repartition_sinks: list(cursor, owned)?,
            repartition_sources: list(cursor, internal_topic)?,
            copartition_groups: list(cursor, |cursor| {
                row(cursor, |cursor| {
                    Ok(CopartitionGroup {
                        sources: list(cursor, |cursor| cursor.int16())?,
                        patterns: list(cursor, |cursor| cursor.int16())?,
                        repartition_sources: list(cursor, |cursor| cursor.int16())?,
                    })
                })
            })?,
        })
    })
}

fn has_task_offsets(cursor: &mut Cursor<'_>) -> Result<bool, MalformedValue> {
    let offsets = nullable_list(cursor, |cursor| {
        row(cursor, |cursor| {
            cursor.text(true)?;
            cursor.int32()?;
            cursor.int64()
        })
    })?;
    Ok(offsets.is_some())
}

impl HeartbeatRequest {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, MalformedValue> {
        whole(body, |cursor| {
            Ok(Self {
                group: owned(cursor)?,
                member_id: owned(cursor)?,
                epoch: cursor.int32()?,
                endpoint_epoch: cursor.int32()?,
                instance_id: nullable(cursor)?,
                rack_id: nullable(cursor)?,
                rebalance_timeout_ms: cursor.int32()?,
                topology: nullable_row(cursor, |cursor| {
                    Ok(Topology {
                        epoch: cursor.int32()?,
                        subtopologies: list(cursor, subtopology)?,
                    })
                })?,
                active: tasks(cursor)?,
                standby: tasks(cursor)?,
                warmup: tasks(cursor)?,
                process_id: nullable(cursor)?,
                endpoint: nullable_row(cursor, |cursor| {
                    Ok(Endpoint { host: owned(cursor)?, port: cursor.int16()? as u16 })
                })?,
                tags: nullable_list(cursor, pair)?,
                has_task_offsets: {
                    let offsets = has_task_offsets(cursor)?;
                    has_task_offsets(cursor)? || offsets
                },
                shutdown: cursor.int8()? != 0,
            })
        })
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct HeartbeatResponse {
    pub(crate) code: i16,
    pub(crate) message: Option<String>,
    pub(crate) member_id: Text,
    pub(crate) epoch: i32,
    pub(crate) interval_ms: i32,
    pub(crate) statuses: Vec<Status>,
    pub(crate) tasks: Option<Tasks>,
    pub(crate) endpoint_epoch: i32,
    pub(crate) endpoints: Option<Vec<EndpointPartitions>>,
}

fn put_text(frame: &mut BytesMut, text: &str) {
    frame.put_nullable_text(Some(text), true);
}

fn put_ints(frame: &mut BytesMut, numbers: &[i32]) {
    frame.put_count(numbers.len(), true);
    numbers.iter().for_each(|number| frame.put_i32(*number));
}

/// Writes topics or subtopologies, each with its partitions.
fn put_partitions(frame: &mut BytesMut, rows: &[(Text, Vec<i32>)]) {
    frame.put_count(rows.len(), true);
    for (name, partitions) in rows {
        put_text(frame, name);
        put_ints(frame, partitions);
        frame.put_no_tagged_fields(true);
    }
}

fn put_tasks(frame: &mut BytesMut, tasks: &BTreeSet<Task>) {
    put_partitions(frame, &by_subtopology(tasks));
}

fn put_endpoint(frame: &mut BytesMut, endpoint: &Endpoint) {
    put_text(frame, &endpoint.host);
    frame.put_u16(endpoint.port);
    frame.put_no_tagged_fields(true);
}

/// Null of a nullable array.
const NULL_ARRAY: u8 = 0;

impl HeartbeatResponse {
    pub(crate) fn write(&self, frame: &mut BytesMut) {
        // Throttle time: zero.
        frame.put_i32(0);
        frame.put_i16(self.code);
        frame.put_nullable_text(self.message.as_deref(), true);
        put_text(frame, &self.member_id);
        frame.put_i32(self.epoch);
        frame.put_i32(self.interval_ms);
        // Acceptable lag of a warm-up task, and the interval of task offsets: there are no warm-up tasks, as
        // in Kafka 4.3.
        frame.put_i32(0);
        frame.put_i32(0);
        frame.put_count(self.statuses.len(), true);
        for status in &self.statuses {
            frame.put_i8(status.code as i8);
            put_text(frame, &status.detail);
            frame.put_no_tagged_fields(true);
        }
        match &self.tasks {
            Some(tasks) => {
                put_tasks(frame, &tasks.active);
                put_tasks(frame, &tasks.standby);
                put_tasks(frame, &BTreeSet::new());
            }
            None => frame.put_bytes(NULL_ARRAY, 3),
        }
        frame.put_i32(self.endpoint_epoch);
        match &self.endpoints {
            Some(endpoints) => {
                frame.put_count(endpoints.len(), true);
                for known in endpoints {
                    put_endpoint(frame, &known.endpoint);
                    put_partitions(frame, &known.active);
                    put_partitions(frame, &known.standby);
                    frame.put_no_tagged_fields(true);
                }
            }
            None => frame.put_u8(NULL_ARRAY),
        }
        frame.put_no_tagged_fields(true);
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DescribeRequest {
    pub(crate) groups: Vec<Text>,
    pub(crate) include_operations: bool,
}

impl DescribeRequest {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, MalformedValue> {
        whole(body, |cursor| {
            let groups = list(cursor, owned)?;
            Ok(Self { groups, include_operations: cursor.int8()? != 0 })
        })
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct DescribedGroup {
    pub(crate) code: i16,
    pub(crate) message: Option<String>,
    pub(crate) name: Text,
    pub(crate) state: &'static str,
    pub(crate) epoch: i32,
    pub(crate) target_epoch: i32,
    pub(crate) topology: Option<Topology>,
    pub(crate) members: Vec<Member>,
    pub(crate) operations: i32,
}

fn put_pairs(frame: &mut BytesMut, pairs: &[(Text, Text)]) {
    frame.put_count(pairs.len(), true);
    for (key, value) in pairs {
        put_text(frame, key);
        put_text(frame, value);
        frame.put_no_tagged_fields(true);
    }
}

fn put_texts(frame: &mut BytesMut, texts: &[Text]) {
    frame.put_count(texts.len(), true);
    texts.iter().for_each(|text| put_text(frame, text));
}

fn put_topics(frame: &mut BytesMut, topics: &[InternalTopic]) {
    frame.put_count(topics.len(), true);
    for topic in topics {
        put_text(frame, &topic.name);
        frame.put_i32(topic.partitions);
        frame.put_i16(topic.replication_factor);
        put_pairs(frame, &topic.configs);
        frame.put_no_tagged_fields(true);
    }
}

fn put_topology(frame: &mut BytesMut, topology: Option<&Topology>) {
    let Some(topology) = topology else { return frame.put_i8(-1) };
    frame.put_i8(1);
    frame.put_i32(topology.epoch);
    frame.put_count(topology.subtopologies.len(), true);
    for subtopology in &topology.subtopologies {
        put_text(frame, &subtopology.id);
        put_texts(frame, &subtopology.source_topics);
        put_texts(frame, &subtopology.repartition_sinks);
        put_topics(frame, &subtopology.changelogs);
        put_topics(frame, &subtopology.repartition_sources);
        frame.put_no_tagged_fields(true);
    }
    frame.put_no_tagged_fields(true);
}

fn put_assignment(frame: &mut BytesMut, tasks: &Tasks) {
    put_tasks(frame, &tasks.active);
    put_tasks(frame, &tasks.standby);
    put_tasks(frame, &BTreeSet::new());
    frame.put_no_tagged_fields(true);
}

fn put_member(frame: &mut BytesMut, member: &Member) {
    put_text(frame, &member.enrolment.id);
    frame.put_i32(member.state.epoch);
    // Static membership is not supported.
    frame.put_nullable_text(None, true);
    frame.put_nullable_text(member.enrolment.rack_id.as_deref(), true);
    put_text(frame, &member.enrolment.client.id);
    put_text(frame, &member.enrolment.client.host);
    frame.put_i32(member.topology_epoch);
    put_text(frame, &member.process_id);
    match &member.endpoint {
        Some(endpoint) => {
            frame.put_i8(1);
            put_endpoint(frame, endpoint);
        }
        None => frame.put_i8(-1),
    }
    put_pairs(frame, &member.tags);
    // Offsets and end offsets of tasks are not reported.
    frame.put_count(0, true);
    frame.put_count(0, true);
    put_assignment(frame, &member.state.assigned);
    put_assignment(frame, &member.state.target);
    // Not a member by the classic protocol.
    frame.put_i8(0);
    frame.put_no_tagged_fields(true);
}

/// Writes the fields before the groups of a description. The caller ends the message with empty tagged
/// fields.
pub(crate) fn begin_described(groups: usize, frame: &mut BytesMut) {
    frame.put_i32(0);
    frame.put_count(groups, true);
}

impl DescribedGroup {
    pub(crate) fn of(name: Text, group: &StreamsGroup) -> Self {
        Self {
            name,
            state: group.state_name(),
            epoch: group.epoch(),
            target_epoch: group.target_epoch(),
            topology: group.topology(),
            members: group.members().cloned().collect(),
            ..Self::default()
        }
    }

    pub(crate) fn write(&self, frame: &mut BytesMut) {
        frame.put_i16(self.code);
        frame.put_nullable_text(self.message.as_deref(), true);
        put_text(frame, &self.name);
        put_text(frame, self.state);
        frame.put_i32(self.epoch);
        frame.put_i32(self.target_epoch);
        put_topology(frame, self.topology.as_ref());
        frame.put_count(self.members.len(), true);
        self.members.iter().for_each(|member| put_member(frame, member));
        frame.put_i32(self.operations);
        frame.put_no_tagged_fields(true);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_make_the_parsers_panic(bytes: Vec<u8>) {
            let _ = HeartbeatRequest::parse(&bytes);
            let _ = DescribeRequest::parse(&bytes);
        }
    }

    #[test]
    fn a_described_group_has_the_layout_of_the_protocol() {
        let mut frame = BytesMut::new();
        let name = text("g");
        let group = DescribedGroup { name, state: "Empty", operations: 7, ..Default::default() };
        begin_described(1, &mut frame);
        group.write(&mut frame);
        frame.put_no_tagged_fields(true);
        let expected = [
            &[0, 0, 0, 0, 2, 0, 0, 0, 2][..],
            b"g",
            &[6],
            b"Empty",
            &[0, 0, 0, 0, 0, 0, 0, 0, 0xff, 1, 0, 0, 0, 7, 0, 0],
        ];
        assert_eq!(frame, expected.concat());
    }
}
