// Signals over Channel Access: search, describe, set; each as a strip chart, live, with the archive before it where there is one.
import { el, say, table, tr } from "../dom.js";

const SEVERITIES = ["", "MINOR", "MAJOR", "INVALID"];
const HEADS = ["signal", { text: "value", number: true }, "alarm", "state", "do"];
const POINTS_MAX = 4000;
const DRAW_MS = 100;

let tahti, list, charts, outcome, names, search, span;
let lastStream = 0;
let isRestored = false;
const watched = new Map();

function spanSeconds() {
  return Number(span.value);
}

/** Adds a signal to the page. */
function add(name) {
  if (!name || [...watched.values()].some((one) => one.name === name)) return;
  const stream = ++lastStream;
  const value = el("span"), alarm = el("span"), state = el("span", {}, "searching");
  const remove = el("button", { type: "button", "aria-label": `remove ${name}`, click: () => drop(stream) }, "remove");
  const about = el("button", { type: "button", "aria-label": `describe ${name}`, click: () => describe(stream) }, "describe");
  const set = el("button", { type: "button", "aria-label": `set ${name}`, hidden: tahti.role !== "operator", click: () => put(stream) }, "set");
  const row = tr([name, value, alarm, state, el("span", {}, about, " ", set, " ", remove)], HEADS, { "data-signal": name });
  const frame = el("div", { class: "plot", tabindex: "0", role: "group", "aria-label": `Strip chart of ${name}; its value is in the table above` });
  const one = { name, stream, value, alarm, state, set, row, frame, units: "", labels: [], data: [[], [], [], []], plot: null, changed: false };
  watched.set(stream, one);
  list.body.append(row);
  charts.append(frame);
  tahti.tell({ do: "subscribe", stream, name });
  history(one);
  save();
}

function drop(stream) {
  const one = watched.get(stream);
  tahti.tell({ do: "unsubscribe", stream });
  one.plot?.destroy();
  one.row.remove();
  one.frame.remove();
  watched.delete(stream);
  save();
  search.focus();
}

function save() {
  if (!isRestored) return;
  localStorage.setItem(`signals ${tahti.hello.plant}`, JSON.stringify([...watched.values()].map((one) => one.name)));
}

async function history(one) {
  try {
    const { points } = await tahti.ask({ do: "history", name: one.name, seconds: spanSeconds(), points: 500 });
    const first = one.data[0][0] ?? Infinity;
    const before = points.filter(([at]) => at < first);
    one.data = one.data.map((column, at) => [...before.map((point) => point[at]), ...column]);
    one.changed = true;
  } catch {
    // No archive, or it does not know the signal: the chart begins now.
  }
}

async function describe(stream) {
  const one = watched.get(stream);
  try {
    const about = await tahti.ask({ do: "describe", name: one.name });
    say(outcome, `${one.name}: ${Object.entries(about).filter(([, value]) => value !== "" && value != null).map(([key, value]) => `${key} ${Array.isArray(value) ? value.join(" | ") : value}`).join(", ")}`);
  } catch (error) {
    say(outcome, `${one.name}: ${error.message}`);
  }
}

async function put(stream) {
  const one = watched.get(stream);
  const text = window.prompt(`New value of ${one.name}`, one.value.textContent);
  if (text == null) return;
  try {
    await tahti.ask({ do: "put", name: one.name, value: text });
    say(outcome, `${one.name} was set to ${text}`);
  } catch (error) {
    say(outcome, `${one.name}: ${error.message}`);
  }
}

function draw(one) {
  const now = Date.now() / 1000, from = now - spanSeconds();
  let cut = 0;
  while (cut < one.data[0].length && (one.data[0][cut] < from || one.data[0].length - cut > POINTS_MAX)) cut++;
  if (cut) one.data = one.data.map((column) => column.slice(cut));
  if (!one.plot) {
    const style = getComputedStyle(document.body);
    const axis = { stroke: style.getPropertyValue("--text"), grid: { stroke: style.getPropertyValue("--line") } };
    const bar = style.getPropertyValue("--bar");
    one.plot = new uPlot({
      title: one.name, width: one.frame.clientWidth - 12 || 600, height: 180, legend: { show: true }, axes: [axis, { ...axis, label: one.units || undefined, size: 70 }],
      series: [{}, { label: "least", stroke: bar, width: 0 }, { label: "most", stroke: bar, width: 0 }, { label: "last", stroke: bar, width: 1.5 }],
      bands: [{ series: [2, 1], fill: `${bar}55` }],
      scales: { x: { time: true, range: () => [Date.now() / 1000 - spanSeconds(), Date.now() / 1000] } },
    }, one.data, one.frame);
  } else one.plot.setData(one.data);
}

