import { useState } from "preact/hooks";
import { request, seg, usePoll } from "../api";
import { Card, Command, confirm, Empty, Fact, Failure, Filter, Header, Loading, Pager, Table, Tabs, Tag, notify } from "../ui";
import { Records } from "../records";
import { OffsetGroups } from "./offsets";
import { Seek } from "../seek";
import type { Page, QueueReport, QueueRow, WaitingRecord } from "../types";
import { bytes, count, curl, quoted, rate, duration, time } from "../format";
import { navigate, route, hrefOf } from "../router";
import { LeaseGroups } from "./topics";
import { eta } from "./overview";

export function Groups({ tab }: { tab: string }) {
  return (
    <>
      <Header title="Groups" sub="Consuming groups and their lag." />
      <Tabs base={["groups"]} current={tab} tabs={[["", "Lease groups"], ["offsets", "Consumer groups"]]} />
      {tab === "offsets" ? <OffsetGroups /> : <AllLeaseGroups />}
    </>
  );
}

function AllLeaseGroups() {
  const { query } = route.value;
  const params = new URLSearchParams({ limit: "100" });
  for (const name of ["filter", "cursor"]) if (query.get(name)) params.set(name, query.get(name)!);
  const list = usePoll<Page<QueueRow>>(`/v1/lease-groups?${params}`);
  return (
    <>
      <div class="tools"><Filter label="Filter topics and groups" /></div>
      <Failure problem={list.error} />
      {!list.data && !list.error && <Loading subject="groups" />}
      {list.data && <><LeaseGroups rows={list.data.items} /><Pager next={list.data.next} shown={list.data.items.length} /></>}
    </>
  );
}

const STATE_TONES: Record<string, "good" | "warn" | "bad" | "calm"> = { ready: "good", leased: "calm", delayed: "calm", blocked: "warn", "dead-lettering": "bad" };

