import { useEffect, useState } from "preact/hooks";
import { usePoll } from "../api";
import { Bar, Card, Empty, Fact, Failure, Header, Loading, Spark, Table, Tag } from "../ui";
import type { Overview as Doc, Page, QueueRow } from "../types";
import { bytes, count, rate, span, time } from "../words";
import { to } from "../router";

interface Sample { at: number; received: number; in: number; out: number; settled: number; delivered: number }

const sum = (doc: Doc, of: (it: Doc["protocols"][0]) => number) => doc.protocols.reduce((all, it) => all + of(it), 0);
// Kept while the page is open: what was seen is not asked again.
const samples: Sample[] = [];

function note(doc: Doc): void {
  if (samples.at(-1)?.at === doc.at_ms) return;
  samples.push({
    at: doc.at_ms, received: sum(doc, (it) => it.records_received), in: sum(doc, (it) => it.bytes_received),
    out: sum(doc, (it) => it.bytes_delivered), settled: doc.leases.settled, delivered: doc.leases.delivered,
  });
  if (samples.length > 120) samples.shift();
}

function rates(of: (it: Sample) => number): number[] {
  const found = [];
  for (let at = 1; at < samples.length; at++) {
    const [a, b] = [samples[at - 1]!, samples[at]!];
    const seconds = (b.at - a.at) / 1000;
    // After a restart counters begin anew.
    found.push(seconds > 0 ? Math.max(0, (of(b) - of(a)) / seconds) : 0);
  }
  return found;
}

/** The time that so many of all syncs do not exceed, by the buckets. */
export function quantile(buckets: Doc["journal"]["sync_buckets"], share: number): string {
  const all = buckets.reduce((total, it) => total + it.syncs, 0);
  let seen = 0;
  for (const it of buckets) {
    seen += it.syncs;
    if (all > 0 && seen >= all * share) return it.to_micros === null ? "> 10 s" : it.to_micros < 1000 ? `≤ ${it.to_micros} µs` : `≤ ${it.to_micros / 1000} ms`;
  }
  return "–";
}

function Flow({ label, values, show, note }: { label: string; values: number[]; show: (value: number) => string; note: string }) {
  const now = values.at(-1);
  return (
    <section class="card flow">
      <h2>{label}</h2>
      <p class="big">{now === undefined ? "…" : show(now)}</p>
      <Spark values={values} label={`${label}: ${values.length} values, now ${now === undefined ? "not known" : show(now)}`} />
      <p class="fine">{note}</p>
    </section>
  );
}

