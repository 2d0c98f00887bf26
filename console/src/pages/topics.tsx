import { useEffect, useRef, useState } from "preact/hooks";
import { ask, follow, get, Problem, seg, usePoll } from "../api";
import { Card, Command, confirm, Empty, Fact, Failure, Field, Filter, Form, Header, Loading, Pager, Spark, Table, Tabs, Tag, tell } from "../ui";
import { download, recordId, Records } from "../records";
import type { ConfigValue, Page, QueueRow, Rec, Searched, Topic, TopicRow } from "../types";
import { count, curl, quoted, rate, span, text, time } from "../words";
import { go, place, refine, to } from "../router";
import { eta } from "./overview";

export function Topics() {
  const { query } = place.value;
  const [creating, setCreating] = useState(false);
  const params = new URLSearchParams({ limit: "100", counts: "true" });
  for (const name of ["filter", "cursor"]) if (query.get(name)) params.set(name, query.get(name)!);
  const list = usePoll<Page<TopicRow>>(`/v1/topics?${params}`);
  return (
    <>
      <Header title="Topics" sub="Queues of AMQP are topics too."><button type="button" class="primary" aria-expanded={creating} onClick={() => setCreating(!creating)}>New topic</button></Header>
      {creating && (
        <Card title="New topic">
          <Form button="Make it" run={async (form) => {
            const name = String(form.get("name"));
            const config: Record<string, string> = {};
            for (const line of String(form.get("config")).split("\n")) {
              const at = line.indexOf("=");
              if (at > 0) config[line.slice(0, at).trim()] = line.slice(at + 1).trim();
            }
            await ask("POST", "/v1/topics", { name, partitions: Number(form.get("partitions")), config });
            tell(`Topic ${name} was made.`);
            go(to("topics", name));
          }}>
            <div class="row">
              <Field label="Name" name="name" required />
              <Field label="Partitions" name="partitions" type="number" value="1" required />
            </div>
            <Field label="Configuration" name="config" rows={3} hint="One a line: retention.ms=86400000" />
          </Form>
        </Card>
      )}
      <div class="tools"><Filter label="Filter topics" /></div>
      <Failure problem={list.error} />
      {!list.data && !list.error && <Loading what="topics" />}
      {list.data && list.data.items.length === 0 && <Empty title={query.get("filter") ? "No topic has this in its name" : "There are no topics yet"}>A client makes one by writing to it, or you do here.</Empty>}
      {list.data && list.data.items.length > 0 && (
        <>
          <Table label="Topics" rows={list.data.items} id={(it) => it.name} columns={[
            { key: "name", label: "Name", cell: (it) => <a class="rowlink" href={to("topics", it.name)}>{it.name}</a>, sort: (it) => it.name },
            { key: "partitions", label: "Partitions", right: true, cell: (it) => count(it.partitions), sort: (it) => it.partitions },
            { key: "records", label: "Records", right: true, cell: (it) => count(it.records), sort: (it) => it.records ?? null },
            { key: "appended", label: "Ever appended", right: true, cell: (it) => count(it.appended), sort: (it) => it.appended ?? null },
            { key: "groups", label: "Lease groups", right: true, cell: (it) => count(it.groups), sort: (it) => it.groups },
          ]} />
          <Pager next={list.data.next} shown={list.data.items.length} />
        </>
      )}
    </>
  );
}