export function LeaseGroup({ topic, group, tab }: { topic: string; group: string; tab: string }) {
  const path = `/v1/topics/${seg(topic)}/groups/${seg(group)}`;
  const report = usePoll<QueueReport>(path, 2000);
  const doc = report.data;
  const summary = doc?.summary;
  const name = `${quoted(topic)}${group === "main" ? "" : ` --group ${quoted(group)}`}`;
  const finish = async (text: string) => { report.reload(); notify(text); };
  return (
    <>
      <Header title={`${topic} / ${group}`} trail={[["Topics", hrefOf("topics")], [topic, hrefOf("topics", topic)], ["Groups", hrefOf("topics", topic, "groups")]]} sub={doc && <>Lease group · created {time(doc.created_ms)}</>}>
        {summary && <button type="button" onClick={() => confirm({
          title: summary.paused ? "Resume delivery?" : "Pause delivery?",
          text: <p>{summary.paused ? `${count(summary.ready)} records are ready.` : "No record is delivered until you resume the group. Leased records can still be settled."}</p>,
          button: summary.paused ? "Resume" : "Pause", command: [curl("PATCH", path, { paused: !summary.paused }), "", `postroad queue ${summary.paused ? "resume" : "pause"} ${name}`],
          run: async () => { await request("PATCH", path, { paused: !summary.paused }); await finish(summary.paused ? "Resumed delivery." : "Paused delivery."); },
        })}>{summary.paused ? "Resume" : "Pause"}</button>}
        {summary && <button type="button" class="danger" disabled={summary.depth === 0} onClick={() => confirm({
          title: `Purge ${topic} / ${group}?`, text: <p>About <strong>{count(summary.depth - summary.leased)} records</strong> are settled without delivery. {count(summary.leased)} leased records stay.</p>,
          phrase: topic, danger: true, button: "Purge", command: [curl("POST", `${path}/purge`), "", `postroad queue purge ${name}`],
          run: async () => { const result: { records: number } = await request("POST", `${path}/purge`); await finish(`Purged ${count(result.records)} records.`); },
        })}>Purge</button>}
        {summary && <button type="button" class="danger" onClick={() => confirm({
          title: `Delete group ${group}?`, text: <p>This permanently deletes its progress. The records of the topic stay. {summary.consumers > 0 && <strong>The group has {count(summary.consumers)} consumers.</strong>}</p>,
          phrase: group, danger: true, button: "Delete group", command: [curl("DELETE", `${path}?force=true`), "", `postroad queue delete ${name} --force`],
          run: async () => { await request("DELETE", `${path}?force=true`); notify(`Deleted group ${group}.`); navigate(hrefOf("topics", topic, "groups")); },
        })}>Delete</button>}
      </Header>
      <Tabs base={["topics", topic, "groups", group]} current={tab} tabs={[["", "Overview"], ["leases", "Leases"], ["waiting", "Waiting records"], ["scheduled", "Scheduled"], ["seek", "Seek"]]} />
      <Failure problem={report.error} />
      {!doc && !report.error && <Loading subject="group" />}
      {doc && summary && tab === "" && (
        <>
          {summary.paused && <p class="banner"><Tag tone="warn">Paused</Tag> Delivery is paused.</p>}
          {summary.consumers === 0 && summary.rates.delivered === 0 && summary.depth > 0 && !summary.paused && <p class="banner"><Tag tone="warn">No consumers</Tag> {count(summary.depth)} records are waiting, and no consumer is connected.</p>}
          <Card><dl class="facts">
            <Fact label="Lag" value={duration(summary.lag_seconds)} note={summary.oldest_unsettled_ms ? `oldest unsettled: ${time(summary.oldest_unsettled_ms)}` : "all records settled"} />
            <Fact label="Time to catch up" value={eta(summary)} />
            <Fact label="Depth" value={count(summary.depth)} note={`${count(summary.ready)} ready`} />
            <Fact label="Leased" value={count(summary.leased)} note={bytes(summary.leased_bytes)} />
            <Fact label="Delayed" value={count(summary.delayed)} />
            <Fact label="Consumers" value={count(summary.consumers)} />
          </dl></Card>
          <div class="grid two">
            <Card title="Last ten seconds"><dl class="facts">
              <Fact label="In" value={rate(summary.rates.published)} /><Fact label="Delivered" value={rate(summary.rates.delivered)} /><Fact label="Settled" value={rate(summary.rates.settled)} />
            </dl></Card>
            <Card title="Since startup"><dl class="facts">
              <Fact label="Delivered" value={count(summary.delivered)} /><Fact label="Redelivered" value={count(summary.redelivered)} /><Fact label="Settled" value={count(summary.settled)} /><Fact label="Dead letters" value={count(summary.dead_letters)} />
            </dl></Card>
          </div>
          <Card title="Progress">
            <Table label="Progress by partition" rows={doc.progress} id={(row) => String(row.partition)} columns={[
              { key: "partition", label: "Partition", cell: (row) => row.partition, sort: (row) => row.partition },
              { key: "floor", label: "Settled up to", right: true, cell: (row) => count(row.floor), sort: (row) => row.floor },
              { key: "above", label: "Settled above", right: true, cell: (row) => count(row.settled_above), sort: (row) => row.settled_above },
              { key: "retried", label: "Retried", right: true, cell: (row) => count(row.retried), sort: (row) => row.retried },
              { key: "end", label: "End", right: true, cell: (row) => count(row.end), sort: (row) => row.end },
              { key: "unsettled", label: "Unsettled", right: true, cell: (row) => count(row.end - row.floor - row.settled_above), sort: (row) => row.end - row.floor - row.settled_above },
            ]} />
          </Card>
          <Card title="Configuration"><Table label="Configuration of the group" rows={doc.config} id={(row) => row.name} columns={[
            { key: "name", label: "Name", cell: (row) => <code>{row.name}</code>, sort: (row) => row.name },
            { key: "value", label: "Value", cell: (row) => <code>{row.value || "(empty)"}</code> },
            { key: "own", label: "Source", cell: (row) => row.own ? <Tag tone="good">group</Tag> : <Tag>default</Tag>, sort: (row) => Number(row.own) },
          ]} /></Card>
          <Command lines={[curl("GET", path), "", `postroad queue describe ${name}`]} />
        </>
      )}
      {doc && tab === "leases" && (doc.leases.length === 0
        ? <Empty title="No leases">A lease is listed from the delivery of its record until it is settled or expires.</Empty>
        : <>
            <Table label="Leases" rows={doc.leases} id={(row) => `${row.partition}.${row.offset}`} columns={[
              { key: "record", label: "Record", cell: (row) => <a class="rowlink" href={`${hrefOf("find")}?topic=${seg(topic)}&place=${row.partition}.${row.offset}`}>{row.partition}:{row.offset}</a>, sort: (row) => row.partition * 1e12 + row.offset },
              { key: "session", label: "Session", cell: (row) => row.session, sort: (row) => row.session },
              { key: "attempt", label: "Attempt", right: true, cell: (row) => row.attempt > 1 ? <Tag tone="warn">{row.attempt}</Tag> : row.attempt, sort: (row) => row.attempt },
              { key: "until", label: "Until", cell: (row) => row.expires_ms === null ? "end of session" : `${time(row.expires_ms)} (${duration(Math.max(0, (row.expires_ms - Date.now()) / 1000))})`, sort: (row) => row.expires_ms },
            ]} />
            <p class="fine">{count(summary?.leased)} records are leased. The table shows the first ones.</p>
          </>)}
      {tab === "waiting" && <Waiting topic={topic} path={`${path}/records`} />}
      {tab === "scheduled" && <Scheduled topic={topic} path={path} />}
      {doc && tab === "seek" && <Seek name={`${topic}/${group}`} phrase={topic} path={path} topics={[]} partitions={doc.progress.map((row) => row.partition)} onDone={report.reload}>A seek voids the current leases. Delivery continues at the new offset, and includes records that were settled before.</Seek>}
    </>
  );
}

