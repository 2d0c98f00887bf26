// The console in a real browser, against the real binary: node test/run.mjs BINARY CHROMIUM [SCREENSHOTS]
// Prints a line for each check; ends with 1 if one fails.
import { spawn } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { consuming } from "./amqp.mjs";
import { api, browserAt, end, folder, nodes, serve, sleep } from "./server.mjs";

const [binary, browserPath, pictures] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
function command(node, input, ...arguments_) {
  return new Promise((resolve, reject) => {
    const child = spawn(binary, [...arguments_, "--bootstrap", node.kafka], { stdio: ["pipe", "ignore", "inherit"] });
    child.on("error", reject);
    child.on("exit", (code) => (code === 0 ? resolve() : reject(new Error(`${arguments_.join(" ")} ended with ${code}`))));
    child.stdin.end(input);
  });
}

// ---------------------------------------------------------------------------------------------- load

/** What a page must show as it is. */
const XSS = `"><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\u202e`;
const NAMES = ["anna", "bert", "clara", "dmitri", "elif", "farid", "grace", "henrik"];
const order = (at) => ({ order: 10_000 + at, customer: NAMES[at % 8], items: 1 + (at % 5), total: Number((((at * 37) % 900) / 10 + 4.5).toFixed(2)), currency: "EUR" });

async function fill(node) {
  const topic = (name, partitions, config = {}) => api(node, "POST", "/v1/topics", { name, partitions, config });
  await topic("orders", 6);
  await topic("payments", 3);
  await topic("mails", 2);
  await topic("mails.failed", 1);
  for (const name of ["audit.logins", "inventory.changes", "shipments", "sensors.greenhouse", "web.clicks"]) await topic(name, 4);
  await api(node, "PUT", "/v1/topics/mails/groups/main", { config: { "attempts.max": "1", "dead.letter.topic": "mails.failed" } });
  await api(node, "PUT", "/v1/topics/payments/groups/main", {});
  await api(node, "PUT", "/v1/topics/orders/groups/billing", {});
  await api(node, "PUT", "/v1/topics/orders/groups/shipping", {});
  const records = (from, count) => Array.from({ length: count }, (_, at) => ({ key: NAMES[(from + at) % 8], value_json: order(from + at), headers: [{ name: "content-type", value: "application/json" }, { name: "trace-id", value: `t-${from + at}` }] }));
  for (let from = 0; from < 4000; from += 1000) await api(node, "POST", "/v1/topics/orders/records", { records: records(from, 1000) });
  for (const name of ["payments", "inventory.changes", "web.clicks", "shipments"]) await api(node, "POST", `/v1/topics/${name}/records`, { records: records(0, name === "web.clicks" ? 900 : 260) });
  await api(node, "POST", "/v1/topics/mails/records", { records: NAMES.map((name, at) => ({ key: name, value: `Dear ${name}, your order ${10_000 + at} is on its way.`, headers: [{ name: "subject", value: "On its way" }] })) });
  await api(node, "POST", "/v1/topics/payments/records", { records: NAMES.map((name, at) => ({ key: name, value_json: { reminder: 10_000 + at }, deliver_at_ms: Date.now() + (at + 1) * 3_600_000 })) });
  // Taken and put back until they are dead letters.
  for (let turn = 0; turn < 1; turn++) {
    const { leases } = await api(node, "POST", "/v1/topics/mails/groups/main/leases", { max_records: 5, lease_ms: 60_000, wait_ms: 2000 });
    await api(node, "POST", "/v1/topics/mails/groups/main/settle", { settles: leases.map((it) => ({ token: it.token, action: "reject" })) });
  }
  await api(node, "POST", "/v1/topics/sensors.greenhouse/records", { records: [{ key: XSS, value: XSS, headers: [{ name: XSS, value: XSS }] }, { key: "bytes", value: { base64: "AAEC/w==" } }] });
  await command(node, undefined, "user", "list");
  for (const [name, type] of [["shop", "topic"], ["mail", "fanout"]]) await api(node, "PUT", `/api/exchanges/%2F/${name}`, { type, durable: true });
  for (const [name, arguments_] of [["shop.orders", { "x-max-length": 10000, "x-queue-type": "quorum" }], ["shop.audit", {}], ["mail.out", { "x-message-ttl": 3600000 }]]) await api(node, "PUT", `/api/queues/%2F/${name}`, { durable: true, arguments: arguments_ });
  for (const [source, queue, key] of [["shop", "shop.orders", "order.*"], ["shop", "shop.audit", "#"], ["mail", "mail.out", ""]]) await api(node, "POST", `/api/bindings/%2F/e/${source}/q/${queue}`, { routing_key: key });
  for (let at = 0; at < 12; at++) await api(node, "POST", "/api/exchanges/%2F/shop/publish", { routing_key: "order.new", payload: JSON.stringify(order(at)), payload_encoding: "string", properties: {} });
  await consuming(node.amqp, { user: "guest", password: "guest", name: "billing worker", queue: "shop.orders", tag: "billing", prefetch: 5 });
  // One that is a member, and one that was.
  const consumers = (group, ...more) => spawn(binary, ["consume", "orders", "web.clicks", "--group", group, ...more, "--bootstrap", node.kafka], { stdio: ["ignore", "ignore", "inherit"] });
  nodes.push(consumers("analytics", "--follow"));
  await new Promise((resolve) => consumers("reports").on("exit", resolve));
  for (let tries = 0; tries < 600; tries++) {
    const { items } = await api(node, "GET", "/v1/groups");
    if (items.some((it) => it.name === "analytics" && it.membership?.state === "Stable")) return;
    await sleep(50);
  }
  throw new Error("the group has no member");
}

