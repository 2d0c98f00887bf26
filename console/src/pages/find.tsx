import { useEffect, useState } from "preact/hooks";
import { ask, get, Problem, seg } from "../api";
import { Card, Command, Empty, Failure, Field, Form, Header, Table, Tag } from "../ui";
import { RecordDetail, Records, recordId } from "../records";
import type { Rec, Searched, Where } from "../types";
import { count, curl, time } from "../words";
import { place, refine, to } from "../router";

export function Find() {
  const { query } = place.value;
  const [topic, at] = [query.get("topic") ?? "", query.get("place")];
  const [matches, setMatches] = useState<{ records: Rec[]; looked: number; left: number } | null>(null);
  useEffect(() => { if (at) setMatches(null); }, [at]);
  return (
    <>
      <Header title="Where is it?" sub="What became of a record, by its place, its key or an id in its headers." />
      <Card>
        <Form button="Find" run={async (form) => {
          const value = (name: string) => String(form.get(name) ?? "").trim();
          const [topic, by, what] = [value("topic"), value("by"), value("what")];
          if (by === "place") {
            refine({ topic, place: what.replace(":", ".") });
            return;
          }
          refine({ topic, place: null });
          const filter = by === "key" ? { key: what } : { header: by === "id" ? "postroad.id" : value("header") || by, header_value: what };
          let [cursor, records, looked, left]: [string | null, Rec[], number, number] = [null, [], 0, 0];
          do {
            const part: Searched = await ask("POST", `/v1/topics/${seg(topic)}/search`, { filter, max_matches: 100 - records.length, max_bytes: 32 << 20, ...(cursor ? { cursor } : {}) });
            records = [...records, ...part.records];
            looked += part.looked_at; left = part.left; cursor = part.next;
            setMatches({ records, looked, left });
          } while (cursor && records.length < 100);
          if (records.length === 1) refine({ place: recordId(records[0]!) });
        }}>
          <div class="row">
            <Field label="Topic" name="topic" value={topic} required />
            <Field label="By" name="by" list={["place", "key", "id", "message-id", "trace-id", "header"]} value="place" />
            <Field label="Which is" name="what" value={at?.replace(".", ":") ?? ""} required hint="of a place: partition:offset" />
            <Field label="Name of the header" name="header" hint="if it is another" />
          </div>
        </Form>
      </Card>
      {matches && <p class="progress" role="status">{count(matches.records.length)} found, {count(matches.looked)} looked at{matches.left > 0 && `, ${count(matches.left)} left`}</p>}
      {matches && matches.records.length !== 1 && <Records topic={topic} records={matches.records} />}
      {topic && at && <Answer topic={topic} at={at} />}
      {!at && !matches && <Empty title="Say which record">A place stands in every list of records; keys and ids are looked for, from the earliest record on.</Empty>}
    </>
  );
}

const TONE: Record<string, "good" | "warn" | "bad" | "calm"> = { settled: "good", ready: "calm", leased: "calm", delayed: "calm", blocked: "warn", "dead-lettering": "bad" };

function Answer({ topic, at }: { topic: string; at: string }) {
  const [partition = "0", offset = "0"] = at.split(".");
  const path = `/v1/topics/${seg(topic)}/partitions/${seg(partition)}/records/${seg(offset)}/where`;
  const [where, setWhere] = useState<Where | null>(null);
  const [problem, setProblem] = useState<Problem>();
  useEffect(() => {
    const abort = new AbortController();
    const once = () => get<Where>(path, abort.signal).then((it) => { setWhere(it); setProblem(undefined); }).catch((error) => { if (error instanceof Problem) { setProblem(error); setWhere(null); } });
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
      <p class="verdict" role="status">{words[where.record]}</p>
      {where.record === "there" && (
        <div class="grid two">
          <Card title="To groups that settle one by one">
            {where.groups.length === 0 ? <p class="fine">The topic has none that you may see.</p> : <Table label="Groups that settle one by one" rows={where.groups} id={(it) => it.group} columns={[
              { key: "group", label: "Group", cell: (it) => <a href={to("topics", topic, "groups", it.group)}>{it.group}</a> },
              { key: "state", label: "State", cell: (it) => <><Tag tone={TONE[it.state]}>{it.state}</Tag>{it.paused && <Tag tone="warn">paused</Tag>}</> },
              { key: "more", label: "Since, until", cell: (it) => <>{it.session !== null && `session ${it.session} `}{it.until_ms !== null && `until ${time(it.until_ms)} `}{it.attempts > 0 && `· ${it.attempts} attempts before`}</> },
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
      {where.content && <Card title="The record"><RecordDetail topic={topic} record={where.content} /></Card>}
      <Command lines={[curl("GET", path)]} />
    </>
  );
}
