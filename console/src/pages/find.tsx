import { useEffect, useState } from "preact/hooks";
import { get, Problem, seg } from "../api";
import { Card, Command, Empty, Failure, Field, Form, Header, Table, Tag } from "../ui";
import { RecordDetail } from "../records";
import type { History, HistoryEvent, SessionSeen, Traced } from "../types";
import { count, curl, quoted, time } from "../words";
import { place, refine, to } from "../router";

const FOUND_MAX = 50;

/** What the API calls it, and its value. */
function asked(by: string, what: string, header: string): string {
  const name = { key: "key", id: "id", "message-id": "message_id", trace: "trace_id" }[by];
  return name ? `${name}=${seg(what)}` : `header=${seg(header)}&value=${seg(what)}`;
}

export function Find() {
  const { query } = place.value;
  const [topic, at] = [query.get("topic") ?? "", query.get("place")];
  const [matches, setMatches] = useState<{ records: History[]; looked: number; more: boolean } | null>(null);
  useEffect(() => { if (at) setMatches(null); }, [at]);
  return (
    <>
      <Header title="Where is it?" sub="What became of a record, by its place, key, id, trace or header." />
      <Card>
        <Form button="Find" run={async (form) => {
          const value = (name: string) => String(form.get(name) ?? "").trim();
          const [topic, by, what] = [value("topic"), value("by"), value("what")];
          if (by === "place") {
            refine({ topic, place: what.replace(":", ".") });
            return;
          }
          refine({ topic: topic || null, place: null });
          let [cursor, records, looked]: [string | null, History[], number] = [null, [], 0];
          do {
            const path: string = `/v1/trace?${asked(by, what, value("header"))}${topic && `&topic=${seg(topic)}`}&limit=${FOUND_MAX - records.length}${cursor ? `&cursor=${seg(cursor)}` : ""}`;
            const part: Traced = await get<Traced>(path);
            records = [...records, ...part.records];
            looked += part.looked_at; cursor = part.next;
            setMatches({ records, looked, more: cursor !== null });
          } while (cursor && records.length < FOUND_MAX);
          const only = records.length === 1 ? records[0] : undefined;
          if (only) refine({ topic: only.topic, place: `${only.partition}.${only.offset}` });
        }}>
          <div class="row">
            <Field label="Topic" name="topic" value={topic} hint="of a place; else all that you may read" />
            <Field label="By" name="by" list={["place", "key", "id", "message-id", "trace", "header"]} value="place" />
            <Field label="Which is" name="what" value={at?.replace(".", ":") ?? ""} required hint="of a place: partition:offset" />
            <Field label="Name of the header" name="header" hint="if it is found by one" />
          </div>
        </Form>
      </Card>
      {matches && <p class="progress" role="status">{count(matches.records.length)} found, {count(matches.looked)} looked at{matches.more && ", and there is more"}</p>}
      {matches && matches.records.length > 1 && <Found records={matches.records} />}
      {topic && at && <Answer topic={topic} at={at} />}
      {!at && !matches && <Empty title="Say which record">A place stands in every list of records; keys, ids, traces and headers are looked for, from the earliest record on.</Empty>}
    </>
  );
}

function Found({ records }: { records: History[] }) {
  const at = (it: History) => `${it.partition}.${it.offset}`;
  return (
    <Table label="Records that were found" rows={records} id={(it) => `${it.topic}/${at(it)}`} columns={[
      { key: "topic", label: "Topic", cell: (it) => it.topic, sort: (it) => it.topic },
      { key: "place", label: "Place", cell: (it) => <a href={`${to("find")}?topic=${seg(it.topic)}&place=${at(it)}`}>{it.partition}:{it.offset}</a> },
      { key: "time", label: "Time", cell: (it) => it.record ? time(it.record.timestamp_ms) : "–", sort: (it) => it.record?.timestamp_ms ?? 0 },
      { key: "is", label: "Is", cell: (it) => it.death ? <Tag tone="bad">dead letter: {it.death.reason ?? "?"}</Tag> : it.groups.map((group) => <Tag tone={TONE[group.state]}>{group.group}: {group.state}</Tag>) },
    ]} />
  );
}

const TONE: Record<string, "good" | "warn" | "bad" | "calm"> = { settled: "good", ready: "calm", leased: "calm", delayed: "calm", blocked: "warn", "dead-lettering": "bad", gone: "calm", unknown: "warn" };

