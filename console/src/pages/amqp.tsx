// AMQP queues, exchanges, bindings, connections, channels and consumers, from RabbitMQ's management API.
import { request, seg, usePoll } from "../api";
import { type Column, Command, confirm, Empty, Failure, Filter, Header, Loading, Table, Tabs, Tag, notify } from "../ui";
import type { Arguments, Binding, Channel, Consumer, Exchange, AmqpConnection, NumberedPage, Queue } from "../types";
import { ago, count, curl, time } from "../format";
import { route, setQuery, hrefOf } from "../router";

const KINDS: [string, string][] = [["", "Queues"], ["exchanges", "Exchanges"], ["bindings", "Bindings"], ["connections", "Connections"], ["channels", "Channels"], ["consumers", "Consumers"]];
/** Kinds whose list for one virtual host is under `/api/vhosts/VHOST`. */
const LISTED_BY_VHOST = ["connections", "channels"];

export function Amqp({ tab }: { tab: string }) {
  const vhosts = usePoll<{ name: string }[]>("/api/vhosts", 15_000);
  const vhost = route.value.query.get("vhost") ?? "";
  const names = (vhosts.data ?? []).map((host) => host.name);
  return (
    <>
      <Header title="AMQP" sub="Declared queues, exchanges and bindings, and the sessions of this node." />
      <Tabs base={["amqp"]} current={tab} tabs={KINDS} />
      <div class="tools">
        <Filter key={tab} label={tab === "bindings" ? "Filter routing keys" : tab === "consumers" ? "Filter consumer tags" : "Filter names"} />
        <label class="filter"><span>Virtual host</span>
          <select value={vhost} onChange={(event) => setQuery({ vhost: event.currentTarget.value, source: null, page: null })}>
            <option value="">all</option>{names.map((name) => <option value={name} selected={name === vhost}>{name}</option>)}
          </select></label>
      </div>
      <Failure problem={vhosts.error} />
      {tab === "exchanges" ? <List key={tab} kind={tab} empty="No exchanges" id={(row: Exchange) => `${row.vhost} ${row.name}`} columns={EXCHANGES} />
        : tab === "bindings" ? <List key={tab} kind={tab} empty="No bindings" id={(row: Binding) => JSON.stringify([row.vhost, row.source, row.destination_type, row.destination, row.properties_key])} columns={BINDINGS} />
        : tab === "connections" ? <List key={tab} kind={tab} empty="No connections" id={(row: AmqpConnection) => row.name} columns={CONNECTIONS} />
        : tab === "channels" ? <List key={tab} kind={tab} empty="No channels" id={(row: Channel) => row.name} columns={CHANNELS} />
        : tab === "consumers" ? <List key={tab} kind={tab} empty="No consumers" id={(row: Consumer) => `${row.channel_details.name} ${row.consumer_tag}`} columns={CONSUMERS} />
        : <List key={tab} kind="queues" empty="No queues" id={(row: Queue) => `${row.vhost} ${row.name}`} columns={QUEUES} />}
    </>
  );
}

function List<T>({ kind, empty, id, columns }: { kind: string; empty: string; id: (row: T) => string; columns: Column<T>[] }) {
  const { query } = route.value;
  const [vhost, filter, page] = [query.get("vhost"), query.get("filter"), Number(query.get("page") ?? 1)];
  const source = kind === "bindings" && vhost ? query.get("source") : null;
  const base = source !== null ? `/api/exchanges/${seg(vhost!)}/${seg(source || "amq.default")}/bindings/source` : !vhost ? `/api/${kind}` : LISTED_BY_VHOST.includes(kind) ? `/api/vhosts/${seg(vhost)}/${kind}` : `/api/${kind}/${seg(vhost)}`;
  const path = `${base}?page=${page}&page_size=100${filter ? `&name=${seg(filter)}` : ""}`;
  const list = usePoll<NumberedPage<T>>(path);
  const { data } = list;
  return (
    <>
      {source !== null && <p class="banner">Bindings of {source ? <>exchange <strong>{source}</strong></> : <strong>the default exchange</strong>}. <button type="button" onClick={() => setQuery({ source: null, page: null })}>Show all</button></p>}
      <Failure problem={list.error} />
      {!data && !list.error && <Loading subject={kind} />}
      {data && (data.items.length === 0 ? <Empty title={empty} /> : <Table label={kind} rows={data.items} id={id} columns={columns} />)}
      {data && <p class="pager"><span>{count(data.items.length)} of {count(data.filtered_count)} shown</span>
        {data.page_count > 1 && <><button type="button" disabled={page <= 1} onClick={() => setQuery({ page: page > 2 ? String(page - 1) : null })}>Previous</button>
          <button type="button" disabled={page >= data.page_count} onClick={() => setQuery({ page: String(page + 1) })}>Next</button></>}</p>}
      <Command lines={[curl("GET", base), "", `rabbitmqadmin list ${kind}`]} />
    </>
  );
}

