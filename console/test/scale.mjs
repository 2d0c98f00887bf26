// Loading times of the console on a node with many topics and sessions: node test/scale.mjs BINARY CHROMIUM TOPICS SESSIONS REPETITIONS
// Prints a JSON document: the milliseconds of each repetition for each page, in a browser with an empty cache.
import { connect } from "node:net";
import { api, launchBrowser, cleanUp, startNode, sleep } from "./server.mjs";

const [binary, browserPath, ...counts] = process.argv.slice(2);
const [topics, sessions, repetitions] = counts.map(Number);
const CONCURRENCY = 64;
const PAGES = { overview: ["#/", ".flow .big"], topics: ["#/topics", "main tbody tr"], groups: ["#/groups", "main tbody tr"], sessions: ["#/sessions", "main tbody tr"] };
const name = (at) => `topic-${String(at).padStart(6, "0")}`;

async function inParallel(count, work) {
  let next = 0;
  await Promise.all(Array.from({ length: CONCURRENCY }, async () => { while (next < count) await work(next++); }));
}

/** Kafka connection that sends ApiVersions and stays open. */
function openSession({ kafka }) {
  const [host, port] = kafka.split(":");
  const apiVersions = Buffer.from([0, 0, 0, 14, 0, 18, 0, 0, 0, 0, 0, 1, 0, 4, ...Buffer.from("many")]);
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), host, () => socket.write(apiVersions));
    socket.once("data", () => resolve(socket));
    socket.once("error", reject);
  });
}

/** Appends and settles records in the background. */
function startLoad(node) {
  let isRunning = true;
  const loop = (async () => {
    for (let at = 0; isRunning; at++) {
      const topic = name(at % 16);
      await api(node, "POST", `/v1/topics/${topic}/records`, { records: Array.from({ length: 50 }, (_, key) => ({ key: `key-${key}`, value: "x".repeat(100) })) });
      const { leases } = await api(node, "POST", `/v1/topics/${topic}/groups/main/leases`, { max_records: 50, lease_ms: 60_000 });
      await api(node, "POST", `/v1/topics/${topic}/groups/main/settle`, { settles: leases.map((lease) => ({ token: lease.token, action: "accept" })) });
      await sleep(50);
    }
  })();
  return async () => { isRunning = false; await loop; };
}

try {
  const node = await startNode(binary, "many", "--max-connections", String(sessions + 200));
  await inParallel(topics, (at) => api(node, "POST", "/v1/topics", { name: name(at), partitions: 1 }));
  await inParallel(16, (at) => api(node, "PUT", `/v1/topics/${name(at)}/groups/main`, {}));
  const sockets = [];
  await inParallel(sessions, async () => { sockets.push(await openSession(node)); });
  const stopLoad = startLoad(node);
  await sleep(3000);
  const browser = await launchBrowser(browserPath);
  const milliseconds = Object.fromEntries(Object.keys(PAGES).map((page) => [page, []]));
  for (let repetition = 0; repetition < repetitions; repetition++) {
    for (const [page, [path, selector]] of Object.entries(PAGES)) {
      const context = await browser.newContext({ viewport: { width: 1280, height: 820 } });
      const tab = await context.newPage();
      const start = performance.now();
      await tab.goto(node.url + path, { waitUntil: "commit" });
      await tab.waitForSelector(selector, { timeout: 60_000 });
      milliseconds[page].push(Math.round(performance.now() - start));
      await context.close();
    }
  }
  await stopLoad();
  await browser.close();
  sockets.forEach((socket) => socket.destroy());
  console.log(JSON.stringify({ topics, sessions, milliseconds }));
} finally {
  await cleanUp();
}
