import { useRef, useState } from "preact/hooks";
import { request, Problem, seg, usePoll } from "../api";
import { Card, Command, confirm, Empty, Failure, Header, Loading, Pager, Table, Tag, notify } from "../ui";
import { Records } from "../records";
import type { DeadCount, DeadLetter, Page } from "../types";
import { ago, count, curl, quoted, time } from "../format";
import { route, setQuery, hrefOf } from "../router";

export function DeadLetters() {
  const topics = usePoll<{ topics: string[] }>("/v1/dead-letters", 10_000);
  return (
    <>
      <Header title="Dead letters" sub="Rejected, expired and repeatedly failed records, by dead-letter topic." />
      <Failure problem={topics.error} />
      {!topics.data && !topics.error && <Loading subject="dead-letter topics" />}
      {topics.data?.topics.length === 0 && <Empty title="No dead-letter topics">Set <code>dead.letter.topic</code> and <code>attempts.max</code> of a group to keep records that exceed their attempts.</Empty>}
      {topics.data?.topics.map((topic) => <Counts key={topic} topic={topic} />)}
    </>
  );
}

function Counts({ topic }: { topic: string }) {
  const counts = usePoll<Page<DeadCount>>(`/v1/topics/${seg(topic)}/dead-letters`, 10_000);
  const rows = counts.data?.items ?? [];
  const total = rows.reduce((sum, row) => sum + row.records, 0);
  return (
    <Card title={topic} aside={<a href={hrefOf("dead-letters", topic)}>View and redrive</a>}>
      <Failure problem={counts.error} />
      {counts.data && rows.length === 0 && <p class="fine">No dead letters.</p>}
      {rows.length > 0 && (
        <>
          <p class="verdict"><strong>{count(total)}{counts.data?.next && " or more"}</strong> waiting</p>
          <Table label={`Dead letters of ${topic}`} rows={rows} id={(row) => `${row.source}|${row.group}|${row.reason}`} columns={[
            { key: "source", label: "Source topic", cell: (row) => <a class="rowlink" href={`${hrefOf("dead-letters", topic)}?source=${seg(row.source ?? "")}&reason=${seg(row.reason ?? "")}`}>{row.source ?? "unknown"}</a>, sort: (row) => row.source },
            { key: "group", label: "Group", cell: (row) => row.group ?? "–", sort: (row) => row.group },
            { key: "reason", label: "Reason", cell: (row) => <Tag tone="bad">{row.reason ?? "unknown"}</Tag>, sort: (row) => row.reason },
            { key: "records", label: "Records", right: true, cell: (row) => count(row.records), sort: (row) => row.records },
            { key: "last", label: "Newest", right: true, cell: (row) => ago(row.last_ms), sort: (row) => row.last_ms },
          ]} />
        </>
      )}
    </Card>
  );
}

/** Option without a limit on the redrive rate. */
const UNLIMITED = "unlimited";

interface MoveResult { records: number; left: number; next: string | null; until: number[] }

