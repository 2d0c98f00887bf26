// List and detail views of records.
import { useState } from "preact/hooks";
import { send, seg } from "./api";
import { Command, Empty, Tag, notify } from "./ui";
import type { Payload, StoredRecord } from "./types";
import { hrefOf } from "./router";
import { ago, bytes, curl, quoted, size, text, time } from "./format";

export const recordId = (record: StoredRecord) => `${record.partition}.${record.offset}`;
const recordPath = (topic: string, record: StoredRecord) => `/v1/topics/${seg(topic)}/partitions/${record.partition}/records?from=${record.offset}&max_records=1`;

function pretty(payload: Payload): string | null {
  if (typeof payload !== "string" || !/^\s*[[{]/.test(payload)) return null;
  try { return JSON.stringify(JSON.parse(payload), null, 2); } catch { return null; }
}

function hex(payload: Payload): string {
  if (payload == null) return "";
  const content = typeof payload === "string" ? new TextEncoder().encode(payload) : Uint8Array.from(atob(payload.base64), (char) => char.charCodeAt(0));
  const lines = [];
  for (let at = 0; at < Math.min(content.length, 4096); at += 16) {
    const row = [...content.slice(at, at + 16)];
    const shown = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(48);
    lines.push(`${at.toString(16).padStart(6, "0")}  ${shown} ${row.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".")).join("")}`);
  }
  return lines.join("\n") + (content.length > 4096 ? `\n… ${content.length - 4096} more bytes` : "");
}

function save(name: string, content: string, type: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

export const download = (topic: string, records: StoredRecord[]) =>
  save(`${topic}.ndjson`, records.map((record) => JSON.stringify(record)).join("\n") + "\n", "application/x-ndjson");

export function Value({ value }: { value: Payload }) {
  const json = pretty(value);
  const formats = [...(json ? ["JSON"] : []), "Text", "Hex"];
  const [format, setFormat] = useState(formats[0]);
  if (value == null) return <p class="fine">No value: a tombstone, which deletes the key in a compacted topic.</p>;
  const shown = format === "JSON" ? json : format === "Hex" ? hex(value) : text(value);
  return (
    <div class="value">
      <div class="formats" role="group" aria-label="Value format">
        {formats.map((name) => <button type="button" aria-pressed={name === format} onClick={() => setFormat(name)}>{name}</button>)}
        <small>{bytes(size(value))}</small>
      </div>
      <pre tabIndex={0}>{shown}</pre>
    </div>
  );
}

export function RecordDetail({ topic, record }: { topic: string; record: StoredRecord }) {
  const body = { records: [{ key: record.key, value: record.value, headers: record.headers.filter((header) => !header.name.startsWith("postroad.")) }] };
  return (
    <div class="record">
      <dl class="facts small">
        <div class="fact"><dt>Partition:offset</dt><dd>{record.partition}:{record.offset}</dd></div>
        <div class="fact"><dt>Time</dt><dd>{time(record.timestamp_ms)}<small>{ago(record.timestamp_ms)}</small></dd></div>
        <div class="fact"><dt>Key</dt><dd><code>{record.key == null ? "none" : text(record.key)}</code></dd></div>
      </dl>
      {record.headers.length > 0 && (
        <table class="headers"><caption>Headers</caption><tbody>
          {record.headers.map((header) => <tr><th scope="row"><code>{header.name}</code></th><td><code>{text(header.value)}</code></td></tr>)}
        </tbody></table>
      )}
      <Value value={record.value} />
      <div class="buttons left">
        <a class="button" href={`${hrefOf("find")}?topic=${seg(topic)}&place=${recordId(record)}`}>Trace</a>
        <button type="button" onClick={() => save(`${topic}-${recordId(record)}.json`, JSON.stringify(record, null, 2) + "\n", "application/json")}>Download</button>
        <button type="button" onClick={async () => { await send("POST", `/v1/topics/${seg(topic)}/records`, body); notify("Appended a copy."); }}>Send again</button>
        <a class="button" href={`${hrefOf("topics", topic, "publish")}?copy=${recordId(record)}`}>Edit and send</a>
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

const short = (payload: Payload) => { const line = text(payload).replace(/\s+/g, " "); return line.length > 160 ? `${line.slice(0, 160)}…` : line; };

/** Table of records. Each row expands into the detail view. */
export function Records<T extends StoredRecord>({ topic, records, state, selection }: {
  topic: string; records: T[]; state?: (record: T) => preact.ComponentChildren; selection?: { selected: Set<string>; toggle: (id: string) => void };
}) {
  const [open, setOpen] = useState<string | null>(null);
  if (records.length === 0) return <Empty title="No records">The searched range contains no matching record.</Empty>;
  const columns = 4 + (state ? 1 : 0) + (selection ? 1 : 0);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Records">
      <table class="records">
        <thead><tr>
          {selection && <th scope="col"><span class="hidden">Selected</span></th>}
          <th scope="col">Partition:offset</th><th scope="col">Time</th><th scope="col">Key</th><th scope="col">Value</th>
          {state && <th scope="col">State</th>}
        </tr></thead>
        <tbody>
          {records.map((record) => {
            const id = recordId(record);
            return (
              <>
                <tr key={id} class={open === id ? "open" : ""}>
                  {selection && <td><input type="checkbox" aria-label={`Select ${id}`} checked={selection.selected.has(id)} onChange={() => selection.toggle(id)} /></td>}
                  <td><button type="button" class="link rowlink" aria-expanded={open === id} onClick={() => setOpen(open === id ? null : id)}>{record.partition}:{record.offset}</button></td>
                  <td class="nowrap">{time(record.timestamp_ms)}</td>
                  <td class="clip"><code>{record.key == null ? <Tag>no key</Tag> : short(record.key)}</code></td>
                  <td class="clip wide"><code>{record.value == null ? <Tag>no value</Tag> : short(record.value)}</code></td>
                  {state && <td class="state">{state(record)}</td>}
                </tr>
                {open === id && <tr key={`${id}-open`} class="detail"><td colSpan={columns}><RecordDetail topic={topic} record={record} /></td></tr>}
              </>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
