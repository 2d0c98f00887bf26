// The frame around all pages: navigation, theme, keyboard shortcuts, log-in.
import { signal } from "@preact/signals";
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { request, get, loggedOut, reachable, seg, session, loadSession } from "./api";
import { navigate, route, hrefOf } from "./router";
import { ConfirmDialog, Empty, Field, Form, Header, notice } from "./ui";
import type { Page, TopicRow } from "./types";
import { Overview } from "./pages/overview";
import { TopicPage, Topics } from "./pages/topics";
import { Groups, LeaseGroup } from "./pages/groups";
import { OffsetGroup } from "./pages/offsets";
import { Amqp } from "./pages/amqp";
import { DeadLetters, DeadLetterTopic } from "./pages/dead-letters";
import { Trace } from "./pages/trace";
import { Access, Nodes, Sessions } from "./pages/admin";

const PAGES: [string, string, string][] = [
  ["", "Overview", "o"], ["topics", "Topics", "t"], ["groups", "Groups", "g"], ["dead-letters", "Dead letters", "d"],
  ["find", "Trace", "w"], ["amqp", "AMQP", "m"], ["sessions", "Sessions", "s"], ["nodes", "Nodes", "n"], ["access", "Access", "a"],
];

// ---------------------------------------------------------------------------------------------- theme

type Theme = "auto" | "light" | "dark";
const theme = signal<Theme>((localStorage.getItem("postroad.theme") as Theme) ?? "auto");
const shortcutsEnabled = signal(localStorage.getItem("postroad.keys") !== "off");
function applyTheme(): void { document.documentElement.dataset.theme = theme.value; }
applyTheme();
function nextTheme(): void {
  theme.value = ({ auto: "light", light: "dark", dark: "auto" } as const)[theme.value];
  localStorage.setItem("postroad.theme", theme.value);
  applyTheme();
}

// ----------------------------------------------------------------------------------------------- keys

const overlay = signal<"help" | "palette" | null>(null);
let pending = false;

function moveRow(step: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>("main .rowlink")];
  if (rows.length === 0) return;
  const current = rows.indexOf(document.activeElement as HTMLElement);
  rows[Math.min(rows.length - 1, Math.max(0, current < 0 ? 0 : current + step))]!.focus();
}

addEventListener("keydown", (event) => {
  if (event.key === "k" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); overlay.value = "palette"; return; }
  const target = event.target as HTMLElement;
  if (!shortcutsEnabled.value || event.ctrlKey || event.metaKey || event.altKey || target.closest("input, textarea, select, dialog")) return;
  if (pending) {
    pending = false;
    const page = PAGES.find(([, , key]) => key === event.key);
    if (page) { event.preventDefault(); navigate(hrefOf(...(page[0] ? [page[0]] : []))); return; }
  }
  if (event.key === "g") { pending = true; setTimeout(() => { pending = false; }, 1200); }
  else if (event.key === "/") { event.preventDefault(); document.querySelector<HTMLElement>("[data-filter]")?.focus(); }
  else if (event.key === "?") overlay.value = "help";
  else if (event.key === "j") moveRow(1);
  else if (event.key === "k") moveRow(-1);
  else if (event.key === ".") document.querySelector<HTMLElement>(".actions a, .actions button")?.focus();
});

function Overlay() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => { if (overlay.value) dialog.current?.showModal(); }, [overlay.value]);
  if (!overlay.value) return null;
  const close = () => { overlay.value = null; };
  return (
    <dialog ref={dialog} onClose={close} aria-label={overlay.value === "help" ? "Keyboard shortcuts" : "Go to"}>
      {overlay.value === "help" ? <Shortcuts /> : <Palette close={close} />}
      <div class="buttons"><button type="button" onClick={close}>Close</button></div>
    </dialog>
  );
}

function Shortcuts() {
  const shortcuts: [string, string][] = [["/", "filter the list"], ["j  k", "next and previous row"], ["Enter", "open the row"], [".", "focus the actions of the page"], ["Ctrl K", "go to a page or a topic"], ["?", "show the keyboard shortcuts"], ["Esc", "close"], ...PAGES.map(([, label, key]): [string, string] => [`g ${key}`, label])];
  return (
    <>
      <h2>Keyboard shortcuts</h2>
      <table class="keys"><tbody>{shortcuts.map(([key, effect]) => <tr><th scope="row"><kbd>{key}</kbd></th><td>{effect}</td></tr>)}</tbody></table>
      <label class="check"><input type="checkbox" checked={shortcutsEnabled.value} onChange={(event) => { shortcutsEnabled.value = event.currentTarget.checked; localStorage.setItem("postroad.keys", shortcutsEnabled.value ? "on" : "off"); }} /> Enable single-key shortcuts</label>
    </>
  );
}

function Palette({ close }: { close: () => void }) {
  const [typed, setTyped] = useState("");
  const [topics, setTopics] = useState<TopicRow[]>([]);
  useEffect(() => {
    const timer = setTimeout(() => { get<Page<TopicRow>>(`/v1/topics?limit=8&filter=${seg(typed)}`).then((page) => setTopics(page.items)).catch(() => setTopics([])); }, 120);
    return () => clearTimeout(timer);
  }, [typed]);
  const pages = PAGES.filter(([, label]) => label.toLowerCase().includes(typed.toLowerCase()));
  const found: [string, string, string][] = [...pages.map(([path, label]): [string, string, string] => [label, "page", hrefOf(...(path ? [path] : []))]), ...topics.map((topic): [string, string, string] => [topic.name, "topic", hrefOf("topics", topic.name)])];
  return (
    <form onSubmit={(event) => { event.preventDefault(); if (found[0]) { navigate(found[0][2]); close(); } }}>
      <label class="field"><span>Go to</span><input autofocus value={typed} onInput={(event) => setTyped(event.currentTarget.value)} spellcheck={false} autocomplete="off" /></label>
      <ul class="palette">{found.map(([label, kind, href]) => <li><a href={href} onClick={close}>{label}<small>{kind}</small></a></li>)}</ul>
    </form>
  );
}