export function TopicPage({ name, tab }: { name: string; tab: string }) {
  const topic = usePoll<Topic>(`/v1/topics/${seg(name)}`, 3000);
  const doc = topic.data;
  const remove = () => confirm({
    title: `Delete topic ${name}?`,
    text: <p><strong>{count(records(doc))} records</strong> and {count(doc?.groups.length)} groups go for ever.</p>,
    type: name, button: "Delete topic", danger: true,
    command: [curl("DELETE", `/v1/topics/${seg(name)}`), "", `postroad topic delete ${quoted(name)}`],
    run: async () => { await ask("DELETE", `/v1/topics/${seg(name)}`); tell(`Topic ${name} was deleted.`); go(to("topics")); },
  });
  return (
    <>
      <Header title={name} trail={[["Topics", to("topics")]]} sub={doc && <>Made {time(doc.created_ms)} · id <code>{doc.id}</code></>}>
        <a class="button" href={to("topics", name, "publish")}>Publish</a>
        <button type="button" class="danger" onClick={remove} disabled={!doc}>Delete</button>
      </Header>
      <Tabs base={["topics", name]} current={tab} tabs={[["", "Overview"], ["records", "Records"], ["tail", "Live tail"], ["publish", "Publish"], ["groups", "Groups"], ["config", "Configuration"]]} />
      <Failure problem={topic.error} />
      {!doc && !topic.error && <Loading what="the topic" />}
      {doc && tab === "" && <Parts doc={doc} before={topic.before} />}
      {doc && tab === "records" && <Browse doc={doc} />}
      {doc && tab === "tail" && <Tail name={name} />}
      {doc && tab === "publish" && <Publish doc={doc} />}
      {doc && tab === "groups" && <TopicGroups name={name} />}
      {doc && tab === "config" && <Config name={name} />}
    </>
  );
}

const records = (doc: Topic | undefined) => doc?.partitions.reduce((all, it) => all + it.end - it.start, 0);
const appended = (doc: Topic) => doc.partitions.reduce((all, it) => all + it.end, 0);

function Parts({ doc, before }: { doc: Topic; before: Topic | undefined }) {
  const seen = useRef<{ name: string; values: number[]; at: number }>({ name: doc.name, values: [], at: 0 });
  if (seen.current.name !== doc.name) seen.current = { name: doc.name, values: [], at: 0 };
  useEffect(() => {
    const now = performance.now();
    if (before && seen.current.at) {
      seen.current.values = [...seen.current.values, Math.max(0, (appended(doc) - appended(before)) / ((now - seen.current.at) / 1000))].slice(-60);
    }
    seen.current.at = now;
  }, [doc]);
  const most = Math.max(...doc.partitions.map((it) => it.end - it.start), 1);
  const all = records(doc) ?? 0;
  const values = seen.current.values;
  return (
    <>
      <div class="grid two">
        <Card>
          <dl class="facts">
            <Fact label="Records" value={count(all)} note="offsets between start and end" />
            <Fact label="Ever appended" value={count(appended(doc))} />
            <Fact label="Partitions" value={count(doc.partitions.length)} />
            <Fact label="Fullest" value={all ? `${(most / (all / doc.partitions.length)).toFixed(1)} ×` : "–"} note="of the average partition" />
          </dl>
        </Card>
        <Card title="Appended">
          <p class="big">{values.length ? rate(values.at(-1)) : "…"}</p>
          <Spark values={values} label={`Appended a second: now ${rate(values.at(-1))}`} />
        </Card>
      </div>
      <Card title="Partitions">
        <Table label="Partitions" rows={doc.partitions} id={(it) => String(it.partition)} columns={[
          { key: "partition", label: "Partition", cell: (it) => <a class="rowlink" href={`${to("topics", doc.name, "records")}?partition=${it.partition}`}>{it.partition}</a>, sort: (it) => it.partition },
          { key: "start", label: "Start", right: true, cell: (it) => count(it.start), sort: (it) => it.start },
          { key: "end", label: "End", right: true, cell: (it) => count(it.end), sort: (it) => it.end },
          { key: "records", label: "Records", right: true, cell: (it) => count(it.end - it.start), sort: (it) => it.end - it.start },
          { key: "share", label: "Against the fullest", cell: (it) => <meter class="bar" min={0} max={most} value={it.end - it.start} aria-label={`Partition ${it.partition}`} /> },
        ]} />
      </Card>
    </>
  );
}

interface Looked { records: Rec[]; next: string | null; looked: number; left: number }

