import { useState } from "preact/hooks";
import { ask, seg, usePoll } from "../api";
import { Card, Command, confirm, Empty, Fact, Failure, Filter, Header, Loading, Pager, Table, Tabs, Tag, tell } from "../ui";
import { Records } from "../records";
import { OffsetGroups } from "./offsets";
import { Seek } from "../seek";
import type { Page, QueueReport, QueueRow, WaitingRecord } from "../types";
import { bytes, count, curl, quoted, rate, span, time } from "../words";
import { go, place, to } from "../router";
import { LeaseGroups } from "./topics";
import { eta } from "./overview";

export function Groups({ tab }: { tab: string }) {
  return (
    <>
      <Header title="Groups" sub="Who consumes, and how far each is behind." />
      <Tabs base={["groups"]} current={tab} tabs={[["", "Settle one by one"], ["offsets", "Commit offsets"]]} />
      {tab === "offsets" ? <OffsetGroups /> : <AllLeaseGroups />}
    </>
  );
}

function AllLeaseGroups() {
  const { query } = place.value;
  const params = new URLSearchParams({ limit: "100" });
  for (const name of ["filter", "cursor"]) if (query.get(name)) params.set(name, query.get(name)!);
  const list = usePoll<Page<QueueRow>>(`/v1/lease-groups?${params}`);
  return (
    <>
      <div class="tools"><Filter label="Filter topics and groups" /></div>
      <Failure problem={list.error} />
      {!list.data && !list.error && <Loading what="groups" />}
      {list.data && <><LeaseGroups rows={list.data.items} /><Pager next={list.data.next} shown={list.data.items.length} /></>}
    </>
  );
}

const STATES: Record<string, "good" | "warn" | "bad" | "calm"> = { ready: "good", leased: "calm", delayed: "calm", blocked: "warn", "dead-lettering": "bad" };

