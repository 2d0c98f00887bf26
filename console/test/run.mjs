// Tests the console in a real browser against the real binary: node test/run.mjs BINARY CHROMIUM [SCREENSHOTS]
// Prints one line per check. Exits with 1 if a check fails.
import { spawn } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { openConsumer } from "./amqp.mjs";
import { api, launchBrowser, cleanUp, folder, processes, startNode, sleep } from "./server.mjs";

const [binary, browserPath, screenshots] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
function command(node, input, ...arguments_) {
  return new Promise((resolve, reject) => {
    const child = spawn(binary, [...arguments_, "--bootstrap", node.kafka], { stdio: ["pipe", "ignore", "inherit"] });
    child.on("error", reject);
    child.on("exit", (code) => (code === 0 ? resolve() : reject(new Error(`${arguments_.join(" ")} exited with ${code}`))));
    child.stdin.end(input);
  });
}

// ---------------------------------------------------------------------------------------------- data

/** Text that a page must render literally. */
const XSS = `"><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\u202e`;
const NAMES = ["anna", "bert", "clara", "dmitri", "elif", "farid", "grace", "henrik"];
const order = (at) => ({ order: 10_000 + at, customer: NAMES[at % 8], items: 1 + (at % 5), total: Number((((at * 37) % 900) / 10 + 4.5).toFixed(2)), currency: "EUR" });

async function createData(node) {
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
  // Rejected records become dead letters.
  {
    const { leases } = await api(node, "POST", "/v1/topics/mails/groups/main/leases", { max_records: 5, lease_ms: 60_000, wait_ms: 2000 });
    await api(node, "POST", "/v1/topics/mails/groups/main/settle", { settles: leases.map((lease) => ({ token: lease.token, action: "reject" })) });
  }
  await api(node, "POST", "/v1/topics/sensors.greenhouse/records", { records: [{ key: XSS, value: XSS, headers: [{ name: XSS, value: XSS }] }, { key: "bytes", value: { base64: "AAEC/w==" } }] });
  await command(node, undefined, "user", "list");
  for (const [name, type] of [["shop", "topic"], ["mail", "fanout"]]) await api(node, "PUT", `/api/exchanges/%2F/${name}`, { type, durable: true });
  for (const [name, arguments_] of [["shop.orders", { "x-max-length": 10000, "x-queue-type": "quorum" }], ["shop.audit", {}], ["mail.out", { "x-message-ttl": 3600000 }]]) await api(node, "PUT", `/api/queues/%2F/${name}`, { durable: true, arguments: arguments_ });
  for (const [source, queue, key] of [["shop", "shop.orders", "order.*"], ["shop", "shop.audit", "#"], ["mail", "mail.out", ""]]) await api(node, "POST", `/api/bindings/%2F/e/${source}/q/${queue}`, { routing_key: key });
  for (let at = 0; at < 12; at++) await api(node, "POST", "/api/exchanges/%2F/shop/publish", { routing_key: "order.new", payload: JSON.stringify(order(at)), payload_encoding: "string", properties: {} });
  await openConsumer(node.amqp, { user: "guest", password: "guest", name: "billing worker", queue: "shop.orders", tag: "billing", prefetch: 5 });
  // A group with a member, and an empty group.
  const consumers = (group, ...more) => spawn(binary, ["consume", "orders", "web.clicks", "--group", group, ...more, "--bootstrap", node.kafka], { stdio: ["ignore", "ignore", "inherit"] });
  processes.push(consumers("analytics", "--follow"));
  await new Promise((resolve) => consumers("reports").on("exit", resolve));
  for (let attempt = 0; attempt < 600; attempt++) {
    const { items } = await api(node, "GET", "/v1/groups");
    if (items.some((group) => group.name === "analytics" && group.membership?.state === "Stable")) return;
    await sleep(50);
  }
  throw new Error("the group did not become stable");
}