function keepBusy(node) {
  let [at, on, kept] = [4000, true, 0];
  const loop = (async () => {
    while (on) {
      const busy = 40 + Math.round(25 * Math.sin(at / 400)) + (at % 13);
      await api(node, "POST", "/v1/topics/orders/records", { records: Array.from({ length: busy }, () => ({ key: NAMES[at % 8], value_json: order(at++), headers: [{ name: "content-type", value: "application/json" }] })) });
      for (const [group, most] of [["billing", 70], ["shipping", 22]]) {
        const { leases } = await api(node, "POST", `/v1/topics/orders/groups/${group}/leases`, { max_records: most, lease_ms: 120_000 });
        const keep = kept < 12 && group === "shipping" ? 3 : 0;
        kept += keep;
        await api(node, "POST", `/v1/topics/orders/groups/${group}/settle`, { settles: leases.slice(keep).map((it) => ({ token: it.token, action: "accept" })) });
      }
      await sleep(120);
    }
  })();
  return async () => { on = false; await loop; };
}

// --------------------------------------------------------------------------------------------- checks

let [passed, failed] = [0, 0];
async function check(name, test) {
  try { await test(); passed++; console.log(`ok ${name}`); }
  catch (error) { failed++; console.log(`FAIL ${name} ${error.message.split("\n").slice(0, 12).join("\n    ")}`); }
}
function must(truth, what) { if (!truth) throw new Error(what); }

async function accessible(page) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }));
  must(violations.length === 0, violations.map((it) => `${it.id}: ${it.nodes.slice(0, 2).map((node) => node.html.slice(0, 140) + " " + (node.any[0]?.message ?? "")).join(" | ")}`).join("\n"));
}

const PAGES = {
  overview: ["#/", ".flow .big"], topics: ["#/topics", "main table"], topic: ["#/topics/orders", "main table"],
  records: ["#/topics/orders/records?from=-8", "table.records"], publish: ["#/topics/orders/publish", "form"], tail: ["#/topics/orders/tail", "table.records"],
  config: ["#/topics/orders/config", "main table"], "topic-groups": ["#/topics/orders/groups", "main table"], groups: ["#/groups", "main table"], offsets: ["#/groups/offsets", "main table"],
  "offset-group": ["#/groups/offsets/analytics", "main table"], members: ["#/groups/offsets/analytics/members", "main table"], "offset-seek": ["#/groups/offsets/reports/seek", "form"],
  group: ["#/topics/orders/groups/shipping", "main table"], leases: ["#/topics/orders/groups/shipping/leases", "main table"], waiting: ["#/topics/orders/groups/shipping/waiting", "table.records"], seek: ["#/topics/orders/groups/shipping/seek", "form"],
  scheduled: ["#/topics/payments/groups/main/scheduled", "table.records"], "dead-letters": ["#/dead-letters", "main table"], redrive: ["#/dead-letters/mails.failed", "table.records"],
  amqp: ["#/amqp", "main table"], exchanges: ["#/amqp/exchanges?vhost=%2F", "main table"], bindings: ["#/amqp/bindings", "main table"],
  "amqp-connections": ["#/amqp/connections", "main table"], channels: ["#/amqp/channels", "main table"], consumers: ["#/amqp/consumers", "main table"],
  find: ["#/find?topic=orders&place=@.10", "main table"], sessions: ["#/sessions", "main table"], nodes: ["#/nodes", "main table"], access: ["#/access", "main table"], rules: ["#/access/rules", "form"], explain: ["#/access/explain", "form"],
};

