// Formats for numbers, sizes, rates, times and shell commands.
const integer = new Intl.NumberFormat("en");
export const count = (value: number | null | undefined) => (value == null ? "–" : integer.format(Math.round(value)));
export function bytes(value: number | null | undefined): string {
  if (value == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit++; }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}
export function rate(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return "–";
  if (value === 0) return "0/s";
  if (value < 10) return `${value.toFixed(1)}/s`;
  return value < 10_000 ? `${integer.format(Math.round(value))}/s` : `${(value / 1000).toFixed(1)}k/s`;
}
export function duration(seconds: number | null | undefined): string {
  if (seconds == null) return "–";
  if (seconds < 0.05) return "0 s";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} d`;
}
export function time(ms: number | null | undefined): string {
  if (ms == null || ms < 0) return "–";
  const at = new Date(ms);
  const padded = (value: number) => String(value).padStart(2, "0");
  const day = `${at.getFullYear()}-${padded(at.getMonth() + 1)}-${padded(at.getDate())}`;
  return `${day} ${padded(at.getHours())}:${padded(at.getMinutes())}:${padded(at.getSeconds())}`;
}
export const ago = (ms: number | null | undefined) => (ms == null || ms < 0 ? "–" : `${duration(Math.max(0, (Date.now() - ms) / 1000))} ago`);
import type { Payload } from "./types";
export const text = (payload: Payload) => (payload == null ? "" : typeof payload === "string" ? payload : `base64:${payload.base64}`);
export function size(payload: Payload): number {
  if (payload == null) return 0;
  return typeof payload === "string" ? new TextEncoder().encode(payload).length : Math.floor(payload.base64.length * 3 / 4);
}
/** Quotes one shell argument. */
export const quoted = (argument: string) => (/^[\w./:@=-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", "'\\''")}'`);
export function curl(method: string, path: string, body?: unknown): string {
  const url = location.origin + path;
  const flag = method === "GET" ? "" : ` -X ${method}`;
  const data = body === undefined ? "" : ` \\\n  -H 'Content-Type: application/json' \\\n  -d ${quoted(JSON.stringify(body))}`;
  return `curl -s${flag} ${quoted(url)}${data}`;
}
