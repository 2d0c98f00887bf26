// Sessions, nodes, access.
import { useState } from "preact/hooks";
import { request, seg, usePoll } from "../api";
import { Bar, Card, Command, confirm, Empty, Fact, Failure, Field, Form, Header, Loading, Pager, Table, Tabs, Tag, notify } from "../ui";
import type { Cluster, Connection, Overview, Page, Rule, User } from "../types";
import { ago, bytes, count, curl, quoted, time } from "../format";
import { route } from "../router";
import { quantile } from "./overview";

export function Sessions() {
  const { query } = route.value;
  const cursor = query.get("cursor");
  const list = usePoll<Page<Connection>>(`/v1/connections?limit=200${cursor ? `&cursor=${seg(cursor)}` : ""}`);
  const [filter, setFilter] = useState("");
  const rows = (list.data?.items ?? []).filter((row) => `${row.protocol} ${row.peer} ${row.client ?? ""} ${row.user ?? ""}`.toLowerCase().includes(filter.toLowerCase()));
  const close = (connection: Connection) => confirm({
    title: `Close connection ${connection.id}?`, text: <p>{connection.protocol} connection of {connection.user ? `${connection.user} from ` : ""}{connection.peer}. Its leased records become available again. The client is notified if its protocol supports that, and may reconnect.</p>,
    button: "Close", danger: true, command: [curl("DELETE", `/v1/connections/${connection.id}`), "", `postroad connection close ${connection.id}`],
    run: async () => { await request("DELETE", `/v1/connections/${connection.id}`); list.reload(); notify(`Closed connection ${connection.id}.`); },
  });
  return (
    <>
      <Header title="Sessions" sub="Connections of this node, all protocols." />
      <div class="tools"><label class="filter"><span>Filter this page</span><input type="search" data-filter value={filter} onInput={(event) => setFilter(event.currentTarget.value)} placeholder="user, client, address  ( / )" spellcheck={false} /></label></div>
      <Failure problem={list.error} />
      {!list.data && !list.error && <Loading subject="connections" />}
      {list.data && rows.length === 0 && <Empty title="No matching connections" />}
      {rows.length > 0 && <Table label="Connections" rows={rows} id={(row) => String(row.id)} columns={[
        { key: "id", label: "Id", right: true, cell: (row) => row.id, sort: (row) => row.id },
        { key: "protocol", label: "Protocol", cell: (row) => <Tag>{row.protocol}</Tag>, sort: (row) => row.protocol },
        { key: "user", label: "User", cell: (row) => row.user ?? <span class="fine">none</span>, sort: (row) => row.user },
        { key: "client", label: "Client", cell: (row) => row.client ?? "–", sort: (row) => row.client },
        { key: "peer", label: "Address", cell: (row) => <code>{row.peer}</code>, sort: (row) => row.peer },
        { key: "since", label: "Opened", right: true, cell: (row) => <span title={time(row.since_ms)}>{ago(row.since_ms)}</span>, sort: (row) => row.since_ms },
        { key: "close", label: "Actions", cell: (row) => <button type="button" aria-label={`Close connection ${row.id}`} onClick={() => close(row)}>Close</button> },
      ]} />}
      {list.data && <Pager next={list.data.next} shown={rows.length} />}
      <Command lines={[curl("GET", "/v1/connections"), "", "postroad connection list"]} />
    </>
  );
}

