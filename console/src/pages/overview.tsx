import { useEffect, useState } from "preact/hooks";
import { usePoll } from "../api";
import { Bar, Card, Empty, Fact, Failure, Header, Loading, Sparkline, Table, Tag } from "../ui";
import type { Overview as Doc, Page, QueueRow } from "../types";
import { bytes, count, rate, duration, time } from "../format";
import { hrefOf } from "../router";

interface Sample { at: number; received: number; in: number; out: number; settled: number; delivered: number }

const sum = (doc: Doc, valueOf: (protocol: Doc["protocols"][0]) => number) => doc.protocols.reduce((all, protocol) => all + valueOf(protocol), 0);
// Module state, so that the charts survive a change of page.
const samples: Sample[] = [];

function addSample(doc: Doc): void {
  if (samples.at(-1)?.at === doc.at_ms) return;
  samples.push({
    at: doc.at_ms, received: sum(doc, (protocol) => protocol.records_received), in: sum(doc, (protocol) => protocol.bytes_received),
    out: sum(doc, (protocol) => protocol.bytes_delivered), settled: doc.leases.settled, delivered: doc.leases.delivered,
  });
  if (samples.length > 120) samples.shift();
}

function rates(valueOf: (sample: Sample) => number): number[] {
  const values = [];
  for (let index = 1; index < samples.length; index++) {
    const [a, b] = [samples[index - 1]!, samples[index]!];
    const seconds = (b.at - a.at) / 1000;
    // Counters restart at zero with the node.
    values.push(seconds > 0 ? Math.max(0, (valueOf(b) - valueOf(a)) / seconds) : 0);
  }
  return values;
}

/** Upper bound of a quantile of the sync latency, from the histogram. */
export function quantile(buckets: Doc["journal"]["sync_buckets"], share: number): string {
  const all = buckets.reduce((total, bucket) => total + bucket.syncs, 0);
  let cumulative = 0;
  for (const bucket of buckets) {
    cumulative += bucket.syncs;
    if (all > 0 && cumulative >= all * share) return bucket.to_micros === null ? "> 10 s" : bucket.to_micros < 1000 ? `≤ ${bucket.to_micros} µs` : `≤ ${bucket.to_micros / 1000} ms`;
  }
  return "–";
}

function Flow({ label, values, show, note }: { label: string; values: number[]; show: (value: number) => string; note: string }) {
  const latest = values.at(-1);
  return (
    <section class="card flow">
      <h2>{label}</h2>
      <p class="big">{latest === undefined ? "…" : show(latest)}</p>
      <Sparkline values={values} label={`${label}: ${values.length} values, now ${latest === undefined ? "unknown" : show(latest)}`} />
      <p class="fine">{note}</p>
    </section>
  );
}