function startLoad(node) {
  let [next, isRunning, leased] = [4000, true, 0];
  const loop = (async () => {
    while (isRunning) {
      const size = 40 + Math.round(25 * Math.sin(next / 400)) + (next % 13);
      await api(node, "POST", "/v1/topics/orders/records", { records: Array.from({ length: size }, () => ({ key: NAMES[next % 8], value_json: order(next++), headers: [{ name: "content-type", value: "application/json" }] })) });
      for (const [group, max] of [["billing", 70], ["shipping", 22]]) {
        const { leases } = await api(node, "POST", `/v1/topics/orders/groups/${group}/leases`, { max_records: max, lease_ms: 120_000 });
        const keep = leased < 12 && group === "shipping" ? 3 : 0;
        leased += keep;
        await api(node, "POST", `/v1/topics/orders/groups/${group}/settle`, { settles: leases.slice(keep).map((lease) => ({ token: lease.token, action: "accept" })) });
      }
      await sleep(120);
    }
  })();
  return async () => { isRunning = false; await loop; };
}

// --------------------------------------------------------------------------------------------- checks

let [passed, failed] = [0, 0];
async function check(name, test) {
  try { await test(); passed++; console.log(`ok ${name}`); }
  catch (error) { failed++; console.log(`FAIL ${name} ${error.message.split("\n").slice(0, 12).join("\n    ")}`); }
}
function assert(condition, message) { if (!condition) throw new Error(message); }