function Browse({ doc }: { doc: Topic }) {
  const { query } = place.value;
  const [state, setState] = useState<Looked | null>(null);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem>();
  const abort = useRef<AbortController | undefined>(undefined);
  const asked = useRef<Record<string, unknown>>({});
  const path = `/v1/topics/${seg(doc.name)}/search`;

  /** Goes on until there is a page of matches, all was looked at, or somebody stops it. */
  async function run(cursor: string | null, have: Rec[], looked: number): Promise<void> {
    abort.current?.abort();
    const mine = abort.current = new AbortController();
    setBusy(true); setProblem(undefined);
    let found = have;
    const wanted = have.length + 50;
    try {
      for (;;) {
        const body = { ...asked.current, max_matches: wanted - found.length, ...(cursor ? { cursor } : {}) };
        const part: Searched = await ask("POST", path, body, mine.signal);
        found = [...found, ...part.records];
        looked += part.looked_at;
        cursor = part.next;
        setState({ records: found, next: cursor, looked, left: part.left });
        if (!cursor || found.length >= wanted) break;
      }
    } catch (error) {
      if (error instanceof Problem) setProblem(error);
    }
    if (abort.current === mine) setBusy(false);
  }

  function search(form: FormData): void {
    const value = (name: string) => String(form.get(name) ?? "").trim();
    const filter: Record<string, string> = {};
    for (const name of ["key", "key_prefix", "contains", "header", "header_value", "json_pointer", "json_equals"]) if (value(name)) filter[name] = value(name);
    const from = value("from") || "-50";
    refine({ from, partition: value("partition") || null, ...Object.fromEntries(["key", "key_prefix", "contains", "header", "header_value", "json_pointer", "json_equals"].map((name) => [name, value(name) || null])) });
    asked.current = { filter, from, ...(value("partition") ? { partition: Number(value("partition")) } : {}) };
    void run(null, [], 0);
  }
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => { if (form.current) search(new FormData(form.current)); return () => abort.current?.abort(); }, [doc.name]);
  const q = (name: string) => query.get(name) ?? "";
  const narrowed = ["key", "key_prefix", "contains", "header", "json_pointer"].some((name) => q(name));
  return (
    <>
      <Card>
        <form class="form" ref={form} onSubmit={(event) => { event.preventDefault(); search(new FormData(event.currentTarget as HTMLFormElement)); }}>
          <div class="row">
            <Field label="From" name="from" value={q("from") || "-50"} hint="earliest, -50 of each partition, 15m ago, 2026-03-01T12:00:00Z; an offset in one partition" />
            <label class="field"><span>Partition</span>
              <select name="partition"><option value="">all</option>{doc.partitions.map((it) => <option value={it.partition} selected={q("partition") === String(it.partition)}>{it.partition}</option>)}</select>
            </label>
            <Field label="Value has in it" name="contains" value={q("contains")} />
            <Field label="Key" name="key" value={q("key")} />
          </div>
          <details open={Boolean(q("key_prefix") || q("header") || q("json_pointer"))}>
            <summary>More to look for</summary>
            <div class="row">
              <Field label="Key begins with" name="key_prefix" value={q("key_prefix")} />
              <Field label="Header" name="header" value={q("header")} />
              <Field label="Value of the header" name="header_value" value={q("header_value")} />
              <Field label="JSON pointer" name="json_pointer" value={q("json_pointer")} hint="/customer/id" />
              <Field label="What stands there" name="json_equals" value={q("json_equals")} />
            </div>
          </details>
          <div class="buttons">
            {state && state.records.length > 0 && <button type="button" onClick={() => download(doc.name, state.records)}>Download {count(state.records.length)}</button>}
            {busy ? <button type="button" onClick={() => { abort.current?.abort(); setBusy(false); }}>Stop</button> : <button type="submit" class="primary">Look</button>}
          </div>
        </form>
      </Card>
      <Failure problem={problem} />
      {state && (
        <p class="progress" role="status">
          {busy && <span class="dot" aria-hidden="true" />}
          {count(state.records.length)} {narrowed ? "found" : "shown"}, {count(state.looked)} looked at{state.left > 0 ? `, ${count(state.left)} left` : ""}. Nothing is leased, and no attempt counted.
        </p>
      )}
      {state && <Records topic={doc.name} records={state.records} />}
      {state?.next && !busy && <p class="pager"><button type="button" onClick={() => run(state.next, state.records, state.looked)}>Look further</button></p>}
      <Command lines={[curl("POST", path, { ...asked.current }), "", `postroad consume ${quoted(doc.name)} --from ${quoted(q("from") || "-50")}`]} />
    </>
  );
}

