// The frame around all pages: navigation, theme, keys, log-in.
import { signal } from "@preact/signals";
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, get, loggedOut, reachable, seg, session, whoAsks } from "./api";
import { go, place, to } from "./router";
import { Asking, Empty, Field, Form, Header, said } from "./ui";
import type { Page, TopicRow } from "./types";
import { Overview } from "./pages/overview";
import { TopicPage, Topics } from "./pages/topics";
import { Groups, LeaseGroup } from "./pages/groups";
import { OffsetGroup } from "./pages/offsets";
import { Amqp } from "./pages/amqp";
import { DeadLetters, DeadLettersOf } from "./pages/dead";
import { Find } from "./pages/find";
import { Access, Nodes, Sessions } from "./pages/operate";

const PAGES: [string, string, string][] = [
  ["", "Overview", "o"], ["topics", "Topics", "t"], ["groups", "Groups", "g"], ["dead-letters", "Dead letters", "d"],
  ["find", "Where is it?", "w"], ["amqp", "AMQP", "m"], ["sessions", "Sessions", "s"], ["nodes", "Nodes", "n"], ["access", "Access", "a"],
];

// ---------------------------------------------------------------------------------------------- theme

type Theme = "auto" | "light" | "dark";
const theme = signal<Theme>((localStorage.getItem("postroad.theme") as Theme) ?? "auto");
const keysOn = signal(localStorage.getItem("postroad.keys") !== "off");
function dress(): void { document.documentElement.dataset.theme = theme.value; }
dress();
function nextTheme(): void {
  theme.value = ({ auto: "light", light: "dark", dark: "auto" } as const)[theme.value];
  localStorage.setItem("postroad.theme", theme.value);
  dress();
}

// ----------------------------------------------------------------------------------------------- keys

const overlay = signal<"help" | "palette" | null>(null);
let pending = false;

function moveRow(step: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>("main .rowlink")];
  if (rows.length === 0) return;
  const at = rows.indexOf(document.activeElement as HTMLElement);
  rows[Math.min(rows.length - 1, Math.max(0, at < 0 ? 0 : at + step))]!.focus();
}

addEventListener("keydown", (event) => {
  if (event.key === "k" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); overlay.value = "palette"; return; }
  const target = event.target as HTMLElement;
  if (!keysOn.value || event.ctrlKey || event.metaKey || event.altKey || target.closest("input, textarea, select, dialog")) return;
  if (pending) {
    pending = false;
    const page = PAGES.find(([, , key]) => key === event.key);
    if (page) { event.preventDefault(); go(to(...(page[0] ? [page[0]] : []))); return; }
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
    <dialog ref={dialog} onClose={close} aria-label={overlay.value === "help" ? "Keys" : "Go to"}>
      {overlay.value === "help" ? <Keys /> : <Palette done={close} />}
      <div class="buttons"><button type="button" onClick={close}>Close</button></div>
    </dialog>
  );
}

function Keys() {
  const keys: [string, string][] = [["/", "filter the list"], ["j  k", "next and previous row"], ["Enter", "open the row"], [".", "what can be done here"], ["Ctrl K", "go to a page or a topic"], ["?", "these keys"], ["Esc", "close"], ...PAGES.map(([, label, key]): [string, string] => [`g ${key}`, label])];
  return (
    <>
      <h2>Keys</h2>
      <table class="keys"><tbody>{keys.map(([key, what]) => <tr><th scope="row"><kbd>{key}</kbd></th><td>{what}</td></tr>)}</tbody></table>
      <label class="check"><input type="checkbox" checked={keysOn.value} onChange={(event) => { keysOn.value = event.currentTarget.checked; localStorage.setItem("postroad.keys", keysOn.value ? "on" : "off"); }} /> Single keys do something</label>
    </>
  );
}

function Palette({ done }: { done: () => void }) {
  const [typed, setTyped] = useState("");
  const [topics, setTopics] = useState<TopicRow[]>([]);
  useEffect(() => {
    const timer = setTimeout(() => { get<Page<TopicRow>>(`/v1/topics?limit=8&filter=${seg(typed)}`).then((it) => setTopics(it.items)).catch(() => setTopics([])); }, 120);
    return () => clearTimeout(timer);
  }, [typed]);
  const pages = PAGES.filter(([, label]) => label.toLowerCase().includes(typed.toLowerCase()));
  const found: [string, string, string][] = [...pages.map(([path, label]): [string, string, string] => [label, "page", to(...(path ? [path] : []))]), ...topics.map((it): [string, string, string] => [it.name, "topic", to("topics", it.name)])];
  return (
    <form onSubmit={(event) => { event.preventDefault(); if (found[0]) { go(found[0][2]); done(); } }}>
      <label class="field"><span>Go to</span><input autofocus value={typed} onInput={(event) => setTyped(event.currentTarget.value)} spellcheck={false} autocomplete="off" /></label>
      <ul class="palette">{found.map(([label, kind, href]) => <li><a href={href} onClick={done}>{label}<small>{kind}</small></a></li>)}</ul>
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
        session.value = await ask("POST", "/v1/session", { user: form.get("user"), password: form.get("password") });
        loggedOut.value = false;
      }}>
        <Field label="User" name="user" required autocomplete="username" />
        <Field label="Password" name="password" type="password" required autocomplete="current-password" />
      </Form>
      <p class="fine">Users are those of Kafka and AMQP. <code>_operator</code> and the operators' token, which lies in the data directory, log in as well.</p>
    </main>
  );
}