export function Nodes() {
  const cluster = usePoll<Cluster>("/v1/cluster", 3000);
  const overview = usePoll<Overview>("/v1/overview", 3000);
  const [doc, local] = [cluster.data, overview.data];
  const status = doc?.status;
  const changeStanding = (node: number, standing: "drained" | "active", text: string) => confirm({
    title: standing === "drained" ? `Drain node ${node}?` : `Resume node ${node}?`, text: <p>{text}</p>, button: standing === "drained" ? "Drain" : "Resume",
    command: [curl("PATCH", `/v1/nodes/${node}`, { standing }), "", `postroad node ${standing === "drained" ? "drain" : "resume"} ${node}`],
    run: async () => { await request("PATCH", `/v1/nodes/${node}`, { standing }); cluster.reload(); notify(standing === "drained" ? `Draining node ${node}.` : `Resuming node ${node}.`); },
  });
  return (
    <>
      <Header title="Nodes and shards" sub={local && `Cluster ${local.cluster}`} />
      <Failure problem={cluster.error ?? overview.error} />
      {status && (
        <>
          <section class={status.verdict.can_lose_a_node ? "health good" : "health bad"}><span class="mark" aria-hidden="true">{status.verdict.can_lose_a_node ? "✓" : "!"}</span>
            <div><strong>{status.verdict.can_lose_a_node ? "Any one node may be stopped" : "Do not stop a node now"}</strong><p>{status.verdict.text}</p>
              {status.at_risk.length > 0 && <ul>{status.at_risk.map((risk) => <li>{risk}</li>)}</ul>}
              {status.under_way.length > 0 && <p class="fine">In progress: {status.under_way.join("; ")}</p>}</div></section>
          <Card title="Nodes"><Table label="Nodes" rows={status.nodes} id={(row) => String(row.node)} columns={[
            { key: "node", label: "Node", cell: (row) => <>{row.node}{row.node === doc.node && <small> (this node)</small>}</>, sort: (row) => row.node },
            { key: "address", label: "Address", cell: (row) => <code>{row.address}</code> },
            { key: "rack", label: "Rack", cell: (row) => row.rack ?? "–", sort: (row) => row.rack },
            { key: "live", label: "Connected", cell: (row) => row.live ? <Tag tone="good">yes</Tag> : <><Tag tone="bad">no</Tag> <small>{row.why}</small></> },
            { key: "standing", label: "State", cell: (row) => <Tag tone={row.standing === "active" ? "good" : "warn"}>{row.standing}</Tag> },
            { key: "leads", label: "Shards led", right: true, cell: (row) => row.leads, sort: (row) => row.leads },
            { key: "holds", label: "Replicas", right: true, cell: (row) => row.holds, sort: (row) => row.holds },
            { key: "do", label: "Actions", cell: (row) => row.standing === "active"
              ? <button type="button" aria-label={`Drain node ${row.node}`} onClick={() => changeStanding(row.node, "drained", `Leadership of its ${row.leads} shards moves to other nodes. The node keeps its replicas, and may be stopped afterwards.`)}>Drain</button>
              : <button type="button" aria-label={`Resume node ${row.node}`} onClick={() => changeStanding(row.node, "active", "The node may lead shards again.")}>Resume</button> },
          ]} /></Card>
          <Card title="Shards of the cluster"><Table label="Shards of the cluster" rows={status.shards} id={(row) => String(row.shard)} columns={[
            { key: "shard", label: "Shard", cell: (row) => row.shard },
            { key: "leader", label: "Leader", cell: (row) => row.leader ?? <Tag tone="bad">none</Tag> },
            { key: "voters", label: "Voters", cell: (row) => row.voters.join(", ") },
            { key: "learners", label: "Learners", cell: (row) => row.learners.join(", ") || "–" },
            { key: "lags", label: "Follower lag", cell: (row) => row.lags.length ? row.lags.map((lag) => `node ${lag.node}: ${count(lag.entries)}`).join(", ") : "none" },
          ]} /></Card>
        </>
      )}
      {doc && !doc.clustered && <p class="banner"><Tag tone="calm">Single node</Tag> The disk of this node has the only copy of its records. To form a cluster of its data: <code>postroad backup</code>, <code>postroad restore --peer</code>, then other nodes with <code>postroad serve --join</code>.</p>}
      {local && (
        <>
          <Card title="Shards of this node"><Table label="Shards of this node" rows={local.shards} id={(row) => String(row.shard)} columns={[
            { key: "shard", label: "Shard", cell: (row) => <>{row.shard} <small>{row.shard === 0 ? "catalog" : "records"}</small></>, sort: (row) => row.shard },
            { key: "leader", label: "Leader", cell: (row) => row.leader === null ? <Tag tone="bad">none</Tag> : row.leader === local.node ? "this node" : `node ${row.leader}` },
            { key: "term", label: "Term", right: true, cell: (row) => count(row.term), sort: (row) => row.term },
            { key: "log", label: "Log end", right: true, cell: (row) => count(row.log_end), sort: (row) => row.log_end },
            { key: "lag", label: "Slowest follower lag", right: true, cell: (row) => count(row.lag_entries), sort: (row) => row.lag_entries },
            { key: "segments", label: "Segments", right: true, cell: (row) => count(row.segments), sort: (row) => row.segments },
            { key: "bytes", label: "Size", right: true, cell: (row) => bytes(Math.max(row.segment_bytes, row.live_bytes)), sort: (row) => Math.max(row.segment_bytes, row.live_bytes) },
            { key: "live", label: "Live", cell: (row) => <Bar part={row.live_bytes} whole={Math.max(row.segment_bytes, row.live_bytes)} label={`Live share of shard ${row.shard}`} /> },
            { key: "space", label: "Space", cell: (row) => row.full ? <Tag tone="bad">full</Tag> : <Tag tone="good">available</Tag> },
          ]} /></Card>
          <div class="grid two">
            <Card title="Syncs since startup">
              <dl class="facts"><Fact label="Syncs" value={count(local.journal.syncs)} /><Fact label="Average" value={local.journal.syncs ? `${(local.journal.sync_micros / local.journal.syncs / 1000).toFixed(2)} ms` : "–"} /><Fact label="p99" value={quantile(local.journal.sync_buckets, 0.99)} /><Fact label="Entries per sync" value={local.journal.syncs ? (local.journal.entries / local.journal.syncs).toFixed(1) : "–"} /></dl>
              <Histogram buckets={local.journal.sync_buckets} />
            </Card>
            <Card title="Space">
              <dl class="facts"><Fact label="Free" value={bytes(local.disk.free_bytes)} note={`of ${bytes(local.disk.size_bytes)}`} /><Fact label="Segments" value={count(local.disk.segments)} note={`${bytes(local.disk.segment_bytes)} in full segments`} /><Fact label="Live" value={bytes(local.disk.live_bytes)} note="still readable" /><Fact label="Dead" value={bytes(Math.max(0, local.disk.segment_bytes - local.disk.live_bytes))} note="reclaimed automatically" /></dl>
            </Card>
          </div>
        </>
      )}
      <Command lines={[curl("GET", "/v1/cluster"), "", "postroad cluster status"]} />
    </>
  );
}

