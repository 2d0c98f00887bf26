// What AMQP's clients have declared and what they have open, by RabbitMQ's management API.
import { ask, seg, usePoll } from "../api";
import { type Column, Command, confirm, Empty, Failure, Filter, Header, Loading, Table, Tabs, Tag, tell } from "../ui";
import type { Arguments, Binding, Chan, Consumer, Exchange, LiveConnection, Numbered, Queue } from "../types";
import { ago, count, curl, time } from "../words";
import { place, refine, to } from "../router";

const KINDS: [string, string][] = [["", "Queues"], ["exchanges", "Exchanges"], ["bindings", "Bindings"], ["connections", "Connections"], ["channels", "Channels"], ["consumers", "Consumers"]];
/** Those whose list of one virtual host is under it. */
const UNDER = ["connections", "channels"];

export function Amqp({ tab }: { tab: string }) {
  const vhosts = usePoll<{ name: string }[]>("/api/vhosts", 15_000);
  const vhost = place.value.query.get("vhost") ?? "";
  const names = (vhosts.data ?? []).map((it) => it.name);
  return (
    <>
      <Header title="AMQP" sub="What is declared, and who has what open at this node." />
      <Tabs base={["amqp"]} current={tab} tabs={KINDS} />
      <div class="tools">
        <Filter key={tab} label={tab === "bindings" ? "Filter routing keys" : tab === "consumers" ? "Filter consumer tags" : "Filter names"} />
        <label class="filter"><span>Virtual host</span>
          <select value={vhost} onChange={(event) => refine({ vhost: event.currentTarget.value, source: null, page: null })}>
            <option value="">all</option>{names.map((it) => <option value={it} selected={it === vhost}>{it}</option>)}
          </select></label>
      </div>
      <Failure problem={vhosts.error} />
      {tab === "exchanges" ? <List key={tab} what={tab} none="There are no exchanges" id={(it: Exchange) => `${it.vhost} ${it.name}`} columns={EXCHANGES} />
        : tab === "bindings" ? <List key={tab} what={tab} none="Nothing is bound" id={(it: Binding) => JSON.stringify([it.vhost, it.source, it.destination_type, it.destination, it.properties_key])} columns={BINDINGS} />
        : tab === "connections" ? <List key={tab} what={tab} none="Nobody is connected" id={(it: LiveConnection) => it.name} columns={CONNECTIONS} />
        : tab === "channels" ? <List key={tab} what={tab} none="No channel is open" id={(it: Chan) => it.name} columns={CHANNELS} />
        : tab === "consumers" ? <List key={tab} what={tab} none="Nobody consumes" id={(it: Consumer) => `${it.channel_details.name} ${it.consumer_tag}`} columns={CONSUMERS} />
        : <List key={tab} what="queues" none="There are no queues" id={(it: Queue) => `${it.vhost} ${it.name}`} columns={QUEUES} />}
    </>
  );
}

function List<T>({ what, none, id, columns }: { what: string; none: string; id: (row: T) => string; columns: Column<T>[] }) {
  const { query } = place.value;
  const [vhost, filter, page] = [query.get("vhost"), query.get("filter"), Number(query.get("page") ?? 1)];
  const source = what === "bindings" && vhost ? query.get("source") : null;
  const base = source !== null ? `/api/exchanges/${seg(vhost!)}/${seg(source || "amq.default")}/bindings/source` : !vhost ? `/api/${what}` : UNDER.includes(what) ? `/api/vhosts/${seg(vhost)}/${what}` : `/api/${what}/${seg(vhost)}`;
  const path = `${base}?page=${page}&page_size=100${filter ? `&name=${seg(filter)}` : ""}`;
  const list = usePoll<Numbered<T>>(path);
  const { data } = list;
  return (
    <>
      {source !== null && <p class="banner">From the exchange <strong>{source || "that is the default"}</strong> only. <button type="button" onClick={() => refine({ source: null, page: null })}>Show all</button></p>}
      <Failure problem={list.error} />
      {!data && !list.error && <Loading what={what} />}
      {data && (data.items.length === 0 ? <Empty title={none} /> : <Table label={what} rows={data.items} id={id} columns={columns} />)}
      {data && <p class="pager"><span>{count(data.items.length)} of {count(data.filtered_count)} shown</span>
        {data.page_count > 1 && <><button type="button" disabled={page <= 1} onClick={() => refine({ page: page > 2 ? String(page - 1) : null })}>Back</button>
          <button type="button" disabled={page >= data.page_count} onClick={() => refine({ page: String(page + 1) })}>Next</button></>}</p>}
      <Command lines={[curl("GET", base), "", `rabbitmqadmin list ${what}`]} />
    </>
  );
}

