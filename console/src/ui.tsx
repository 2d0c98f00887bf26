// Components that all pages share.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Problem } from "./api";
import { route, setQuery, hrefOf } from "./router";
import { count } from "./format";

// ------------------------------------------------------------------------------------------- problems

const REMEDIES: Record<number, string> = {
  0: "Check that the node is running (postroad serve), and read its log.",
  401: "Log in again as a user with the required right.",
  403: "Ask an administrator to grant the right: postroad acl add, or the page Access.",
  404: "The object may have been deleted. Return to the list.",
  409: "A concurrent change was applied first. Reload, then retry.",
  412: "A concurrent change was applied first. Reload, then retry.",
  416: "These records were deleted, or are not appended yet. Read from earliest or latest.",
  421: "Open the console of the node named above.",
  503: "Retry in a moment.",
  507: "Free space on the node's disk, or delete records or topics.",
};

export function Failure({ problem }: { problem: Problem | undefined }) {
  if (!problem) return null;
  const { title, detail, status, type, instance } = problem.document;
  return (
    <div class="failure" role="alert">
      <strong>{title}</strong>
      <p>{detail}</p>
      {REMEDIES[status] && <p class="remedy">{REMEDIES[status]}</p>}
      <p class="fine">
        {status > 0 && `Status ${status}. `}
        {type && <a href={type} target="_blank" rel="noopener">Troubleshooting</a>}
        {instance && ` · request ${instance}`}
      </p>
    </div>
  );
}

// --------------------------------------------------------------------------------------------- basics

export function Header({ title, trail, children, sub }: {
  title: string; sub?: ComponentChildren; trail?: [string, string][]; children?: ComponentChildren;
}) {
  useEffect(() => { document.title = `${title} · Postroad`; }, [title]);
  return (
    <header class="head">
      <div>
        {trail && <nav class="trail" aria-label="Breadcrumb">{trail.map(([label, href]) => <><a href={href}>{label}</a><span aria-hidden="true">/</span></>)}</nav>}
        <h1 tabIndex={-1}>{title}</h1>
        {sub && <p class="sub">{sub}</p>}
      </div>
      <div class="actions">{children}</div>
    </header>
  );
}

export function Card({ title, children, wide, aside }: { title?: string; wide?: boolean; aside?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section class={wide ? "card wide" : "card"}>
      {title && <div class="cardhead"><h2>{title}</h2>{aside}</div>}
      {children}
    </section>
  );
}

export function Fact({ label, value, note, tone }: { label: string; value: ComponentChildren; note?: ComponentChildren; tone?: string }) {
  return <div class={`fact ${tone ?? ""}`}><dt>{label}</dt><dd>{value}{note && <small>{note}</small>}</dd></div>;
}

/** State by text and shape, not by colour alone. */
export function Tag({ tone, children }: { tone?: "good" | "warn" | "bad" | "calm"; children: ComponentChildren }) {
  return <span class={`tag ${tone ?? ""}`}>{children}</span>;
}

export function Loading({ subject }: { subject: string }) {
  return <p class="loading" aria-busy="true">Loading {subject} …</p>;
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return <div class="empty"><strong>{title}</strong>{children && <p>{children}</p>}</div>;
}

export function Command({ lines }: { lines: string[] }) {
  return (
    <details class="command">
      <summary>Equivalent commands</summary>
      <pre tabIndex={0}>{lines.join("\n")}</pre>
    </details>
  );
}

export function Tabs({ base, tabs, current }: { base: string[]; tabs: [string, string][]; current: string }) {
  return (
    <nav class="tabs" aria-label="Sections">
      {tabs.map(([key, label]) => (
        <a href={hrefOf(...base, ...(key ? [key] : []))} aria-current={key === current ? "page" : undefined}>{label}</a>
      ))}
    </nav>
  );
}

// --------------------------------------------------------------------------------------------- tables

export interface Column<T> {
  key: string;
  label: string;
  cell: (row: T) => ComponentChildren;
  /** Sort key. Absent: the column is not sortable. */
  sort?: (row: T) => number | string | null;
  right?: boolean;
}