const ROWS = 1000;
const SHOWN_A_TURN = 200;

function Tail({ name }: { name: string }) {
  const [rows, setRows] = useState<Rec[]>([]);
  const [running, setRunning] = useState(true);
  const [skipped, setSkipped] = useState(0);
  const [filter, setFilter] = useState("");
  const [problem, setProblem] = useState<Problem>();
  const [hidden, setHidden] = useState(document.hidden);
  useEffect(() => {
    const changed = () => setHidden(document.hidden);
    document.addEventListener("visibilitychange", changed);
    return () => document.removeEventListener("visibilitychange", changed);
  }, []);
  useEffect(() => {
    if (!running || hidden) return;
    const abort = new AbortController();
    let waiting: Rec[] = [];
    let missed = 0;
    // Drawn a few times a second, whatever comes.
    const drawing = window.setInterval(() => {
      if (missed) { const now = missed; missed = 0; setSkipped((it) => it + now); }
      if (waiting.length === 0) return;
      const more = waiting.reverse();
      waiting = [];
      setRows((last) => [...more, ...last].slice(0, ROWS));
    }, 250);
    follow(`/v1/topics/${seg(name)}/stream`, abort.signal, (kind, data) => {
      const record = JSON.parse(data);
      if (kind === "skipped") missed += record.to - record.from;
      else if (waiting.length >= SHOWN_A_TURN) missed++;
      else waiting.push(record);
    }).then(() => setRunning(false)).catch((error) => { if (error instanceof Problem) { setProblem(error); setRunning(false); } });
    return () => { abort.abort(); clearInterval(drawing); };
  }, [name, running, hidden]);
  const wanted = filter.toLowerCase();
  const shown = wanted ? rows.filter((it) => text(it.key).toLowerCase().includes(wanted) || text(it.value).toLowerCase().includes(wanted)) : rows;
  return (
    <>
      <div class="tools">
        <label class="filter"><span>Key or value has in it</span><input type="search" data-filter value={filter} onInput={(event) => setFilter(event.currentTarget.value)} spellcheck={false} /></label>
        <button type="button" class={running ? "" : "primary"} onClick={() => { setProblem(undefined); setRunning(!running); }}>{running ? "Pause" : "Go on"}</button>
        <button type="button" onClick={() => { setRows([]); setSkipped(0); }}>Clear</button>
        <span class="progress" role="status">
          {running && !hidden && <span class="dot" aria-hidden="true" />}
          {running ? "Follows what is appended" : "Paused"} · {count(shown.length)} of the last {count(ROWS)} kept{skipped > 0 && ` · skipped ${count(skipped)}`}
        </span>
      </div>
      <Failure problem={problem} />
      {shown.length === 0 ? <Empty title="Nothing yet">Records stand here as they are appended.</Empty> : <Records topic={name} records={shown.slice(0, 200)} />}
    </>
  );
}