try {
  const open = await serve(binary, "open");
  await fill(open);
  const rest = keepBusy(open);
  const browser = await browserAt(browserPath);
  const errors = [];
  const watch = (page) => {
    page.on("console", (message) => { if (message.type() === "error" && !/status of (4|5)\d\d/.test(message.text())) errors.push(message.text()); });
    page.on("pageerror", (error) => errors.push(String(error)));
    page.on("request", (request) => { if (!/^(data|blob):/.test(request.url()) && !request.url().startsWith("http://127.0.0.1:")) errors.push(`asked ${request.url()}`); });
    return page;
  };
  // Not every partition has some of these keys.
  const { partitions } = await api(open, "GET", "/v1/topics/orders");
  const full = partitions.find((it) => it.end > 20).partition;
  const themes = {};
  for (const colorScheme of ["light", "dark"]) {
    const context = await browser.newContext({ colorScheme, viewport: { width: 1280, height: 820 }, reducedMotion: "reduce" });
    themes[colorScheme] = watch(await context.newPage());
  }
  if (pictures) mkdirSync(pictures, { recursive: true });
  // Rates want a few moments.
  for (const page of Object.values(themes)) { await page.goto(open.url); await page.waitForSelector(".flow .big"); }
  await sleep(pictures ? 7000 : 4000);
  for (const [name, [path, selector]] of Object.entries(PAGES)) {
    for (const [theme, page] of Object.entries(themes)) {
      await check(`page ${name} ${theme}`, async () => {
        await page.goto(open.url + path.replace("@", full));
        await page.waitForSelector(selector, { timeout: 10_000 });
        await sleep(name === "topic" && pictures ? 7000 : 400);
        if (name === "records") await page.click("table.records button.rowlink >> nth=1");
        if (pictures) await page.screenshot({ path: join(pictures, `${name}-${theme}.png`) });
        must((await page.locator(".failure").count()) === 0, `a problem: ${await page.locator(".failure").allInnerTexts()}`);
        await accessible(page);
      });
    }
  }
  const page = themes.light;
  const at = async (path, selector) => { await page.goto(open.url + path); await page.waitForSelector(selector); };

  await check("what a record holds is text, and nothing of it runs", async () => {
    await at("#/topics/sensors.greenhouse/records?from=earliest", "table.records");
    await page.click(`table.records tr:has-text("onerror") button.rowlink`);
    await page.waitForSelector(".record .value");
    must((await page.locator("main img").count()) === 0, "an image was made of a value");
    must(!(await page.evaluate(() => window.hacked)), "a script of a value ran");
  });
  await check("a topic is made, written to and deleted, with its name typed", async () => {
    await at("#/topics", "main table");
    await page.click("text=New topic");
    await page.fill("[name=name]", "tried");
    await page.fill("[name=partitions]", "2");
    await page.click("text=Make it");
    await page.waitForSelector("h1:has-text('tried')");
    await page.click(".actions >> text=Publish");
    await page.fill("[name=key]", "k");
    await page.fill("[name=value]", "hello");
    await page.click("button:has-text('Append')");
    await page.waitForSelector("text=Appended at");
    await page.click("p[role=status] a");
    await page.waitForSelector("text=The record is stored");
    await at("#/topics/tried", ".actions .danger");
    await page.click(".actions .danger:not(:disabled)");
    must(await page.isDisabled("dialog button.danger"), "it is deleted without its name");
    await page.fill("dialog input", "tried");
    await page.click("dialog button.danger");
    await page.waitForFunction(() => location.hash === "#/topics");
  });
  await check("lists are narrowed by the node, and the address says so", async () => {
    await at("#/topics", "main table");
    await page.fill("[data-filter]", "PAY");
    await page.waitForFunction(() => document.querySelectorAll("main tbody tr").length === 1);
    must(page.url().includes("filter=PAY"), page.url());
    await page.reload();
    await page.waitForFunction(() => document.querySelectorAll("main tbody tr").length === 1);
  });
  await check("a list is sorted, and says how", async () => {
    await at("#/topics", "main table");
    await page.click("th button:has-text('Records')");
    must((await page.getAttribute("th:has-text('Records')", "aria-sort")) === "descending", "aria-sort");
    must((await page.innerText("tbody tr:first-child td:first-child")) === "orders", "orders has the most");
  });
  await check("records are found by what is in them", async () => {
    await at("#/topics/orders/records?from=earliest", "table.records");
    await page.fill("[name=contains]", `"order":10123,`);
    await page.click("button:has-text('Look')");
    await page.waitForFunction(() => document.querySelectorAll("table.records tbody tr").length === 1);
    must((await page.innerText("table.records")).includes("10123"), "another record");
  });
  await check("a record is found by a header, and where it is to each group", async () => {
    await at("#/find", "form");
    await page.fill("[name=topic]", "orders");
    await page.selectOption("[name=by]", "header");
    await page.fill("[name=header]", "trace-id");
    await page.fill("[name=what]", "t-77");
    await page.click("button:has-text('Find')");
    await page.waitForSelector("text=The record is stored");
    await page.waitForSelector("td:has-text('billing')");
    // In all topics, where none is named.
    await at("#/find", "form");
    await page.selectOption("[name=by]", "header");
    await page.fill("[name=header]", "trace-id");
    await page.fill("[name=what]", "t-77");
    await page.click("button:has-text('Find')");
    await page.waitForSelector("text=The record is stored");
  });
  await check("the tail shows what comes, and pauses", async () => {
    await at("#/topics/orders/tail", "table.records");
    await page.click("button:has-text('Pause')");
    const before = await page.innerText("table.records tbody tr:first-child");
    await sleep(700);
    must((await page.innerText("table.records tbody tr:first-child")) === before, "it went on");
  });
  await check("a seek says what it would do, then does it, and can be undone", async () => {
    await rest();
    await at("#/topics/orders/groups/billing/seek", "form");
    await page.fill("[name=to]", "latest");
    await page.click("text=What would happen?");
    await page.waitForSelector("text=that were not are passed over");
    await page.click(".card button.danger");
    await page.fill("dialog input", "orders");
    await page.click("dialog button.danger");
    await page.waitForSelector("text=Back to where it was");
    const { summary } = await api(open, "GET", "/v1/topics/orders/groups/billing");
    must(summary.depth === 0, `${summary.depth} wait`);
    await page.click("button:has-text('Undo')");
    await page.waitForSelector("text=What would happen >> nth=1");
  });
  await check("a group of Kafka's shows who is in it, and is not moved then", async () => {
    await at("#/groups/offsets/analytics/members", "main table");
    const member = await page.innerText("main tbody tr");
    must(/orders/.test(member) && /127\.0\.0\.1/.test(member), member);
    must(await page.isDisabled(".actions .danger"), "it can be deleted");
    await at("#/groups/offsets/analytics/seek", "text=It has members");
  });
  await check("a group of Kafka's that nobody is in is tried, moved, taken back and deleted", async () => {
    const lag = async () => (await api(open, "GET", "/v1/groups/reports/lag")).lag;
    await at("#/groups/offsets/reports/seek", "form");
    const before = await lag();
    await page.fill("[name=to]", "earliest");
    await page.click("text=What would happen?");
    await page.waitForSelector("text=that were not are passed over");
    must((await lag()) === before, "the trial moved it");
    await page.click(".card button.danger");
    await page.fill("dialog input", "reports");
    await page.click("dialog button.danger");
    await page.waitForSelector("text=Back to where it was");
    must((await lag()) > before, "it was not moved");
    await page.click("button:has-text('Undo')");
    await page.waitForSelector("text=What would happen >> nth=1");
    await page.click(".actions .danger:not(:disabled)");
    await page.fill("dialog input", "reports");
    await page.click("dialog button.danger");
    await page.waitForFunction(() => location.hash === "#/groups/offsets");
    await page.waitForFunction(() => !document.querySelector("main table")?.innerText.includes("reports"));
  });
  await check("queues of AMQP are narrowed by the node, and a connection is closed", async () => {
    await at("#/amqp", "main table");
    await page.fill("[data-filter]", "AUDIT");
    await page.waitForFunction(() => document.querySelectorAll("main tbody tr").length === 1);
    must(page.url().includes("filter=AUDIT"), page.url());
    await at("#/amqp/exchanges", "main table");
    await page.click("a[aria-label='Bindings of shop']");
    await page.waitForSelector("main .banner:has-text('shop')");
    await page.waitForFunction(() => document.querySelectorAll("main tbody tr").length === 2);
    await at("#/amqp/bindings", "main table");
    must((await page.innerText("main table")).includes("order.*"), "the routing key");
    await at("#/amqp/consumers", "main table");
    must(/billing/.test(await page.innerText("main tbody tr")), "the consumer");
    await at("#/amqp/connections", "main table");
    await page.click("tr:has-text('billing worker') button");
    await page.click("dialog button.danger");
    await page.waitForFunction(() => !document.querySelector("main table")?.innerText.includes("billing worker"));
  });
  await check("somebody who is new here finds a message that is stuck, and sends it back", async () => {
    await at("#/", ".flow .big");
    await page.click("nav a:has-text('Dead letters')");
    await page.click("main td a:text-is('mails')");
    const letter = page.locator("table.records tbody tr", { hasText: "grace" }).first();
    await letter.waitFor();
    must(/rejected[\s\S]*mails[\s\S]*main/.test(await letter.innerText()), await letter.innerText());
    await letter.locator("input[type=checkbox]").click();
    await page.click("button.primary:text-is('Redrive 1')");
    await page.click("dialog button.primary");
    await page.waitForSelector("text=1 dead letter was redriven.");
    await page.click("nav a:has-text('Groups')");
    await page.click("main a:has-text('mails / main')");
    await page.click("main a:has-text('Waiting')");
    await page.waitForSelector("table.records tr:has-text('grace')");
  });
  await check("dead letters go back to where they came from", async () => {
    await at("#/dead-letters/mails.failed", "table.records");
    await page.click("button.primary:has-text('Redrive')");
    await page.click("dialog button.primary");
    await page.waitForSelector("text=dead letters were redriven");
    const counts = await api(open, "GET", "/v1/topics/mails.failed/dead-letters");
    must(counts.items.length === 0, JSON.stringify(counts));
  });
  await check("keys go to pages, rows and the palette", async () => {
    await at("#/", ".flow .big");
    await page.keyboard.press("g"); await page.keyboard.press("t");
    await page.waitForSelector("h1:has-text('Topics')");
    await page.waitForSelector("main .rowlink");
    await page.keyboard.press("j"); await page.keyboard.press("j"); await page.keyboard.press("Enter");
    await page.waitForFunction(() => location.hash.startsWith("#/topics/"));
    await page.keyboard.press("Control+k");
    await page.waitForSelector("dialog[open]");
    await page.keyboard.type("payments");
    await page.waitForSelector("dialog a:has-text('payments')");
    await page.keyboard.press("Enter");
    await page.waitForSelector("h1:has-text('payments')");
    await page.keyboard.press("?");
    await page.waitForSelector("dialog[open] h2:has-text('Keys')");
    await page.keyboard.press("Escape");
    must((await page.locator("dialog[open]").count()) === 0, "it stays open");
  });
  await check("a small screen needs no scrolling aside", async () => {
    await page.setViewportSize({ width: 320, height: 700 });
    for (const path of ["#/", "#/topics", "#/topics/orders", "#/nodes", "#/find", "#/amqp", "#/groups/offsets/analytics/members"]) {
      await at(path, "h1");
      await sleep(300);
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      must(over <= 0, `${path} is ${over} px too wide`);
    }
    await page.setViewportSize({ width: 1280, height: 820 });
  });
  await check("what is wrong is said, with what can be done", async () => {
    await at("#/topics/no-such-topic", ".failure");
    const said = await page.innerText(".failure");
    must(/There is no such topic/.test(said) && /What can be done/.test(said), said);
  });

  // ------------------------------------------------------------------------------ where one logs in
  writeFileSync(join(folder, "password"), "toor\n");
  const safe = await serve(binary, "safe", "--admin-user", "root", "--admin-password-file", join(folder, "password"));
  const context = await browser.newContext({ viewport: { width: 1280, height: 820 } });
  const guarded = watch(await context.newPage());
  await guarded.goto(safe.url);
  await guarded.waitForSelector("main.login form");
  await check("page login light", async () => {
    if (pictures) await guarded.screenshot({ path: join(pictures, "login-light.png") });
    await accessible(guarded);
  });
  await check("a wrong password is refused, and a right one lets in", async () => {
    await guarded.fill("[name=user]", "root");
    await guarded.fill("[name=password]", "wrong");
    await guarded.click("button:has-text('Log in')");
    await guarded.waitForSelector(".failure");
    await guarded.fill("[name=password]", "toor");
    await guarded.click("button:has-text('Log in')");
    await guarded.waitForSelector("text=Healthy");
    const cookies = await context.cookies();
    must(cookies.length === 1 && cookies[0].httpOnly && cookies[0].sameSite === "Strict", JSON.stringify(cookies));
    must(!(await guarded.evaluate(() => document.cookie)), "a script reads the cookie");
    await guarded.reload();
    await guarded.waitForSelector("text=Healthy");
  });
  await check("users and rules are made, and explained", async () => {
    await guarded.goto(`${safe.url}#/access`);
    await guarded.fill(".card [name=name]", "app");
    await guarded.fill(".card [name=password]", "secret");
    await guarded.click("button:has-text('Make it')");
    await guarded.waitForSelector("td:has-text('app')");
    await guarded.goto(`${safe.url}#/access/rules`);
    await guarded.fill("[name=user]", "app");
    await guarded.fill("[name=name]", "orders");
    await guarded.click("button:has-text('Add')");
    await guarded.waitForSelector("td:has-text('User:app')");
    await guarded.goto(`${safe.url}#/access/explain`);
    await guarded.fill("[name=user]", "app");
    await guarded.fill("[name=name]", "orders");
    await guarded.click("button:has-text('Ask')");
    await guarded.waitForSelector(".verdict:has-text('yes')");
  });
  await check("a user with few rights is pointed to the topics, without an error", async () => {
    const other = await browser.newContext();
    const page = watch(await other.newPage());
    await page.goto(safe.url);
    await page.fill("[name=user]", "app");
    await page.fill("[name=password]", "secret");
    await page.click("button:has-text('Log in')");
    await page.waitForSelector(".empty:has-text('not shown to this user')");
    must((await page.locator(".failure").count()) === 0, "the first page shows an error");
    await page.goto(`${safe.url}#/topics`);
    await page.waitForSelector("text=There are no topics yet");
    // Another password ends the session.
    await api(safe, "PUT", "/v1/users/app/password", { password: "other" }, { authorization: `Basic ${btoa("root:toor")}` });
    await page.reload();
    await page.waitForSelector("main.login form");
    await other.close();
  });
  await check("who logs out is out", async () => {
    await guarded.click("button:text-is('Log out')");
    await guarded.waitForSelector("main.login form");
    must((await context.cookies()).length === 0, "the cookie stays");
  });
  await check("a node that is gone is told, and what it said stays", async () => {
    await at("#/topics", "main table");
    nodes[0].kill("SIGKILL");
    await page.waitForSelector("text=Not connected", { timeout: 15_000 });
    must((await page.locator("main tbody tr").count()) > 3, "the list is gone");
  });
  await check("nothing was refused by the policy, asked of other hosts, or thrown", async () => {
    const known = errors.filter((it) => !/ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY/.test(it));
    must(known.length === 0, known.slice(0, 5).join("\n"));
  });
  await browser.close();
} finally {
  await end();
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
