// Signals over Channel Access: search, describe, set. Each has a live strip chart, which starts with archived samples if there is an archive. A common chart
// shows several signals.
import { el, say, table, tr } from "../dom.js";
import { Chart } from "../signals/chart.js";
import { controls, traces } from "../signals/time.js";
import { Trace } from "../signals/trace.js";

const SEVERITIES = ["", "MINOR", "MAJOR", "INVALID"], SIGNS = ["", "▲", "◆", "■"];
const HEADS = ["signal", { text: "value", number: true }, "alarm", "state", "limits", "do"];
const LIMITS = ["lolo", "low", "high", "hihi"];

let tahti, list, outcome, names, search, none, charts, common;
let lastStream = 0;
let isRestored = false;
const watched = new Map();

/** Adds a signal to the page. */
function add(name, isCommon = false) {
  if (!name || [...watched.values()].some((one) => one.name === name)) return;
  const stream = ++lastStream;
  const value = el("span"), alarm = el("span"), state = el("span", {}, "searching"), limits = el("span", { class: "faint" }), form = el("div");
  const button = (word, act, more) => el("button", { type: "button", "aria-label": `${word} ${name}`, click: act, ...more }, word);
  const about = button("describe", () => describe(stream), { "aria-expanded": "false" }), remove = button("remove", () => drop(stream));
  const set = button("set", () => openSet(stream), { hidden: tahti.role !== "operator", "aria-expanded": "false" });
  const together = el("input", { type: "checkbox", "aria-label": `common chart: ${name}`, checked: isCommon, change: () => { arranged(); save(); } }), chip = el("label", { class: "chip" }, together, "common chart");
  const row = tr([name, value, alarm, state, el("td", { class: "wraps" }, limits), el("td", { class: "acts-cell" }, el("div", { class: "acts-row" }, chip, set, about, remove), form)], HEADS, { "data-signal": name });
  const facts = el("dl", { class: "facts-list", hidden: true, "data-about": name });
  const one = { name, stream, value, alarm, state, limits, set, about, form, row, together, chip, facts, units: "", labels: [], range: null, isText: false, trace: new Trace(name), chart: new Chart(name) };
  watched.set(stream, one);
  list.body.append(row);
  charts.append(one.chart.frame);
  arranged();
  tahti.tell({ do: "subscribe", stream, name });
  save();
}

/** Each signal is in its own chart or in the common one, with its description. The table is hidden without signals. */
function arranged() {
  const all = [...watched.values()], together = all.filter((one) => one.together.checked);
  list.frame.hidden = !all.length;
  none.hidden = all.length > 0;
  for (const one of all) {
    one.chart.take(one.together.checked ? [] : [one.trace]);
    (one.together.checked ? common : one.chart).frame.append(one.facts);
  }
  common.take(together.map((one) => one.trace));
}

function drop(stream) {
  const one = watched.get(stream);
  tahti.tell({ do: "unsubscribe", stream });
  traces.delete(one.trace);
  one.chart.remove();
  one.facts.remove();
  one.row.remove();
  watched.delete(stream);
  arranged();
  save();
  search.focus();
}

function save() {
  if (!isRestored) return;
  localStorage.setItem(`signals ${tahti.hello.plant}`, JSON.stringify([...watched.values()].map((one) => (one.together.checked ? [one.name, true] : one.name))));
}

/** Asks for the limits, the states and the type of a signal, which its chart and its form use. */
async function learn(one) {
  const about = await tahti.ask({ do: "describe", name: one.name });
  const limits = LIMITS.filter((key) => about[key] != null).map((key) => [key.toUpperCase(), about[key]]);
  one.range = about.control?.split(" to ").map(Number) ?? null;
  one.isText = about.type === "string";
  Object.assign(one.trace, { limits, count: about.elements ?? 1, isChanged: true });
  say(one.limits, [...limits.map(([key, value]) => `${key} ${value}`), ...(about.control ? [`may be set from ${about.control}`] : [])].join(", "));
  return about;
}

/** Opens or closes the description of a signal below its chart. */
async function describe(stream) {
  const one = watched.get(stream), { facts } = one;
  if (!facts.hidden) {
    facts.hidden = true;
    return one.about.setAttribute("aria-expanded", "false");
  }
  try {
    const about = Object.entries({ signal: one.name, ...await learn(one) }).filter(([, value]) => value !== "" && value != null);
    facts.replaceChildren(...about.flatMap(([key, value]) => [el("dt", {}, key), el("dd", {}, Array.isArray(value) ? value.join(" | ") : String(value))]));
    facts.hidden = false;
    one.about.setAttribute("aria-expanded", "true");
  } catch (error) {
    say(outcome, `${one.name}: ${error.message}`);
  }
}

