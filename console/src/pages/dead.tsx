import { useRef, useState } from "preact/hooks";
import { ask, Problem, seg, usePoll } from "../api";
import { Card, Command, confirm, Empty, Failure, Header, Loading, Pager, Table, Tag, tell } from "../ui";
import { Records } from "../records";
import type { DeadCount, DeadLetter, Page } from "../types";
import { ago, count, curl, quoted, time } from "../words";
import { place, refine, to } from "../router";

export function DeadLetters() {
  const topics = usePoll<{ topics: string[] }>("/v1/dead-letters", 10_000);
  return (
    <>
      <Header title="Dead letters" sub="Records that nobody could settle, by the topics that take them." />
      <Failure problem={topics.error} />
      {!topics.data && !topics.error && <Loading what="topics with dead letters" />}
      {topics.data?.topics.length === 0 && <Empty title="No topic takes dead letters">A group that is set to <code>dead.letter.topic</code> and <code>attempts.max</code> sends there what fails too often.</Empty>}
      {topics.data?.topics.map((topic) => <Counts key={topic} topic={topic} />)}
    </>
  );
}

function Counts({ topic }: { topic: string }) {
  const counts = usePoll<Page<DeadCount>>(`/v1/topics/${seg(topic)}/dead-letters`, 10_000);
  const rows = counts.data?.items ?? [];
  const all = rows.reduce((sum, it) => sum + it.records, 0);
  return (
    <Card title={topic} aside={<a href={to("dead-letters", topic)}>Show and redrive</a>}>
      <Failure problem={counts.error} />
      {counts.data && rows.length === 0 && <p class="fine">None wait here.</p>}
      {rows.length > 0 && (
        <>
          <p class="verdict"><strong>{count(all)}{counts.data?.next && " or more"}</strong> wait</p>
          <Table label={`Dead letters of ${topic}`} rows={rows} id={(it) => `${it.source}|${it.group}|${it.reason}`} columns={[
            { key: "source", label: "From", cell: (it) => <a class="rowlink" href={`${to("dead-letters", topic)}?source=${seg(it.source ?? "")}&reason=${seg(it.reason ?? "")}`}>{it.source ?? "not said"}</a>, sort: (it) => it.source },
            { key: "group", label: "Group", cell: (it) => it.group ?? "–", sort: (it) => it.group },
            { key: "reason", label: "Reason", cell: (it) => <Tag tone="bad">{it.reason ?? "not said"}</Tag>, sort: (it) => it.reason },
            { key: "records", label: "Records", right: true, cell: (it) => count(it.records), sort: (it) => it.records },
            { key: "last", label: "Last", right: true, cell: (it) => ago(it.last_ms), sort: (it) => it.last_ms },
          ]} />
        </>
      )}
    </Card>
  );
}

interface Moved { records: number; left: number; next: string | null; until: number[] }

