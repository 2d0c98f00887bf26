// Sessions, nodes, access.
import { useState } from "preact/hooks";
import { ask, seg, usePoll } from "../api";
import { Bar, Card, Command, confirm, Empty, Fact, Failure, Field, Form, Header, Loading, Pager, Table, Tabs, Tag, tell } from "../ui";
import type { Cluster, Conn, Overview, Page, Rule, User } from "../types";
import { ago, bytes, count, curl, quoted, time } from "../words";
import { place } from "../router";
import { quantile } from "./overview";

export function Sessions() {
  const { query } = place.value;
  const cursor = query.get("cursor");
  const list = usePoll<Page<Conn>>(`/v1/connections?limit=200${cursor ? `&cursor=${seg(cursor)}` : ""}`);
  const [only, setOnly] = useState("");
  const rows = (list.data?.items ?? []).filter((it) => `${it.protocol} ${it.peer} ${it.client ?? ""} ${it.user ?? ""}`.toLowerCase().includes(only.toLowerCase()));
  const close = (it: Conn) => confirm({
    title: `Close connection ${it.id}?`, text: <p>{it.protocol} from {it.peer}{it.user && ` of ${it.user}`}. Its client is told where its protocol has a word for that, and may connect again. What it has leased comes back.</p>,
    button: "Close", danger: true, command: [curl("DELETE", `/v1/connections/${it.id}`), "", `postroad connection close ${it.id}`],
    run: async () => { await ask("DELETE", `/v1/connections/${it.id}`); list.reload(); tell(`Connection ${it.id} is closed.`); },
  });
  return (
    <>
      <Header title="Sessions" sub="Connections of this node, whatever their protocol." />
      <div class="tools"><label class="filter"><span>On this page only</span><input type="search" data-filter value={only} onInput={(event) => setOnly(event.currentTarget.value)} placeholder="user, client, address  ( / )" spellcheck={false} /></label></div>
      <Failure problem={list.error} />
      {!list.data && !list.error && <Loading what="connections" />}
      {list.data && rows.length === 0 && <Empty title="Nobody fits" />}
      {rows.length > 0 && <Table label="Connections" rows={rows} id={(it) => String(it.id)} columns={[
        { key: "id", label: "Number", right: true, cell: (it) => it.id, sort: (it) => it.id },
        { key: "protocol", label: "Protocol", cell: (it) => <Tag>{it.protocol}</Tag>, sort: (it) => it.protocol },
        { key: "user", label: "User", cell: (it) => it.user ?? <span class="fine">nobody</span>, sort: (it) => it.user },
        { key: "client", label: "Client", cell: (it) => it.client ?? "–", sort: (it) => it.client },
        { key: "peer", label: "From", cell: (it) => <code>{it.peer}</code>, sort: (it) => it.peer },
        { key: "since", label: "Since", right: true, cell: (it) => <span title={time(it.since_ms)}>{ago(it.since_ms)}</span>, sort: (it) => it.since_ms },
        { key: "close", label: "Actions", cell: (it) => <button type="button" aria-label={`Close connection ${it.id}`} onClick={() => close(it)}>Close</button> },
      ]} />}
      {list.data && <Pager next={list.data.next} shown={rows.length} />}
      <Command lines={[curl("GET", "/v1/connections"), "", "postroad connection list"]} />
    </>
  );
}