function closeSet(one) {
  one.form.replaceChildren();
  one.set.setAttribute("aria-expanded", "false");
  one.set.focus();
}

/** Opens the form to set a signal: a choice of its states, or a field with its limits and its unit. */
async function openSet(stream) {
  const one = watched.get(stream);
  if (one.form.firstChild) return closeSet(one);
  await learn(one).catch(() => {});
  const id = `signal-set-${stream}`, now = one.value.textContent, [low, high] = one.range ?? [];
  const field = one.labels.length ? el("select", { id }, ...one.labels.map((text) => el("option", { selected: text === now }, text)))
    : el("input", { id, autocomplete: "off", size: "10", required: true, value: one.isText ? now : Number.parseFloat(now), ...(one.isText ? { maxlength: "39" } : { type: "number", step: "any", min: low, max: high }) });
  const put = async (event) => {
    event.preventDefault();
    const value = field.value;
    closeSet(one);
    try {
      await tahti.ask({ do: "put", name: one.name, value });
      say(outcome, `${one.name} was set to ${value}`);
    } catch (error) {
      say(outcome, `${one.name}: ${error.message}`);
    }
  };
  const words = [one.labels.length ? "" : one.units, one.range ? `${low} to ${high}` : ""].filter(Boolean).join(", ");
  one.form.replaceChildren(el("form", { submit: put, keydown: (event) => { if (event.key === "Escape") closeSet(one); } }, el("label", { for: id }, `New value of ${one.name}`), field, el("span", { class: "faint" }, words),
    el("button", {}, "set"), el("button", { type: "button", click: () => closeSet(one) }, "cancel")));
  one.set.setAttribute("aria-expanded", "true");
  field.focus();
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
    one.trace.push(x, least[at], most[at], last[at]);
    one.trace.judge(x, severity[at], last[at]);
    say(one.value, one.labels[last[at]] ?? `${Number(last[at].toPrecision(7))} ${one.units}`.trim());
    alarm(one, severity[at]);
  }
}

function alarm(one, severity) {
  say(one.alarm, severity ? `${SIGNS[severity] ?? "■"} ${SEVERITIES[severity] ?? severity}` : "");
  one.alarm.className = severity ? `tag ${severity === 1 ? "degraded" : "failed"}` : "";
}

/** Receives the updates that are not numbers: text, units, labels, connection state. */
function signal(what) {
  const one = watched.get(what.stream);
  if (!one) return;
  say(one.state, what.state);
  one.state.className = what.state === "connected" ? "good" : "bad";
  one.row.classList.toggle("faint", what.state !== "connected");
  if (what.units != null || what.labels != null) {
    [one.units, one.labels] = [what.units ?? one.units, what.labels ?? one.labels];
    Object.assign(one.trace, { units: one.units, labels: one.labels, isChanged: true });
  }
  // Once for each connection: the answer causes a message of this kind.
  if (what.state === "connected" && !one.isLearned) learn(one).catch(() => { /* The limits are not known before the server answers. */ });
  one.isLearned = what.state === "connected";
  // The severity of a number comes with its samples.
  if (what.text != null) {
    say(one.value, what.text);
    alarm(one, what.severity);
    if (!one.isText) array(one, what.text);
  }
  if (what.state !== "connected") one.trace.cut();
}

/** Receives an array. Its elements have a separate chart, which has no time axis. */
function array(one, text) {
  one.trace.take(text);
  one.chip.hidden = one.trace.elements != null;
  if (!one.chip.hidden || !one.together.checked) return;
  one.together.checked = false;
  arranged();
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
    list.frame.classList.add("as-cards");
    none = el("p", { class: "faint" }, "Add a signal by its name: any record that Channel Access finds. The browser keeps the list.");
    outcome = el("p", { role: "status" });
    charts = el("div", { class: "cards charts" });
    section.append(el("div", { class: "card full" }, form, none, list.frame, outcome), el("div", { class: "card full" }, controls(tahti)), charts);
    common = new Chart("Common chart", true);
    charts.append(common.frame);
    arranged();
    tahti.onBinary(1, take);
  },
  connected() {
    watched.forEach((one) => {
      one.set.hidden = tahti.role !== "operator";
      tahti.tell({ do: "subscribe", stream: one.stream, name: one.name });
      one.trace.again();
    });
    if (isRestored) return;
    let saved = [];
    try { saved = JSON.parse(localStorage.getItem(`signals ${tahti.hello.plant}`) ?? "[]"); } catch { /* The text is not from this page. */ }
    saved.forEach((one) => add(...[one].flat()));
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
