// Processes: a table to sort and filter with trends, and the details of one process beside it (`#/processes/NAME`): trends, log, last end, promises,
// threads, environment. Start, stop and restart for operators.
import { bytes, coded, counted, el, renew, say, table, time, tr } from "../dom.js";
import { sparkline } from "../draw.js";
import { figure } from "../figures.js";
import { address, sectionOf } from "../frame.js";

const WORDS = { running: "good", FAULT: "bad", stopped: "faint", finished: "faint", down: "faint" };
const HEADS = ["process", "pid", "state", "class", "CPUs", { text: "CPU", number: true }, "CPU over time", { text: "memory", number: true }, "memory over time",
  { text: "missed", number: true }, { text: "restarts", number: true }, "last end", "log", { text: "do", acts: true }];
/** The value by which a column sorts. Columns without one do not sort. */
const KEYS = { process: (one) => one.name, pid: (one) => one.pid ?? 0, state: (one) => one.state, class: (one) => one.class, CPUs: (one) => one.cpus, CPU: (one) => one.cpu_percent ?? -1,
  memory: (one) => one.memory, missed: (one) => one.loop?.misses ?? -1, restarts: (one) => one.restarts, "last end": (one) => -(one.ended?.ago_ns ?? Infinity) };
const LOG_LINES = 20, LOG_EVERY_MS = 2000;
const TRENDS = [["cpu", "CPU", percent, 10], ["memory", "Memory", bytes, 0], ["missed", "Missed deadlines in a second", String, 1], ["p99", "Wake-up p99", time, 0]];

let tahti, list, filter, problems, outcome, threads, drawer, count;
/** The process that the address names, and the column by which the table is sorted: null is the order of the plant file. */
let marked = null, sorted = null, isDescending = false;
const sparks = new Map(), headers = new Map();
let askedAt = 0;

function percent(used) {
  return used == null ? "-" : `${used.toFixed(1)} %`;
}

async function act(what, name) {
  const text = `${what} process ${name}? ${what === "start" ? "" : "What depends on it may stop working. "}The plant's log will name you.`;
  if (!(await tahti.confirm(text, `${what} ${name}`))) return;
  say(outcome, `${what} ${name} …`);
  try {
    await tahti.ask({ do: "process", what, name });
    say(outcome, `${what} ${name}: done`);
  } catch (error) {
    say(outcome, `${what} ${name}: ${error.message}`);
  }
}

function controls({ name, pid, state }) {
  if (tahti.role !== "operator") return "";
  const button = (what, disabled) => el("button", { type: "button", "data-key": what, "aria-label": `${what} ${name}`, disabled, click: () => act(what, name) }, what);
  const isUp = pid != null;
  return el("span", {}, button("start", isUp), " ", button("stop", !isUp), " ", button("restart", !isUp && state !== "FAULT"));
}

/** A trend of a process, which is drawn into the same element each time. */
function trend(name, key) {
  const id = `${name}/${key}`;
  if (!sparks.has(id)) sparks.set(id, sparkline(`${key} of ${name}`, TRENDS.find(([one]) => one === key)[2]));
  const { whole, draw } = sparks.get(id);
  draw(figure(`process/${id}`), { to: TRENDS.find(([one]) => one === key)[3] });
  return whole;
}

function sortBy(head) {
  if (sorted === head && isDescending) [sorted, isDescending] = [null, false];
  else if (sorted === head) isDescending = true;
  else [sorted, isDescending] = [head, false];
  for (const [name, header] of headers) header.setAttribute("aria-sort", name !== sorted ? "none" : isDescending ? "descending" : "ascending");
  const plant = tahti.newest("plant");
  if (plant) showList(plant);
}

/** Puts a button into the header of each column that sorts. */
function sortable() {
  list.frame.querySelectorAll("thead th").forEach((header) => {
    const head = header.textContent;
    if (!KEYS[head]) return;
    header.replaceChildren(el("button", { type: "button", class: "sort", click: () => sortBy(head) }, head));
    header.setAttribute("aria-sort", "none");
    headers.set(head, header);
  });
}

function chosen(processes) {
  const words = filter.value.trim().toLowerCase();
  const fitting = processes.filter((one) => `${one.name} ${one.state} ${one.class}`.toLowerCase().includes(words));
  if (!sorted) return fitting;
  const key = KEYS[sorted], by = isDescending ? -1 : 1;
  return fitting.toSorted((one, other) => by * (key(one) > key(other) ? 1 : key(one) < key(other) ? -1 : 0));
}