// --------------------------------------------------------------------------------------------- log-in

function LogIn() {
  return (
    <main class="login">
      <img src="/console/icon.svg" alt="" width="44" height="44" />
      <h1>Postroad</h1>
      <Form button="Log in" run={async (form) => {
        session.value = await request("POST", "/v1/session", { user: form.get("user"), password: form.get("password") });
        loggedOut.value = false;
      }}>
        <Field label="User" name="user" required autocomplete="username" />
        <Field label="Password" name="password" type="password" required autocomplete="current-password" />
      </Form>
      <p class="fine">Log in as a Kafka or AMQP user, or as <code>_operator</code> with the operators' token from the data directory.</p>
    </main>
  );
}

async function logOut(everywhere: boolean): Promise<void> {
  await request("DELETE", `/v1/session${everywhere ? "?everywhere=true" : ""}`);
  await loadSession();
}

// --------------------------------------------------------------------------------------------- frame

function Content() {
  const { path } = route.value;
  const [first = "", second, third = "", fourth, fifth = ""] = path;
  if (first === "") return <Overview />;
  if (first === "topics" && !second) return <Topics />;
  if (first === "topics" && third === "groups" && fourth) return <LeaseGroup key={`${second}/${fourth}`} topic={second!} group={fourth} tab={fifth} />;
  if (first === "topics") return <TopicPage key={second} name={second!} tab={third} />;
  if (first === "groups" && second === "offsets" && third) return <OffsetGroup key={third} name={third} tab={fourth ?? ""} />;
  if (first === "groups") return <Groups tab={second ?? ""} />;
  if (first === "dead-letters" && second) return <DeadLetterTopic key={second} topic={second} />;
  if (first === "dead-letters") return <DeadLetters />;
  if (first === "find") return <Trace />;
  if (first === "amqp") return <Amqp tab={second ?? ""} />;
  if (first === "sessions") return <Sessions />;
  if (first === "nodes") return <Nodes />;
  if (first === "access") return <Access tab={second ?? ""} />;
  return <><Header title="Page not found" /><Empty title="No page has this address">Choose a page in the navigation, or press Ctrl K.</Empty></>;
}

/** Whether the node was upgraded while the page was open. */
function useUpgraded(): boolean {
  const [upgraded, setUpgraded] = useState(false);
  useEffect(() => {
    let first: string | undefined;
    const check = () => { if (!document.hidden) get<{ version: string }>("/v1/version").then((response) => { first ??= response.version; setUpgraded(response.version !== first); }).catch(() => undefined); };
    check();
    const timer = setInterval(check, 30_000);
    return () => clearInterval(timer);
  }, []);
  return upgraded;
}

function Frame() {
  const upgraded = useUpgraded();
  const { path } = route.value;
  const login = session.value;
  useEffect(() => { document.querySelector<HTMLElement>("main h1")?.focus({ preventScroll: true }); scrollTo(0, 0); }, [path.join("/")]);
  return (
    <div class="frame">
      <a class="skip" href="#content" onClick={(event) => { event.preventDefault(); document.querySelector<HTMLElement>("main h1")?.focus(); }}>Skip to content</a>
      <aside>
        <a class="brand" href="#/"><img src="/console/icon.svg" alt="" width="26" height="26" /><span>Postroad</span></a>
        <nav aria-label="Pages">
          {PAGES.map(([page, label]) => <a href={hrefOf(...(page ? [page] : []))} aria-current={(path[0] ?? "") === page ? "page" : undefined}>{label}</a>)}
        </nav>
        <div class="foot">
          <button type="button" class="quiet" onClick={() => { overlay.value = "palette"; }}>Go to <kbd>Ctrl K</kbd></button>
          <button type="button" class="quiet" onClick={() => { overlay.value = "help"; }}>Shortcuts <kbd>?</kbd></button>
          <button type="button" class="quiet" onClick={nextTheme}>Theme <small>{theme.value}</small></button>
          <p class="account">{login?.user ? <>{login.user}{login.ends_ms !== null && <><button type="button" class="quiet" onClick={() => logOut(false)}>Log out</button><button type="button" class="quiet" onClick={() => logOut(true)}>Log out everywhere</button></>}</> : <>Not logged in{!login?.required && <button type="button" class="quiet" onClick={() => { loggedOut.value = true; }}>Log in</button>}</>}</p>
        </div>
      </aside>
      <main id="content">
        {!reachable.value && <p class="banner" role="alert"><span class="tag bad">Not connected</span> The node does not respond. This page shows the last received data.</p>}
        {upgraded && <p class="banner" role="status">The node was upgraded. <button type="button" onClick={() => location.reload()}>Reload</button></p>}
        <Content />
      </main>
    </div>
  );
}

function App() {
  const [failed, setFailed] = useState(false);
  useEffect(() => {
    const load = () => loadSession().then(() => setFailed(false)).catch(() => { setFailed(true); setTimeout(load, 2000); });
    void load();
  }, []);
  return (
    <>
      {session.value === null ? (failed ? <main class="login"><h1>Postroad</h1><p role="alert">The node does not respond yet. This page retries automatically.</p></main> : null)
        : loggedOut.value ? <LogIn /> : <Frame />}
      <Overlay />
      <ConfirmDialog />
      <div class="notice" role="status" aria-live="polite">{notice.value}</div>
    </>
  );
}

render(<App />, document.getElementById("app")!);
