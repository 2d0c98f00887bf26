// How soon the console's pages are there where there is much: node test/scale.mjs BINARY CHROMIUM TOPICS SESSIONS LOOKS
// Writes a JSON document: for each page the milliseconds of each look, from a browser that has nothing of it yet.
import { connect } from "node:net";
import { api, browserAt, end, serve, sleep } from "./server.mjs";

const [binary, browserPath, ...counts] = process.argv.slice(2);
const [topics, sessions, looks] = counts.map(Number);
const AT_ONCE = 64;
const PAGES = { overview: ["#/", ".flow .big"], topics: ["#/topics", "main tbody tr"], groups: ["#/groups", "main tbody tr"], sessions: ["#/sessions", "main tbody tr"] };
const name = (at) => `topic-${String(at).padStart(6, "0")}`;

async function inParts(count, work) {
  let next = 0;
  await Promise.all(Array.from({ length: AT_ONCE }, async () => { while (next < count) await work(next++); }));
}

/** A client of Kafka's protocol that asks which versions there are, and stays. */
function session({ kafka }) {
  const [host, port] = kafka.split(":");
  const asks = Buffer.from([0, 0, 0, 14, 0, 18, 0, 0, 0, 0, 0, 1, 0, 4, ...Buffer.from("many")]);
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), host, () => socket.write(asks));
    socket.once("data", () => resolve(socket));
    socket.once("error", reject);
  });
}

/** Records go in and are settled meanwhile. */
function keepBusy(node) {
  let on = true;
  const loop = (async () => {
    for (let at = 0; on; at++) {
      const topic = name(at % 16);
      await api(node, "POST", `/v1/topics/${topic}/records`, { records: Array.from({ length: 50 }, (_, key) => ({ key: `key-${key}`, value: "x".repeat(100) })) });
      const { leases } = await api(node, "POST", `/v1/topics/${topic}/groups/main/leases`, { max_records: 50, lease_ms: 60_000 });
      await api(node, "POST", `/v1/topics/${topic}/groups/main/settle`, { settles: leases.map((it) => ({ token: it.token, action: "accept" })) });
      await sleep(50);
    }
  })();
  return async () => { on = false; await loop; };
}

try {
  const node = await serve(binary, "many", "--max-connections", String(sessions + 200));
  await inParts(topics, (at) => api(node, "POST", "/v1/topics", { name: name(at), partitions: 1 }));
  await inParts(16, (at) => api(node, "PUT", `/v1/topics/${name(at)}/groups/main`, {}));
  const open = [];
  await inParts(sessions, async () => { open.push(await session(node)); });
  const rest = keepBusy(node);
  await sleep(3000);
  const browser = await browserAt(browserPath);
  const took = Object.fromEntries(Object.keys(PAGES).map((page) => [page, []]));
  for (let look = 0; look < looks; look++) {
    for (const [page, [path, selector]] of Object.entries(PAGES)) {
      const context = await browser.newContext({ viewport: { width: 1280, height: 820 } });
      const tab = await context.newPage();
      const begun = performance.now();
      await tab.goto(node.url + path, { waitUntil: "commit" });
      await tab.waitForSelector(selector, { timeout: 60_000 });
      took[page].push(Math.round(performance.now() - begun));
      await context.close();
    }
  }
  await rest();
  await browser.close();
  open.forEach((socket) => socket.destroy());
  console.log(JSON.stringify({ topics, sessions, milliseconds: took }));
} finally {
  await end();
}
