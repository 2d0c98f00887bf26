import { useEffect, useRef, useState } from "preact/hooks";
import { request, readEvents, get, Problem, seg, usePoll } from "../api";
import { Card, Command, confirm, Empty, Fact, Failure, Field, Filter, Form, Header, Loading, Pager, Sparkline, Table, Tabs, Tag, notify } from "../ui";
import { download, recordId, Records } from "../records";
import type { ConfigValue, Page, QueueRow, StoredRecord, SearchPage, Topic, TopicRow } from "../types";
import { count, curl, quoted, rate, duration, text, time } from "../format";
import { navigate, route, setQuery, hrefOf } from "../router";
import { eta } from "./overview";

export function Topics() {
  const { query } = route.value;
  const [creating, setCreating] = useState(false);
  const params = new URLSearchParams({ limit: "100", counts: "true" });
  for (const name of ["filter", "cursor"]) if (query.get(name)) params.set(name, query.get(name)!);
  const list = usePoll<Page<TopicRow>>(`/v1/topics?${params}`);
  return (
    <>
      <Header title="Topics" sub="Each AMQP queue is also a topic."><button type="button" class="primary" aria-expanded={creating} onClick={() => setCreating(!creating)}>New topic</button></Header>
      {creating && (
        <Card title="New topic">
          <Form button="Create topic" run={async (form) => {
            const name = String(form.get("name"));
            const config: Record<string, string> = {};
            for (const line of String(form.get("config")).split("\n")) {
              const at = line.indexOf("=");
              if (at > 0) config[line.slice(0, at).trim()] = line.slice(at + 1).trim();
            }
            await request("POST", "/v1/topics", { name, partitions: Number(form.get("partitions")), config });
            notify(`Created topic ${name}.`);
            navigate(hrefOf("topics", name));
          }}>
            <div class="row">
              <Field label="Name" name="name" required />
              <Field label="Partitions" name="partitions" type="number" value="1" required />
            </div>
            <Field label="Configuration" name="config" rows={3} hint="One setting per line: retention.ms=86400000" />
          </Form>
        </Card>
      )}
      <div class="tools"><Filter label="Filter topics" /></div>
      <Failure problem={list.error} />
      {!list.data && !list.error && <Loading subject="topics" />}
      {list.data && list.data.items.length === 0 && <Empty title={query.get("filter") ? "No topic matches the filter" : "No topics yet"}>Create a topic here, or let a client create one by producing to it.</Empty>}
      {list.data && list.data.items.length > 0 && (
        <>
          <Table label="Topics" rows={list.data.items} id={(row) => row.name} columns={[
            { key: "name", label: "Name", cell: (row) => <a class="rowlink" href={hrefOf("topics", row.name)}>{row.name}</a>, sort: (row) => row.name },
            { key: "partitions", label: "Partitions", right: true, cell: (row) => count(row.partitions), sort: (row) => row.partitions },
            { key: "records", label: "Records", right: true, cell: (row) => count(row.records), sort: (row) => row.records ?? null },
            { key: "appended", label: "Total appended", right: true, cell: (row) => count(row.appended), sort: (row) => row.appended ?? null },
            { key: "groups", label: "Lease groups", right: true, cell: (row) => count(row.groups), sort: (row) => row.groups },
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
    text: <p>This permanently deletes <strong>{count(records(doc))} records</strong> and {count(doc?.groups.length)} groups.</p>,
    phrase: name, button: "Delete topic", danger: true,
    command: [curl("DELETE", `/v1/topics/${seg(name)}`), "", `postroad topic delete ${quoted(name)}`],
    run: async () => { await request("DELETE", `/v1/topics/${seg(name)}`); notify(`Deleted topic ${name}.`); navigate(hrefOf("topics")); },
  });
  return (
    <>
      <Header title={name} trail={[["Topics", hrefOf("topics")]]} sub={doc && <>Created {time(doc.created_ms)} · id <code>{doc.id}</code></>}>
        <a class="button" href={hrefOf("topics", name, "publish")}>Publish</a>
        <button type="button" class="danger" onClick={remove} disabled={!doc}>Delete</button>
      </Header>
      <Tabs base={["topics", name]} current={tab} tabs={[["", "Overview"], ["records", "Records"], ["tail", "Live tail"], ["publish", "Publish"], ["groups", "Groups"], ["config", "Configuration"]]} />
      <Failure problem={topic.error} />
      {!doc && !topic.error && <Loading subject="topic" />}
      {doc && tab === "" && <Partitions doc={doc} previous={topic.previous} />}
      {doc && tab === "records" && <Browse doc={doc} />}
      {doc && tab === "tail" && <Tail name={name} />}
      {doc && tab === "publish" && <Publish doc={doc} />}
      {doc && tab === "groups" && <TopicGroups name={name} />}
      {doc && tab === "config" && <Config name={name} />}
    </>
  );
}

const records = (doc: Topic | undefined) => doc?.partitions.reduce((all, partition) => all + partition.end - partition.start, 0);
const appended = (doc: Topic) => doc.partitions.reduce((all, partition) => all + partition.end, 0);

function Partitions({ doc, previous }: { doc: Topic; previous: Topic | undefined }) {
  const series = useRef<{ name: string; values: number[]; at: number }>({ name: doc.name, values: [], at: 0 });
  if (series.current.name !== doc.name) series.current = { name: doc.name, values: [], at: 0 };
  useEffect(() => {
    const now = performance.now();
    if (previous && series.current.at) {
      series.current.values = [...series.current.values, Math.max(0, (appended(doc) - appended(previous)) / ((now - series.current.at) / 1000))].slice(-60);
    }
    series.current.at = now;
  }, [doc]);
  const largest = Math.max(...doc.partitions.map((partition) => partition.end - partition.start), 1);
  const all = records(doc) ?? 0;
  const values = series.current.values;
  return (
    <>
      <div class="grid two">
        <Card>
          <dl class="facts">
            <Fact label="Records" value={count(all)} note="end offset minus start offset" />
            <Fact label="Total appended" value={count(appended(doc))} />
            <Fact label="Partitions" value={count(doc.partitions.length)} />
            <Fact label="Skew" value={all ? `${(largest / (all / doc.partitions.length)).toFixed(1)} ×` : "–"} note="largest partition against the average" />
          </dl>
        </Card>
        <Card title="Append rate">
          <p class="big">{values.length ? rate(values.at(-1)) : "…"}</p>
          <Sparkline values={values} label={`Append rate: now ${rate(values.at(-1))}`} />
        </Card>
      </div>
      <Card title="Partitions">
        <Table label="Partitions" rows={doc.partitions} id={(row) => String(row.partition)} columns={[
          { key: "partition", label: "Partition", cell: (row) => <a class="rowlink" href={`${hrefOf("topics", doc.name, "records")}?partition=${row.partition}`}>{row.partition}</a>, sort: (row) => row.partition },
          { key: "start", label: "Start", right: true, cell: (row) => count(row.start), sort: (row) => row.start },
          { key: "end", label: "End", right: true, cell: (row) => count(row.end), sort: (row) => row.end },
          { key: "records", label: "Records", right: true, cell: (row) => count(row.end - row.start), sort: (row) => row.end - row.start },
          { key: "share", label: "Share of the largest", cell: (row) => <meter class="bar" min={0} max={largest} value={row.end - row.start} aria-label={`Partition ${row.partition}`} /> },
        ]} />
      </Card>
    </>
  );
}

interface SearchState { records: StoredRecord[]; next: string | null; searched: number; remaining: number }

function Browse({ doc }: { doc: Topic }) {
  const { query } = route.value;
  const [state, setState] = useState<SearchState | null>(null);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem>();
  const abort = useRef<AbortController | undefined>(undefined);
  const lastQuery = useRef<Record<string, unknown>>({});
  const path = `/v1/topics/${seg(doc.name)}/search`;

  /** Searches until a page of matches is full, the range ends, or the user stops it. */
  async function run(cursor: string | null, previous: StoredRecord[], searched: number): Promise<void> {
    abort.current?.abort();
    const controller = abort.current = new AbortController();
    setBusy(true); setProblem(undefined);
    let matches = previous;
    const target = previous.length + 50;
    try {
      for (;;) {
        const body = { ...lastQuery.current, max_matches: target - matches.length, ...(cursor ? { cursor } : {}) };
        const page: SearchPage = await request("POST", path, body, controller.signal);
        matches = [...matches, ...page.records];
        searched += page.looked_at;
        cursor = page.next;
        setState({ records: matches, next: cursor, searched, remaining: page.left });
        if (!cursor || matches.length >= target) break;
      }
    } catch (error) {
      if (error instanceof Problem) setProblem(error);
    }
    if (abort.current === controller) setBusy(false);
  }

  function search(form: FormData): void {
    const value = (name: string) => String(form.get(name) ?? "").trim();
    const filter: Record<string, string> = {};
    for (const name of ["key", "key_prefix", "contains", "header", "header_value", "json_pointer", "json_equals"]) if (value(name)) filter[name] = value(name);
    const from = value("from") || "-50";
    setQuery({ from, partition: value("partition") || null, ...Object.fromEntries(["key", "key_prefix", "contains", "header", "header_value", "json_pointer", "json_equals"].map((name) => [name, value(name) || null])) });
    lastQuery.current = { filter, from, ...(value("partition") ? { partition: Number(value("partition")) } : {}) };
    void run(null, [], 0);
  }
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => { if (form.current) search(new FormData(form.current)); return () => abort.current?.abort(); }, [doc.name]);
  const param = (name: string) => query.get(name) ?? "";
  const isFiltered = ["key", "key_prefix", "contains", "header", "json_pointer"].some((name) => param(name));
  return (
    <>
      <Card>
        <form class="form" ref={form} onSubmit={(event) => { event.preventDefault(); search(new FormData(event.currentTarget as HTMLFormElement)); }}>
          <div class="row">
            <Field label="From" name="from" value={param("from") || "-50"} hint="earliest, -50 of each partition, 15m ago, 2026-03-01T12:00:00Z; an offset in one partition" />
            <label class="field"><span>Partition</span>
              <select name="partition"><option value="">all</option>{doc.partitions.map((partition) => <option value={partition.partition} selected={param("partition") === String(partition.partition)}>{partition.partition}</option>)}</select>
            </label>
            <Field label="Value contains" name="contains" value={param("contains")} />
            <Field label="Key" name="key" value={param("key")} />
          </div>
          <details open={Boolean(param("key_prefix") || param("header") || param("json_pointer"))}>
            <summary>More filters</summary>
            <div class="row">
              <Field label="Key prefix" name="key_prefix" value={param("key_prefix")} />
              <Field label="Header" name="header" value={param("header")} />
              <Field label="Header value" name="header_value" value={param("header_value")} />
              <Field label="JSON pointer" name="json_pointer" value={param("json_pointer")} hint="/customer/id" />
              <Field label="JSON value" name="json_equals" value={param("json_equals")} />
            </div>
          </details>
          <div class="buttons">
            {state && state.records.length > 0 && <button type="button" onClick={() => download(doc.name, state.records)}>Download {count(state.records.length)}</button>}
            {busy ? <button type="button" onClick={() => { abort.current?.abort(); setBusy(false); }}>Stop</button> : <button type="submit" class="primary">Search</button>}
          </div>
        </form>
      </Card>
      <Failure problem={problem} />
      {state && (
        <p class="progress" role="status">
          {busy && <span class="dot" aria-hidden="true" />}
          {count(state.records.length)} {isFiltered ? "found" : "shown"}, {count(state.searched)} searched{state.remaining > 0 ? `, ${count(state.remaining)} remaining` : ""}. Browsing leases no record and counts no attempt.
        </p>
      )}
      {state && <Records topic={doc.name} records={state.records} />}
      {state?.next && !busy && <p class="pager"><button type="button" onClick={() => run(state.next, state.records, state.searched)}>Continue search</button></p>}
      <Command lines={[curl("POST", path, { ...lastQuery.current }), "", `postroad consume ${quoted(doc.name)} --from ${quoted(param("from") || "-50")}`]} />
    </>
  );
}

const ROWS_MAX = 1000;
const ROWS_PER_RENDER = 200;

function Tail({ name }: { name: string }) {
  const [rows, setRows] = useState<StoredRecord[]>([]);
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
    let pending: StoredRecord[] = [];
    let dropped = 0;
    // Limits rendering to a few times per second.
    const timer = window.setInterval(() => {
      if (dropped) { const added = dropped; dropped = 0; setSkipped((total) => total + added); }
      if (pending.length === 0) return;
      const newest = pending.reverse();
      pending = [];
      setRows((last) => [...newest, ...last].slice(0, ROWS_MAX));
    }, 250);
    readEvents(`/v1/topics/${seg(name)}/stream`, abort.signal, (kind, data) => {
      const record = JSON.parse(data);
      if (kind === "skipped") dropped += record.to - record.from;
      else if (pending.length >= ROWS_PER_RENDER) dropped++;
      else pending.push(record);
    }).then(() => setRunning(false)).catch((error) => { if (error instanceof Problem) { setProblem(error); setRunning(false); } });
    return () => { abort.abort(); clearInterval(timer); };
  }, [name, running, hidden]);
  const needle = filter.toLowerCase();
  const shown = needle ? rows.filter((record) => text(record.key).toLowerCase().includes(needle) || text(record.value).toLowerCase().includes(needle)) : rows;
  return (
    <>
      <div class="tools">
        <label class="filter"><span>Key or value contains</span><input type="search" data-filter value={filter} onInput={(event) => setFilter(event.currentTarget.value)} spellcheck={false} /></label>
        <button type="button" class={running ? "" : "primary"} onClick={() => { setProblem(undefined); setRunning(!running); }}>{running ? "Pause" : "Resume"}</button>
        <button type="button" onClick={() => { setRows([]); setSkipped(0); }}>Clear</button>
        <span class="progress" role="status">
          {running && !hidden && <span class="dot" aria-hidden="true" />}
          {running ? "Following new records" : "Paused"} · {count(shown.length)} of the last {count(ROWS_MAX)} kept{skipped > 0 && ` · skipped ${count(skipped)}`}
        </span>
      </div>
      <Failure problem={problem} />
      {shown.length === 0 ? <Empty title="No new records">Records appear here when they are appended.</Empty> : <Records topic={name} records={shown.slice(0, 200)} />}
    </>
  );
}