/** Samples of all streams since the last message: the form is in src/protocol.rs. */
function take(view) {
  const rows = view.getUint32(4, true), t0 = Number(view.getBigUint64(8, true)) / 1e9;
  const column = (start, each) => view.byteOffset + start + each * rows;
  const least = new Float64Array(view.buffer, column(24, 0), rows), most = new Float64Array(view.buffer, column(24, 8), rows);
  const last = new Float64Array(view.buffer, column(24, 16), rows), after = new Int32Array(view.buffer, column(24, 24), rows);
  const stream = new Uint16Array(view.buffer, column(24, 28), rows), severity = new Uint8Array(view.buffer, column(24, 30), rows);
  for (let at = 0; at < rows; at++) {
    const one = watched.get(stream[at]);
    if (!one) continue;
    const x = t0 + after[at] / 1e6;
    // uPlot wants ascending times; a clock that was set back starts anew from here.
    while (one.data[0].length && one.data[0].at(-1) >= x) one.data.forEach((column) => column.pop());
    [x, least[at], most[at], last[at]].forEach((value, index) => one.data[index].push(value));
    one.changed = true;
    say(one.value, one.labels[last[at]] ?? `${Number(last[at].toPrecision(9))} ${one.units}`.trim());
    alarm(one, severity[at]);
  }
}

function alarm(one, severity) {
  say(one.alarm, SEVERITIES[severity] ?? "");
  one.alarm.className = ["", "doubt", "bad", "bad"][severity] ?? "";
}

/** What is no number: text, connections. */
function signal(what) {
  const one = watched.get(what.stream);
  if (!one) return;
  say(one.state, what.state);
  one.state.className = what.state === "connected" ? "good" : "bad";
  one.row.classList.toggle("faint", what.state !== "connected");
  if (what.units != null) one.units = what.units;
  if (what.labels != null) one.labels = what.labels;
  if (what.text != null) say(one.value, what.text);
  if (what.severity != null) alarm(one, what.severity);
  if (what.state !== "connected" && one.data[0].length) {
    // A line must not run on through time of which nothing is known.
    [Date.now() / 1000, null, null, null].forEach((value, index) => one.data[index].push(value));
    one.changed = true;
  }
}

async function suggest() {
  try {
    const { found } = await tahti.ask({ do: "search", pattern: `*${search.value.trim()}*` });
    names.replaceChildren(...found.map((name) => el("option", { value: name })));
  } catch {
    names.replaceChildren();
  }
}

export default {
  id: "signals",
  title: "Signals",
  topics: ["signal"],
  build(section, given) {
    tahti = given;
    names = el("datalist", { id: "signal-names" });
    search = el("input", { id: "signal-name", list: "signal-names", autocomplete: "off", size: "30", input: suggest });
    span = el("select", { id: "signal-span" }, ...[[60, "1 min"], [600, "10 min"], [3600, "1 h"], [86400, "1 day"]].map(([value, text]) => el("option", { value }, text)));
    span.addEventListener("change", () => watched.forEach((one) => history(one)));
    const form = el("form", { submit: (event) => { event.preventDefault(); add(search.value.trim()); search.value = ""; } },
      el("label", { for: "signal-name" }, "Name"), search, names, el("button", {}, "add"), el("label", { for: "signal-span" }, "Time"), span);
    list = table("Signals that are watched", HEADS);
    outcome = el("p", { role: "status" });
    charts = el("div");
    section.append(form, list.frame, outcome, charts);
    tahti.onBinary(1, take);
    setInterval(() => watched.forEach((one) => { if (one.changed && !document.hidden) { one.changed = false; draw(one); } }), DRAW_MS);
    window.addEventListener("resize", () => watched.forEach((one) => one.plot?.setSize({ width: one.frame.clientWidth - 12, height: 180 })));
  },
  connected() {
    watched.forEach((one) => {
      one.set.hidden = tahti.role !== "operator";
      tahti.tell({ do: "subscribe", stream: one.stream, name: one.name });
      history(one);
    });
    if (isRestored) return;
    let saved = [];
    try { saved = JSON.parse(localStorage.getItem(`signals ${tahti.hello.plant}`) ?? "[]"); } catch { /* Somebody else's text. */ }
    saved.forEach(add);
    isRestored = true;
    save();
  },
  show(_, data) {
    signal(data);
  },
};
