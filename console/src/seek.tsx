// Seek of a group: a dry run first, and an undo to the previous offsets.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { request } from "./api";
import { Card, confirm, Field, Form, Table, notify } from "./ui";
import { ago, count, curl } from "./format";

interface Move { topic?: string; partition: number; offset: number; before: number | null }
interface SeekResult { offsets: Move[]; again: number; skipped: number }
interface SavedOffsets { at: number; offsets: { topic?: string; partition: number; offset: number }[] }
const partitionName = (move: { topic?: string; partition: number }) => (move.topic === undefined ? "" : `${move.topic}:`) + move.partition;

/** `topics`: topics with offsets of the group; empty for a group of a single topic. */
export function Seek({ name, phrase, path, topics, partitions, onDone, children }: {
  name: string; phrase: string; path: string; topics: string[]; partitions: number[]; onDone: () => void; children: ComponentChildren;
}) {
  const key = `postroad.seek ${name}`;
  const [plan, setPlan] = useState<{ body: unknown; result: SeekResult } | null>(null);
  const [undo, setUndo] = useState<SavedOffsets | null>(() => {
    const saved = JSON.parse(localStorage.getItem(key) ?? "null");
    return saved && Date.now() - saved.at < 86_400_000 ? saved : null;
  });
  const dryRun = async (body: unknown) => setPlan({ body, result: await request("POST", `${path}/seek?dry_run=true`, body) });
  const apply = async (body: unknown, result: SeekResult) => {
    const offsets = result.offsets.filter((move) => move.before !== null).map(({ topic, partition, before }) => ({ topic, partition, offset: before! }));
    const saved = { at: Date.now(), offsets };
    await request("POST", `${path}/seek`, body);
    localStorage.setItem(key, JSON.stringify(saved));
    setUndo(saved); setPlan(null); onDone(); notify("The group was moved.");
  };
  return (
    <>
      <Card title="Seek">
        <p>{children}</p>
        <Form button="Dry run" run={async (form) => {
          const [to, topic, partition] = ["to", "topic", "partition"].map((name) => String(form.get(name) ?? ""));
          await dryRun(partition ? { offsets: [{ ...(topics.length ? { topic: topic || topics[0] } : {}), partition: Number(partition), offset: Number(to) }] }
            : { to, ...(topic ? { topics: [topic] } : {}) });
        }}>
          <div class="row">
            <Field label="To" name="to" value="earliest" required hint="earliest, latest, -100, 15m ago, 2026-03-01T12:00:00Z; an offset in one partition" />
            {topics.length > 0 && <label class="field"><span>Topic</span><select name="topic"><option value="">all</option>{topics.map((name) => <option>{name}</option>)}</select></label>}
            <label class="field"><span>Partition</span><select name="partition"><option value="">all</option>{partitions.map((number) => <option>{number}</option>)}</select></label>
          </div>
        </Form>
      </Card>
      {plan && (
        <Card title="Dry-run result">
          <p class="verdict"><strong>{count(plan.result.again)}</strong> settled records will be delivered again. <strong>{count(plan.result.skipped)}</strong> unsettled records will be skipped.</p>
          <Table label="Offsets after the seek" rows={plan.result.offsets} id={partitionName} columns={[
            { key: "partition", label: "Partition", cell: partitionName },
            { key: "before", label: "From", right: true, cell: (row) => count(row.before) },
            { key: "offset", label: "To", right: true, cell: (row) => count(row.offset) },
          ]} />
          <div class="buttons"><button type="button" onClick={() => setPlan(null)}>Cancel</button>
            <button type="button" class="danger" onClick={() => confirm({
              title: `Seek ${name}?`, text: <p><strong>{count(plan.result.again)} settled records</strong> will be delivered again, and {count(plan.result.skipped)} unsettled records skipped.</p>,
              phrase: phrase, danger: true, button: "Seek", command: [curl("POST", `${path}/seek`, plan.body)], run: () => apply(plan.body, plan.result),
            })}>Seek</button></div>
        </Card>
      )}
      {undo && undo.offsets.length > 0 && (
        <Card title="Previous offsets">
          <p>Offsets of the group before the seek of {ago(undo.at)}: {undo.offsets.map((position) => `${partitionName(position)}:${position.offset}`).slice(0, 8).join(", ")}{undo.offsets.length > 8 && " …"}. This browser keeps them for a day.</p>
          <div class="buttons"><button type="button" onClick={() => dryRun({ offsets: undo.offsets })}>Undo</button></div>
        </Card>
      )}
    </>
  );
}