function lastEnd({ ended }) {
  return ended ? `${ended.cause}, ${time(ended.ago_ns)} ago${ended.detail}` : "";
}

function showList(plant) {
  const processes = chosen(plant.processes);
  const rows = processes.flatMap((process) => {
    const { name } = process, alive = process.pid != null;
    const isWrong = process.state === "FAULT" || plant.attention.some(({ subject }) => subject === name);
    const row = tr([
      el("a", { href: address("processes", name) }, name), alive ? String(process.pid) : "-",
      el("span", { class: isWrong ? "bad" : WORDS[process.state] ?? "doubt" }, process.state), process.class, process.cpus, alive ? percent(process.cpu_percent) : "-", trend(name, "cpu"),
      alive ? bytes(process.memory) : "-", trend(name, "memory"), process.loop ? String(process.loop.misses) : "", String(process.restarts), el("td", { class: "wraps" }, lastEnd(process)),
      el("a", { href: address("logs", name), "aria-label": `log of ${name}` }, "log"), controls(process),
    ], HEADS, { "data-process": name, "data-key": name, class: name === marked ? "marked" : null });
    const below = threads.checked ? process.threads : [];
    return [row, ...below.map((thread) => tr(
      [thread.name, String(thread.tid), "thread", thread.class, thread.cpus, percent(thread.cpu_percent), ...new Array(HEADS.length - 6).fill("")], HEADS, { "data-key": `${name} ${thread.tid}`, class: "thread" }))];
  });
  list.fill(rows);
  say(count, processes.length === plant.processes.length ? counted(processes.length, "process").replace("processs", "processes") : `${processes.length} of ${plant.processes.length}`);
}

/** Makes the details of a process. They stay the same elements while they are open. */
function makeDrawer(name) {
  const place = (title, ...inside) => el("div", {}, el("h4", {}, title), ...inside);
  const parts = { state: el("p"), ends: el("dl", { class: "facts-list" }), promises: el("ul"), threads: table(`Threads of ${name}`, ["thread", "id", "class", "CPUs", { text: "CPU", number: true }]),
    environment: el("dl", { class: "facts-list" }), lines: el("div", { class: "console tail", role: "region", tabindex: "0", "aria-label": `End of the log of ${name}` }), trends: el("div", { class: "trends" }) };
  const close = el("button", { type: "button", "aria-label": `close ${name}`, click: () => { location.hash = address("processes"); } }, "close");
  drawer.replaceChildren(el("div", { class: "row" }, el("h3", {}, name), close), parts.state, parts.trends, place("Promises that are not kept", parts.promises), place("Starts and ends", parts.ends),
    place("Log", parts.lines, el("a", { href: address("logs", name) }, "all lines")), place("Threads", parts.threads.frame), place("Environment that tahti set", parts.environment));
  drawer.setAttribute("aria-label", `Process ${name}`);
  drawer.parts = { name, ...parts };
  askedAt = 0;
}

const fact = (name, value) => (value == null || value === "" ? [] : [el("dt", {}, name), el("dd", {}, ...coded(String(value)))]);

function showDrawer(plant) {
  const process = plant.processes.find(({ name }) => name === marked);
  drawer.hidden = !process;
  drawer.parentElement.classList.toggle("beside", !drawer.hidden);
  if (!process) return;
  if (drawer.parts?.name !== process.name) makeDrawer(process.name);
  const { name, state, ends, promises, threads: own, environment, trends } = drawer.parts, alive = process.pid != null;
  say(state, `${process.state}${alive ? `, process ${process.pid} for ${time(process.started_ns)}` : ""}; ${process.class} on CPU ${process.cpus}`);
  const known = TRENDS.filter(([key]) => figure(`process/${name}/${key}`).second != null);
  if (trends.childElementCount !== known.length) {
    trends.replaceChildren(...known.map(([key, title]) => el("div", { "data-trend": key }, el("h4", {}, title, " ", el("span", { class: "faint" })), el("div"))));
  }
  known.forEach(([key, , words], at) => {
    const history = figure(`process/${name}/${key}`), value = history.values[history.second % history.values.length], id = `drawer ${name}/${key}`;
    if (!sparks.has(id)) sparks.set(id, sparkline(`${key} of ${name}, large`, words));
    const { whole, draw, span } = sparks.get(id), place = trends.children[at].lastElementChild;
    if (place.firstElementChild !== whole) place.replaceChildren(whole);
    draw(history, { to: TRENDS.find(([one]) => one === key)[3] });
    say(trends.children[at].querySelector("span"), `${Number.isNaN(value) ? "–" : words(value)}, ${span(history)}`);
  });
  const wrong = plant.attention.filter(({ subject }) => subject === name).map((one) => `${one.state} for ${time(one.since_ns)}: ${one.evidence} (promised: ${one.promise})`);
  const lacks = [...(process.trouble ? [`reported by itself: ${process.trouble}`] : []), ...process.shortfalls.map((text) => `unavailable: ${text}`)];
  renew(promises, [...wrong.map((text) => ["bad", text]), ...lacks.map((text) => ["doubt", text])].map(([kind, text]) => el("li", { class: kind }, text)));
  promises.parentElement.hidden = !wrong.length && !lacks.length;
  renew(ends, [...fact("starts", process.starts), ...fact("automatic restarts", process.restarts), ...fact("last end", lastEnd(process)), ...fact("evidence", process.evidence && `\`${process.evidence}\``)]);
  own.fill(process.threads.map((thread) => [thread.name, String(thread.tid), thread.class, thread.cpus, percent(thread.cpu_percent)]));
  own.frame.parentElement.hidden = !process.threads.length;
  const variables = Object.entries(process.environment ?? {});
  renew(environment, variables.flatMap(([key, value]) => fact(key, value)));
  environment.parentElement.hidden = !variables.length;
  showTail();
}

