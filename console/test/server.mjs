// Nodes of a run, and the browser that looks at them. All that was started is gone once `end` is done.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

export const folder = mkdtempSync(join(tmpdir(), "console-"));
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
/** Processes that `end` ends. */
export const nodes = [];

/** Starts a node with a directory of this name, and tells where it is reached. */
export async function serve(binary, name, ...more) {
  const arguments_ = ["serve", "--data", join(folder, name), "--kafka", "127.0.0.1:0", "--amqp", "127.0.0.1:0", "--http", "127.0.0.1:0", ...more];
  const process_ = spawn(binary, arguments_, { stdio: ["ignore", "pipe", "inherit"], env: { ...process.env, POSTROAD_LOG: "error" } });
  nodes.push(process_);
  let said = "";
  process_.stdout.on("data", (bytes) => { said += bytes; });
  for (let tries = 0; tries < 600 && !said.includes("\nready"); tries++) await sleep(50);
  const console_ = said.match(/console (http:\/\/[\d.:]+\/)/);
  const kafka = said.match(/kafka ([\d.:]+)/);
  const amqp = said.match(/amqp ([\d.:]+)/);
  if (!console_ || !kafka || !amqp) throw new Error(`the server did not say where it is: ${said}`);
  return { url: console_[1], kafka: kafka[1], amqp: amqp[1] };
}

export async function api(node, method, path, body, headers = {}) {
  const response = await fetch(new URL(path, node.url), { method, body: body === undefined ? undefined : JSON.stringify(body), headers: { "content-type": "application/json", ...headers } });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return text ? JSON.parse(text) : undefined;
}

export const browserAt = (path) => chromium.launch({ executablePath: path, args: ["--no-sandbox", "--disable-background-networking", "--disable-dev-shm-usage"] });

export async function end() {
  for (const node of nodes) node.kill("SIGKILL");
  await sleep(200);
  rmSync(folder, { recursive: true, force: true });
}
