import { useEffect, useState } from "preact/hooks";
import { get, Problem, seg } from "../api";
import { Card, Command, Empty, Failure, Field, Form, Header, Table, Tag } from "../ui";
import { RecordDetail } from "../records";
import type { History, HistoryEvent, SessionInfo, TracePage } from "../types";
import { count, curl, quoted, time } from "../format";
import { route, setQuery, hrefOf } from "../router";

const MATCHES_MAX = 50;
const BY_OFFSET = "partition:offset";

/** Query parameters of a search by key, id, trace or header. */
function searchQuery(by: string, value: string, header: string): string {
  const name = { key: "key", id: "id", "message-id": "message_id", trace: "trace_id" }[by];
  return name ? `${name}=${seg(value)}` : `header=${seg(header)}&value=${seg(value)}`;
}

export function Trace() {
  const { query } = route.value;
  const [topic, position] = [query.get("topic") ?? "", query.get("place")];
  const [matches, setMatches] = useState<{ records: History[]; searched: number; more: boolean } | null>(null);
  useEffect(() => { if (position) setMatches(null); }, [position]);
  return (
    <>
      <Header title="Trace a record" sub="State and history of a record, by partition and offset, key, id, trace or header." />
      <Card>
        <Form button="Find" run={async (form) => {
          const value = (name: string) => String(form.get(name) ?? "").trim();
          const [topic, by, text] = [value("topic"), value("by"), value("value")];
          if (by === BY_OFFSET) {
            setQuery({ topic, place: text.replace(":", ".") });
            return;
          }
          setQuery({ topic: topic || null, place: null });
          let [cursor, records, searched]: [string | null, History[], number] = [null, [], 0];
          do {
            const path: string = `/v1/trace?${searchQuery(by, text, value("header"))}${topic && `&topic=${seg(topic)}`}&limit=${MATCHES_MAX - records.length}${cursor ? `&cursor=${seg(cursor)}` : ""}`;
            const page: TracePage = await get<TracePage>(path);
            records = [...records, ...page.records];
            searched += page.looked_at; cursor = page.next;
            setMatches({ records, searched, more: cursor !== null });
          } while (cursor && records.length < MATCHES_MAX);
          const match = records.length === 1 ? records[0] : undefined;
          if (match) setQuery({ topic: match.topic, place: `${match.partition}.${match.offset}` });
        }}>
          <div class="row">
            <Field label="Topic" name="topic" value={topic} hint="Required with partition:offset. Empty: all readable topics" />
            <Field label="By" name="by" list={[BY_OFFSET, "key", "id", "message-id", "trace", "header"]} value={BY_OFFSET} />
            <Field label="Value" name="value" value={position?.replace(".", ":") ?? ""} required hint="A partition:offset such as 0:12" />
            <Field label="Header name" name="header" hint="For a search by header" />
          </div>
        </Form>
      </Card>
      {matches && <p class="progress" role="status">{count(matches.records.length)} found, {count(matches.searched)} searched{matches.more && ", search incomplete"}</p>}
      {matches && matches.records.length > 1 && <Matches records={matches.records} />}
      {topic && position && <RecordHistory topic={topic} position={position} />}
      {!position && !matches && <Empty title="No record selected">Every list of records shows partition and offset. A search by key, id, trace or header starts at the earliest record.</Empty>}
    </>
  );
}

function Matches({ records }: { records: History[] }) {
  const positionOf = (record: History) => `${record.partition}.${record.offset}`;
  return (
    <Table label="Matching records" rows={records} id={(row) => `${row.topic}/${positionOf(row)}`} columns={[
      { key: "topic", label: "Topic", cell: (row) => row.topic, sort: (row) => row.topic },
      { key: "place", label: "Partition:offset", cell: (row) => <a href={`${hrefOf("find")}?topic=${seg(row.topic)}&place=${positionOf(row)}`}>{row.partition}:{row.offset}</a> },
      { key: "time", label: "Time", cell: (row) => row.record ? time(row.record.timestamp_ms) : "–", sort: (row) => row.record?.timestamp_ms ?? 0 },
      { key: "state", label: "State", cell: (row) => row.death ? <Tag tone="bad">dead letter: {row.death.reason ?? "unknown"}</Tag> : row.groups.map((group) => <Tag tone={STATE_TONES[group.state]}>{group.group}: {group.state}</Tag>) },
    ]} />
  );
}

const STATE_TONES: Record<string, "good" | "warn" | "bad" | "calm"> = { settled: "good", ready: "calm", leased: "calm", delayed: "calm", blocked: "warn", "dead-lettering": "bad", gone: "calm", unknown: "warn" };

