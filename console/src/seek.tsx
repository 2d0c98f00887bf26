// A group that is to go on elsewhere: tried first, and taken back by where it was.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { ask } from "./api";
import { Card, confirm, Field, Form, Table, tell } from "./ui";
import { ago, count, curl } from "./words";

interface Moved { topic?: string; partition: number; offset: number; before: number | null }
interface Sought { offsets: Moved[]; again: number; skipped: number }
interface Kept { at: number; offsets: { topic?: string; partition: number; offset: number }[] }
const where = (it: { topic?: string; partition: number }) => (it.topic === undefined ? "" : `${it.topic}:`) + it.partition;

/** `topics`: those that the group has places in, where it has not one alone. */
export function Seek({ name, type, path, topics, partitions, done, children }: {
  name: string; type: string; path: string; topics: string[]; partitions: number[]; done: () => void; children: ComponentChildren;
}) {
  const key = `postroad.seek ${name}`;
  const [plan, setPlan] = useState<{ body: unknown; result: Sought } | null>(null);
  const [undo, setUndo] = useState<Kept | null>(() => {
    const kept = JSON.parse(localStorage.getItem(key) ?? "null");
    return kept && Date.now() - kept.at < 86_400_000 ? kept : null;
  });
  const tried = async (body: unknown) => setPlan({ body, result: await ask("POST", `${path}/seek?dry_run=true`, body) });
  const carry = async (body: unknown, result: Sought) => {
    const offsets = result.offsets.filter((it) => it.before !== null).map(({ topic, partition, before }) => ({ topic, partition, offset: before! }));
    const before = { at: Date.now(), offsets };
    await ask("POST", `${path}/seek`, body);
    localStorage.setItem(key, JSON.stringify(before));
    setUndo(before); setPlan(null); done(); tell("The group goes on there.");
  };
  return (
    <>
      <Card title="Go on elsewhere">
        <p>{children}</p>
        <Form button="What would happen?" run={async (form) => {
          const [to, topic, partition] = ["to", "topic", "partition"].map((it) => String(form.get(it) ?? ""));
          await tried(partition ? { offsets: [{ ...(topics.length ? { topic: topic || topics[0] } : {}), partition: Number(partition), offset: Number(to) }] }
            : { to, ...(topic ? { topics: [topic] } : {}) });
        }}>
          <div class="row">
            <Field label="To" name="to" value="earliest" required hint="earliest, latest, -100, 15m ago, 2026-03-01T12:00:00Z; an offset in one partition" />
            {topics.length > 0 && <label class="field"><span>Topic</span><select name="topic"><option value="">all</option>{topics.map((it) => <option>{it}</option>)}</select></label>}
            <label class="field"><span>Partition</span><select name="partition"><option value="">all</option>{partitions.map((it) => <option>{it}</option>)}</select></label>
          </div>
        </Form>
      </Card>
      {plan && (
        <Card title="What would happen">
          <p class="verdict"><strong>{count(plan.result.again)}</strong> records that were settled are delivered again. <strong>{count(plan.result.skipped)}</strong> that were not are passed over.</p>
          <Table label="Where it would go on" rows={plan.result.offsets} id={where} columns={[
            { key: "partition", label: "Partition", cell: where },
            { key: "before", label: "From", right: true, cell: (it) => count(it.before) },
            { key: "offset", label: "To", right: true, cell: (it) => count(it.offset) },
          ]} />
          <div class="buttons"><button type="button" onClick={() => setPlan(null)}>Leave it</button>
            <button type="button" class="danger" onClick={() => confirm({
              title: `Seek ${name}?`, text: <p><strong>{count(plan.result.again)} records</strong> are delivered again, {count(plan.result.skipped)} are passed over.</p>,
              type, danger: true, button: "Seek", command: [curl("POST", `${path}/seek`, plan.body)], run: () => carry(plan.body, plan.result),
            })}>Seek</button></div>
        </Card>
      )}
      {undo && undo.offsets.length > 0 && (
        <Card title="Back to where it was">
          <p>Before the seek of {ago(undo.at)} the group was at {undo.offsets.map((it) => `${where(it)}:${it.offset}`).slice(0, 8).join(", ")}{undo.offsets.length > 8 && " …"}. This browser keeps that for a day.</p>
          <div class="buttons"><button type="button" onClick={() => tried({ offsets: undo.offsets })}>Undo</button></div>
        </Card>
      )}
    </>
  );
}