function Waiting({ topic, path }: { topic: string; path: string }) {
  const cursor = route.value.query.get("cursor");
  const list = usePoll<Page<WaitingRecord>>(`${path}?limit=50${cursor ? `&cursor=${seg(cursor)}` : ""}`);
  return (
    <>
      <p class="progress">Browsing leases no record and counts no attempt.</p>
      <Failure problem={list.error} />
      {list.data && <Records topic={topic} records={list.data.items} state={(record) => <><Tag tone={STATE_TONES[record.state]}>{record.state}</Tag>{record.attempts > 0 && <small> {record.attempts} previous attempts</small>}{record.until_ms && <small> until {time(record.until_ms)}</small>}</>} />}
      {list.data && <Pager next={list.data.next} shown={list.data.items.length} />}
    </>
  );
}

function Scheduled({ topic, path }: { topic: string; path: string }) {
  const cursor = route.value.query.get("cursor");
  const list = usePoll<Page<WaitingRecord & { due_ms: number }>>(`${path}/scheduled?limit=100${cursor ? `&cursor=${seg(cursor)}` : ""}`);
  const [selected, setSelected] = useState(new Set<string>());
  const toggle = (id: string) => setSelected((last) => { const next = new Set(last); if (!next.delete(id)) next.add(id); return next; });
  const records = [...selected].map((id) => { const [partition, offset] = id.split("."); return { partition: Number(partition), offset: Number(offset) }; });
  return (
    <>
      <Failure problem={list.error} />
      {list.data?.items.length === 0 ? <Empty title="No scheduled records">Records with a delivery time are listed until they are due.</Empty> : list.data && (
        <>
          <div class="tools"><button type="button" class="danger" disabled={selected.size === 0} onClick={() => confirm({
            title: `Cancel ${count(selected.size)} deliveries?`, text: <p>The records are settled without delivery, and stay in the topic.</p>, button: "Cancel deliveries", danger: true,
            command: [curl("POST", `${path}/scheduled/cancel`, { records })],
            run: async () => { const result: { removed: number; refused: unknown[] } = await request("POST", `${path}/scheduled/cancel`, { records }); setSelected(new Set()); list.reload(); notify(`Cancelled ${count(result.removed)} deliveries${result.refused.length ? `, rejected ${result.refused.length}` : ""}.`); },
          })}>Cancel selected</button></div>
          <Records topic={topic} records={list.data.items} selection={{ selected, toggle }} state={(record) => <><Tag tone="calm">due</Tag> <small>{time(record.due_ms)}</small></>} />
          <Pager next={list.data.next} shown={list.data.items.length} />
        </>
      )}
    </>
  );
}