export function Nodes() {
  const cluster = usePoll<Cluster>("/v1/cluster", 3000);
  const overview = usePoll<Overview>("/v1/overview", 3000);
  const [doc, here] = [cluster.data, overview.data];
  const status = doc?.status;
  const decide = (node: number, standing: "drained" | "active", text: string) => confirm({
    title: standing === "drained" ? `Drain node ${node}?` : `Resume node ${node}?`, text: <p>{text}</p>, button: standing === "drained" ? "Drain" : "Resume",
    command: [curl("PATCH", `/v1/nodes/${node}`, { standing }), "", `postroad node ${standing === "drained" ? "drain" : "resume"} ${node}`],
    run: async () => { await ask("PATCH", `/v1/nodes/${node}`, { standing }); cluster.reload(); tell("It is decided, and under way."); },
  });
  return (
    <>
      <Header title="Nodes and shards" sub={here && `Cluster ${here.cluster}`} />
      <Failure problem={cluster.error ?? overview.error} />
      {status && (
        <>
          <section class={status.verdict.can_lose_a_node ? "health good" : "health bad"}><span class="mark" aria-hidden="true">{status.verdict.can_lose_a_node ? "✓" : "!"}</span>
            <div><strong>{status.verdict.can_lose_a_node ? "Any one node may stop" : "No node should stop now"}</strong><p>{status.verdict.text}</p>
              {status.at_risk.length > 0 && <ul>{status.at_risk.map((it) => <li>{it}</li>)}</ul>}
              {status.under_way.length > 0 && <p class="fine">Under way: {status.under_way.join("; ")}</p>}</div></section>
          <Card title="Nodes"><Table label="Nodes" rows={status.nodes} id={(it) => String(it.node)} columns={[
            { key: "node", label: "Node", cell: (it) => <>{it.node}{it.node === doc.node && <small> answers</small>}</>, sort: (it) => it.node },
            { key: "address", label: "Address", cell: (it) => <code>{it.address}</code> },
            { key: "rack", label: "Rack", cell: (it) => it.rack ?? "–", sort: (it) => it.rack },
            { key: "live", label: "Connected", cell: (it) => it.live ? <Tag tone="good">yes</Tag> : <><Tag tone="bad">no</Tag> <small>{it.why}</small></> },
            { key: "standing", label: "Standing", cell: (it) => <Tag tone={it.standing === "active" ? "good" : "warn"}>{it.standing}</Tag> },
            { key: "leads", label: "Leads", right: true, cell: (it) => it.leads, sort: (it) => it.leads },
            { key: "holds", label: "Holds", right: true, cell: (it) => it.holds, sort: (it) => it.holds },
            { key: "do", label: "Actions", cell: (it) => it.standing === "active"
              ? <button type="button" aria-label={`Drain node ${it.node}`} onClick={() => decide(it.node, "drained", `Its ${it.leads} shards are led by others from then on. It keeps its copies, and may be stopped then.`)}>Drain</button>
              : <button type="button" aria-label={`Resume node ${it.node}`} onClick={() => decide(it.node, "active", "It may lead again, and stays.")}>Resume</button> },
          ]} /></Card>
          <Card title="Groups of nodes"><Table label="Shards of the cluster" rows={status.shards} id={(it) => String(it.shard)} columns={[
            { key: "shard", label: "Shard", cell: (it) => it.shard },
            { key: "leader", label: "Led by", cell: (it) => it.leader ?? <Tag tone="bad">nobody</Tag> },
            { key: "voters", label: "Voters", cell: (it) => it.voters.join(", ") },
            { key: "learners", label: "Learners", cell: (it) => it.learners.join(", ") || "–" },
            { key: "lags", label: "Behind", cell: (it) => it.lags.length ? it.lags.map((lag) => `node ${lag.node}: ${count(lag.entries)}`).join(", ") : "nobody" },
          ]} /></Card>
        </>
      )}
      {doc && !doc.clustered && <p class="banner"><Tag tone="calm">Alone</Tag> This node is alone: what is on its disk is the only copy. <code>--peer</code> and <code>--seeds</code> of <code>postroad serve</code> make a cluster.</p>}
      {here && (
        <>
          <Card title="Shards of this node"><Table label="Shards of this node" rows={here.shards} id={(it) => String(it.shard)} columns={[
            { key: "shard", label: "Shard", cell: (it) => <>{it.shard} <small>{it.shard === 0 ? "catalog" : "records"}</small></>, sort: (it) => it.shard },
            { key: "leader", label: "Led by", cell: (it) => it.leader === null ? <Tag tone="bad">nobody</Tag> : it.leader === here.node ? "this node" : `node ${it.leader}` },
            { key: "term", label: "Term", right: true, cell: (it) => count(it.term), sort: (it) => it.term },
            { key: "log", label: "Log ends at", right: true, cell: (it) => count(it.log_end), sort: (it) => it.log_end },
            { key: "lag", label: "Slowest lacks", right: true, cell: (it) => count(it.lag_entries), sort: (it) => it.lag_entries },
            { key: "segments", label: "Segments", right: true, cell: (it) => count(it.segments), sort: (it) => it.segments },
            { key: "bytes", label: "Size", right: true, cell: (it) => bytes(Math.max(it.segment_bytes, it.live_bytes)), sort: (it) => Math.max(it.segment_bytes, it.live_bytes) },
            { key: "live", label: "Live", cell: (it) => <Bar part={it.live_bytes} whole={Math.max(it.segment_bytes, it.live_bytes)} label={`Live share of shard ${it.shard}`} /> },
            { key: "room", label: "Room", cell: (it) => it.full ? <Tag tone="bad">full</Tag> : <Tag tone="good">yes</Tag> },
          ]} /></Card>
          <div class="grid two">
            <Card title="Syncs since the start">
              <dl class="facts"><Fact label="Syncs" value={count(here.journal.syncs)} /><Fact label="Average" value={here.journal.syncs ? `${(here.journal.sync_micros / here.journal.syncs / 1000).toFixed(2)} ms` : "–"} /><Fact label="99 of 100" value={quantile(here.journal.sync_buckets, 0.99)} /><Fact label="Entries a sync" value={here.journal.syncs ? (here.journal.entries / here.journal.syncs).toFixed(1) : "–"} /></dl>
              <Histogram buckets={here.journal.sync_buckets} />
            </Card>
            <Card title="Space">
              <dl class="facts"><Fact label="Free" value={bytes(here.disk.free_bytes)} note={`of ${bytes(here.disk.size_bytes)}`} /><Fact label="Segments" value={count(here.disk.segments)} note={`${bytes(here.disk.segment_bytes)} in those that are full`} /><Fact label="Live" value={bytes(here.disk.live_bytes)} note="may still be read" /><Fact label="Dead" value={bytes(Math.max(0, here.disk.segment_bytes - here.disk.live_bytes))} note="reclaimed by itself" /></dl>
            </Card>
          </div>
        </>
      )}
      <Command lines={[curl("GET", "/v1/cluster"), "", "postroad cluster status"]} />
    </>
  );
}