function Publish({ doc }: { doc: Topic }) {
  const source = route.value.query.get("copy");
  const [copy, setCopy] = useState<StoredRecord | null>(null);
  const [appendedAt, setAppendedAt] = useState<string>();
  const [problem, setProblem] = useState<Problem>();
  useEffect(() => {
    if (!source) return;
    const [partition, offset] = source.split(".");
    get<{ records: StoredRecord[] }>(`/v1/topics/${seg(doc.name)}/partitions/${partition}/records?from=${offset}&max_records=1`)
      .then((response) => setCopy(response.records[0] ?? null)).catch((error) => setProblem(error));
  }, [source]);
  const path = `/v1/topics/${seg(doc.name)}/records`;
  const binary = copy && typeof copy.value === "object" && copy.value !== null;
  if (source && !copy) return problem ? <Failure problem={problem} /> : <Loading subject="record" />;
  return (
    <Card title={copy ? `Copy of record ${recordId(copy)}` : "New record"}>
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
          catch (error) { throw new Problem({ type: "", title: "The value is not valid JSON", status: -1, detail: String(error) }); }
        } else if (value("as") !== "none") record.value = value("value");
        if (value("key")) record.key = value("key");
        if (value("partition")) record.partition = Number(value("partition"));
        if (value("priority")) record.priority = Number(value("priority"));
        if (value("deliver")) record.deliver_at_ms = new Date(value("deliver")).getTime();
        if (value("expires")) record.expires_at_ms = new Date(value("expires")).getTime();
        record.headers = value("headers").split("\n").filter((line) => line.includes(":")).map((line) => ({ name: line.slice(0, line.indexOf(":")).trim(), value: line.slice(line.indexOf(":") + 1).trim() }));
        const response: { items: { partition: number; offset: number; duplicate: boolean }[] } = await request("POST", path, { records: [record] });
        const item = response.items[0]!;
        setAppendedAt(`${item.partition}.${item.offset}`);
        notify(item.duplicate ? `Duplicate of the record at ${item.partition}:${item.offset}.` : `Appended at ${item.partition}:${item.offset}, durable.`);
      }}>
        <div class="row">
          <Field label="Key" name="key" value={copy ? text(copy.key) : ""} />
          <Field label="Value format" name="as" list={["text", "JSON", "base64", "none"]} value={binary ? "base64" : "text"} />
        </div>
        <Field label="Value" name="value" rows={8} value={copy ? (binary ? (copy.value as { base64: string }).base64 : text(copy.value)) : ""} />
        <Field label="Headers" name="headers" rows={3} hint="One header per line: content-type: application/json" value={copy?.headers.filter((header) => !header.name.startsWith("postroad.")).map((header) => `${header.name}: ${text(header.value)}`).join("\n")} />
        <details>
          <summary>Partition, priority, times, file</summary>
          <div class="row">
            <label class="field"><span>Partition</span><select name="partition"><option value="">by the key</option>{doc.partitions.map((partition) => <option>{partition.partition}</option>)}</select></label>
            <Field label="Priority" name="priority" type="number" hint="0 to 255" />
            <Field label="Deliver at" name="deliver" type="datetime-local" />
            <Field label="Expires at" name="expires" type="datetime-local" />
            <Field label="Value from a file" name="file" type="file" />
          </div>
        </details>
      </Form>
      {appendedAt && <p role="status">Appended at <a href={`${hrefOf("find")}?topic=${seg(doc.name)}&place=${appendedAt}`}>{appendedAt.replace(".", ":")}</a>.</p>}
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
        <Form button="Create group" run={async (form, element) => {
          const group = String(form.get("group"));
          await request("PUT", `/v1/topics/${seg(name)}/groups/${seg(group)}`, { from: form.get("from") });
          element.reset(); groups.reload(); notify(`Created group ${group}.`);
        }}>
          <div class="row"><Field label="Name" name="group" required hint="The AMQP queue uses the group main" /><Field label="Start at" name="from" list={["earliest", "latest"]} /></div>
        </Form>
      </Card>
    </>
  );
}

