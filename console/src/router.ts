// Routing by the URL's fragment, which holds the whole state of a page, so that links can be shared.
import { signal } from "@preact/signals";

export interface Route { path: string[]; query: URLSearchParams }

function parseRoute(): Route {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const decode = (part: string) => { try { return decodeURIComponent(part); } catch { return part; } };
  return { path: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

export const route = signal<Route>(parseRoute());
addEventListener("hashchange", () => { route.value = parseRoute(); });

export function hrefOf(...path: (string | number)[]): string {
  return "#/" + path.map((part) => encodeURIComponent(String(part))).join("/");
}
export const navigate = (href: string) => { location.hash = href; };

/** Changes parameters of the query without a new entry in the browser history. */
export function setQuery(changes: Record<string, string | null>): void {
  const query = new URLSearchParams(route.value.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") query.delete(name); else query.set(name, value);
  }
  const text = query.toString();
  history.replaceState(null, "", hrefOf(...route.value.path) + (text ? `?${text}` : ""));
  route.value = parseRoute();
}