function Histogram({ buckets }: { buckets: Overview["journal"]["sync_buckets"] }) {
  const most = Math.max(...buckets.map((it) => it.syncs), 1);
  const label = (micros: number | null) => (micros === null ? "more" : micros < 1000 ? `${micros} µs` : micros < 1e6 ? `${micros / 1000} ms` : `${micros / 1e6} s`);
  return (
    <table class="histogram"><caption class="hidden">Syncs by how long they took</caption><tbody>
      {buckets.map((it) => <tr><th scope="row">{label(it.to_micros)}</th><td><meter class="bar" min={0} max={most} value={it.syncs} aria-label={`up to ${label(it.to_micros)}`} /></td><td class="right">{count(it.syncs)}</td></tr>)}
    </tbody></table>
  );
}

const RESOURCES = ["topic", "group", "cluster", "transactional-id"];
const ACTIONS = ["all", "read", "write", "create", "delete", "alter", "describe", "describe-configs", "alter-configs", "idempotent-write"];

export function Access({ tab }: { tab: string }) {
  return (
    <>
      <Header title="Access" sub="Who may log in, and what each may do, by every protocol." />
      <Tabs base={["access"]} current={tab} tabs={[["", "Users"], ["rules", "Rules"], ["explain", "May somebody …?"]]} />
      {tab === "rules" ? <Rules /> : tab === "explain" ? <Explain /> : <Users />}
    </>
  );
}