function RecordHistory({ topic, position }: { topic: string; position: string }) {
  const [partition = "0", offset = "0"] = position.split(".");
  const path = `/v1/topics/${seg(topic)}/partitions/${seg(partition)}/records/${seg(offset)}/history`;
  const [history, setHistory] = useState<History | null>(null);
  const [problem, setProblem] = useState<Problem>();
  useEffect(() => {
    const abort = new AbortController();
    const load = () => get<History>(path, abort.signal).then((response) => { setHistory(response); setProblem(undefined); }).catch((error) => { if (error instanceof Problem) { setProblem(error); setHistory(null); } });
    void load();
    const timer = window.setInterval(() => { if (!document.hidden) void load(); }, 3000);
    return () => { abort.abort(); clearInterval(timer); };
  }, [path]);
  if (problem) return <Failure problem={problem} />;
  if (!history) return null;
  const presence = {
    there: <><Tag tone="good">stored</Tag> The record is stored at {partition}:{offset}.</>,
    deleted: <><Tag tone="bad">deleted</Tag> The record was deleted by retention, compaction or a user. The partition starts at {count(history.start)}.</>,
    "to-come": <><Tag tone="calm">not appended</Tag> This offset is past the end of the partition, {count(history.end)}.</>,
  };
  return (
    <>
      <p class="verdict" role="status">{presence[history.presence]}</p>
      {history.death && <p class="banner"><Tag tone="bad">Dead letter</Tag> Source record: {history.death.partition}:{history.death.offset} of topic <a href={`${hrefOf("find")}?topic=${seg(history.death.topic ?? "")}&place=${history.death.partition}.${history.death.offset}`}>{history.death.topic}</a>. Reason: {history.death.reason}.</p>}
      {history.presence !== "to-come" && (
        <div class="grid two">
          <Card title="State in lease groups">
            {history.groups.length === 0 ? <p class="fine">The topic has no lease groups that you may view.</p> : <Table label="Lease groups" rows={history.groups} id={(row) => row.group} columns={[
              { key: "group", label: "Group", cell: (row) => <a href={hrefOf("topics", topic, "groups", row.group)}>{row.group}</a> },
              { key: "state", label: "State", cell: (row) => <><Tag tone={STATE_TONES[row.state]}>{row.state}</Tag>{row.paused && <Tag tone="warn">paused</Tag>}</> },
              { key: "more", label: "Details", cell: (row) => <>{row.session && `${sessionText(row.session)} `}{row.until_ms !== null && `until ${time(row.until_ms)} `}{row.behind !== null && `blocked by offset ${row.behind} of the same key `}{row.attempts > 0 && `· ${row.attempts} previous attempts`}</> },
            ]} />}
          </Card>
          <Card title="State in consumer groups">
            {history.offset_groups.length === 0 ? <p class="fine">No consumer group has committed an offset in this partition.</p> : <Table label="Consumer groups" rows={history.offset_groups} id={(row) => row.group} columns={[
              { key: "group", label: "Group", cell: (row) => <a href={hrefOf("groups", "offsets", row.group)}>{row.group}</a> },
              { key: "read", label: "State", cell: (row) => row.read ? <Tag tone="good">read</Tag> : <Tag tone="calm">unread</Tag> },
              { key: "offset", label: "Committed", right: true, cell: (row) => count(row.offset) },
            ]} />}
            {history.truncated && <p class="fine">The topic has more groups than are listed here.</p>}
          </Card>
        </div>
      )}
      {history.groups.some((group) => group.events.length > 0) && (
        <Card title="History">
          <Table label="History" rows={history.groups.flatMap((group) => group.events.map((event, number) => ({ group: group.group, event, number })))} id={(row) => `${row.group}/${row.number}`} columns={[
            { key: "time", label: "Time", cell: (row) => time(row.event.at_ms), sort: (row) => row.event.at_ms },
            { key: "group", label: "Group", cell: (row) => row.group, sort: (row) => row.group },
            { key: "event", label: "Event", cell: (row) => eventText(row.event) },
            { key: "attempt", label: "Attempt", right: true, cell: (row) => row.event.attempt ?? "–" },
            { key: "node", label: "Node", right: true, cell: (row) => row.event.node },
            { key: "session", label: "Session", cell: (row) => row.event.session ? sessionText(row.event.session) : "–" },
          ]} />
        </Card>
      )}
      {history.remembered_since_ms !== null && <p class="fine">Events before {time(history.remembered_since_ms)} are not retained.</p>}
      {history.traced?.cut_short && <p class="fine">The search of the trace topic was cut short. The history may be incomplete.</p>}
      {history.silent_nodes.length > 0 && <p class="fine">Nodes that did not report their events: {history.silent_nodes.join(", ")}.</p>}
      {history.record && <Card title="Record"><RecordDetail topic={topic} record={history.record} /></Card>}
      <Command lines={[curl("GET", path), "", `postroad trace ${quoted(topic)} --at ${partition}:${offset}`]} />
    </>
  );
}

function sessionText(session: SessionInfo): string {
  return [session.protocol, session.user, session.client, session.peer, `session ${session.session}`].filter(Boolean).join(" ");
}

function eventText(event: HistoryEvent): string {
  return event.what.replaceAll("-", " ") + (event.reason ? `: ${event.reason}` : "");
}