export function DeadLetterTopic({ topic }: { topic: string }) {
  const { query } = route.value;
  const filter: Record<string, string> = {};
  for (const name of ["source", "reason"]) if (query.get(name)) filter[name] = query.get(name)!;
  const params = new URLSearchParams({ limit: "50", ...filter });
  if (query.get("cursor")) params.set("cursor", query.get("cursor")!);
  const base = `/v1/topics/${seg(topic)}/dead-letters`;
  const list = usePoll<Page<DeadLetter>>(`${base}/records?${params}`);
  const counts = usePoll<Page<DeadCount>>(base);
  const [selected, setSelected] = useState(new Set<string>());
  const [work, setWork] = useState<{ verb: string; done: number; skipped: number; total: number } | null>(null);
  const [problem, setProblem] = useState<Problem>();
  const [speed, setSpeed] = useState(UNLIMITED);
  const [target, setTarget] = useState("");
  const stopped = useRef(false);
  const toggle = (id: string) => setSelected((last) => { const next = new Set(last); if (!next.delete(id)) next.add(id); return next; });
  const matching = (counts.data?.items ?? []).filter((row) => (!filter.source || row.source === filter.source) && (!filter.reason || row.reason === filter.reason)).reduce((sum, row) => sum + row.records, 0);
  const total = selected.size || matching;
  const flags = selected.size ? [...selected].map((id) => `--record ${id.replace(".", ":")}`).join(" ") : Object.entries(filter).map(([name, value]) => `--${name} ${quoted(value)}`).join(" ");

  /** Redrives or deletes page by page, to show progress and to stop on request. */
  async function move(action: "redrive" | "delete"): Promise<void> {
    const records = selected.size ? { records: [...selected].map((id) => { const [partition, offset] = id.split("."); return { partition: Number(partition), offset: Number(offset) }; }) } : {};
    const limit = speed !== UNLIMITED ? Number(speed) : 0;
    let [cursor, until, done, skipped]: [string | null, number[] | null, number, number] = [null, null, 0, 0];
    stopped.current = false;
    setProblem(undefined);
    try {
      do {
        const body = { ...filter, ...records, ...(action === "redrive" && target ? { to: target } : {}), limit: limit || 500, ...(cursor ? { cursor, until } : {}) };
        const result: MoveResult = await request("POST", `${base}/${action}`, body);
        done += result.records; skipped += result.left; cursor = result.next; until = result.until;
        setWork({ verb: action === "redrive" ? "redriven" : "deleted", done, skipped, total });
        if (limit && cursor) await new Promise((resolve) => setTimeout(resolve, 1000));
      } while (cursor && !stopped.current);
      notify(`${done === 1 ? "1 dead letter was" : `${count(done)} dead letters were`} ${action === "redrive" ? "redriven" : "deleted"}.`);
    } catch (error) { if (error instanceof Problem) setProblem(error); else throw error; }
    setSelected(new Set()); setWork(null); list.reload(); counts.reload();
  }
  const sources = [...new Set((counts.data?.items ?? []).map((row) => row.source).filter(Boolean))] as string[];
  const reasons = [...new Set((counts.data?.items ?? []).map((row) => row.reason).filter(Boolean))] as string[];
  return (
    <>
      <Header title={topic} trail={[["Dead letters", hrefOf("dead-letters")]]} sub={<><strong>{count(total)}</strong> {selected.size ? "selected" : "matching"}</>} />
      <Card>
        <div class="row">
          <label class="field"><span>Source topic</span><select onChange={(event) => { setQuery({ source: event.currentTarget.value || null, cursor: null }); setSelected(new Set()); }}><option value="">any</option>{sources.map((name) => <option selected={name === filter.source}>{name}</option>)}</select></label>
          <label class="field"><span>Reason</span><select onChange={(event) => { setQuery({ reason: event.currentTarget.value || null, cursor: null }); setSelected(new Set()); }}><option value="">any</option>{reasons.map((name) => <option selected={name === filter.reason}>{name}</option>)}</select></label>
          <label class="field"><span>Redrive to</span><input value={target} placeholder="source topic of each record" onInput={(event) => setTarget(event.currentTarget.value)} spellcheck={false} /></label>
          <label class="field"><span>Records per second</span><select value={speed} onChange={(event) => setSpeed(event.currentTarget.value)}><option>{UNLIMITED}</option><option>10</option><option>100</option><option>1000</option></select></label>
        </div>
        <div class="buttons">
          {work ? <><span class="progress" role="status"><span class="dot" aria-hidden="true" />{count(work.done)} of {count(work.total)} {work.verb}{work.skipped > 0 && `, ${count(work.skipped)} skipped`}</span><button type="button" onClick={() => { stopped.current = true; }}>Stop</button></> : (
            <>
              <button type="button" class="danger" disabled={total === 0} onClick={() => confirm({
                title: `Delete ${count(total)} dead letters?`, text: <p>The dead letters are settled and never delivered again.</p>, phrase: topic, danger: true, button: "Delete", command: [curl("POST", `${base}/delete`, filter), "", `postroad dead-letter delete ${quoted(topic)} ${flags || "--all"}`],
                run: async () => { void move("delete"); },
              })}>Delete {count(total)}</button>
              <button type="button" class="primary" disabled={total === 0} onClick={() => confirm({
                title: `Redrive ${count(total)} dead letters?`, text: <p>The dead letters are appended to <strong>{target || "their source topics"}</strong> and settled here. Later dead letters are not redriven.</p>, button: "Redrive", command: [curl("POST", `${base}/redrive`, { ...filter, ...(target ? { to: target } : {}) }), "", `postroad dead-letter redrive ${quoted(topic)} ${flags}${target ? ` --to ${quoted(target)}` : ""}`],
                run: async () => { void move("redrive"); },
              })}>Redrive {count(total)}</button>
            </>
          )}
        </div>
      </Card>
      <Failure problem={problem ?? list.error} />
      {list.data && <Records topic={topic} records={list.data.items} selection={{ selected, toggle }} state={(letter) => (
        <><Tag tone="bad">{letter.death.reason ?? "unknown"}</Tag> <small>{letter.death.topic} {letter.death.partition ?? ""}:{letter.death.offset ?? ""} · {letter.death.group} · {letter.death.attempts ?? "–"} attempts · {time(letter.death.time_ms)}</small></>
      )} />}
      {list.data && <Pager next={list.data.next} shown={list.data.items.length} />}
      <Command lines={[curl("GET", `${base}/records?${params}`)]} />
    </>
  );
}