function Histogram({ buckets }: { buckets: Overview["journal"]["sync_buckets"] }) {
  const max = Math.max(...buckets.map((bucket) => bucket.syncs), 1);
  const label = (micros: number | null) => (micros === null ? "more" : micros < 1000 ? `${micros} µs` : micros < 1e6 ? `${micros / 1000} ms` : `${micros / 1e6} s`);
  return (
    <table class="histogram"><caption class="hidden">Syncs by latency</caption><tbody>
      {buckets.map((bucket) => <tr><th scope="row">{label(bucket.to_micros)}</th><td><meter class="bar" min={0} max={max} value={bucket.syncs} aria-label={`up to ${label(bucket.to_micros)}`} /></td><td class="right">{count(bucket.syncs)}</td></tr>)}
    </tbody></table>
  );
}

const RESOURCES = ["topic", "group", "cluster", "transactional-id"];
const ACTIONS = ["all", "read", "write", "create", "delete", "alter", "describe", "describe-configs", "alter-configs", "idempotent-write"];

export function Access({ tab }: { tab: string }) {
  return (
    <>
      <Header title="Access" sub="Users and access rules of all protocols." />
      <Tabs base={["access"]} current={tab} tabs={[["", "Users"], ["rules", "Rules"], ["explain", "Check access"]]} />
      {tab === "rules" ? <Rules /> : tab === "explain" ? <AccessCheck /> : <Users />}
    </>
  );
}

function Users() {
  const users = usePoll<Page<User>>("/v1/users?limit=500");
  const [notice, setNotice] = useState("");
  return (
    <>
      <Failure problem={users.error} />
      {users.data && <Table label="Users" rows={users.data.items} id={(row) => row.name} columns={[
        { key: "name", label: "Name", cell: (row) => <>{row.name} {row.of_settings && <Tag tone="warn">full access</Tag>} {row.loopback_only && <Tag>loopback only</Tag>}</>, sort: (row) => row.name },
        { key: "scram", label: "Authentication", cell: (row) => row.of_settings ? <small>node settings</small> : row.scram.join(", ") || <small>password</small> },
        { key: "permissions", label: "RabbitMQ permissions", cell: (row) => row.permissions.length ? row.permissions.map((p) => <div><code>{p.virtual_host}</code> <small>configure <code>{p.configure || "–"}</code> write <code>{p.write || "–"}</code> read <code>{p.read || "–"}</code></small></div>) : "–" },
        { key: "do", label: "Actions", cell: (row) => row.of_settings ? null : <span class="buttons left">
          <button type="button" aria-label={`Set the password of ${row.name}`} onClick={() => { let password = ""; confirm({ title: `Set the password of ${row.name}`, text: <label class="field"><span>Password</span><input type="password" autocomplete="new-password" onInput={(event) => { password = event.currentTarget.value; }} /></label>, button: "Set", run: async () => { await request("PUT", `/v1/users/${seg(row.name)}/password`, { password }); notify(`Set the password of ${row.name}, and ended its browser sessions.`); } }); }}>Password</button>
          <button type="button" class="danger" aria-label={`Delete ${row.name}`} onClick={() => confirm({ title: `Delete user ${row.name}?`, text: <p>Connections of the user are closed. Rules for the user stay.</p>, phrase: row.name, danger: true, button: "Delete", command: [curl("DELETE", `/v1/users/${seg(row.name)}`), "", `postroad user delete ${quoted(row.name)}`], run: async () => { await request("DELETE", `/v1/users/${seg(row.name)}`); users.reload(); notify(`Deleted user ${row.name}.`); } })}>Delete</button></span> },
      ]} />}
      <Card title="New user"><Form button="Create user" run={async (form, element) => { const created = await request<{ log_ins: string | null }>("POST", "/v1/users", { name: form.get("name"), password: form.get("password") }); element.reset(); users.reload(); setNotice(created.log_ins ?? ""); notify("Created the user without rights. Add a rule to grant some."); }}>
        <div class="row"><Field label="Name" name="name" required /><Field label="Password" name="password" type="password" required autocomplete="new-password" /></div></Form>
        <p>With the first user, log-in may become mandatory for Kafka and HTTP clients. The result shows the affected listeners and the time.</p>
        {notice && <p role="status"><strong>Log-ins:</strong> {notice}</p>}</Card>
    </>
  );
}

