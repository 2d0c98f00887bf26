// Records: in a list, one by one, looked for, published.
import { useState } from "preact/hooks";
import { raw, seg } from "./api";
import { Command, Empty, Tag, tell } from "./ui";
import type { Payload, Rec } from "./types";
import { to } from "./router";
import { ago, bytes, curl, quoted, size, text, time } from "./words";

export const recordId = (it: Rec) => `${it.partition}.${it.offset}`;
const recordPath = (topic: string, it: Rec) => `/v1/topics/${seg(topic)}/partitions/${it.partition}/records?from=${it.offset}&max_records=1`;

function pretty(payload: Payload): string | null {
  if (typeof payload !== "string" || !/^\s*[[{]/.test(payload)) return null;
  try { return JSON.stringify(JSON.parse(payload), null, 2); } catch { return null; }
}

function hex(payload: Payload): string {
  if (payload == null) return "";
  const raw = typeof payload === "string" ? new TextEncoder().encode(payload) : Uint8Array.from(atob(payload.base64), (it) => it.charCodeAt(0));
  const lines = [];
  for (let at = 0; at < Math.min(raw.length, 4096); at += 16) {
    const row = [...raw.slice(at, at + 16)];
    const shown = row.map((it) => it.toString(16).padStart(2, "0")).join(" ").padEnd(48);
    lines.push(`${at.toString(16).padStart(6, "0")}  ${shown} ${row.map((it) => (it > 31 && it < 127 ? String.fromCharCode(it) : ".")).join("")}`);
  }
  return lines.join("\n") + (raw.length > 4096 ? `\n… ${raw.length - 4096} bytes more` : "");
}

function save(name: string, content: string, type: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

export const download = (topic: string, records: Rec[]) =>
  save(`${topic}.ndjson`, records.map((it) => JSON.stringify(it)).join("\n") + "\n", "application/x-ndjson");

export function Value({ value }: { value: Payload }) {
  const json = pretty(value);
  const ways = [...(json ? ["JSON"] : []), "Text", "Hex"];
  const [way, setWay] = useState(ways[0]);
  if (value == null) return <p class="fine">No value: in a compacted topic this deletes the key.</p>;
  const shown = way === "JSON" ? json : way === "Hex" ? hex(value) : text(value);
  return (
    <div class="value">
      <div class="ways" role="group" aria-label="How the value is shown">
        {ways.map((it) => <button type="button" aria-pressed={it === way} onClick={() => setWay(it)}>{it}</button>)}
        <small>{bytes(size(value))}</small>
      </div>
      <pre tabIndex={0}>{shown}</pre>
    </div>
  );
}

export function RecordDetail({ topic, record }: { topic: string; record: Rec }) {
  const body = { records: [{ key: record.key, value: record.value, headers: record.headers.filter((it) => !it.name.startsWith("postroad.")) }] };
  return (
    <div class="record">
      <dl class="facts small">
        <div class="fact"><dt>Place</dt><dd>{record.partition} : {record.offset}</dd></div>
        <div class="fact"><dt>Time</dt><dd>{time(record.timestamp_ms)}<small>{ago(record.timestamp_ms)}</small></dd></div>
        <div class="fact"><dt>Key</dt><dd><code>{record.key == null ? "none" : text(record.key)}</code></dd></div>
      </dl>
      {record.headers.length > 0 && (
        <table class="headers"><caption>Headers</caption><tbody>
          {record.headers.map((it) => <tr><th scope="row"><code>{it.name}</code></th><td><code>{text(it.value)}</code></td></tr>)}
        </tbody></table>
      )}
      <Value value={record.value} />
      <div class="buttons left">
        <a class="button" href={`${to("find")}?topic=${seg(topic)}&place=${recordId(record)}`}>Where is it?</a>
        <button type="button" onClick={() => save(`${topic}-${recordId(record)}.json`, JSON.stringify(record, null, 2) + "\n", "application/json")}>Download</button>
        <button type="button" onClick={async () => { await raw("POST", `/v1/topics/${seg(topic)}/records`, body); tell("A copy was appended."); }}>Send again</button>
        <a class="button" href={`${to("topics", topic, "publish")}?copy=${recordId(record)}`}>Edit and send</a>
      </div>
      <Command lines={[
        curl("GET", recordPath(topic, record)),
        "",
        `kcat -b localhost:9092 -C -t ${quoted(topic)} -p ${record.partition} -o ${record.offset} -c 1`,
        "",
        `postroad consume ${quoted(topic)} --partition ${record.partition} --from ${record.offset} --count 1`,
      ]} />
    </div>
  );
}

const short = (payload: Payload) => { const all = text(payload).replace(/\s+/g, " "); return all.length > 160 ? `${all.slice(0, 160)}…` : all; };

/** Each opens where it stands. */
export function Records<T extends Rec>({ topic, records, extra, pick }: {
  topic: string; records: T[]; extra?: (it: T) => preact.ComponentChildren; pick?: { chosen: Set<string>; toggle: (id: string) => void };
}) {
  const [open, setOpen] = useState<string | null>(null);
  if (records.length === 0) return <Empty title="No records">Nothing is here, as far as this looked.</Empty>;
  const columns = 4 + (extra ? 1 : 0) + (pick ? 1 : 0);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Records">
      <table class="records">
        <thead><tr>
          {pick && <th scope="col"><span class="hidden">Chosen</span></th>}
          <th scope="col">Place</th><th scope="col">Time</th><th scope="col">Key</th><th scope="col">Value</th>
          {extra && <th scope="col">State</th>}
        </tr></thead>
        <tbody>
          {records.map((it) => {
            const id = recordId(it);
            return (
              <>
                <tr key={id} class={open === id ? "open" : ""}>
                  {pick && <td><input type="checkbox" aria-label={`Choose ${id}`} checked={pick.chosen.has(id)} onChange={() => pick.toggle(id)} /></td>}
                  <td><button type="button" class="link rowlink" aria-expanded={open === id} onClick={() => setOpen(open === id ? null : id)}>{it.partition}:{it.offset}</button></td>
                  <td class="nowrap">{time(it.timestamp_ms)}</td>
                  <td class="clip"><code>{it.key == null ? <Tag>no key</Tag> : short(it.key)}</code></td>
                  <td class="clip wide"><code>{it.value == null ? <Tag>no value</Tag> : short(it.value)}</code></td>
                  {extra && <td class="state">{extra(it)}</td>}
                </tr>
                {open === id && <tr key={`${id}-open`} class="detail"><td colSpan={columns}><RecordDetail topic={topic} record={it} /></td></tr>}
              </>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
