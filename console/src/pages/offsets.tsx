// Groups that commit offsets: which there are, how far each is, who is in it, moved and deleted.
import { ask, seg, usePoll } from "../api";
import { Card, Command, confirm, Empty, Fact, Failure, Header, Loading, Pager, Table, Tabs, Tag, tell } from "../ui";
import type { Assigned, GroupMember, Lag, Membership, OffsetRow, Page } from "../types";
import { count, curl, quoted } from "../words";
import { go, place, to } from "../router";
import { Seek } from "../seek";

const TONES: Record<string, "good" | "warn"> = { Stable: "good", Empty: "warn" };
const State = ({ of }: { of: Membership | null }) => (of ? <Tag tone={TONES[of.state] ?? "warn"}>{of.state}</Tag> : <small>another node knows</small>);
const paged = (path: string, limit: number) => {
  const cursor = place.value.query.get("cursor");
  return `${path}?limit=${limit}${cursor ? `&cursor=${seg(cursor)}` : ""}`;
};

export function OffsetGroups() {
  const list = usePoll<Page<{ name: string; membership: Membership | null }>>(paged("/v1/groups", 50));
  return (
    <>
      <Failure problem={list.error} />
      {list.data?.items.length === 0 && <Empty title="No group has committed an offset">Consumers of Kafka with a group.id stand here once they join or commit.</Empty>}
      {list.data && list.data.items.length > 0 && (
        <>
          <Table label="Groups that commit offsets" rows={list.data.items} id={(it) => it.name} columns={[
            { key: "name", label: "Group", cell: (it) => <a class="rowlink" href={to("groups", "offsets", it.name)}>{it.name}</a>, sort: (it) => it.name },
            { key: "state", label: "State", cell: (it) => <State of={it.membership} />, sort: (it) => it.membership?.state ?? null },
            { key: "kind", label: "Protocol", cell: (it) => it.membership?.kind ?? "–", sort: (it) => it.membership?.kind ?? null },
            { key: "members", label: "Members", right: true, cell: (it) => count(it.membership?.members), sort: (it) => it.membership?.members ?? null },
            { key: "lag", label: "Records behind", right: true, cell: (it) => <LagOf group={it.name} /> },
          ]} />
          <Pager next={list.data.next} shown={list.data.items.length} />
        </>
      )}
    </>
  );
}

function LagOf({ group }: { group: string }) {
  const lag = usePoll<Lag>(`/v1/groups/${seg(group)}/lag`, 15_000);
  return <>{lag.error ? "–" : lag.data ? count(lag.data.lag) : "…"}</>;
}