function Users() {
  const users = usePoll<Page<User>>("/v1/users?limit=500");
  const [notice, setNotice] = useState("");
  return (
    <>
      <Failure problem={users.error} />
      {users.data && <Table label="Users" rows={users.data.items} id={(it) => it.name} columns={[
        { key: "name", label: "Name", cell: (it) => <>{it.name} {it.of_settings && <Tag tone="warn">everything</Tag>} {it.loopback_only && <Tag>this machine only</Tag>}</>, sort: (it) => it.name },
        { key: "scram", label: "Proves by", cell: (it) => it.of_settings ? <small>the node's settings</small> : it.scram.join(", ") || <small>a password alone</small> },
        { key: "permissions", label: "RabbitMQ's permissions", cell: (it) => it.permissions.length ? it.permissions.map((p) => <div><code>{p.virtual_host}</code> <small>configure <code>{p.configure || "–"}</code> write <code>{p.write || "–"}</code> read <code>{p.read || "–"}</code></small></div>) : "–" },
        { key: "do", label: "Actions", cell: (it) => it.of_settings ? null : <span class="buttons left">
          <button type="button" aria-label={`Set the password of ${it.name}`} onClick={() => { let password = ""; confirm({ title: `Another password for ${it.name}`, text: <label class="field"><span>Password</span><input type="password" autocomplete="new-password" onInput={(event) => { password = event.currentTarget.value; }} /></label>, button: "Set", run: async () => { await ask("PUT", `/v1/users/${seg(it.name)}/password`, { password }); tell("The password was set; sessions of browsers ended."); } }); }}>Password</button>
          <button type="button" class="danger" aria-label={`Delete ${it.name}`} onClick={() => confirm({ title: `Delete user ${it.name}?`, text: <p>Its connections are closed. Rules about it stay.</p>, type: it.name, danger: true, button: "Delete", command: [curl("DELETE", `/v1/users/${seg(it.name)}`), "", `postroad user delete ${quoted(it.name)}`], run: async () => { await ask("DELETE", `/v1/users/${seg(it.name)}`); users.reload(); tell("The user was deleted."); } })}>Delete</button></span> },
      ]} />}
      <Card title="New user"><Form button="Make it" run={async (form, element) => { const made = await ask<{ log_ins: string | null }>("POST", "/v1/users", { name: form.get("name"), password: form.get("password") }); element.reset(); users.reload(); setNotice(made.log_ins ?? ""); tell("The user was made, and may do nothing yet: add a rule."); }}>
        <div class="row"><Field label="Name" name="name" required /><Field label="Password" name="password" type="password" required autocomplete="new-password" /></div></Form>
        <p>Once there are users, clients of Kafka and HTTP may have to log in, too: the answer says where and from when on.</p>
        {notice && <p role="status"><strong>Log-ins:</strong> {notice}</p>}</Card>
    </>
  );
}

function Rules() {
  const rules = usePoll<Page<Rule>>("/v1/acls?limit=1000");
  return (
    <>
      <Failure problem={rules.error} />
      {rules.data?.items.length === 0 && <Empty title="There are no rules">What no rule and no permission allows is not allowed to who has to log in.</Empty>}
      {rules.data && rules.data.items.length > 0 && <Table label="Rules" rows={rules.data.items} id={(it) => JSON.stringify(it)} columns={[
        { key: "principal", label: "Who", cell: (it) => <>{it.principal} <small>from {it.host === "*" ? "anywhere" : it.host}</small></>, sort: (it) => it.principal },
        { key: "verdict", label: "May", cell: (it) => it.verdict === "allow" ? <Tag tone="good">may</Tag> : <Tag tone="bad">may not</Tag>, sort: (it) => it.verdict },
        { key: "action", label: "Do", cell: (it) => it.action, sort: (it) => it.action },
        { key: "resource", label: "To", cell: (it) => <>{it.resource} <code>{it.name}{it.pattern === "prefixed" && "…"}</code></>, sort: (it) => `${it.resource} ${it.name}` },
        { key: "do", label: "Actions", cell: (it) => <button type="button" class="danger" aria-label={`Delete the rule of ${it.principal} about ${it.name}`} onClick={() => confirm({ title: "Delete the rule?", text: <p>{it.principal} {it.verdict === "allow" ? "may" : "may not"} {it.action} {it.resource} {it.name}. It counts no more at once.</p>, danger: true, button: "Delete", command: [curl("POST", "/v1/acls/delete", it)], run: async () => { await ask("POST", "/v1/acls/delete", it); rules.reload(); tell("The rule was deleted."); } })}>Delete</button> },
      ]} />}
      <Card title="New rule"><Form button="Add" run={async (form) => {
        const of = (name: string) => String(form.get(name));
        await ask("POST", "/v1/acls", { principal: `User:${of("user")}`, host: of("host") || "*", verdict: of("verdict"), action: of("action") === "all" ? "any" : of("action"), resource: of("resource"), name: of("resource") === "cluster" ? "kafka-cluster" : of("name"), pattern: of("pattern") });
        rules.reload(); tell("The rule counts from now on.");
      }}><div class="row">
        <Field label="User" name="user" required hint="* for everybody" /><Field label="Verdict" name="verdict" list={["allow", "deny"]} /><Field label="Action" name="action" list={ACTIONS} value="read" />
        <Field label="Resource" name="resource" list={RESOURCES} /><Field label="Name" name="name" hint="* for all; the cluster has none" /><Field label="Name is" name="pattern" list={["literal", "prefixed"]} /><Field label="From" name="host" value="*" />
      </div></Form></Card>
    </>
  );
}

function Explain() {
  const [answer, setAnswer] = useState<{ allowed: boolean; why: string } | null>(null);
  return (
    <Card title="May somebody do something, and why?">
      <Form button="Ask" run={async (form) => {
        const params = new URLSearchParams();
        for (const name of ["user", "action", "resource", "name", "host"]) if (form.get(name)) params.set(name, String(form.get(name)));
        setAnswer(await ask("GET", `/v1/access?${params}`));
      }}><div class="row">
        <Field label="User" name="user" required /><Field label="Action" name="action" list={ACTIONS.slice(1)} /><Field label="Resource" name="resource" list={RESOURCES} /><Field label="Name" name="name" /><Field label="From the address" name="host" hint="this one, if nothing is said" />
      </div></Form>
      {answer && <p class="verdict" role="status">{answer.allowed ? <Tag tone="good">yes</Tag> : <Tag tone="bad">no</Tag>} {answer.why}</p>}
    </Card>
  );
}