function Answer({ topic, at }: { topic: string; at: string }) {
  const [partition = "0", offset = "0"] = at.split(".");
  const path = `/v1/topics/${seg(topic)}/partitions/${seg(partition)}/records/${seg(offset)}/history`;
  const [where, setWhere] = useState<History | null>(null);
  const [problem, setProblem] = useState<Problem>();
  useEffect(() => {
    const abort = new AbortController();
    const once = () => get<History>(path, abort.signal).then((it) => { setWhere(it); setProblem(undefined); }).catch((error) => { if (error instanceof Problem) { setProblem(error); setWhere(null); } });
    void once();
    const timer = window.setInterval(() => { if (!document.hidden) void once(); }, 3000);
    return () => { abort.abort(); clearInterval(timer); };
  }, [path]);
  if (problem) return <Failure problem={problem} />;
  if (!where) return null;
  const words = {
    there: <><Tag tone="good">there</Tag> The record is stored, at {partition}:{offset}.</>,
    deleted: <><Tag tone="bad">gone</Tag> It was deleted, by retention, compaction or somebody. The partition begins at {count(where.start)}.</>,
    "to-come": <><Tag tone="calm">not yet</Tag> Nothing was appended at this place yet. The partition ends at {count(where.end)}.</>,
  };
  return (
    <>
      <p class="verdict" role="status">{words[where.presence]}</p>
      {where.death && <p class="banner"><Tag tone="bad">Dead letter</Tag> It was {where.death.partition}:{where.death.offset} of topic <a href={`${to("find")}?topic=${seg(where.death.topic ?? "")}&place=${where.death.partition}.${where.death.offset}`}>{where.death.topic}</a>, and died: {where.death.reason}.</p>}
      {where.presence !== "to-come" && (
        <div class="grid two">
          <Card title="To groups that settle one by one">
            {where.groups.length === 0 ? <p class="fine">The topic has none that you may see.</p> : <Table label="Groups that settle one by one" rows={where.groups} id={(it) => it.group} columns={[
              { key: "group", label: "Group", cell: (it) => <a href={to("topics", topic, "groups", it.group)}>{it.group}</a> },
              { key: "state", label: "State", cell: (it) => <><Tag tone={TONE[it.state]}>{it.state}</Tag>{it.paused && <Tag tone="warn">paused</Tag>}</> },
              { key: "more", label: "Since, until", cell: (it) => <>{it.session && `${who(it.session)} `}{it.until_ms !== null && `until ${time(it.until_ms)} `}{it.behind !== null && `behind ${it.behind} of its key `}{it.attempts > 0 && `· ${it.attempts} attempts before`}</> },
            ]} />}
          </Card>
          <Card title="To groups that commit offsets">
            {where.offset_groups.length === 0 ? <p class="fine">None has committed an offset in this partition.</p> : <Table label="Groups that commit offsets" rows={where.offset_groups} id={(it) => it.group} columns={[
              { key: "group", label: "Group", cell: (it) => <a href={to("groups", "offsets", it.group)}>{it.group}</a> },
              { key: "read", label: "State", cell: (it) => it.read ? <Tag tone="good">read</Tag> : <Tag tone="calm">to come</Tag> },
              { key: "offset", label: "Committed", right: true, cell: (it) => count(it.offset) },
            ]} />}
            {where.truncated && <p class="fine">There are more groups than were asked.</p>}
          </Card>
        </div>
      )}
      {where.groups.some((it) => it.events.length > 0) && (
        <Card title="What happened">
          <Table label="What happened" rows={where.groups.flatMap((group) => group.events.map((event, number) => ({ group: group.group, event, number })))} id={(it) => `${it.group}/${it.number}`} columns={[
            { key: "time", label: "Time", cell: (it) => time(it.event.at_ms), sort: (it) => it.event.at_ms },
            { key: "group", label: "Group", cell: (it) => it.group, sort: (it) => it.group },
            { key: "what", label: "What", cell: (it) => happened(it.event) },
            { key: "attempt", label: "Attempt", right: true, cell: (it) => it.event.attempt ?? "–" },
            { key: "node", label: "Node", right: true, cell: (it) => it.event.node },
            { key: "by", label: "By", cell: (it) => it.event.session ? who(it.event.session) : "–" },
          ]} />
        </Card>
      )}
      {where.remembered_since_ms !== null && <p class="fine">What happened before {time(where.remembered_since_ms)} is not remembered.</p>}
      {where.traced?.cut_short && <p class="fine">Not all that was written of such records could be looked through: there may be more.</p>}
      {where.silent_nodes.length > 0 && <p class="fine">Nodes that did not say what they remember: {where.silent_nodes.join(", ")}.</p>}
      {where.record && <Card title="The record"><RecordDetail topic={topic} record={where.record} /></Card>}
      <Command lines={[curl("GET", path), "", `postroad trace ${quoted(topic)} --at ${partition}:${offset}`]} />
    </>
  );
}

function who(session: SessionSeen): string {
  return [session.protocol, session.user, session.client, session.peer, `session ${session.session}`].filter(Boolean).join(" ");
}

function happened(event: HistoryEvent): string {
  return event.what.replaceAll("-", " ") + (event.reason ? `: ${event.reason}` : "");
}
