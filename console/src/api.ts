// What is asked of the node, and what went wrong with it.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";

export interface ProblemDocument {
  type: string;
  title: string;
  status: number;
  detail: string;
  instance?: string;
}

export class Problem extends Error {
  constructor(readonly document: ProblemDocument) {
    super(document.detail);
  }
}

export interface Session {
  user: string | null;
  everything: boolean;
  required: boolean;
  ends_ms: number | null;
}

/** Null: not known yet. */
export const session = signal<Session | null>(null);
/** Whether the node answered the last time. */
export const reachable = signal(true);
export const loggedOut = signal(false);

const HEADERS = { "postroad-console": "1" };

async function problemOf(response: Response): Promise<Problem> {
  try {
    const said = await response.json();
    // RabbitMQ's management API has its own form.
    if (said.reason !== undefined) return new Problem({ type: "", title: String(said.error), status: response.status, detail: String(said.reason) });
    return new Problem(said);
  } catch {
    const title = response.statusText || "The node did not answer as expected";
    return new Problem({ type: "", title, status: response.status, detail: `status ${response.status}` });
  }
}

export async function raw(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers: body === undefined ? HEADERS : { ...HEADERS, "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
    });
  } catch (error) {
    if ((error as Error).name === "AbortError") throw error;
    reachable.value = false;
    throw new Problem({
      type: "",
      title: "The node does not answer",
      status: 0,
      detail: "It is down, or the network between here and there is. This page tries again by itself.",
    });
  }
  reachable.value = true;
  // There it is also what a user may not do who is logged in.
  if (response.status === 401 && !path.startsWith("/api/")) loggedOut.value = true;
  if (!response.ok) throw await problemOf(response);
  return response;
}

export async function ask<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const response = await raw(method, path, body, signal);
  return response.status === 204 || response.headers.get("content-length") === "0" || response.status === 201 && !response.headers.get("content-type")
    ? (undefined as T)
    : response.json();
}

export const get = <T>(path: string, signal?: AbortSignal) => ask<T>("GET", path, undefined, signal);

export const seg = encodeURIComponent;

export async function whoAsks(): Promise<void> {
  const now = await get<Session>("/v1/session");
  session.value = now;
  loggedOut.value = now.required && now.user === null;
}

export interface Polled<T> {
  data: T | undefined;
  /** The answer before, and the time between both: rates are made of them. */
  before: T | undefined;
  error: Problem | undefined;
  reload: () => void;
}

/** Asks now and every few seconds, but not while nobody looks. What was there stays while it is asked again. */
export function usePoll<T>(path: string | null, everyMs = 5000): Polled<T> {
  const [state, setState] = useState<{ path: string | null; data?: T; before?: T; error?: Problem }>({ path });
  const [turn, setTurn] = useState(0);
  const current = useRef(path);
  current.current = path;
  useEffect(() => {
    if (path === null) return;
    const abort = new AbortController();
    let timer = 0;
    const once = async () => {
      try {
        const data = await get<T>(path, abort.signal);
        if (abort.signal.aborted) return;
        setState((last) => ({ path, data, before: last.path === path ? last.data : undefined }));
      } catch (error) {
        if (abort.signal.aborted || !(error instanceof Problem)) return;
        setState((last) => ({ path, data: last.path === path ? last.data : undefined, error }));
      }
      if (everyMs > 0 && !document.hidden) timer = window.setTimeout(once, everyMs);
    };
    const shown = () => {
      window.clearTimeout(timer);
      if (!document.hidden && everyMs > 0) void once();
    };
    void once();
    document.addEventListener("visibilitychange", shown);
    return () => {
      abort.abort();
      window.clearTimeout(timer);
      document.removeEventListener("visibilitychange", shown);
    };
  }, [path, everyMs, turn]);
  const mine = state.path === path;
  return {
    data: mine ? state.data : undefined,
    before: mine ? state.before : undefined,
    error: mine ? state.error : undefined,
    reload: () => setTurn((now) => now + 1),
  };
}

/** Events of a stream, as they come. */
export async function follow(
  path: string,
  signal: AbortSignal,
  event: (kind: string, data: string) => void,
): Promise<void> {
  const response = await raw("GET", path, undefined, signal);
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    for (;;) {
      const end = text.indexOf("\n\n");
      if (end < 0) break;
      let kind = "message";
      let data = "";
      for (const line of text.slice(0, end).split("\n")) {
        if (line.startsWith("event: ")) kind = line.slice(7);
        else if (line.startsWith("data: ")) data += line.slice(6);
      }
      text = text.slice(end + 2);
      if (data) event(kind, data);
    }
  }
}
