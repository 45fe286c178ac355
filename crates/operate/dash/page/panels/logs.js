// The logs of all processes, merged by time. The server filters them; the page asks for new lines each second while it shows them.
import { counted, el, say } from "../dom.js";
import { sectionOf } from "../frame.js";

const EVERY_MS = 1000, SHOWN_MAX = 2000, SUPERVISOR = "supervisor";
const SIGNS = { error: "◆", warning: "▲", info: "" };

let tahti, list, process, level, text, live, count, outcome;
/** Number of the newest line that was received, and of the last filter: answers to an earlier filter are ignored. */
let newest = 0, filters = 0, asking = false;

const isAtEnd = () => list.scrollHeight - list.scrollTop - list.clientHeight < 40;

function row([, stamp, name, severity, words]) {
  return el("div", { class: `line ${severity}` }, el("time", { datetime: stamp, title: stamp }, stamp.slice(11, 23)), el("b", {}, name || SUPERVISOR),
    el("span", { class: "sign", title: severity }, SIGNS[severity] ?? ""), el("span", { class: "words" }, words));
}

async function look() {
  if (asking || !tahti.isConnected() || sectionOf("logs").hidden || document.hidden || (!live.checked && newest)) return;
  const own = filters, chosen = process.value;
  asking = true;
  try {
    const answer = await tahti.ask({ do: "logs", filter: { after: newest, process: chosen === "*" ? null : chosen, level: level.value, text: text.value.trim() } });
    if (own !== filters) return;
    // The dashboard was started again.
    if (answer.newest < newest) return again();
    newest = answer.newest;
    const follows = isAtEnd();
    list.append(...answer.lines.map(row));
    while (list.childElementCount > SHOWN_MAX) list.firstElementChild.remove();
    if (follows) list.scrollTop = list.scrollHeight;
    names(answer.processes);
    say(outcome, answer.unreadable.length ? `cannot read ${answer.unreadable.join("; ")}` : "");
    say(count, list.childElementCount ? counted(list.childElementCount, "line") : "no line fits");
  } catch (error) {
    say(outcome, error.message);
  } finally {
    asking = false;
    if (own !== filters) look();
  }
}

/** Completes the choice of processes. The address may have chosen one that is not listed yet. */
function names(all) {
  for (const name of all) {
    if ([...process.options].some((one) => one.value === name)) continue;
    process.append(el("option", { value: name }, name || SUPERVISOR));
  }
}

/** Starts again with another filter. */
function again() {
  filters++;
  newest = 0;
  list.replaceChildren();
  look();
}

export default {
  id: "logs",
  title: "Logs",
  group: "Look back",
  topics: [],
  build(section, given) {
    tahti = given;
    process = el("select", { id: "log-process", change: again }, el("option", { value: "*" }, "all"));
    level = el("select", { id: "log-level", change: again }, ...[["info", "all lines"], ["warning", "warnings and errors"], ["error", "errors"]].map(([value, words]) => el("option", { value }, words)));
    text = el("input", { id: "log-text", type: "search", autocomplete: "off", spellcheck: "false", input: again });
    live = el("input", { id: "log-live", type: "checkbox", checked: true, change: look });
    count = el("span", { class: "faint" });
    outcome = el("p", { role: "status", class: "bad" });
    list = el("div", { class: "console logs", role: "region", tabindex: "0", "aria-label": "Log lines, the newest last" });
    const label = (one, words) => el("span", { class: "field" }, el("label", { for: one.id }, words), " ", one);
    section.append(el("div", { class: "row" }, label(process, "Process"), label(level, "Severity"), label(text, "Text"), label(live, "live"), count), outcome, list);
    setInterval(look, EVERY_MS);
  },
  show() {},
  connected() {
    again();
  },
  /** Shows the log of one process. */
  open(name) {
    names([name]);
    process.value = name;
    again();
  },
};