export function DeadLettersOf({ topic }: { topic: string }) {
  const { query } = place.value;
  const only: Record<string, string> = {};
  for (const name of ["source", "reason"]) if (query.get(name)) only[name] = query.get(name)!;
  const params = new URLSearchParams({ limit: "50", ...only });
  if (query.get("cursor")) params.set("cursor", query.get("cursor")!);
  const base = `/v1/topics/${seg(topic)}/dead-letters`;
  const list = usePoll<Page<DeadLetter>>(`${base}/records?${params}`);
  const counts = usePoll<Page<DeadCount>>(base);
  const [chosen, setChosen] = useState(new Set<string>());
  const [work, setWork] = useState<{ what: string; done: number; left: number; of: number } | null>(null);
  const [problem, setProblem] = useState<Problem>();
  const [speed, setSpeed] = useState("all at once");
  const [target, setTarget] = useState("");
  const stopped = useRef(false);
  const toggle = (id: string) => setChosen((last) => { const next = new Set(last); if (!next.delete(id)) next.add(id); return next; });
  const matching = (counts.data?.items ?? []).filter((it) => (!only.source || it.source === only.source) && (!only.reason || it.reason === only.reason)).reduce((sum, it) => sum + it.records, 0);
  const of = chosen.size || matching;
  const flags = chosen.size ? [...chosen].map((id) => `--record ${id.replace(".", ":")}`).join(" ") : Object.entries(only).map(([name, value]) => `--${name} ${quoted(value)}`).join(" ");

  /** Stretch by stretch, so that it shows how far it is, and stops when somebody says so. */
  async function move(action: "redrive" | "delete"): Promise<void> {
    const records = chosen.size ? { records: [...chosen].map((id) => { const [partition, offset] = id.split("."); return { partition: Number(partition), offset: Number(offset) }; }) } : {};
    const slow = speed !== "all at once" ? Number(speed) : 0;
    let [cursor, until, done, left]: [string | null, number[] | null, number, number] = [null, null, 0, 0];
    stopped.current = false;
    setProblem(undefined);
    try {
      do {
        const body = { ...only, ...records, ...(action === "redrive" && target ? { to: target } : {}), limit: slow || 500, ...(cursor ? { cursor, until } : {}) };
        const moved: Moved = await ask("POST", `${base}/${action}`, body);
        done += moved.records; left += moved.left; cursor = moved.next; until = moved.until;
        setWork({ what: action === "redrive" ? "redriven" : "deleted", done, left, of });
        if (slow && cursor) await new Promise((resolve) => setTimeout(resolve, 1000));
      } while (cursor && !stopped.current);
      tell(`${done === 1 ? "1 dead letter was" : `${count(done)} dead letters were`} ${action === "redrive" ? "redriven" : "deleted"}.`);
    } catch (error) { if (error instanceof Problem) setProblem(error); else throw error; }
    setChosen(new Set()); setWork(null); list.reload(); counts.reload();
  }
  const sources = [...new Set((counts.data?.items ?? []).map((it) => it.source).filter(Boolean))] as string[];
  const reasons = [...new Set((counts.data?.items ?? []).map((it) => it.reason).filter(Boolean))] as string[];
  return (
    <>
      <Header title={topic} trail={[["Dead letters", to("dead-letters")]]} sub={<><strong>{count(of)}</strong> {chosen.size ? "chosen" : "match"}</>} />
      <Card>
        <div class="row">
          <label class="field"><span>From the topic</span><select onChange={(event) => { refine({ source: event.currentTarget.value || null, cursor: null }); setChosen(new Set()); }}><option value="">any</option>{sources.map((it) => <option selected={it === only.source}>{it}</option>)}</select></label>
          <label class="field"><span>Reason</span><select onChange={(event) => { refine({ reason: event.currentTarget.value || null, cursor: null }); setChosen(new Set()); }}><option value="">any</option>{reasons.map((it) => <option selected={it === only.reason}>{it}</option>)}</select></label>
          <label class="field"><span>Redrive to</span><input value={target} placeholder="where each came from" onInput={(event) => setTarget(event.currentTarget.value)} spellcheck={false} /></label>
          <label class="field"><span>How fast, a second</span><select value={speed} onChange={(event) => setSpeed(event.currentTarget.value)}><option>all at once</option><option>10</option><option>100</option><option>1000</option></select></label>
        </div>
        <div class="buttons">
          {work ? <><span class="progress" role="status"><span class="dot" aria-hidden="true" />{count(work.done)} of {count(work.of)} {work.what}{work.left > 0 && `, ${count(work.left)} left alone`}</span><button type="button" onClick={() => { stopped.current = true; }}>Stop</button></> : (
            <>
              <button type="button" class="danger" disabled={of === 0} onClick={() => confirm({
                title: `Delete ${count(of)} dead letters?`, text: <p>They are settled, and nobody gets them again.</p>, type: topic, danger: true, button: "Delete", command: [curl("POST", `${base}/delete`, only), "", `postroad dead-letter delete ${quoted(topic)} ${flags || "--all"}`],
                run: async () => { void move("delete"); },
              })}>Delete {count(of)}</button>
              <button type="button" class="primary" disabled={of === 0} onClick={() => confirm({
                title: `Redrive ${count(of)} dead letters?`, text: <p>They are appended to <strong>{target || "the topic that each came from"}</strong> again, and settled here. What dies meanwhile is left alone.</p>, button: "Redrive", command: [curl("POST", `${base}/redrive`, { ...only, ...(target ? { to: target } : {}) }), "", `postroad dead-letter redrive ${quoted(topic)} ${flags}${target ? ` --to ${quoted(target)}` : ""}`],
                run: async () => { void move("redrive"); },
              })}>Redrive {count(of)}</button>
            </>
          )}
        </div>
      </Card>
      <Failure problem={problem ?? list.error} />
      {list.data && <Records topic={topic} records={list.data.items} pick={{ chosen, toggle }} extra={(it) => (
        <><Tag tone="bad">{it.death.reason ?? "not said"}</Tag> <small>{it.death.topic} {it.death.partition ?? ""}:{it.death.offset ?? ""} · {it.death.group} · {it.death.attempts ?? "–"} attempts · {time(it.death.time_ms)}</small></>
      )} />}
      {list.data && <Pager next={list.data.next} shown={list.data.items.length} />}
      <Command lines={[curl("GET", `${base}/records?${params}`)]} />
    </>
  );
}