function Publish({ doc }: { doc: Topic }) {
  const copied = place.value.query.get("copy");
  const [copy, setCopy] = useState<Rec | null>(null);
  const [done, setDone] = useState<string>();
  const [problem, setProblem] = useState<Problem>();
  useEffect(() => {
    if (!copied) return;
    const [partition, offset] = copied.split(".");
    get<{ records: Rec[] }>(`/v1/topics/${seg(doc.name)}/partitions/${partition}/records?from=${offset}&max_records=1`)
      .then((it) => setCopy(it.records[0] ?? null)).catch((error) => setProblem(error));
  }, [copied]);
  const path = `/v1/topics/${seg(doc.name)}/records`;
  const binary = copy && typeof copy.value === "object" && copy.value !== null;
  if (copied && !copy) return problem ? <Failure problem={problem} /> : <Loading what="the record" />;
  return (
    <Card title={copy ? `A copy of ${recordId(copy)}` : "A record"}>
      <Form button="Append" run={async (form) => {
        const value = (name: string) => String(form.get(name) ?? "");
        const record: Record<string, unknown> = {};
        const file = form.get("file");
        if (file instanceof File && file.size > 0) {
          let binary = "";
          for (const byte of new Uint8Array(await file.arrayBuffer())) binary += String.fromCharCode(byte);
          record.value = { base64: btoa(binary) };
        } else if (value("as") === "base64") record.value = { base64: value("value").replace(/\s/g, "") };
        else if (value("as") === "JSON") {
          try { record.value_json = JSON.parse(value("value")); }
          catch (error) { throw new Problem({ type: "", title: "The value is no JSON", status: -1, detail: String(error) }); }
        } else if (value("as") !== "none") record.value = value("value");
        if (value("key")) record.key = value("key");
        if (value("partition")) record.partition = Number(value("partition"));
        if (value("priority")) record.priority = Number(value("priority"));
        if (value("deliver")) record.deliver_at_ms = new Date(value("deliver")).getTime();
        if (value("expires")) record.expires_at_ms = new Date(value("expires")).getTime();
        record.headers = value("headers").split("\n").filter((line) => line.includes(":")).map((line) => ({ name: line.slice(0, line.indexOf(":")).trim(), value: line.slice(line.indexOf(":") + 1).trim() }));
        const answer: { items: { partition: number; offset: number; duplicate: boolean }[] } = await ask("POST", path, { records: [record] });
        const at = answer.items[0]!;
        setDone(`${at.partition}.${at.offset}`);
        tell(at.duplicate ? `It was there already, at ${at.partition}:${at.offset}.` : `Appended at ${at.partition}:${at.offset}, and durable.`);
      }}>
        <div class="row">
          <Field label="Key" name="key" value={copy ? text(copy.key) : ""} />
          <Field label="Value is" name="as" list={["text", "JSON", "base64", "none"]} value={binary ? "base64" : "text"} />
        </div>
        <Field label="Value" name="value" rows={8} value={copy ? (binary ? (copy.value as { base64: string }).base64 : text(copy.value)) : ""} />
        <Field label="Headers" name="headers" rows={3} hint="One a line: content-type: application/json" value={copy?.headers.filter((it) => !it.name.startsWith("postroad.")).map((it) => `${it.name}: ${text(it.value)}`).join("\n")} />
        <details>
          <summary>Partition, priority, times, a file</summary>
          <div class="row">
            <label class="field"><span>Partition</span><select name="partition"><option value="">by the key</option>{doc.partitions.map((it) => <option>{it.partition}</option>)}</select></label>
            <Field label="Priority" name="priority" type="number" hint="0 to 255" />
            <Field label="Deliver at" name="deliver" type="datetime-local" />
            <Field label="Not after" name="expires" type="datetime-local" />
            <Field label="A file as value" name="file" type="file" />
          </div>
        </details>
      </Form>
      {done && <p role="status">Appended at <a href={`${to("find")}?topic=${seg(doc.name)}&place=${done}`}>{done.replace(".", ":")}</a>.</p>}
      <Command lines={[curl("POST", path, { records: [{ key: "k", value: "v" }] }), "", `echo v | postroad produce ${quoted(doc.name)}`]} />
    </Card>
  );
}

function TopicGroups({ name }: { name: string }) {
  const groups = usePoll<Page<QueueRow>>(`/v1/topics/${seg(name)}/groups?limit=500`);
  return (
    <>
      <Failure problem={groups.error} />
      {groups.data && <LeaseGroups rows={groups.data.items} />}
      <Card title="New group">
        <Form button="Make it" run={async (form, element) => {
          const group = String(form.get("group"));
          await ask("PUT", `/v1/topics/${seg(name)}/groups/${seg(group)}`, { from: form.get("from") });
          element.reset(); groups.reload(); tell(`Group ${group} was made.`);
        }}>
          <div class="row"><Field label="Name" name="group" required hint="main is the topic as AMQP's queue" /><Field label="Begins with" name="from" list={["earliest", "latest"]} /></div>
        </Form>
      </Card>
    </>
  );
}