async function logOut(everywhere: boolean): Promise<void> {
  await ask("DELETE", `/v1/session${everywhere ? "?everywhere=true" : ""}`);
  await whoAsks();
}

// --------------------------------------------------------------------------------------------- frame

function Content() {
  const { path } = place.value;
  const [first = "", second, third = "", fourth, fifth = ""] = path;
  if (first === "") return <Overview />;
  if (first === "topics" && !second) return <Topics />;
  if (first === "topics" && third === "groups" && fourth) return <LeaseGroup key={`${second}/${fourth}`} topic={second!} group={fourth} tab={fifth} />;
  if (first === "topics") return <TopicPage key={second} name={second!} tab={third} />;
  if (first === "groups" && second === "offsets" && third) return <OffsetGroup key={third} name={third} tab={fourth ?? ""} />;
  if (first === "groups") return <Groups tab={second ?? ""} />;
  if (first === "dead-letters" && second) return <DeadLettersOf key={second} topic={second} />;
  if (first === "dead-letters") return <DeadLetters />;
  if (first === "find") return <Find />;
  if (first === "amqp") return <Amqp tab={second ?? ""} />;
  if (first === "sessions") return <Sessions />;
  if (first === "nodes") return <Nodes />;
  if (first === "access") return <Access tab={second ?? ""} />;
  return <><Header title="Nothing is here" /><Empty title="This page is not there">Choose one on the left, or press Ctrl K.</Empty></>;
}

/** Sessions that ended, and nodes that were upgraded while the page was open. */
function useVersion(): boolean {
  const [old, setOld] = useState(false);
  useEffect(() => {
    let first: string | undefined;
    const look = () => { if (!document.hidden) get<{ version: string }>("/v1/version").then((it) => { first ??= it.version; setOld(it.version !== first); }).catch(() => undefined); };
    look();
    const timer = setInterval(look, 30_000);
    return () => clearInterval(timer);
  }, []);
  return old;
}

function Frame() {
  const upgraded = useVersion();
  const { path } = place.value;
  const who = session.value;
  useEffect(() => { document.querySelector<HTMLElement>("main h1")?.focus({ preventScroll: true }); scrollTo(0, 0); }, [path.join("/")]);
  return (
    <div class="frame">
      <a class="skip" href="#content" onClick={(event) => { event.preventDefault(); document.querySelector<HTMLElement>("main h1")?.focus(); }}>To the content</a>
      <aside>
        <a class="brand" href="#/"><img src="/console/icon.svg" alt="" width="26" height="26" /><span>Postroad</span></a>
        <nav aria-label="Pages">
          {PAGES.map(([page, label]) => <a href={to(...(page ? [page] : []))} aria-current={(path[0] ?? "") === page ? "page" : undefined}>{label}</a>)}
        </nav>
        <div class="foot">
          <button type="button" class="quiet" onClick={() => { overlay.value = "palette"; }}>Go to <kbd>Ctrl K</kbd></button>
          <button type="button" class="quiet" onClick={() => { overlay.value = "help"; }}>Keys <kbd>?</kbd></button>
          <button type="button" class="quiet" onClick={nextTheme}>Theme <small>{theme.value}</small></button>
          <p class="who">{who?.user ? <>{who.user}{who.ends_ms !== null && <><button type="button" class="quiet" onClick={() => logOut(false)}>Log out</button><button type="button" class="quiet" onClick={() => logOut(true)}>Log out everywhere</button></>}</> : <>Nobody is logged in{!who?.required && <button type="button" class="quiet" onClick={() => { loggedOut.value = true; }}>Log in</button>}</>}</p>
        </div>
      </aside>
      <main id="content">
        {!reachable.value && <p class="banner" role="alert"><span class="tag bad">Not connected</span> The node does not answer. What stands here is as it was.</p>}
        {upgraded && <p class="banner" role="status">The node was upgraded. <button type="button" onClick={() => location.reload()}>Reload</button></p>}
        <Content />
      </main>
    </div>
  );
}

function App() {
  const [failed, setFailed] = useState(false);
  useEffect(() => {
    const look = () => whoAsks().then(() => setFailed(false)).catch(() => { setFailed(true); setTimeout(look, 2000); });
    void look();
  }, []);
  return (
    <>
      {session.value === null ? (failed ? <main class="login"><h1>Postroad</h1><p role="alert">The node does not answer yet. This page tries again.</p></main> : null)
        : loggedOut.value ? <LogIn /> : <Frame />}
      <Overlay />
      <Asking />
      <div class="said" role="status" aria-live="polite">{said.value}</div>
    </>
  );
}

render(<App />, document.getElementById("app")!);
