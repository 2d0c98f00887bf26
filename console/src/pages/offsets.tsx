// Consumer groups: list, committed offsets, lag, members, seek and deletion.
import { request, seg, usePoll } from "../api";
import { Card, Command, confirm, Empty, Fact, Failure, Header, Loading, Pager, Table, Tabs, Tag, notify } from "../ui";
import type { Assignment, GroupMember, Lag, Membership, OffsetRow, Page } from "../types";
import { count, curl, quoted } from "../format";
import { navigate, route, hrefOf } from "../router";
import { Seek } from "../seek";

const STATE_TONES: Record<string, "good" | "warn"> = { Stable: "good", Empty: "warn" };
const State = ({ membership }: { membership: Membership | null }) => (membership ? <Tag tone={STATE_TONES[membership.state] ?? "warn"}>{membership.state}</Tag> : <small>known by another node</small>);
const pagePath = (path: string, limit: number) => {
  const cursor = route.value.query.get("cursor");
  return `${path}?limit=${limit}${cursor ? `&cursor=${seg(cursor)}` : ""}`;
};

export function OffsetGroups() {
  const list = usePoll<Page<{ name: string; membership: Membership | null }>>(pagePath("/v1/groups", 50));
  return (
    <>
      <Failure problem={list.error} />
      {list.data?.items.length === 0 && <Empty title="No consumer groups">A Kafka consumer with a group.id is listed after it joins or commits.</Empty>}
      {list.data && list.data.items.length > 0 && (
        <>
          <Table label="Consumer groups" rows={list.data.items} id={(row) => row.name} columns={[
            { key: "name", label: "Group", cell: (row) => <a class="rowlink" href={hrefOf("groups", "offsets", row.name)}>{row.name}</a>, sort: (row) => row.name },
            { key: "state", label: "State", cell: (row) => <State membership={row.membership} />, sort: (row) => row.membership?.state ?? null },
            { key: "kind", label: "Protocol", cell: (row) => row.membership?.kind ?? "–", sort: (row) => row.membership?.kind ?? null },
            { key: "members", label: "Members", right: true, cell: (row) => count(row.membership?.members), sort: (row) => row.membership?.members ?? null },
            { key: "lag", label: "Lag", right: true, cell: (row) => <GroupLag group={row.name} /> },
          ]} />
          <Pager next={list.data.next} shown={list.data.items.length} />
        </>
      )}
    </>
  );
}

function GroupLag({ group }: { group: string }) {
  const lag = usePoll<Lag>(`/v1/groups/${seg(group)}/lag`, 15_000);
  return <>{lag.error ? "–" : lag.data ? count(lag.data.lag) : "…"}</>;
}

