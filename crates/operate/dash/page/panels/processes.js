// Processes and their threads: state, class, CPUs, processor time, misses, restarts; start, stop, restart for operators.
import { bytes, el, say, table, time, tr } from "../dom.js";
import { address } from "../frame.js";

const WORDS = { running: "good", FAULT: "bad", stopped: "faint", finished: "faint", down: "faint" };
const HEADS = ["process", "pid", "state", "class", "CPUs", { text: "CPU", number: true }, { text: "memory", number: true },
  { text: "missed", number: true }, { text: "restarts", number: true }, "last end", "log", { text: "do", acts: true }];

let tahti, list, problems, outcome, threads;
/** The process that the address names. */
let marked = null;

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

// Buttons stay the same elements, so that the keyboard's focus survives an update.
const buttons = new Map();
function controls(process) {
  if (tahti.role !== "operator") return "";
  if (!buttons.has(process.name)) {
    const button = (what) => el("button", { type: "button", "aria-label": `${what} ${process.name}`, click: () => act(what, process.name) }, what);
    const all = { start: button("start"), stop: button("stop"), restart: button("restart") };
    buttons.set(process.name, { all, cell: el("span", {}, all.start, " ", all.stop, " ", all.restart) });
  }
  const { all, cell } = buttons.get(process.name);
  const up = process.pid != null;
  all.start.disabled = up;
  all.stop.disabled = !up;
  all.restart.disabled = !up && process.state !== "FAULT";
  return cell;
}

export default {
  id: "processes",
  title: "Processes",
  topics: ["plant"],
  build(section, given) {
    tahti = given;
    list = table("Processes of the plant", HEADS);
    problems = el("ul");
    outcome = el("p", { role: "status" });
    threads = el("input", { type: "checkbox", id: "threads" });
    section.append(el("p", {}, threads, " ", el("label", { for: "threads" }, "show threads")), list.frame, outcome, problems);
  },
  show(_, plant) {
    const focus = document.activeElement;
    const rows = plant.processes.flatMap((process) => {
      const alive = process.pid != null;
      const line = process.ended?.last_line ? `: ${process.ended.last_line}` : "";
      const ended = process.ended ? `${process.ended.cause}, ${time(process.ended.ago_ns)} ago${line}` : "";
      const row = tr([
        process.name, alive ? String(process.pid) : "-", el("span", { class: WORDS[process.state] ?? "doubt" }, process.state),
        process.class, process.cpus, alive ? percent(process.cpu_percent) : "-", alive ? bytes(process.memory) : "-",
        process.loop ? String(process.loop.misses) : "", String(process.restarts), ended,
        el("a", { href: address("logs", process.name), "aria-label": `log of ${process.name}`, "data-key": `log ${process.name}` }, "log"), controls(process),
      ], HEADS, { "data-process": process.name, class: process.name === marked ? "marked" : null });
      const below = threads.checked ? process.threads : [];
      return [row, ...below.map((thread) => tr(
        [thread.name, String(thread.tid), "thread", thread.class, thread.cpus, percent(thread.cpu_percent), "", "", "", "", "", ""],
        HEADS, { class: "thread" }))];
    });
    list.fill(rows);
    const key = focus?.dataset?.key;
    if (key) list.body.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
    else if (focus?.isConnected && focus !== document.body) focus.focus();
    tahti.badge("processes", plant.processes.filter(({ name }) => plant.attention.some(({ subject }) => subject === name)).length);
    const item = (kind, text) => el("li", { class: kind }, text);
    problems.replaceChildren(
      ...plant.attention.map((one) => item("bad", `${one.subject} ${one.state}: ${one.evidence} [${one.promise}]`)),
      ...plant.reasons.map(({ outcome, words }) => item(outcome === "failed" ? "bad" : "doubt", `${outcome}: ${words}`)),
      ...plant.shortfalls.map((text) => item("doubt", `unavailable: ${text}`)));
  },
  open(name) {
    marked = name;
    const rows = [...list.body.children];
    rows.forEach((row) => row.classList.toggle("marked", row.dataset.process === name));
    rows.find((row) => row.dataset.process === name)?.scrollIntoView({ block: "nearest" });
  },
};