export function LeaseGroup({ topic, group, tab }: { topic: string; group: string; tab: string }) {
  const path = `/v1/topics/${seg(topic)}/groups/${seg(group)}`;
  const report = usePoll<QueueReport>(path, 2000);
  const doc = report.data;
  const it = doc?.summary;
  const name = `${quoted(topic)}${group === "main" ? "" : ` --group ${quoted(group)}`}`;
  const after = async (text: string) => { report.reload(); tell(text); };
  return (
    <>
      <Header title={`${topic} / ${group}`} trail={[["Topics", to("topics")], [topic, to("topics", topic)], ["Groups", to("topics", topic, "groups")]]} sub={doc && <>Settles one by one · made {time(doc.created_ms)}</>}>
        {it && <button type="button" onClick={() => confirm({
          title: it.paused ? "Go on delivering?" : "Pause delivering?",
          text: <p>{it.paused ? `${count(it.ready)} records are ready.` : "Nothing more is delivered until it goes on. What is leased can be settled."}</p>,
          button: it.paused ? "Go on" : "Pause", command: [curl("PATCH", path, { paused: !it.paused }), "", `postroad queue ${it.paused ? "resume" : "pause"} ${name}`],
          run: async () => { await ask("PATCH", path, { paused: !it.paused }); await after(it.paused ? "It goes on." : "It is paused."); },
        })}>{it.paused ? "Go on" : "Pause"}</button>}
        {it && <button type="button" class="danger" disabled={it.depth === 0} onClick={() => confirm({
          title: `Purge ${topic} / ${group}?`, text: <p>About <strong>{count(it.depth - it.leased)} records</strong> are settled without being delivered. {count(it.leased)} that are leased stay.</p>,
          type: topic, danger: true, button: "Purge", command: [curl("POST", `${path}/purge`), "", `postroad queue purge ${name}`],
          run: async () => { const done: { records: number } = await ask("POST", `${path}/purge`); await after(`${count(done.records)} records were settled.`); },
        })}>Purge</button>}
        {it && <button type="button" class="danger" onClick={() => confirm({
          title: `Delete the group ${group}?`, text: <p>What it has settled is forgotten, for ever. The records of the topic stay. {it.consumers > 0 && <strong>It has {count(it.consumers)} consumers.</strong>}</p>,
          type: group, danger: true, button: "Delete group", command: [curl("DELETE", `${path}?force=true`), "", `postroad queue delete ${name} --force`],
          run: async () => { await ask("DELETE", `${path}?force=true`); tell("The group was deleted."); go(to("topics", topic, "groups")); },
        })}>Delete</button>}
      </Header>
      <Tabs base={["topics", topic, "groups", group]} current={tab} tabs={[["", "Overview"], ["leases", "Leases"], ["waiting", "Waiting records"], ["scheduled", "Scheduled"], ["seek", "Seek"]]} />
      <Failure problem={report.error} />
      {!doc && !report.error && <Loading what="the group" />}
      {doc && it && tab === "" && (
        <>
          {it.paused && <p class="banner"><Tag tone="warn">Paused</Tag> Nothing of it is delivered.</p>}
          {it.consumers === 0 && it.rates.delivered === 0 && it.depth > 0 && !it.paused && <p class="banner"><Tag tone="warn">No consumers</Tag> {count(it.depth)} records wait, and nobody takes them.</p>}
          <Card><dl class="facts">
            <Fact label="Behind by" value={span(it.lag_seconds)} note={it.oldest_unsettled_ms ? `oldest of ${time(it.oldest_unsettled_ms)}` : "all is settled"} />
            <Fact label="Caught up in" value={eta(it)} />
            <Fact label="Waiting" value={count(it.depth)} note={`${count(it.ready)} ready`} />
            <Fact label="Leased" value={count(it.leased)} note={bytes(it.leased_bytes)} />
            <Fact label="Delayed" value={count(it.delayed)} />
            <Fact label="Consumers" value={count(it.consumers)} />
          </dl></Card>
          <div class="grid two">
            <Card title="In ten seconds"><dl class="facts">
              <Fact label="In" value={rate(it.rates.published)} /><Fact label="Delivered" value={rate(it.rates.delivered)} /><Fact label="Settled" value={rate(it.rates.settled)} />
            </dl></Card>
            <Card title="Since the start"><dl class="facts">
              <Fact label="Delivered" value={count(it.delivered)} /><Fact label="Again" value={count(it.redelivered)} /><Fact label="Settled" value={count(it.settled)} /><Fact label="Dead letters" value={count(it.dead_letters)} />
            </dl></Card>
          </div>
          <Card title="Progress">
            <Table label="Progress by partition" rows={doc.progress} id={(row) => String(row.partition)} columns={[
              { key: "partition", label: "Partition", cell: (row) => row.partition, sort: (row) => row.partition },
              { key: "floor", label: "Settled below", right: true, cell: (row) => count(row.floor), sort: (row) => row.floor },
              { key: "above", label: "Settled above that", right: true, cell: (row) => count(row.settled_above), sort: (row) => row.settled_above },
              { key: "retried", label: "Came back", right: true, cell: (row) => count(row.retried), sort: (row) => row.retried },
              { key: "end", label: "End", right: true, cell: (row) => count(row.end), sort: (row) => row.end },
              { key: "left", label: "Left", right: true, cell: (row) => count(row.end - row.floor - row.settled_above), sort: (row) => row.end - row.floor - row.settled_above },
            ]} />
          </Card>
          <Card title="Set to"><Table label="Configuration of the group" rows={doc.config} id={(row) => row.name} columns={[
            { key: "name", label: "Name", cell: (row) => <code>{row.name}</code>, sort: (row) => row.name },
            { key: "value", label: "Value", cell: (row) => <code>{row.value || "(empty)"}</code> },
            { key: "own", label: "From", cell: (row) => row.own ? <Tag tone="good">group</Tag> : <Tag>default</Tag>, sort: (row) => Number(row.own) },
          ]} /></Card>
          <Command lines={[curl("GET", path), "", `postroad queue describe ${name}`]} />
        </>
      )}
      {doc && tab === "leases" && (doc.leases.length === 0
        ? <Empty title="Nobody holds a record">A lease stands here from its delivery until it is settled or ends.</Empty>
        : <>
            <Table label="Leases" rows={doc.leases} id={(row) => `${row.partition}.${row.offset}`} columns={[
              { key: "record", label: "Record", cell: (row) => <a class="rowlink" href={`${to("find")}?topic=${seg(topic)}&place=${row.partition}.${row.offset}`}>{row.partition}:{row.offset}</a>, sort: (row) => row.partition * 1e12 + row.offset },
              { key: "session", label: "Session", cell: (row) => row.session, sort: (row) => row.session },
              { key: "attempt", label: "Attempt", right: true, cell: (row) => row.attempt > 1 ? <Tag tone="warn">{row.attempt}</Tag> : row.attempt, sort: (row) => row.attempt },
              { key: "until", label: "Until", cell: (row) => row.expires_ms === null ? "its session ends" : `${time(row.expires_ms)} (${span(Math.max(0, (row.expires_ms - Date.now()) / 1000))})`, sort: (row) => row.expires_ms },
            ]} />
            <p class="fine">{count(it?.leased)} are leased; the first of them stand here.</p>
          </>)}
      {tab === "waiting" && <Waiting topic={topic} path={`${path}/records`} />}
      {tab === "scheduled" && <Scheduled topic={topic} path={path} />}
      {doc && tab === "seek" && <Seek name={`${topic}/${group}`} type={topic} path={path} topics={[]} partitions={doc.progress.map((it) => it.partition)} done={report.reload}>What the group has leased is void, and records after the new place are delivered, again where they were settled.</Seek>}
    </>
  );
}