export function OffsetGroup({ name, tab }: { name: string; tab: string }) {
  const path = `/v1/groups/${seg(name)}`;
  const group = usePoll<{ coordinator: number; membership: Membership; offsets: number }>(path, 3000);
  const lag = usePoll<Lag>(`${path}/lag`, 3000);
  const change = lag.data && lag.previous ? lag.data.lag - lag.previous.lag : undefined;
  const isUncommitted = lag.error?.document.status === 404;
  const membership = group.data?.membership;
  return (
    <>
      <Header title={name} trail={[["Groups", hrefOf("groups", "offsets")]]} sub="Consumer group that commits an offset per partition.">
        {group.data && <button type="button" class="danger" disabled={membership!.members > 0} onClick={() => confirm({
          title: `Delete group ${name}?`, text: <p>This permanently deletes its committed offsets in <strong>{count(group.data!.offsets)} partitions</strong>. The records stay.</p>,
          phrase: name, danger: true, button: "Delete group", command: [curl("DELETE", path), "", `postroad group delete ${quoted(name)}`],
          run: async () => { await request("DELETE", path); notify(`Deleted group ${name}.`); navigate(hrefOf("groups", "offsets")); },
        })}>Delete</button>}
      </Header>
      <Tabs base={["groups", "offsets", name]} current={tab} tabs={[["", "Offsets"], ["members", "Members"], ["seek", "Seek"]]} />
      <Failure problem={group.error} />
      {!isUncommitted && <Failure problem={lag.error} />}
      {!group.data && !group.error && <Loading subject="group" />}
      {membership && <Card><dl class="facts">
        <Fact label="State" value={<State membership={membership} />} note={membership.kind} />
        <Fact label="Members" value={count(membership.members)} note={membership.assignor ? `assignor ${membership.assignor}` : ""} />
        <Fact label="Lag" value={count(lag.data?.lag)} note={change === undefined ? "" : change > 0 ? "growing" : change < 0 ? "falling" : "unchanged"} />
        <Fact label="Partitions" value={count(group.data?.offsets)} note="with a committed offset" />
        <Fact label="Coordinator" value={`node ${group.data!.coordinator}`} />
      </dl></Card>}
      {tab === "" && (isUncommitted ? <Empty title="No committed offsets" /> : <Offsets path={path} />)}
      {tab === "members" && <Members path={path} />}
      {tab === "seek" && membership && (membership.members > 0
        ? <Empty title="The group has members">Members would continue at their own offsets and overwrite the new ones. Stop the members first.</Empty>
        : lag.data && <Seek name={name} phrase={name} path={path} topics={[...new Set(lag.data.partitions.map((row) => row.topic))]}
            partitions={[...new Set(lag.data.partitions.map((row) => row.partition))].sort((a, b) => a - b)} onDone={lag.reload}>Members continue at the new offsets when they rejoin.</Seek>)}
      <Command lines={[curl("GET", path), curl("GET", `${path}/offsets`), "", `postroad group describe ${quoted(name)}`]} />
    </>
  );
}

function Offsets({ path }: { path: string }) {
  const list = usePoll<Page<OffsetRow>>(pagePath(`${path}/offsets`, 200), 3000);
  return (
    <>
      <Failure problem={list.error} />
      {list.data && <Table label="Committed offsets" rows={list.data.items} id={(row) => `${row.topic}/${row.partition}`} columns={[
        { key: "topic", label: "Topic", cell: (row) => <a class="rowlink" href={hrefOf("topics", row.topic)}>{row.topic}</a>, sort: (row) => row.topic },
        { key: "partition", label: "Partition", right: true, cell: (row) => row.partition, sort: (row) => row.partition },
        { key: "offset", label: "Committed", right: true, cell: (row) => row.offset < row.start ? <><Tag tone="bad">deleted</Tag> {count(row.offset)}</> : count(row.offset), sort: (row) => row.offset },
        { key: "end", label: "End", right: true, cell: (row) => count(row.end), sort: (row) => row.end },
        { key: "lag", label: "Lag", right: true, cell: (row) => count(row.lag), sort: (row) => row.lag },
      ]} />}
      {list.data && <Pager next={list.data.next} shown={list.data.items.length} />}
    </>
  );
}

const assignmentCell = (assigned: Assignment[] | null) => assigned === null ? <small>not reported by partition</small>
  : assigned.length === 0 ? <small>none</small>
  : assigned.map((topic) => <div><a href={hrefOf("topics", topic.topic)}>{topic.topic}</a> <small>{topic.partitions.join(", ")}</small></div>);

function Members({ path }: { path: string }) {
  const list = usePoll<Page<GroupMember>>(pagePath(`${path}/members`, 100), 3000);
  return (
    <>
      <Failure problem={list.error} />
      {list.data?.items.length === 0 && <Empty title="No members">The committed offsets are kept.</Empty>}
      {list.data && list.data.items.length > 0 && <Table label="Members" rows={list.data.items} id={(row) => row.id} columns={[
        { key: "client", label: "Client", cell: (row) => <>{row.client || "–"}{row.instance && <small> instance {row.instance}</small>}<div><small><code>{row.id}</code></small></div></>, sort: (row) => row.client },
        { key: "address", label: "Address", cell: (row) => <code>{row.address}</code>, sort: (row) => row.address },
        { key: "assignment", label: "Assignment", cell: (row) => assignmentCell(row.assignment) },
        { key: "target", label: "Target assignment", cell: (row) => row.target === null ? <small>unchanged</small> : assignmentCell(row.target) },
      ]} />}
      {list.data && <Pager next={list.data.next} shown={list.data.items.length} />}
    </>
  );
}