export function LeaseGroups({ rows }: { rows: QueueRow[] }) {
  if (rows.length === 0) return <Empty title="No groups here">Groups that settle each record by itself: queues of AMQP, share groups of Kafka, leases by HTTP.</Empty>;
  return (
    <Table label="Groups that settle records one by one" rows={rows} id={(it) => `${it.topic}/${it.group}`} columns={[
      { key: "topic", label: "Topic / group", cell: (it) => <a class="rowlink" href={to("topics", it.topic, "groups", it.group)}>{it.topic} / {it.group}</a>, sort: (it) => `${it.topic}/${it.group}` },
      { key: "lag", label: "Behind by", right: true, cell: (it) => span(it.lag_seconds), sort: (it) => it.lag_seconds },
      { key: "depth", label: "Waiting", right: true, cell: (it) => count(it.depth), sort: (it) => it.depth },
      { key: "leased", label: "Leased", right: true, cell: (it) => count(it.leased), sort: (it) => it.leased },
      { key: "delayed", label: "Delayed", right: true, cell: (it) => count(it.delayed), sort: (it) => it.delayed },
      { key: "consumers", label: "Consumers", right: true, cell: (it) => count(it.consumers), sort: (it) => it.consumers },
      { key: "in", label: "In", right: true, cell: (it) => rate(it.rates.published), sort: (it) => it.rates.published },
      { key: "settled", label: "Settled", right: true, cell: (it) => rate(it.rates.settled), sort: (it) => it.rates.settled },
      { key: "eta", label: "Caught up in", right: true, cell: (it) => it.paused ? <Tag tone="warn">paused</Tag> : it.depth > 0 && it.consumers === 0 && it.rates.delivered === 0 ? <Tag tone="warn">no consumers</Tag> : eta(it) },
    ]} />
  );
}

function Config({ name }: { name: string }) {
  const path = `/v1/topics/${seg(name)}/config`;
  const config = usePoll<{ items: ConfigValue[] }>(path, 0);
  const [editing, setEditing] = useState<string | null>(null);
  const change = async (key: string, value: string | null) => {
    await ask("PATCH", path, { config: { [key]: value } });
    setEditing(null); config.reload(); tell(`${key} was changed.`);
  };
  const own = config.data?.items.filter((it) => it.source === "topic").length ?? 0;
  return (
    <>
      <Failure problem={config.error} />
      {config.data && (
        <Card title="Configuration" aside={<span class="fine">{own} of {config.data.items.length} are the topic's own</span>}>
          <Table label="Configuration" rows={config.data.items} id={(it) => it.name} sortedBy="" columns={[
            { key: "name", label: "Name", cell: (it) => <><code>{it.name}</code><small class="doc">{it.documentation}</small></>, sort: (it) => it.name },
            { key: "value", label: "Value", cell: (it) => editing === it.name
              ? <Form button="Set" run={(form) => change(it.name, String(form.get("value")))}><Field label={`Value of ${it.name}`} name="value" value={it.value} /></Form>
              : <code>{it.value || "(empty)"}</code> },
            { key: "source", label: "From", cell: (it) => it.source === "topic" ? <Tag tone="good">topic</Tag> : <Tag>{it.source}</Tag>, sort: (it) => it.source },
            { key: "actions", label: "Actions", cell: (it) => (
              <span class="buttons left">
                <button type="button" onClick={() => setEditing(editing === it.name ? null : it.name)} aria-label={`${editing === it.name ? "Leave" : "Change"} ${it.name}`}>{editing === it.name ? "Leave it" : "Change"}</button>
                {it.source === "topic" && <button type="button" aria-label={`Reset ${it.name}`} onClick={() => confirm({ title: `Reset ${it.name}?`, text: <p>It becomes <code>{it.otherwise || "(empty)"}</code> again.</p>, button: "Reset", command: [curl("PATCH", path, { config: { [it.name]: null } })], run: () => change(it.name, null) })}>Reset</button>}
              </span>) },
          ]} />
        </Card>
      )}
    </>
  );
}