function Waiting({ topic, path }: { topic: string; path: string }) {
  const cursor = place.value.query.get("cursor");
  const list = usePoll<Page<WaitingRecord>>(`${path}?limit=50${cursor ? `&cursor=${seg(cursor)}` : ""}`);
  return (
    <>
      <p class="progress">To look leases nothing and counts no attempt.</p>
      <Failure problem={list.error} />
      {list.data && <Records topic={topic} records={list.data.items} extra={(it) => <><Tag tone={STATES[it.state]}>{it.state}</Tag>{it.attempts > 0 && <small> {it.attempts} before</small>}{it.until_ms && <small> until {time(it.until_ms)}</small>}</>} />}
      {list.data && <Pager next={list.data.next} shown={list.data.items.length} />}
    </>
  );
}

function Scheduled({ topic, path }: { topic: string; path: string }) {
  const cursor = place.value.query.get("cursor");
  const list = usePoll<Page<WaitingRecord & { due_ms: number }>>(`${path}/scheduled?limit=100${cursor ? `&cursor=${seg(cursor)}` : ""}`);
  const [chosen, setChosen] = useState(new Set<string>());
  const toggle = (id: string) => setChosen((last) => { const next = new Set(last); if (!next.delete(id)) next.add(id); return next; });
  const records = [...chosen].map((id) => { const [partition, offset] = id.split("."); return { partition: Number(partition), offset: Number(offset) }; });
  return (
    <>
      <Failure problem={list.error} />
      {list.data?.items.length === 0 ? <Empty title="Nothing is scheduled">Records with a time to be delivered at stand here until then.</Empty> : list.data && (
        <>
          <div class="tools"><button type="button" class="danger" disabled={chosen.size === 0} onClick={() => confirm({
            title: `Cancel ${count(chosen.size)} deliveries?`, text: <p>They are settled, and nobody gets them. The records stay in the topic.</p>, button: "Cancel deliveries", danger: true,
            command: [curl("POST", `${path}/scheduled/cancel`, { records })],
            run: async () => { const done: { removed: number; refused: unknown[] } = await ask("POST", `${path}/scheduled/cancel`, { records }); setChosen(new Set()); list.reload(); tell(`${count(done.removed)} were cancelled${done.refused.length ? `, ${done.refused.length} were not` : ""}.`); },
          })}>Cancel chosen</button></div>
          <Records topic={topic} records={list.data.items} pick={{ chosen, toggle }} extra={(it) => <><Tag tone="calm">due</Tag> <small>{time(it.due_ms)}</small></>} />
          <Pager next={list.data.next} shown={list.data.items.length} />
        </>
      )}
    </>
  );
}