async function accessible(page) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }));
  assert(violations.length === 0, violations.map((violation) => `${violation.id}: ${violation.nodes.slice(0, 2).map((node) => node.html.slice(0, 140) + " " + (node.any[0]?.message ?? "")).join(" | ")}`).join("\n"));
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
  const open = await startNode(binary, "open");
  await createData(open);
  const stopLoad = startLoad(open);
  const browser = await launchBrowser(browserPath);
  const errors = [];
  const collectErrors = (page) => {
    page.on("console", (message) => { if (message.type() === "error" && !/status of (4|5)\d\d/.test(message.text())) errors.push(message.text()); });
    page.on("pageerror", (error) => errors.push(String(error)));
    page.on("request", (request) => { if (!/^(data|blob):/.test(request.url()) && !request.url().startsWith("http://127.0.0.1:")) errors.push(`request to ${request.url()}`); });
    return page;
  };
  // Some partitions receive no key.
  const { partitions } = await api(open, "GET", "/v1/topics/orders");
  const filledPartition = partitions.find((partition) => partition.end > 20).partition;
  const themes = {};
  for (const colorScheme of ["light", "dark"]) {
    const context = await browser.newContext({ colorScheme, viewport: { width: 1280, height: 820 }, reducedMotion: "reduce" });
    themes[colorScheme] = collectErrors(await context.newPage());
  }
  if (screenshots) mkdirSync(screenshots, { recursive: true });
  // Rates need a few samples.
  for (const page of Object.values(themes)) { await page.goto(open.url); await page.waitForSelector(".flow .big"); }
  await sleep(screenshots ? 7000 : 4000);
  for (const [name, [path, selector]] of Object.entries(PAGES)) {
    for (const [theme, page] of Object.entries(themes)) {
      await check(`page ${name} ${theme}`, async () => {
        await page.goto(open.url + path.replace("@", filledPartition));
        await page.waitForSelector(selector, { timeout: 10_000 });
        await sleep(name === "topic" && screenshots ? 7000 : 400);
        if (name === "records") await page.click("table.records button.rowlink >> nth=1");
        if (screenshots) await page.screenshot({ path: join(screenshots, `${name}-${theme}.png`) });
        assert((await page.locator(".failure").count()) === 0, `failure: ${await page.locator(".failure").allInnerTexts()}`);
        await accessible(page);
      });
    }
  }
  const page = themes.light;
  const openPage = async (path, selector) => { await page.goto(open.url + path); await page.waitForSelector(selector); };

  await check("markup in a record is shown as text and not executed", async () => {
    await openPage("#/topics/sensors.greenhouse/records?from=earliest", "table.records");
    await page.click(`table.records tr:has-text("onerror") button.rowlink`);
    await page.waitForSelector(".record .value");
    assert((await page.locator("main img").count()) === 0, "markup of a value was rendered");
    assert(!(await page.evaluate(() => window.hacked)), "a script of a value was executed");
  });
  await check("topic is created, written to, and deleted after its name was typed", async () => {
    await openPage("#/topics", "main table");
    await page.click("text=New topic");
    await page.fill("[name=name]", "scratch");
    await page.fill("[name=partitions]", "2");
    await page.click("button:text-is('Create topic')");
    await page.waitForSelector("h1:has-text('scratch')");
    await page.click(".actions >> text=Publish");
    await page.fill("[name=key]", "k");
    await page.fill("[name=value]", "hello");
    await page.click("button:has-text('Append')");
    await page.waitForSelector("text=Appended at");
    await page.click("p[role=status] a");
    await page.waitForSelector("text=The record is stored");
    await openPage("#/topics/scratch", ".actions .danger");
    await page.click(".actions .danger:not(:disabled)");
    assert(await page.isDisabled("dialog button.danger"), "deletion is enabled without the name");
    await page.fill("dialog input", "scratch");
    await page.click("dialog button.danger");
    await page.waitForFunction(() => location.hash === "#/topics");
  });
  await check("topic filter is applied by the node and kept in the URL", async () => {
    await openPage("#/topics", "main table");
    await page.fill("[data-filter]", "PAY");
    await page.waitForFunction(() => document.querySelectorAll("main tbody tr").length === 1);
    assert(page.url().includes("filter=PAY"), page.url());
    await page.reload();
    await page.waitForFunction(() => document.querySelectorAll("main tbody tr").length === 1);
  });
  await check("sorted column sets aria-sort", async () => {
    await openPage("#/topics", "main table");
    await page.click("th button:has-text('Records')");
    assert((await page.getAttribute("th:has-text('Records')", "aria-sort")) === "descending", "aria-sort");
    assert((await page.innerText("tbody tr:first-child td:first-child")) === "orders", "the first row is not the topic with the most records");
  });
  await check("search by value text finds the record", async () => {
    await openPage("#/topics/orders/records?from=earliest", "table.records");
    await page.fill("[name=contains]", `"order":10123,`);
    await page.click("button:text-is('Search')");
    await page.waitForFunction(() => document.querySelectorAll("table.records tbody tr").length === 1);
    assert((await page.innerText("table.records")).includes("10123"), "the match is another record");
  });
  await check("trace by header finds the record and its state in each group", async () => {
    await openPage("#/find", "form");
    await page.fill("[name=topic]", "orders");
    await page.selectOption("[name=by]", "header");
    await page.fill("[name=header]", "trace-id");
    await page.fill("[name=value]", "t-77");
    await page.click("button:has-text('Find')");
    await page.waitForSelector("text=The record is stored");
    await page.waitForSelector("td:has-text('billing')");
    // Without a topic the search covers all topics.
    await openPage("#/find", "form");
    await page.selectOption("[name=by]", "header");
    await page.fill("[name=header]", "trace-id");
    await page.fill("[name=value]", "t-77");
    await page.click("button:has-text('Find')");
    await page.waitForSelector("text=The record is stored");
  });
  await check("live tail shows new records until it is paused", async () => {
    await openPage("#/topics/orders/tail", "table.records");
    await page.click("button:has-text('Pause')");
    const before = await page.innerText("table.records tbody tr:first-child");
    await sleep(700);
    assert((await page.innerText("table.records tbody tr:first-child")) === before, "the tail continued");
  });
  await check("seek of a lease group has a dry run and an undo", async () => {
    await stopLoad();
    await openPage("#/topics/orders/groups/billing/seek", "form");
    await page.fill("[name=to]", "latest");
    await page.click("button:text-is('Dry run')");
    await page.waitForSelector("text=unsettled records will be skipped");
    await page.click(".card button.danger");
    await page.fill("dialog input", "orders");
    await page.click("dialog button.danger");
    await page.waitForSelector("text=Previous offsets");
    const { summary } = await api(open, "GET", "/v1/topics/orders/groups/billing");
    assert(summary.depth === 0, `${summary.depth} records are unsettled`);
    await page.click("button:has-text('Undo')");
    await page.waitForSelector("text=Dry-run result");
  });
  await check("consumer group with members shows them and rejects a seek", async () => {
    await openPage("#/groups/offsets/analytics/members", "main table");
    const member = await page.innerText("main tbody tr");
    assert(/orders/.test(member) && /127\.0\.0\.1/.test(member), member);
    assert(await page.isDisabled(".actions .danger"), "deletion is enabled");
    await openPage("#/groups/offsets/analytics/seek", "text=The group has members");
  });
  await check("empty consumer group has a dry run, a seek, an undo and a deletion", async () => {
    const lag = async () => (await api(open, "GET", "/v1/groups/reports/lag")).lag;
    await openPage("#/groups/offsets/reports/seek", "form");
    const before = await lag();
    await page.fill("[name=to]", "earliest");
    await page.click("button:text-is('Dry run')");
    await page.waitForSelector("text=unsettled records will be skipped");
    assert((await lag()) === before, "the dry run moved the group");
    await page.click(".card button.danger");
    await page.fill("dialog input", "reports");
    await page.click("dialog button.danger");
    await page.waitForSelector("text=Previous offsets");
    assert((await lag()) > before, "the seek did not move the group");
    await page.click("button:has-text('Undo')");
    await page.waitForSelector("text=Dry-run result");
    await page.click(".actions .danger:not(:disabled)");
    await page.fill("dialog input", "reports");
    await page.click("dialog button.danger");
    await page.waitForFunction(() => location.hash === "#/groups/offsets");
    await page.waitForFunction(() => !document.querySelector("main table")?.innerText.includes("reports"));
  });
  await check("AMQP pages filter on the node and close a connection", async () => {
    await openPage("#/amqp", "main table");
    await page.fill("[data-filter]", "AUDIT");
    await page.waitForFunction(() => document.querySelectorAll("main tbody tr").length === 1);
    assert(page.url().includes("filter=AUDIT"), page.url());
    await openPage("#/amqp/exchanges", "main table");
    await page.click("a[aria-label='Bindings of shop']");
    await page.waitForSelector("main .banner:has-text('shop')");
    await page.waitForFunction(() => document.querySelectorAll("main tbody tr").length === 2);
    await openPage("#/amqp/bindings", "main table");
    assert((await page.innerText("main table")).includes("order.*"), "the routing key is missing");
    await openPage("#/amqp/consumers", "main table");
    assert(/billing/.test(await page.innerText("main tbody tr")), "the consumer is missing");
    await openPage("#/amqp/connections", "main table");
    await page.click("tr:has-text('billing worker') button");
    await page.click("dialog button.danger");
    await page.waitForFunction(() => !document.querySelector("main table")?.innerText.includes("billing worker"));
  });
  await check("stuck message is found from the overview and redriven", async () => {
    await openPage("#/", ".flow .big");
    await page.click("nav a:has-text('Dead letters')");
    await page.click("main td a:text-is('mails')");
    const row = page.locator("table.records tbody tr", { hasText: "grace" }).first();
    await row.waitFor();
    assert(/rejected[\s\S]*mails[\s\S]*main/.test(await row.innerText()), await row.innerText());
    await row.locator("input[type=checkbox]").click();
    await page.click("button.primary:text-is('Redrive 1')");
    await page.click("dialog button.primary");
    await page.waitForSelector("text=1 dead letter was redriven.");
    await page.click("nav a:has-text('Groups')");
    await page.click("main a:has-text('mails / main')");
    await page.click("main a:has-text('Waiting')");
    await page.waitForSelector("table.records tr:has-text('grace')");
  });
  await check("redrive of all dead letters empties the topic", async () => {
    await openPage("#/dead-letters/mails.failed", "table.records");
    await page.click("button.primary:has-text('Redrive')");
    await page.click("dialog button.primary");
    await page.waitForSelector("text=dead letters were redriven");
    const counts = await api(open, "GET", "/v1/topics/mails.failed/dead-letters");
    assert(counts.items.length === 0, JSON.stringify(counts));
  });
  await check("keyboard shortcuts open pages, rows and the palette", async () => {
    await openPage("#/", ".flow .big");
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
    await page.waitForSelector("dialog[open] h2:has-text('Keyboard shortcuts')");
    await page.keyboard.press("Escape");
    assert((await page.locator("dialog[open]").count()) === 0, "the dialog stays open");
  });
  await check("small screen needs no horizontal scrolling", async () => {
    await page.setViewportSize({ width: 320, height: 700 });
    for (const path of ["#/", "#/topics", "#/topics/orders", "#/nodes", "#/find", "#/amqp", "#/groups/offsets/analytics/members"]) {
      await openPage(path, "h1");
      await sleep(300);
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert(overflow <= 0, `${path} overflows by ${overflow} px`);
    }
    await page.setViewportSize({ width: 1280, height: 820 });
  });
  await check("failure shows the problem and a link to its troubleshooting page", async () => {
    await openPage("#/topics/no-such-topic", ".failure");
    const text = await page.innerText(".failure");
    assert(/no such topic/i.test(text) && /Troubleshooting/.test(text), text);
  });

  // -------------------------------------------------------------------------------- with log-in
  writeFileSync(join(folder, "password"), "toor\n");
  const secured = await startNode(binary, "safe", "--admin-user", "root", "--admin-password-file", join(folder, "password"));
  const context = await browser.newContext({ viewport: { width: 1280, height: 820 } });
  const adminPage = collectErrors(await context.newPage());
  await adminPage.goto(secured.url);
  await adminPage.waitForSelector("main.login form");
  await check("page login light", async () => {
    if (screenshots) await adminPage.screenshot({ path: join(screenshots, "login-light.png") });
    await accessible(adminPage);
  });
  await check("wrong password is rejected and the right one opens a session", async () => {
    await adminPage.fill("[name=user]", "root");
    await adminPage.fill("[name=password]", "wrong");
    await adminPage.click("button:has-text('Log in')");
    await adminPage.waitForSelector(".failure");
    await adminPage.fill("[name=password]", "toor");
    await adminPage.click("button:has-text('Log in')");
    await adminPage.waitForSelector("text=Healthy");
    const cookies = await context.cookies();
    assert(cookies.length === 1 && cookies[0].httpOnly && cookies[0].sameSite === "Strict", JSON.stringify(cookies));
    assert(!(await adminPage.evaluate(() => document.cookie)), "a script can read the cookie");
    await adminPage.reload();
    await adminPage.waitForSelector("text=Healthy");
  });
  await check("user and rule are created, and the access check shows the decision", async () => {
    await adminPage.goto(`${secured.url}#/access`);
    await adminPage.fill(".card [name=name]", "app");
    await adminPage.fill(".card [name=password]", "secret");
    await adminPage.click("button:text-is('Create user')");
    await adminPage.waitForSelector("td:has-text('app')");
    await adminPage.goto(`${secured.url}#/access/rules`);
    await adminPage.fill("[name=user]", "app");
    await adminPage.fill("[name=name]", "orders");
    await adminPage.click("button:has-text('Add')");
    await adminPage.waitForSelector("td:has-text('User:app')");
    await adminPage.goto(`${secured.url}#/access/explain`);
    await adminPage.fill("[name=user]", "app");
    await adminPage.fill("[name=name]", "orders");
    await adminPage.click("button:text-is('Check')");
    await adminPage.waitForSelector(".verdict .tag:text-is('allowed')");
  });
  await check("user without cluster rights is referred to the topics without an error", async () => {
    const context = await browser.newContext();
    const page = collectErrors(await context.newPage());
    await page.goto(secured.url);
    await page.fill("[name=user]", "app");
    await page.fill("[name=password]", "secret");
    await page.click("button:has-text('Log in')");
    await page.waitForSelector(".empty:has-text('No right to view the cluster')");
    assert((await page.locator(".failure").count()) === 0, "the first page shows an error");
    await page.goto(`${secured.url}#/topics`);
    await page.waitForSelector("text=No topics yet");
    // A new password ends the session.
    await api(secured, "PUT", "/v1/users/app/password", { password: "other" }, { authorization: `Basic ${btoa("root:toor")}` });
    await page.reload();
    await page.waitForSelector("main.login form");
    await context.close();
  });
  await check("log-out ends the session and removes the cookie", async () => {
    await adminPage.click("button:text-is('Log out')");
    await adminPage.waitForSelector("main.login form");
    assert((await context.cookies()).length === 0, "the cookie is still set");
  });
  await check("lost connection is shown and the last data stays", async () => {
    await openPage("#/topics", "main table");
    processes[0].kill("SIGKILL");
    await page.waitForSelector("text=Not connected", { timeout: 15_000 });
    assert((await page.locator("main tbody tr").count()) > 3, "the list was removed");
  });
  await check("no policy violation, no request to other hosts, no exception", async () => {
    const unexpected = errors.filter((error) => !/ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY/.test(error));
    assert(unexpected.length === 0, unexpected.slice(0, 5).join("\n"));
  });
  await browser.close();
} finally {
  await cleanUp();
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