/** Fetches the end of the log. */
async function showTail() {
  const { name, lines } = drawer.parts, now = performance.now();
  if (now - askedAt < LOG_EVERY_MS || sectionOf("processes").hidden || !tahti.isConnected()) return;
  askedAt = now;
  try {
    const answer = await tahti.ask({ do: "logs", filter: { after: 0, process: name, level: "info", text: "" } });
    if (drawer.parts.name !== name) return;
    const isAtEnd = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 40;
    lines.replaceChildren(...answer.lines.slice(-LOG_LINES).map(([, stamp, , level, text]) => el("div", { class: `line ${level}` }, el("time", { datetime: stamp }, stamp.slice(11, 19)), el("span", { class: "words" }, text))));
    if (isAtEnd) lines.scrollTop = lines.scrollHeight;
  } catch (error) {
    lines.replaceChildren(el("p", { class: "bad" }, error.message));
  }
}

export default {
  id: "processes",
  title: "Processes",
  topics: ["plant"],
  build(section, given) {
    tahti = given;
    list = table("Processes of the plant", HEADS);
    sortable();
    const again = () => { const plant = tahti.newest("plant"); if (plant) showList(plant); };
    filter = el("input", { id: "process-filter", type: "search", autocomplete: "off", spellcheck: "false", input: again });
    count = el("span", { class: "faint" });
    problems = el("ul");
    outcome = el("p", { role: "status" });
    threads = el("input", { type: "checkbox", id: "threads", change: again });
    drawer = el("aside", { class: "drawer", hidden: true });
    section.append(el("div", { class: "row" }, el("label", { for: "process-filter" }, "Filter"), filter, threads, el("label", { for: "threads" }, "show threads"), count),
      el("div", { class: "with-drawer" }, el("div", {}, list.frame, outcome, problems), drawer));
  },
  show(_, plant) {
    for (const id of sparks.keys()) if (!plant.processes.some(({ name }) => id.replace("drawer ", "").startsWith(`${name}/`))) sparks.delete(id);
    showList(plant);
    showDrawer(plant);
    tahti.badge("processes", plant.processes.filter(({ name }) => plant.attention.some(({ subject }) => subject === name)).length);
    const item = (kind, text) => el("li", { class: kind }, text);
    renew(problems, [
      ...plant.attention.map((one) => item("bad", `${one.subject} ${one.state}: ${one.evidence} [${one.promise}]`)),
      ...plant.reasons.map(({ outcome, words }) => item(outcome === "failed" ? "bad" : "doubt", `${outcome}: ${words}`)),
      ...plant.shortfalls.map((text) => item("doubt", `unavailable: ${text}`))]);
  },
  open(name) {
    marked = name;
    const plant = tahti.newest("plant");
    if (!plant) return;
    showList(plant);
    showDrawer(plant);
    list.body.querySelector(`[data-process="${CSS.escape(name)}"]`)?.scrollIntoView({ block: "nearest" });
  },
  close() {
    marked = null;
    const plant = tahti.newest("plant");
    if (!plant) return;
    showList(plant);
    showDrawer(plant);
  },
};