function Rules() {
  const rules = usePoll<Page<Rule>>("/v1/acls?limit=1000");
  return (
    <>
      <Failure problem={rules.error} />
      {rules.data?.items.length === 0 && <Empty title="No rules">Logged-in users may perform only actions that a rule or a permission allows.</Empty>}
      {rules.data && rules.data.items.length > 0 && <Table label="Rules" rows={rules.data.items} id={(row) => JSON.stringify(row)} columns={[
        { key: "principal", label: "Principal", cell: (row) => <>{row.principal} <small>from {row.host === "*" ? "any address" : row.host}</small></>, sort: (row) => row.principal },
        { key: "verdict", label: "Verdict", cell: (row) => row.verdict === "allow" ? <Tag tone="good">allow</Tag> : <Tag tone="bad">deny</Tag>, sort: (row) => row.verdict },
        { key: "action", label: "Action", cell: (row) => row.action, sort: (row) => row.action },
        { key: "resource", label: "Resource", cell: (row) => <>{row.resource} <code>{row.name}{row.pattern === "prefixed" && "…"}</code></>, sort: (row) => `${row.resource} ${row.name}` },
        { key: "do", label: "Actions", cell: (row) => <button type="button" class="danger" aria-label={`Delete the rule of ${row.principal} for ${row.name}`} onClick={() => confirm({ title: "Delete rule?", text: <p>{row.verdict === "allow" ? "Allow" : "Deny"} {row.principal}: {row.action} on {row.resource} {row.name}. The deletion takes effect at once.</p>, danger: true, button: "Delete", command: [curl("POST", "/v1/acls/delete", row)], run: async () => { await request("POST", "/v1/acls/delete", row); rules.reload(); notify("Deleted the rule."); } })}>Delete</button> },
      ]} />}
      <Card title="New rule"><Form button="Add" run={async (form) => {
        const value = (name: string) => String(form.get(name));
        await request("POST", "/v1/acls", { principal: `User:${value("user")}`, host: value("host") || "*", verdict: value("verdict"), action: value("action") === "all" ? "any" : value("action"), resource: value("resource"), name: value("resource") === "cluster" ? "kafka-cluster" : value("name"), pattern: value("pattern") });
        rules.reload(); notify("Added the rule, effective at once.");
      }}><div class="row">
        <Field label="User" name="user" required hint="* for all users" /><Field label="Verdict" name="verdict" list={["allow", "deny"]} /><Field label="Action" name="action" list={ACTIONS} value="read" />
        <Field label="Resource" name="resource" list={RESOURCES} /><Field label="Name" name="name" hint="* for all; not used for the cluster" /><Field label="Pattern" name="pattern" list={["literal", "prefixed"]} /><Field label="Address" name="host" value="*" />
      </div></Form></Card>
    </>
  );
}

function AccessCheck() {
  const [decision, setDecision] = useState<{ allowed: boolean; why: string } | null>(null);
  return (
    <Card title="Check the access of a user">
      <Form button="Check" run={async (form) => {
        const params = new URLSearchParams();
        for (const name of ["user", "action", "resource", "name", "host"]) if (form.get(name)) params.set(name, String(form.get(name)));
        setDecision(await request("GET", `/v1/access?${params}`));
      }}><div class="row">
        <Field label="User" name="user" required /><Field label="Action" name="action" list={ACTIONS.slice(1)} /><Field label="Resource" name="resource" list={RESOURCES} /><Field label="Name" name="name" /><Field label="Address" name="host" hint="default: the address of this browser" />
      </div></Form>
      {decision && <p class="verdict" role="status">{decision.allowed ? <Tag tone="good">allowed</Tag> : <Tag tone="bad">denied</Tag>} {decision.why}</p>}
    </Card>
  );
}