export function LeaseGroups({ rows }: { rows: QueueRow[] }) {
  if (rows.length === 0) return <Empty title="No lease groups">Lease groups settle each record individually: AMQP queues, Kafka share groups, HTTP leases.</Empty>;
  return (
    <Table label="Lease groups" rows={rows} id={(row) => `${row.topic}/${row.group}`} columns={[
      { key: "topic", label: "Topic / group", cell: (row) => <a class="rowlink" href={hrefOf("topics", row.topic, "groups", row.group)}>{row.topic} / {row.group}</a>, sort: (row) => `${row.topic}/${row.group}` },
      { key: "lag", label: "Lag", right: true, cell: (row) => duration(row.lag_seconds), sort: (row) => row.lag_seconds },
      { key: "depth", label: "Depth", right: true, cell: (row) => count(row.depth), sort: (row) => row.depth },
      { key: "leased", label: "Leased", right: true, cell: (row) => count(row.leased), sort: (row) => row.leased },
      { key: "delayed", label: "Delayed", right: true, cell: (row) => count(row.delayed), sort: (row) => row.delayed },
      { key: "consumers", label: "Consumers", right: true, cell: (row) => count(row.consumers), sort: (row) => row.consumers },
      { key: "in", label: "In", right: true, cell: (row) => rate(row.rates.published), sort: (row) => row.rates.published },
      { key: "settled", label: "Settled", right: true, cell: (row) => rate(row.rates.settled), sort: (row) => row.rates.settled },
      { key: "eta", label: "Time to catch up", right: true, cell: (row) => row.paused ? <Tag tone="warn">paused</Tag> : row.depth > 0 && row.consumers === 0 && row.rates.delivered === 0 ? <Tag tone="warn">no consumers</Tag> : eta(row) },
    ]} />
  );
}