export function Overview() {
  const overview = usePoll<Doc>("/v1/overview", 2000);
  const groups = usePoll<Page<QueueRow>>("/v1/lease-groups?limit=500", 10_000);
  const [, tick] = useState(0);
  useEffect(() => { if (overview.data) { addSample(overview.data); tick((ticks) => ticks + 1); } }, [overview.data]);
  const doc = overview.data;
  const worst = [...(groups.data?.items ?? [])].filter((group) => (group.lag_seconds ?? 0) > 0 && group.depth > 0).sort((a, b) => (b.lag_seconds ?? 0) - (a.lag_seconds ?? 0)).slice(0, 8);
  return (
    <>
      <Header title="Overview" sub={doc && `Node ${doc.node} · version ${doc.version} · cluster ${doc.cluster}`} />
      {overview.error?.document.status === 403
        ? <Empty title="No right to view the cluster">Your <a href={hrefOf("topics")}>topics</a> and <a href={hrefOf("groups")}>groups</a> are available. To view nodes, shards and disks, ask an administrator for <code>postroad acl add USER describe cluster</code>.</Empty>
        : <Failure problem={overview.error} />}
      {!doc && !overview.error && <Loading subject="node status" />}
      {doc && (
        <>
          <section class={doc.alarms.length ? "health bad" : "health good"} aria-label="Health">
            <span class="mark" aria-hidden="true">{doc.alarms.length ? "!" : "✓"}</span>
            <div>
              <strong>{doc.alarms.length ? "Action required" : "Healthy"}</strong>
              {doc.alarms.length
                ? <ul>{doc.alarms.map((alarm) => <li>{alarm.text} <code>{alarm.alarm}</code></li>)}</ul>
                : <p>All {count(doc.shards.length)} {doc.shards.length === 1 ? "shard has a leader" : "shards have a leader"}, the disk accepts writes, and syncs complete.</p>}
            </div>
            <dl class="facts">
              <Fact label="Topics" value={<a href={hrefOf("topics")}>{count(doc.topics)}</a>} note={`${count(doc.partitions)} partitions`} />
              <Fact label="Groups" value={<a href={hrefOf("groups")}>{count(doc.lease_groups)}</a>} note="lease groups" />
              <Fact label="Connections" value={<a href={hrefOf("sessions")}>{count(sum(doc, (protocol) => protocol.connections))}</a>} note={doc.protocols.filter((protocol) => protocol.connections).map((protocol) => `${protocol.protocol} ${protocol.connections}`).join(" · ") || "none"} />
            </dl>
          </section>
          {doc.open_to_everybody && <p class="banner"><Tag tone="warn">No log-in</Tag> Every client that reaches this port has full access. Use this on a local machine only. To require log-in, run <code>postroad user add</code> and <code>postroad serve --auth on</code>.</p>}
          {doc.certificate_ends_ms !== null && doc.certificate_ends_ms - Date.now() < 14 * 86_400_000 && <p class="banner"><Tag tone="warn">Certificate</Tag> The certificate expires at {time(doc.certificate_ends_ms)}.</p>}
          <div class="grid four">
            <Flow label="Records in" values={rates((sample) => sample.received)} show={rate} note="appended, all protocols" />
            <Flow label="Bytes in" values={rates((sample) => sample.in)} show={(value) => `${bytes(value)}/s`} note="produced batches" />
            <Flow label="Bytes out" values={rates((sample) => sample.out)} show={(value) => `${bytes(value)}/s`} note="fetched by offset" />
            <Flow label="Settled" values={rates((sample) => sample.settled)} show={rate} note={`${count(doc.leases.dead_letters)} dead letters since startup`} />
          </div>
          <div class="grid two">
            <Card title="Largest lag" aside={<a href={hrefOf("groups")}>All groups</a>}>
              <Failure problem={groups.error} />
              {groups.data && worst.length === 0 && <Empty title="No lag">All lease groups have caught up.</Empty>}
              {worst.length > 0 && (
                <Table label="Groups with the largest lag" rows={worst} id={(row) => `${row.topic}/${row.group}`} columns={[
                  { key: "group", label: "Group", cell: (row) => <a class="rowlink" href={hrefOf("topics", row.topic, "groups", row.group)}>{row.topic} / {row.group}</a> },
                  { key: "lag", label: "Lag", right: true, cell: (row) => <strong>{duration(row.lag_seconds)}</strong>, sort: (row) => row.lag_seconds },
                  { key: "depth", label: "Depth", right: true, cell: (row) => count(row.depth), sort: (row) => row.depth },
                  { key: "eta", label: "Time to catch up", right: true, cell: (row) => eta(row) },
                ]} />
              )}
              {groups.data?.next && <p class="fine">Among the first 500 groups.</p>}
            </Card>
            <Card title="Disk and journal" aside={<a href={hrefOf("nodes")}>Shards</a>}>
              <dl class="facts">
                <Fact label="Free disk space" value={bytes(doc.disk.free_bytes)} note={`of ${bytes(doc.disk.size_bytes)}`} />
                <Fact label="Segments" value={bytes(Math.max(doc.disk.segment_bytes, doc.disk.live_bytes))} note={`${bytes(doc.disk.live_bytes)} live`} />
                <Fact label="Sync latency, p99" value={quantile(doc.journal.sync_buckets, 0.99)} note={`p50 ${quantile(doc.journal.sync_buckets, 0.5)}`} />
                <Fact label="Memory" value={bytes(doc.process.resident_bytes)} note={`${count(doc.process.open_files)} open files`} />
              </dl>
              {doc.disk.size_bytes !== null && doc.disk.free_bytes !== null && <Bar part={doc.disk.size_bytes - doc.disk.free_bytes} whole={doc.disk.size_bytes} label="Disk usage" />}
            </Card>
          </div>
          <Card title="Protocols">
            <Table label="Protocols" rows={doc.protocols} id={(row) => row.protocol} columns={[
              { key: "protocol", label: "Protocol", cell: (row) => row.protocol, sort: (row) => row.protocol },
              { key: "connections", label: "Connections", right: true, cell: (row) => count(row.connections), sort: (row) => row.connections },
              { key: "opened", label: "Opened since startup", right: true, cell: (row) => count(row.connections_opened), sort: (row) => row.connections_opened },
              { key: "received", label: "Records in", right: true, cell: (row) => count(row.records_received), sort: (row) => row.records_received },
              { key: "in", label: "Bytes in", right: true, cell: (row) => bytes(row.bytes_received), sort: (row) => row.bytes_received },
              { key: "out", label: "Bytes out", right: true, cell: (row) => bytes(row.bytes_delivered), sort: (row) => row.bytes_delivered },
            ]} />
          </Card>
        </>
      )}
    </>
  );
}

/** Time until the group has settled its backlog, at the current rates. */
export function eta(group: QueueRow): string {
  if (group.depth === 0) return "caught up";
  const gain = group.rates.settled - group.rates.published;
  if (group.paused) return "paused";
  if (gain <= 0.01) return group.consumers === 0 && group.rates.delivered === 0 ? "no consumers" : "lag grows";
  return duration(group.depth / gain);
}