export function OffsetGroup({ name, tab }: { name: string; tab: string }) {
  const path = `/v1/groups/${seg(name)}`;
  const group = usePoll<{ coordinator: number; membership: Membership; offsets: number }>(path, 3000);
  const lag = usePoll<Lag>(`${path}/lag`, 3000);
  const change = lag.data && lag.before ? lag.data.lag - lag.before.lag : undefined;
  const nothing = lag.error?.document.status === 404;
  const membership = group.data?.membership;
  return (
    <>
      <Header title={name} trail={[["Groups", to("groups", "offsets")]]} sub="Commits a position in each partition.">
        {group.data && <button type="button" class="danger" disabled={membership!.members > 0} onClick={() => confirm({
          title: `Delete the group ${name}?`, text: <p>What it has committed in <strong>{count(group.data!.offsets)} partitions</strong> is forgotten, for ever. The records stay.</p>,
          type: name, danger: true, button: "Delete group", command: [curl("DELETE", path), "", `postroad group delete ${quoted(name)}`],
          run: async () => { await ask("DELETE", path); tell("The group was deleted."); go(to("groups", "offsets")); },
        })}>Delete</button>}
      </Header>
      <Tabs base={["groups", "offsets", name]} current={tab} tabs={[["", "Positions"], ["members", "Members"], ["seek", "Seek"]]} />
      <Failure problem={group.error} />
      {!nothing && <Failure problem={lag.error} />}
      {!group.data && !group.error && <Loading what="the group" />}
      {membership && <Card><dl class="facts">
        <Fact label="State" value={<State of={membership} />} note={membership.kind} />
        <Fact label="Members" value={count(membership.members)} note={membership.assignor ? `divided by ${membership.assignor}` : ""} />
        <Fact label="Records behind" value={count(lag.data?.lag)} note={change === undefined ? "" : change > 0 ? "it grows" : change < 0 ? "it falls" : "it stays"} />
        <Fact label="Partitions" value={count(group.data?.offsets)} note="with a position" />
        <Fact label="Coordinated by" value={`node ${group.data!.coordinator}`} />
      </dl></Card>}
      {tab === "" && (nothing ? <Empty title="It has committed nothing yet" /> : <Positions path={path} />)}
      {tab === "members" && <Members path={path} />}
      {tab === "seek" && membership && (membership.members > 0
        ? <Empty title="It has members">They would go on from where they are, and commit over what is set here. Stop them first.</Empty>
        : lag.data && <Seek name={name} type={name} path={path} topics={[...new Set(lag.data.partitions.map((it) => it.topic))]}
            partitions={[...new Set(lag.data.partitions.map((it) => it.partition))].sort((a, b) => a - b)} done={lag.reload}>Its members read on from there when they come back.</Seek>)}
      <Command lines={[curl("GET", path), curl("GET", `${path}/offsets`), "", `postroad group describe ${quoted(name)}`]} />
    </>
  );
}

function Positions({ path }: { path: string }) {
  const list = usePoll<Page<OffsetRow>>(paged(`${path}/offsets`, 200), 3000);
  return (
    <>
      <Failure problem={list.error} />
      {list.data && <Table label="Positions" rows={list.data.items} id={(it) => `${it.topic}/${it.partition}`} columns={[
        { key: "topic", label: "Topic", cell: (it) => <a class="rowlink" href={to("topics", it.topic)}>{it.topic}</a>, sort: (it) => it.topic },
        { key: "partition", label: "Partition", right: true, cell: (it) => it.partition, sort: (it) => it.partition },
        { key: "offset", label: "Committed", right: true, cell: (it) => it.offset < it.start ? <><Tag tone="bad">gone</Tag> {count(it.offset)}</> : count(it.offset), sort: (it) => it.offset },
        { key: "end", label: "End", right: true, cell: (it) => count(it.end), sort: (it) => it.end },
        { key: "lag", label: "Behind", right: true, cell: (it) => count(it.lag), sort: (it) => it.lag },
      ]} />}
      {list.data && <Pager next={list.data.next} shown={list.data.items.length} />}
    </>
  );
}

const parts = (assigned: Assigned[] | null) => assigned === null ? <small>not said by partitions</small>
  : assigned.length === 0 ? <small>nothing</small>
  : assigned.map((it) => <div><a href={to("topics", it.topic)}>{it.topic}</a> <small>{it.partitions.join(", ")}</small></div>);

function Members({ path }: { path: string }) {
  const list = usePoll<Page<GroupMember>>(paged(`${path}/members`, 100), 3000);
  return (
    <>
      <Failure problem={list.error} />
      {list.data?.items.length === 0 && <Empty title="Nobody is in it">Where it goes on is kept.</Empty>}
      {list.data && list.data.items.length > 0 && <Table label="Members" rows={list.data.items} id={(it) => it.id} columns={[
        { key: "client", label: "Client", cell: (it) => <>{it.client || "–"}{it.instance && <small> as {it.instance}</small>}<div><small><code>{it.id}</code></small></div></>, sort: (it) => it.client },
        { key: "address", label: "From", cell: (it) => <code>{it.address}</code>, sort: (it) => it.address },
        { key: "has", label: "Has", cell: (it) => parts(it.assignment) },
        { key: "target", label: "Is to have", cell: (it) => it.target === null ? <small>the same</small> : parts(it.target) },
      ]} />}
      {list.data && <Pager next={list.data.next} shown={list.data.items.length} />}
    </>
  );
}