function Config({ name }: { name: string }) {
  const path = `/v1/topics/${seg(name)}/config`;
  const config = usePoll<{ items: ConfigValue[] }>(path, 0);
  const [editing, setEditing] = useState<string | null>(null);
  const change = async (key: string, value: string | null) => {
    await request("PATCH", path, { config: { [key]: value } });
    setEditing(null); config.reload(); notify(`Changed ${key}.`);
  };
  const ownCount = config.data?.items.filter((setting) => setting.source === "topic").length ?? 0;
  return (
    <>
      <Failure problem={config.error} />
      {config.data && (
        <Card title="Configuration" aside={<span class="fine">{ownCount} of {config.data.items.length} set on the topic</span>}>
          <Table label="Configuration" rows={config.data.items} id={(row) => row.name} sortedBy="" columns={[
            { key: "name", label: "Name", cell: (row) => <><code>{row.name}</code><small class="doc">{row.documentation}</small></>, sort: (row) => row.name },
            { key: "value", label: "Value", cell: (row) => editing === row.name
              ? <Form button="Save" run={(form) => change(row.name, String(form.get("value")))}><Field label={`Value of ${row.name}`} name="value" value={row.value} /></Form>
              : <code>{row.value || "(empty)"}</code> },
            { key: "source", label: "Source", cell: (row) => row.source === "topic" ? <Tag tone="good">topic</Tag> : <Tag>{row.source}</Tag>, sort: (row) => row.source },
            { key: "actions", label: "Actions", cell: (row) => (
              <span class="buttons left">
                <button type="button" onClick={() => setEditing(editing === row.name ? null : row.name)} aria-label={`${editing === row.name ? "Cancel editing" : "Edit"} ${row.name}`}>{editing === row.name ? "Cancel" : "Edit"}</button>
                {row.source === "topic" && <button type="button" aria-label={`Reset ${row.name}`} onClick={() => confirm({ title: `Reset ${row.name}?`, text: <p>Its value becomes <code>{row.otherwise || "(empty)"}</code>.</p>, button: "Reset", command: [curl("PATCH", path, { config: { [row.name]: null } })], run: () => change(row.name, null) })}>Reset</button>}
              </span>) },
          ]} />
        </Card>
      )}
    </>
  );
}
