// What all pages are made of.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Problem } from "./api";
import { place, refine, to } from "./router";
import { count } from "./words";

// ------------------------------------------------------------------------------------------- problems

const NEXT: Record<number, string> = {
  0: "Look whether the node runs: postroad serve, or its log.",
  401: "Log in again, as somebody who may see this.",
  403: "Somebody who may change the cluster can give you the right: postroad acl add, or the page Access.",
  404: "It may have been deleted a moment ago. Go back to the list.",
  409: "Somebody else was faster. Reload and look.",
  412: "Somebody else was faster. Reload and look.",
  416: "Those records are not there any more, or have not come. Begin at the earliest or the newest.",
  421: "Open the console of the node that is named.",
  503: "Try again in a moment.",
  507: "Free some space on the node's disk, or delete records or topics.",
};

export function Failure({ problem }: { problem: Problem | undefined }) {
  if (!problem) return null;
  const { title, detail, status, type, instance } = problem.document;
  return (
    <div class="failure" role="alert">
      <strong>{title}</strong>
      <p>{detail}</p>
      {NEXT[status] && <p class="todo">{NEXT[status]}</p>}
      <p class="fine">
        {status > 0 && `Status ${status}. `}
        {type && <a href={type} target="_blank" rel="noopener">What can be done</a>}
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
        {trail && <nav class="trail" aria-label="Where this is">{trail.map(([label, href]) => <><a href={href}>{label}</a><span aria-hidden="true">/</span></>)}</nav>}
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

/** Told by words and shape, not by colour alone. */
export function Tag({ tone, children }: { tone?: "good" | "warn" | "bad" | "calm"; children: ComponentChildren }) {
  return <span class={`tag ${tone ?? ""}`}>{children}</span>;
}

export function Loading({ what }: { what: string }) {
  return <p class="loading" aria-busy="true">Asks for {what} …</p>;
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return <div class="empty"><strong>{title}</strong>{children && <p>{children}</p>}</div>;
}

export function Command({ lines }: { lines: string[] }) {
  return (
    <details class="command">
      <summary>As a command</summary>
      <pre tabIndex={0}>{lines.join("\n")}</pre>
    </details>
  );
}

export function Tabs({ base, tabs, current }: { base: string[]; tabs: [string, string][]; current: string }) {
  return (
    <nav class="tabs" aria-label="Parts of this page">
      {tabs.map(([key, label]) => (
        <a href={to(...base, ...(key ? [key] : []))} aria-current={key === current ? "page" : undefined}>{label}</a>
      ))}
    </nav>
  );
}

// --------------------------------------------------------------------------------------------- tables

export interface Column<T> {
  key: string;
  label: string;
  cell: (row: T) => ComponentChildren;
  /** By which it is sorted; nothing: it is not. */
  sort?: (row: T) => number | string | null;
  right?: boolean;
}

export function Table<T>({ label, rows, columns, id, sortedBy }: {
  label: string; rows: T[]; columns: Column<T>[]; id: (row: T) => string; sortedBy?: string;
}) {
  const [by, setBy] = useState<string>(sortedBy ?? "");
  const column = columns.find((it) => it.key === by.replace("-", ""));
  const sorted = column?.sort ? [...rows].sort((a, b) => {
    const [x, y] = [column.sort!(a), column.sort!(b)];
    if (x === y) return 0;
    if (x === null) return 1;
    if (y === null) return -1;
    return (x < y ? -1 : 1) * (by.startsWith("-") ? -1 : 1);
  }) : rows;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead><tr>
          {columns.map((it) => {
            const sorts = by === it.key ? "ascending" : by === `-${it.key}` ? "descending" : undefined;
            return (
              <th scope="col" class={it.right ? "right" : ""} aria-sort={sorts}>
                {it.sort
                  ? <button type="button" onClick={() => setBy(by === `-${it.key}` ? it.key : by === it.key ? "" : `-${it.key}`)}>
                      {it.label}<span aria-hidden="true">{sorts === "ascending" ? " ↑" : sorts ? " ↓" : ""}</span>
                    </button>
                  : it.label}
              </th>
            );
          })}
        </tr></thead>
        <tbody>
          {sorted.map((row) => (
            <tr key={id(row)}>{columns.map((it) => <td class={it.right ? "right" : ""}>{it.cell(row)}</td>)}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** What the node's list is narrowed to, in the address. */
export function Filter({ label, name = "filter" }: { label: string; name?: string }) {
  const now = place.value.query.get(name) ?? "";
  const timer = useRef(0);
  return (
    <label class="filter">
      <span>{label}</span>
      <input type="search" data-filter placeholder="part of a name  ( / )" defaultValue={now} spellcheck={false}
        onInput={(event) => {
          const value = event.currentTarget.value;
          clearTimeout(timer.current);
          timer.current = window.setTimeout(() => refine({ [name]: value, cursor: null, page: null, seen: null }), 200);
        }} />
    </label>
  );
}

export function Pager({ next, shown }: { next: string | null | undefined; shown: number }) {
  const cursor = place.value.query.get("cursor");
  if (!next && !cursor) return <p class="pager"><span>{count(shown)} shown</span></p>;
  return (
    <p class="pager">
      <span>{count(shown)} shown</span>
      <button type="button" disabled={!cursor} onClick={() => refine({ cursor: null })}>First</button>
      <button type="button" disabled={!next} onClick={() => refine({ cursor: next ?? null })}>Next</button>
    </p>
  );
}

// --------------------------------------------------------------------------------------------- charts

export function Spark({ values, label }: { values: number[]; label: string }) {
  const points = values.length > 1 ? values : [0, ...values, 0].slice(0, 2);
  const most = Math.max(...points, 1e-9);
  const x = (at: number) => (at / (points.length - 1)) * 200;
  const y = (value: number) => 38 - (value / most) * 34;
  const line = points.map((value, at) => `${at ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
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

export interface Question {
  title: string;
  /** What will happen, with numbers. */
  text: ComponentChildren;
  /** To be typed, where it cannot be undone. */
  type?: string;
  button: string;
  danger?: boolean;
  command?: string[];
  run: () => Promise<unknown>;
}

const asked = signal<Question | null>(null);
export const said = signal("");
export const confirm = (question: Question) => { asked.value = question; };

export function tell(text: string): void {
  said.value = text;
  window.setTimeout(() => { if (said.value === text) said.value = ""; }, 6000);
}

export function Asking() {
  const question = asked.value;
  const dialog = useRef<HTMLDialogElement>(null);
  const [typed, setTyped] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem>();
  useEffect(() => {
    if (!question) return;
    setTyped(""); setProblem(undefined); setBusy(false);
    dialog.current?.showModal();
  }, [question]);
  if (!question) return null;
  const ready = !busy && (!question.type || typed === question.type);
  const run = async (event: Event) => {
    event.preventDefault();
    if (!ready) return;
    setBusy(true);
    try {
      await question.run();
      asked.value = null;
    } catch (error) {
      setBusy(false);
      if (error instanceof Problem) setProblem(error); else throw error;
    }
  };
  return (
    <dialog ref={dialog} onClose={() => { asked.value = null; }} aria-labelledby="asked">
      <form onSubmit={run}>
        <h2 id="asked">{question.title}</h2>
        <div class="asked">{question.text}</div>
        {question.type && (
          <label class="field"><span>Type <code>{question.type}</code> to go on</span>
            <input value={typed} onInput={(event) => setTyped(event.currentTarget.value)} spellcheck={false} autocomplete="off" />
          </label>
        )}
        <Failure problem={problem} />
        {question.command && <Command lines={question.command} />}
        <div class="buttons">
          <button type="button" onClick={() => { asked.value = null; }}>Cancel</button>
          <button type="submit" class={question.danger ? "danger" : "primary"} disabled={!ready}>{busy ? "Works …" : question.button}</button>
        </div>
      </form>
    </dialog>
  );
}

/** A form whose problems stand in it. */
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
      <div class="buttons"><button type="submit" class={danger ? "danger" : "primary"} disabled={busy}>{busy ? "Works …" : button}</button></div>
    </form>
  );
}

export function Field({ label, name, value, hint, type = "text", required, rows, list, autocomplete = "off" }: {
  label: string; name: string; value?: string; hint?: string; type?: "text" | "password" | "number" | "file" | "datetime-local"; required?: boolean; rows?: number; list?: string[]; autocomplete?: string;
}) {
  return (
    <label class="field">
      <span>{label}</span>
      {list ? <select name={name} defaultValue={value}>{list.map((it) => <option selected={it === value}>{it}</option>)}</select>
        : rows ? <textarea name={name} rows={rows} spellcheck={false} defaultValue={value} />
        : <input name={name} type={type as "text"} defaultValue={value} required={required} spellcheck={false} autocomplete={autocomplete} />}
      {hint && <small>{hint}</small>}
    </label>
  );
}
