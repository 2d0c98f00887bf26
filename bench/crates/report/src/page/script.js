"use strict";
// Values under the pointer, and systems that can be switched off. The page is whole without it.
(() => {
  const NS = "http://www.w3.org/2000/svg";
  const scale = text => {
    const [kind, low, high] = text.split(" ");
    const to = { lin: v => v, log: Math.log, pct: v => -Math.log(1 - v) }[kind];
    const from = { lin: v => v, log: Math.exp, pct: v => 1 - Math.exp(-v) }[kind];
    const a = to(+low), b = to(+high);
    return { kind, value: share => from(a + share * (b - a)) };
  };
  const three = v => v === 0 ? "0" : Math.abs(v) >= 1000 ? Math.round(v).toLocaleString("en-US") : String(+v.toPrecision(3));
  const show = (v, unit) => {
    const micros = { us: 1, ms: 1e3, s: 1e6 }[unit];
    if (micros) {
      v *= micros;
      return v >= 1e6 ? three(v / 1e6) + " s" : v >= 1e3 ? three(v / 1e3) + " ms" : three(v) + " µs";
    }
    if (unit === "bytes") {
      const step = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]].find(([size]) => v >= size);
      return step ? three(v / step[0]) + " " + step[1] : three(v) + " B";
    }
    if (unit === "share") return +(v * 100).toFixed(4) + " %";
    return three(v);
  };
  const pointsOf = path => [...path.getAttribute("d").matchAll(/[ML]([\d.-]+) ([\d.-]+)/g)].map(m => [+m[1], +m[2]]);
  for (const svg of document.querySelectorAll("svg[data-x]")) {
    const figure = svg.parentElement;
    const [left, right, top, bottom] = svg.dataset.p.split(" ").map(Number);
    let ready = null, rule = null, tip = null;
    const prepare = () => {
      const lines = [...svg.querySelectorAll(".line")].map(path => ({ path, name: path.dataset.l, points: pointsOf(path) }));
      return { x: scale(svg.dataset.x), y: scale(svg.dataset.y), lines };
    };
    const clear = () => { rule?.remove(); tip?.remove(); rule = tip = null; };
    svg.addEventListener("pointermove", event => {
      const box = svg.getBoundingClientRect();
      const at = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
      if (at < left || at > right) return clear();
      ready ??= prepare();
      const seen = [];
      for (const line of ready.lines) {
        if (line.path.parentElement.style.display === "none") continue;
        let near = null;
        for (const point of line.points) if (!near || Math.abs(point[0] - at) < Math.abs(near[0] - at)) near = point;
        if (near && Math.abs(near[0] - at) < (right - left) / 8) seen.push([line, near]);
      }
      if (!seen.length) return clear();
      seen.sort((a, b) => a[1][1] - b[1][1]);
      const nearest = seen.reduce((a, b) => Math.abs(b[1][0] - at) < Math.abs(a[1][0] - at) ? b : a)[1][0];
      if (!rule) {
        rule = svg.appendChild(document.createElementNS(NS, "path"));
        rule.setAttribute("class", "rule");
        tip = figure.appendChild(document.createElement("div"));
        tip.className = "tip";
      }
      rule.setAttribute("d", `M${nearest} ${top}V${bottom}`);
      tip.replaceChildren();
      const x = ready.x.value((nearest - left) / (right - left));
      const head = tip.appendChild(document.createElement("b"));
      head.textContent = svg.dataset.v === "s" ? `${Math.round(x * 10) / 10} s` : show(x, svg.dataset.v);
      for (const [line, point] of seen) {
        const row = tip.appendChild(document.createElement("div"));
        const name = row.appendChild(document.createElement("span"));
        name.textContent = line.name;
        name.style.color = getComputedStyle(line.path).stroke;
        row.appendChild(document.createElement("span")).textContent = show(ready.y.value((bottom - point[1]) / (bottom - top)), svg.dataset.u);
      }
      const from = event.clientX - figure.getBoundingClientRect().left;
      const room = figure.clientWidth - tip.offsetWidth;
      tip.style.left = Math.max(0, from + 14 > room ? from - tip.offsetWidth - 14 : from + 14) + "px";
      tip.style.top = "2.2rem";
    });
    svg.addEventListener("pointerleave", clear);
  }
  const groups = system => document.querySelectorAll(`svg g.s${system % 12}`);
  const keys = [...document.querySelectorAll(".key")];
  for (const key of keys) {
    key.setAttribute("role", "button");
    key.tabIndex = 0;
    key.title = "show or hide in all plots";
    const toggle = () => {
      const off = key.classList.toggle("off");
      key.setAttribute("aria-pressed", String(!off));
      for (const group of groups(key.dataset.s)) group.style.display = off ? "none" : "";
    };
    key.addEventListener("click", toggle);
    key.addEventListener("keydown", event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); } });
    const dim = on => {
      for (const other of keys) if (other !== key) for (const group of groups(other.dataset.s)) group.classList.toggle("dim", on);
    };
    key.addEventListener("pointerenter", () => dim(true));
    key.addEventListener("pointerleave", () => dim(false));
  }
})();