export function Overview() {
  const overview = usePoll<Doc>("/v1/overview", 2000);
  const groups = usePoll<Page<QueueRow>>("/v1/lease-groups?limit=500", 10_000);
  const [, tick] = useState(0);
  useEffect(() => { if (overview.data) { note(overview.data); tick((it) => it + 1); } }, [overview.data]);
  const doc = overview.data;
  const worst = [...(groups.data?.items ?? [])].filter((it) => (it.lag_seconds ?? 0) > 0 && it.depth > 0).sort((a, b) => (b.lag_seconds ?? 0) - (a.lag_seconds ?? 0)).slice(0, 8);
  return (
    <>
      <Header title="Overview" sub={doc && `Node ${doc.node} · version ${doc.version} · cluster ${doc.cluster}`} />
      {overview.error?.document.status === 403
        ? <Empty title="The cluster is not shown to this user">Your <a href={to("topics")}>topics</a> and <a href={to("groups")}>groups</a> are. An administrator grants the right to see nodes, shards and disks with <code>postroad acl add USER describe cluster</code>.</Empty>
        : <Failure problem={overview.error} />}
      {!doc && !overview.error && <Loading what="the node" />}
      {doc && (
        <>
          <section class={doc.alarms.length ? "health bad" : "health good"} aria-label="Health">
            <span class="mark" aria-hidden="true">{doc.alarms.length ? "!" : "✓"}</span>
            <div>
              <strong>{doc.alarms.length ? "Somebody should look" : "Healthy"}</strong>
              {doc.alarms.length
                ? <ul>{doc.alarms.map((it) => <li>{it.text} <code>{it.alarm}</code></li>)}</ul>
                : <p>All {count(doc.shards.length)} {doc.shards.length === 1 ? "shard has a leader" : "shards have a leader"}, the disk takes records, and syncs return.</p>}
            </div>
            <dl class="facts">
              <Fact label="Topics" value={<a href={to("topics")}>{count(doc.topics)}</a>} note={`${count(doc.partitions)} partitions`} />
              <Fact label="Groups" value={<a href={to("groups")}>{count(doc.lease_groups)}</a>} note="settle one by one" />
              <Fact label="Connections" value={<a href={to("sessions")}>{count(sum(doc, (it) => it.connections))}</a>} note={doc.protocols.filter((it) => it.connections).map((it) => `${it.protocol} ${it.connections}`).join(" · ") || "none"} />
            </dl>
          </section>
          {doc.open_to_everybody && <p class="banner"><Tag tone="warn">No log-in</Tag> Every client that reaches this port may do everything. That is meant for this machine alone; <code>postroad user add</code> and <code>postroad serve --auth on</code> change it.</p>}
          {doc.certificate_ends_ms !== null && doc.certificate_ends_ms - Date.now() < 14 * 86_400_000 && <p class="banner"><Tag tone="warn">Certificate</Tag> It ends at {time(doc.certificate_ends_ms)}.</p>}
          <div class="grid four">
            <Flow label="Records in" values={rates((it) => it.received)} show={rate} note="appended, all protocols" />
            <Flow label="Bytes in" values={rates((it) => it.in)} show={(it) => `${bytes(it)}/s`} note="batches of clients" />
            <Flow label="Bytes out" values={rates((it) => it.out)} show={(it) => `${bytes(it)}/s`} note="read by offset" />
            <Flow label="Settled" values={rates((it) => it.settled)} show={rate} note={`${count(doc.leases.dead_letters)} dead letters since the start`} />
          </div>
          <div class="grid two">
            <Card title="Furthest behind" aside={<a href={to("groups")}>All groups</a>}>
              <Failure problem={groups.error} />
              {groups.data && worst.length === 0 && <Empty title="Nobody is behind">Groups that settle one by one have settled all that there is.</Empty>}
              {worst.length > 0 && (
                <Table label="Groups that are furthest behind" rows={worst} id={(it) => `${it.topic}/${it.group}`} columns={[
                  { key: "group", label: "Group", cell: (it) => <a class="rowlink" href={to("topics", it.topic, "groups", it.group)}>{it.topic} / {it.group}</a> },
                  { key: "lag", label: "Behind by", right: true, cell: (it) => <strong>{span(it.lag_seconds)}</strong>, sort: (it) => it.lag_seconds },
                  { key: "depth", label: "Records", right: true, cell: (it) => count(it.depth), sort: (it) => it.depth },
                  { key: "eta", label: "Caught up in", right: true, cell: (it) => eta(it) },
                ]} />
              )}
              {groups.data?.next && <p class="fine">Of the first 500 groups.</p>}
            </Card>
            <Card title="Disk and journal" aside={<a href={to("nodes")}>Shards</a>}>
              <dl class="facts">
                <Fact label="Free on the disk" value={bytes(doc.disk.free_bytes)} note={`of ${bytes(doc.disk.size_bytes)}`} />
                <Fact label="Files of records" value={bytes(Math.max(doc.disk.segment_bytes, doc.disk.live_bytes))} note={`${bytes(doc.disk.live_bytes)} may still be read`} />
                <Fact label="Sync, 99 of 100" value={quantile(doc.journal.sync_buckets, 0.99)} note={`half ${quantile(doc.journal.sync_buckets, 0.5)}`} />
                <Fact label="Memory" value={bytes(doc.process.resident_bytes)} note={`${count(doc.process.open_files)} open files`} />
              </dl>
              {doc.disk.size_bytes !== null && doc.disk.free_bytes !== null && <Bar part={doc.disk.size_bytes - doc.disk.free_bytes} whole={doc.disk.size_bytes} label="Disk in use" />}
            </Card>
          </div>
          <Card title="Protocols">
            <Table label="Protocols" rows={doc.protocols} id={(it) => it.protocol} columns={[
              { key: "protocol", label: "Protocol", cell: (it) => it.protocol, sort: (it) => it.protocol },
              { key: "connections", label: "Connections", right: true, cell: (it) => count(it.connections), sort: (it) => it.connections },
              { key: "opened", label: "Opened since the start", right: true, cell: (it) => count(it.connections_opened), sort: (it) => it.connections_opened },
              { key: "received", label: "Records in", right: true, cell: (it) => count(it.records_received), sort: (it) => it.records_received },
              { key: "in", label: "Bytes in", right: true, cell: (it) => bytes(it.bytes_received), sort: (it) => it.bytes_received },
              { key: "out", label: "Bytes out", right: true, cell: (it) => bytes(it.bytes_delivered), sort: (it) => it.bytes_delivered },
            ]} />
          </Card>
        </>
      )}
    </>
  );
}

/** When it has settled what there is, at the speed of now. */
export function eta(it: QueueRow): string {
  if (it.depth === 0) return "now";
  const gain = it.rates.settled - it.rates.published;
  if (it.paused) return "paused";
  if (gain <= 0.01) return it.consumers === 0 && it.rates.delivered === 0 ? "no consumers" : "it grows";
  return span(it.depth / gain);
}