// -------------------------------------------------------------------------------------------- columns

const ArgumentList = ({ values }: { values: Arguments }) => {
  const entries = Object.entries(values);
  return entries.length === 0 ? <span class="fine">none</span> : <>{entries.map(([name, value]) => <div><code>{name}</code> <small>{typeof value === "string" ? value : JSON.stringify(value)}</small></div>)}</>;
};
const durability = (object: { durable: boolean; auto_delete: boolean }) => <>{object.durable ? <Tag tone="good">durable</Tag> : <Tag>transient</Tag>} {object.auto_delete && <Tag tone="warn">auto-delete</Tag>}</>;
const vhostColumn = <T extends { vhost?: string }>(): Column<T> => ({ key: "vhost", label: "Virtual host", cell: (row) => <code>{row.vhost ?? "–"}</code>, sort: (row) => row.vhost ?? null });

const QUEUES: Column<Queue>[] = [
  { key: "name", label: "Queue", cell: (row) => row.vhost === "/" ? <a class="rowlink" href={hrefOf("topics", row.name)}>{row.name}</a> : row.name, sort: (row) => row.name },
  vhostColumn(),
  { key: "type", label: "Type", cell: (row) => row.type, sort: (row) => row.type },
  { key: "features", label: "Features", cell: (row) => <>{durability(row)} {row.exclusive && <Tag tone="warn">exclusive</Tag>}</> },
  { key: "arguments", label: "Arguments", cell: (row) => <><ArgumentList values={row.arguments} />{row.policy && <small>policy {row.policy}</small>}</> },
  { key: "ready", label: "Ready", right: true, cell: (row) => count(row.messages_ready), sort: (row) => row.messages_ready },
  { key: "unacked", label: "Unacked", right: true, cell: (row) => count(row.messages_unacknowledged), sort: (row) => row.messages_unacknowledged },
  { key: "consumers", label: "Consumers", right: true, cell: (row) => count(row.consumers), sort: (row) => row.consumers },
];
const EXCHANGES: Column<Exchange>[] = [
  { key: "name", label: "Exchange", cell: (row) => row.name || <em>default exchange</em>, sort: (row) => row.name },
  vhostColumn(),
  { key: "type", label: "Type", cell: (row) => row.type, sort: (row) => row.type },
  { key: "features", label: "Features", cell: (row) => <>{durability(row)} {row.internal && <Tag>internal</Tag>}</> },
  { key: "arguments", label: "Arguments", cell: (row) => <ArgumentList values={row.arguments} /> },
  { key: "bindings", label: "Bindings", cell: (row) => <a href={`${hrefOf("amqp", "bindings")}?${new URLSearchParams({ vhost: row.vhost, source: row.name })}`} aria-label={`Bindings of ${row.name || "the default exchange"}`}>bindings</a> },
];
const BINDINGS: Column<Binding>[] = [
  { key: "source", label: "Source", cell: (row) => row.source || <em>default exchange</em>, sort: (row) => row.source },
  { key: "key", label: "Routing key", cell: (row) => row.routing_key ? <code>{row.routing_key}</code> : <span class="fine">empty</span>, sort: (row) => row.routing_key },
  { key: "destination", label: "Destination", cell: (row) => <>{row.destination} <Tag>{row.destination_type}</Tag></>, sort: (row) => row.destination },
  vhostColumn(),
  { key: "arguments", label: "Arguments", cell: (row) => <ArgumentList values={row.arguments} /> },
];
const CONNECTIONS: Column<AmqpConnection>[] = [
  { key: "name", label: "Connection", cell: (row) => <>{row.user_provided_name && <strong>{row.user_provided_name} </strong>}<code>{row.name}</code></>, sort: (row) => row.name },
  { key: "user", label: "User", cell: (row) => row.user || <span class="fine">none</span>, sort: (row) => row.user },
  { key: "protocol", label: "Protocol", cell: (row) => <>{row.protocol} {row.ssl && <Tag tone="good">TLS</Tag>} {row.state === "blocked" && <Tag tone="bad">blocked</Tag>}</>, sort: (row) => row.protocol },
  vhostColumn(),
  { key: "client", label: "Client", cell: (row) => [row.client_properties.product, row.client_properties.version].filter((part) => typeof part === "string").join(" ") || "–" },
  { key: "channels", label: "Channels", right: true, cell: (row) => count(row.channels), sort: (row) => row.channels ?? null },
  { key: "since", label: "Opened", right: true, cell: (row) => <span title={time(row.connected_at)}>{ago(row.connected_at)}</span>, sort: (row) => row.connected_at },
  { key: "close", label: "Actions", cell: (row) => <button type="button" aria-label={`Close connection ${row.name}`} onClick={() => confirm({
    title: "Close connection?", text: <p>Closes <code>{row.name}</code>{row.user && ` of ${row.user}`}. Unacknowledged messages are requeued. The client is notified, and may reconnect.</p>, danger: true, button: "Close",
    command: [curl("DELETE", `/api/connections/${seg(row.name)}`)], run: async () => { await request("DELETE", `/api/connections/${seg(row.name)}`); notify("Closed the connection."); },
  })}>Close</button> },
];
const CHANNELS: Column<Channel>[] = [
  { key: "name", label: "Channel", cell: (row) => <code>{row.name}</code>, sort: (row) => row.name },
  { key: "user", label: "User", cell: (row) => row.user, sort: (row) => row.user },
  vhostColumn(),
  { key: "mode", label: "Mode", cell: (row) => row.transactional ? <Tag>transactional</Tag> : row.confirm ? <Tag>confirm</Tag> : <span class="fine">none</span> },
  { key: "prefetch", label: "Prefetch", right: true, cell: (row) => <>{row.prefetch_count || "unlimited"}{row.global_prefetch_count > 0 && <small> {count(row.global_prefetch_count)} per channel</small>}</>, sort: (row) => row.prefetch_count },
  { key: "consumers", label: "Consumers", right: true, cell: (row) => count(row.consumer_count), sort: (row) => row.consumer_count },
  { key: "unacked", label: "Unacked", right: true, cell: (row) => count(row.messages_unacknowledged), sort: (row) => row.messages_unacknowledged },
  { key: "unconfirmed", label: "Unconfirmed", right: true, cell: (row) => count(row.messages_unconfirmed), sort: (row) => row.messages_unconfirmed },
];
const CONSUMERS: Column<Consumer>[] = [
  { key: "tag", label: "Consumer", cell: (row) => <code>{row.consumer_tag}</code>, sort: (row) => row.consumer_tag },
  { key: "queue", label: "Queue", cell: (row) => <>{row.queue.name} <small>{row.queue.vhost}</small></>, sort: (row) => row.queue.name },
  { key: "channel", label: "Channel", cell: (row) => <code>{row.channel_details.name}</code>, sort: (row) => row.channel_details.name },
  { key: "state", label: "State", cell: (row) => <>{row.active ? <Tag tone="good">active</Tag> : <Tag tone="warn">waiting</Tag>} {row.exclusive && <Tag>exclusive</Tag>} {!row.ack_required && <Tag>auto-ack</Tag>}</> },
  { key: "prefetch", label: "Prefetch", right: true, cell: (row) => row.prefetch_count || "unlimited", sort: (row) => row.prefetch_count },
  { key: "arguments", label: "Arguments", cell: (row) => <ArgumentList values={row.arguments} /> },
];
