// Where in the console somebody is: all of it is in the address, which can be sent to others.
import { signal } from "@preact/signals";

export interface Place { path: string[]; query: URLSearchParams }

function read(): Place {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const decode = (part: string) => { try { return decodeURIComponent(part); } catch { return part; } };
  return { path: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

export const place = signal<Place>(read());
addEventListener("hashchange", () => { place.value = read(); });

export function to(...path: (string | number)[]): string {
  return "#/" + path.map((part) => encodeURIComponent(String(part))).join("/");
}
export const go = (href: string) => { location.hash = href; };

/** Changes what stands behind the question mark, without a step to go back. */
export function refine(changes: Record<string, string | null>): void {
  const query = new URLSearchParams(place.value.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") query.delete(name); else query.set(name, value);
  }
  const text = query.toString();
  history.replaceState(null, "", to(...place.value.path) + (text ? `?${text}` : ""));
  place.value = read();
}