export function Table<T>({ label, rows, columns, id, sortedBy }: {
  label: string; rows: T[]; columns: Column<T>[]; id: (row: T) => string; sortedBy?: string;
}) {
  const [order, setOrder] = useState<string>(sortedBy ?? "");
  const column = columns.find((column) => column.key === order.replace("-", ""));
  const sorted = column?.sort ? [...rows].sort((a, b) => {
    const [x, y] = [column.sort!(a), column.sort!(b)];
    if (x === y) return 0;
    if (x === null) return 1;
    if (y === null) return -1;
    return (x < y ? -1 : 1) * (order.startsWith("-") ? -1 : 1);
  }) : rows;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead><tr>
          {columns.map((column) => {
            const direction = order === column.key ? "ascending" : order === `-${column.key}` ? "descending" : undefined;
            return (
              <th scope="col" class={column.right ? "right" : ""} aria-sort={direction}>
                {column.sort
                  ? <button type="button" onClick={() => setOrder(order === `-${column.key}` ? column.key : order === column.key ? "" : `-${column.key}`)}>
                      {column.label}<span aria-hidden="true">{direction === "ascending" ? " ↑" : direction ? " ↓" : ""}</span>
                    </button>
                  : column.label}
              </th>
            );
          })}
        </tr></thead>
        <tbody>
          {sorted.map((row) => (
            <tr key={id(row)}>{columns.map((column) => <td class={column.right ? "right" : ""}>{column.cell(row)}</td>)}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Filter of a list. The node applies it, and the URL contains it. */
export function Filter({ label, name = "filter" }: { label: string; name?: string }) {
  const current = route.value.query.get(name) ?? "";
  const timer = useRef(0);
  return (
    <label class="filter">
      <span>{label}</span>
      <input type="search" data-filter placeholder="part of a name  ( / )" defaultValue={current} spellcheck={false}
        onInput={(event) => {
          const value = event.currentTarget.value;
          clearTimeout(timer.current);
          timer.current = window.setTimeout(() => setQuery({ [name]: value, cursor: null, page: null, seen: null }), 200);
        }} />
    </label>
  );
}

export function Pager({ next, shown }: { next: string | null | undefined; shown: number }) {
  const cursor = route.value.query.get("cursor");
  if (!next && !cursor) return <p class="pager"><span>{count(shown)} shown</span></p>;
  return (
    <p class="pager">
      <span>{count(shown)} shown</span>
      <button type="button" disabled={!cursor} onClick={() => setQuery({ cursor: null })}>First</button>
      <button type="button" disabled={!next} onClick={() => setQuery({ cursor: next ?? null })}>Next</button>
    </p>
  );
}

// --------------------------------------------------------------------------------------------- charts

export function Sparkline({ values, label }: { values: number[]; label: string }) {
  const points = values.length > 1 ? values : [0, ...values, 0].slice(0, 2);
  const max = Math.max(...points, 1e-9);
  const x = (index: number) => (index / (points.length - 1)) * 200;
  const y = (value: number) => 38 - (value / max) * 34;
  const line = points.map((value, index) => `${index ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  return (
    <svg class="spark" viewBox="0 0 200 40" preserveAspectRatio="none" role="img" aria-label={label}>
      <path class="area" d={`${line}L200 40L0 40Z`} />
      <path class="line" d={line} />
    </svg>
  );
}

export function Bar({ part, whole, label }: { part: number; whole: number; label: string }) {
  const share = whole > 0 ? Math.min(100, (part / whole) * 100) : 0;
  return <meter class="bar" min={0} max={100} value={share} aria-label={label}>{Math.round(share)} %</meter>;
}

// -------------------------------------------------------------------------------------------- dialogs

export interface Confirmation {
  title: string;
  /** Effects of the action, with numbers. */
  text: ComponentChildren;
  /** Name that the user must type, for an irreversible action. */
  phrase?: string;
  button: string;
  danger?: boolean;
  command?: string[];
  run: () => Promise<unknown>;
}

const confirmation = signal<Confirmation | null>(null);
export const notice = signal("");
export const confirm = (next: Confirmation) => { confirmation.value = next; };

export function notify(text: string): void {
  notice.value = text;
  window.setTimeout(() => { if (notice.value === text) notice.value = ""; }, 6000);
}

export function ConfirmDialog() {
  const current = confirmation.value;
  const dialog = useRef<HTMLDialogElement>(null);
  const [typed, setTyped] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem>();
  useEffect(() => {
    if (!current) return;
    setTyped(""); setProblem(undefined); setBusy(false);
    dialog.current?.showModal();
  }, [current]);
  if (!current) return null;
  const isReady = !busy && (!current.phrase || typed === current.phrase);
  const run = async (event: Event) => {
    event.preventDefault();
    if (!isReady) return;
    setBusy(true);
    try {
      await current.run();
      confirmation.value = null;
    } catch (error) {
      setBusy(false);
      if (error instanceof Problem) setProblem(error); else throw error;
    }
  };
  return (
    <dialog ref={dialog} onClose={() => { confirmation.value = null; }} aria-labelledby="dialog-title">
      <form onSubmit={run}>
        <h2 id="dialog-title">{current.title}</h2>
        <div class="message">{current.text}</div>
        {current.phrase && (
          <label class="field"><span>Type <code>{current.phrase}</code> to confirm</span>
            <input value={typed} onInput={(event) => setTyped(event.currentTarget.value)} spellcheck={false} autocomplete="off" />
          </label>
        )}
        <Failure problem={problem} />
        {current.command && <Command lines={current.command} />}
        <div class="buttons">
          <button type="button" onClick={() => { confirmation.value = null; }}>Cancel</button>
          <button type="submit" class={current.danger ? "danger" : "primary"} disabled={!isReady}>{busy ? "Working …" : current.button}</button>
        </div>
      </form>
    </dialog>
  );
}

/** A form that shows the problem of its last submission. */
export function Form({ children, button, run, danger }: { children: ComponentChildren; button: string; danger?: boolean; run: (form: FormData, element: HTMLFormElement) => Promise<unknown> }) {
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(false);
  return (
    <form class="form" onSubmit={async (event) => {
      event.preventDefault();
      const element = event.currentTarget as HTMLFormElement;
      setBusy(true); setProblem(undefined);
      try { await run(new FormData(element), element); }
      catch (error) { if (error instanceof Problem) setProblem(error); else throw error; }
      finally { setBusy(false); }
    }}>
      {children}
      <Failure problem={problem} />
      <div class="buttons"><button type="submit" class={danger ? "danger" : "primary"} disabled={busy}>{busy ? "Working …" : button}</button></div>
    </form>
  );
}

export function Field({ label, name, value, hint, type = "text", required, rows, list, autocomplete = "off" }: {
  label: string; name: string; value?: string; hint?: string; type?: "text" | "password" | "number" | "file" | "datetime-local"; required?: boolean; rows?: number; list?: string[]; autocomplete?: string;
}) {
  return (
    <label class="field">
      <span>{label}</span>
      {list ? <select name={name} defaultValue={value}>{list.map((option) => <option selected={option === value}>{option}</option>)}</select>
        : rows ? <textarea name={name} rows={rows} spellcheck={false} defaultValue={value} />
        : <input name={name} type={type as "text"} defaultValue={value} required={required} spellcheck={false} autocomplete={autocomplete} />}
      {hint && <small>{hint}</small>}
    </label>
  );
}
