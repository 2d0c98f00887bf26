// Starts the nodes and the browser of a test run. `cleanUp` ends all node processes and removes their data.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

export const folder = mkdtempSync(join(tmpdir(), "console-"));
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
/** Child processes that `cleanUp` ends. */
export const processes = [];

/** Starts a node with a data directory of this name, and returns its addresses. */
export async function startNode(binary, name, ...more) {
  const options = ["serve", "--data", join(folder, name), "--kafka", "127.0.0.1:0", "--amqp", "127.0.0.1:0", "--http", "127.0.0.1:0", ...more];
  const child = spawn(binary, options, { stdio: ["ignore", "pipe", "inherit"], env: { ...process.env, POSTROAD_LOG: "error" } });
  processes.push(child);
  let output = "";
  child.stdout.on("data", (bytes) => { output += bytes; });
  for (let attempt = 0; attempt < 600 && !output.includes("\nready"); attempt++) await sleep(50);
  const url = output.match(/console (http:\/\/[\d.:]+\/)/);
  const kafka = output.match(/kafka ([\d.:]+)/);
  const amqp = output.match(/amqp ([\d.:]+)/);
  if (!url || !kafka || !amqp) throw new Error(`the node did not print its addresses: ${output}`);
  return { url: url[1], kafka: kafka[1], amqp: amqp[1] };
}

export async function api(node, method, path, body, headers = {}) {
  const response = await fetch(new URL(path, node.url), { method, body: body === undefined ? undefined : JSON.stringify(body), headers: { "content-type": "application/json", ...headers } });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return text ? JSON.parse(text) : undefined;
}

export const launchBrowser = (path) => chromium.launch({ executablePath: path, args: ["--no-sandbox", "--disable-background-networking", "--disable-dev-shm-usage"] });

export async function cleanUp() {
  for (const child of processes) child.kill("SIGKILL");
  await sleep(200);
  rmSync(folder, { recursive: true, force: true });
}