// -------------------------------------------------------------------------------------------- columns

const Said = ({ of }: { of: Arguments }) => {
  const all = Object.entries(of);
  return all.length === 0 ? <span class="fine">none</span> : <>{all.map(([name, value]) => <div><code>{name}</code> <small>{typeof value === "string" ? value : JSON.stringify(value)}</small></div>)}</>;
};
const lasts = (it: { durable: boolean; auto_delete: boolean }) => <>{it.durable ? <Tag tone="good">durable</Tag> : <Tag>transient</Tag>} {it.auto_delete && <Tag tone="warn">auto-delete</Tag>}</>;
const vhostOf = <T extends { vhost?: string }>(): Column<T> => ({ key: "vhost", label: "Virtual host", cell: (it) => <code>{it.vhost ?? "–"}</code>, sort: (it) => it.vhost ?? null });

const QUEUES: Column<Queue>[] = [
  { key: "name", label: "Queue", cell: (it) => it.vhost === "/" ? <a class="rowlink" href={to("topics", it.name)}>{it.name}</a> : it.name, sort: (it) => it.name },
  vhostOf(),
  { key: "type", label: "Type", cell: (it) => it.type, sort: (it) => it.type },
  { key: "kept", label: "Kept", cell: (it) => <>{lasts(it)} {it.exclusive && <Tag tone="warn">exclusive</Tag>}</> },
  { key: "arguments", label: "Arguments", cell: (it) => <><Said of={it.arguments} />{it.policy && <small>policy {it.policy}</small>}</> },
  { key: "ready", label: "Ready", right: true, cell: (it) => count(it.messages_ready), sort: (it) => it.messages_ready },
  { key: "unacked", label: "Unanswered", right: true, cell: (it) => count(it.messages_unacknowledged), sort: (it) => it.messages_unacknowledged },
  { key: "consumers", label: "Consumers", right: true, cell: (it) => count(it.consumers), sort: (it) => it.consumers },
];
const EXCHANGES: Column<Exchange>[] = [
  { key: "name", label: "Exchange", cell: (it) => it.name || <em>the default one</em>, sort: (it) => it.name },
  vhostOf(),
  { key: "type", label: "Type", cell: (it) => it.type, sort: (it) => it.type },
  { key: "kept", label: "Kept", cell: (it) => <>{lasts(it)} {it.internal && <Tag>internal</Tag>}</> },
  { key: "arguments", label: "Arguments", cell: (it) => <Said of={it.arguments} /> },
  { key: "bindings", label: "Leads to", cell: (it) => <a href={`${to("amqp", "bindings")}?${new URLSearchParams({ vhost: it.vhost, source: it.name })}`} aria-label={`Bindings of ${it.name || "the default exchange"}`}>bindings</a> },
];
const BINDINGS: Column<Binding>[] = [
  { key: "source", label: "From the exchange", cell: (it) => it.source || <em>the default one</em>, sort: (it) => it.source },
  { key: "key", label: "Routing key", cell: (it) => it.routing_key ? <code>{it.routing_key}</code> : <span class="fine">empty</span>, sort: (it) => it.routing_key },
  { key: "to", label: "To", cell: (it) => <>{it.destination} <Tag>{it.destination_type}</Tag></>, sort: (it) => it.destination },
  vhostOf(),
  { key: "arguments", label: "Arguments", cell: (it) => <Said of={it.arguments} /> },
];
const CONNECTIONS: Column<LiveConnection>[] = [
  { key: "name", label: "Connection", cell: (it) => <>{it.user_provided_name && <strong>{it.user_provided_name} </strong>}<code>{it.name}</code></>, sort: (it) => it.name },
  { key: "user", label: "User", cell: (it) => it.user || <span class="fine">nobody</span>, sort: (it) => it.user },
  { key: "protocol", label: "Protocol", cell: (it) => <>{it.protocol} {it.ssl && <Tag tone="good">TLS</Tag>} {it.state === "blocked" && <Tag tone="bad">blocked</Tag>}</>, sort: (it) => it.protocol },
  vhostOf(),
  { key: "client", label: "Client", cell: (it) => [it.client_properties.product, it.client_properties.version].filter((part) => typeof part === "string").join(" ") || "–" },
  { key: "channels", label: "Channels", right: true, cell: (it) => count(it.channels), sort: (it) => it.channels ?? null },
  { key: "since", label: "Since", right: true, cell: (it) => <span title={time(it.connected_at)}>{ago(it.connected_at)}</span>, sort: (it) => it.connected_at },
  { key: "close", label: "Actions", cell: (it) => <button type="button" aria-label={`Close connection ${it.name}`} onClick={() => confirm({
    title: "Close the connection?", text: <p><code>{it.name}</code>{it.user && ` of ${it.user}`} is told that it is closed, and may connect again. What it has not answered comes back.</p>, danger: true, button: "Close",
    command: [curl("DELETE", `/api/connections/${seg(it.name)}`)], run: async () => { await ask("DELETE", `/api/connections/${seg(it.name)}`); tell("The connection is closed."); },
  })}>Close</button> },
];
const CHANNELS: Column<Chan>[] = [
  { key: "name", label: "Channel", cell: (it) => <code>{it.name}</code>, sort: (it) => it.name },
  { key: "user", label: "User", cell: (it) => it.user, sort: (it) => it.user },
  vhostOf(),
  { key: "mode", label: "Mode", cell: (it) => it.transactional ? <Tag>transactions</Tag> : it.confirm ? <Tag>confirms</Tag> : <span class="fine">plain</span> },
  { key: "prefetch", label: "Prefetch", right: true, cell: (it) => <>{it.prefetch_count || "any"}{it.global_prefetch_count > 0 && <small> {count(it.global_prefetch_count)} together</small>}</>, sort: (it) => it.prefetch_count },
  { key: "consumers", label: "Consumers", right: true, cell: (it) => count(it.consumer_count), sort: (it) => it.consumer_count },
  { key: "unacked", label: "Unanswered", right: true, cell: (it) => count(it.messages_unacknowledged), sort: (it) => it.messages_unacknowledged },
  { key: "unconfirmed", label: "Unconfirmed", right: true, cell: (it) => count(it.messages_unconfirmed), sort: (it) => it.messages_unconfirmed },
];
const CONSUMERS: Column<Consumer>[] = [
  { key: "tag", label: "Consumer", cell: (it) => <code>{it.consumer_tag}</code>, sort: (it) => it.consumer_tag },
  { key: "queue", label: "Queue", cell: (it) => <>{it.queue.name} <small>{it.queue.vhost}</small></>, sort: (it) => it.queue.name },
  { key: "channel", label: "Channel", cell: (it) => <code>{it.channel_details.name}</code>, sort: (it) => it.channel_details.name },
  { key: "is", label: "Is", cell: (it) => <>{it.active ? <Tag tone="good">active</Tag> : <Tag tone="warn">waiting</Tag>} {it.exclusive && <Tag>exclusive</Tag>} {!it.ack_required && <Tag>answers nothing</Tag>}</> },
  { key: "prefetch", label: "Prefetch", right: true, cell: (it) => it.prefetch_count || "any", sort: (it) => it.prefetch_count },
  { key: "arguments", label: "Arguments", cell: (it) => <Said of={it.arguments} /> },
];
