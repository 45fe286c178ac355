// Signals over Channel Access: search, describe, set. Each has a live strip chart, which starts with archived samples if there is an archive.
import { el, say, table, tr } from "../dom.js";
import { controls, Strip } from "../strip.js";

const SEVERITIES = ["", "MINOR", "MAJOR", "INVALID"];
const HEADS = ["signal", { text: "value", number: true }, "alarm", "state", "do"];

let tahti, list, outcome, names, search;
let lastStream = 0;
let isRestored = false;
const watched = new Map();

/** Adds a signal to the page. */
function add(name) {
  if (!name || [...watched.values()].some((one) => one.name === name)) return;
  const stream = ++lastStream;
  const value = el("span"), alarm = el("span"), state = el("span", {}, "searching");
  const remove = el("button", { type: "button", "aria-label": `remove ${name}`, click: () => drop(stream) }, "remove");
  const about = el("button", { type: "button", "aria-label": `describe ${name}`, click: () => describe(stream) }, "describe");
  const set = el("button", { type: "button", "aria-label": `set ${name}`, hidden: tahti.role !== "operator", click: () => put(stream) }, "set");
  const row = tr([name, value, alarm, state, el("span", {}, about, " ", set, " ", remove)], HEADS, { "data-signal": name });
  const one = { name, stream, value, alarm, state, set, row, units: "", labels: [], strip: new Strip(name) };
  watched.set(stream, one);
  list.body.append(row);
  tahti.tell({ do: "subscribe", stream, name });
  save();
}

function drop(stream) {
  const one = watched.get(stream);
  tahti.tell({ do: "unsubscribe", stream });
  one.strip.remove();
  one.row.remove();
  watched.delete(stream);
  save();
  search.focus();
}

function save() {
  if (!isRestored) return;
  localStorage.setItem(`signals ${tahti.hello.plant}`, JSON.stringify([...watched.values()].map((one) => one.name)));
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

/** Receives the samples of all streams since the last message. The format is in src/protocol.rs. */
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
    one.strip.push(x, least[at], most[at], last[at]);
    say(one.value, one.labels[last[at]] ?? `${Number(last[at].toPrecision(9))} ${one.units}`.trim());
    alarm(one, severity[at]);
  }
}

function alarm(one, severity) {
  say(one.alarm, SEVERITIES[severity] ?? "");
  one.alarm.className = ["", "doubt", "bad", "bad"][severity] ?? "";
}

/** Receives the updates that are not numbers: text, units, labels, connection state. */
function signal(what) {
  const one = watched.get(what.stream);
  if (!one) return;
  say(one.state, what.state);
  one.state.className = what.state === "connected" ? "good" : "bad";
  one.row.classList.toggle("faint", what.state !== "connected");
  if (what.units != null) one.strip.measured(one.units = what.units);
  if (what.labels != null) one.labels = what.labels;
  if (what.text != null) say(one.value, what.text);
  if (what.severity != null) alarm(one, what.severity);
  if (what.state !== "connected") one.strip.cut();
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
    const form = el("form", { submit: (event) => { event.preventDefault(); add(search.value.trim()); search.value = ""; } },
      el("label", { for: "signal-name" }, "Name"), search, names, el("button", {}, "add"));
    list = table("Signals that are watched", HEADS);
    outcome = el("p", { role: "status" });
    const charts = el("div");
    section.append(form, list.frame, outcome, controls(tahti, charts), charts);
    tahti.onBinary(1, take);
  },
  connected() {
    watched.forEach((one) => {
      one.set.hidden = tahti.role !== "operator";
      tahti.tell({ do: "subscribe", stream: one.stream, name: one.name });
      one.strip.again();
    });
    if (isRestored) return;
    let saved = [];
    try { saved = JSON.parse(localStorage.getItem(`signals ${tahti.hello.plant}`) ?? "[]"); } catch { /* The text is not from this page. */ }
    saved.forEach(add);
    isRestored = true;
    save();
  },
  show(_, data) {
    signal(data);
  },
  open(name) {
    add(name);
  },
};
