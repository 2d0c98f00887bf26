// HTTP client of the node: requests, problem documents, polling and event streams.
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

/** Null until the first response. */
export const session = signal<Session | null>(null);
/** Whether the last request got a response. */
export const reachable = signal(true);
export const loggedOut = signal(false);

const HEADERS = { "postroad-console": "1" };

async function problemOf(response: Response): Promise<Problem> {
  try {
    const body = await response.json();
    // RabbitMQ's management API has an error format of its own.
    if (body.reason !== undefined) return new Problem({ type: "", title: String(body.error), status: response.status, detail: String(body.reason) });
    return new Problem(body);
  } catch {
    const title = response.statusText || "Unexpected response of the node";
    return new Problem({ type: "", title, status: response.status, detail: `status ${response.status}` });
  }
}

export async function send(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
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
      title: "The node does not respond",
      status: 0,
      detail: "The node is down or unreachable. This page retries automatically.",
    });
  }
  reachable.value = true;
  // The management API also returns 401 to logged-in users without the required right.
  if (response.status === 401 && !path.startsWith("/api/")) loggedOut.value = true;
  if (!response.ok) throw await problemOf(response);
  return response;
}

export async function request<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const response = await send(method, path, body, signal);
  return response.status === 204 || response.headers.get("content-length") === "0" || response.status === 201 && !response.headers.get("content-type")
    ? (undefined as T)
    : response.json();
}

export const get = <T>(path: string, signal?: AbortSignal) => request<T>("GET", path, undefined, signal);

export const seg = encodeURIComponent;

export async function loadSession(): Promise<void> {
  const loaded = await get<Session>("/v1/session");
  session.value = loaded;
  loggedOut.value = loaded.required && loaded.user === null;
}

export interface Polled<T> {
  data: T | undefined;
  /** The previous response: pages compute rates from the difference. */
  previous: T | undefined;
  error: Problem | undefined;
  reload: () => void;
}

/** Polls a path while the page is visible. The last data stays until the next response. */
export function usePoll<T>(path: string | null, everyMs = 5000): Polled<T> {
  const [state, setState] = useState<{ path: string | null; data?: T; previous?: T; error?: Problem }>({ path });
  const [reloads, setReloads] = useState(0);
  const current = useRef(path);
  current.current = path;
  useEffect(() => {
    if (path === null) return;
    const abort = new AbortController();
    let timer = 0;
    const poll = async () => {
      try {
        const data = await get<T>(path, abort.signal);
        if (abort.signal.aborted) return;
        setState((last) => ({ path, data, previous: last.path === path ? last.data : undefined }));
      } catch (error) {
        if (abort.signal.aborted || !(error instanceof Problem)) return;
        setState((last) => ({ path, data: last.path === path ? last.data : undefined, error }));
      }
      if (everyMs > 0 && !document.hidden) timer = window.setTimeout(poll, everyMs);
    };
    const onVisibilityChange = () => {
      window.clearTimeout(timer);
      if (!document.hidden && everyMs > 0) void poll();
    };
    void poll();
    document.addEventListener("visibilitychange", onVisibilityChange);
    return () => {
      abort.abort();
      window.clearTimeout(timer);
      document.removeEventListener("visibilitychange", onVisibilityChange);
    };
  }, [path, everyMs, reloads]);
  const isCurrent = state.path === path;
  return {
    data: isCurrent ? state.data : undefined,
    previous: isCurrent ? state.previous : undefined,
    error: isCurrent ? state.error : undefined,
    reload: () => setReloads((reloads) => reloads + 1),
  };
}

/** Reads server-sent events and passes each to `onEvent`. */
export async function readEvents(
  path: string,
  signal: AbortSignal,
  onEvent: (kind: string, data: string) => void,
): Promise<void> {
  const response = await send("GET", path, undefined, signal);
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
      if (data) onEvent(kind, data);
    }
  }
}
