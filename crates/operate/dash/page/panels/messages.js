// The message console: sends a line and shows the parts of its reply, with completion. Also shows the traffic of the message server.
import { el, say, time } from "../dom.js";

const LINES_MAX = 200;
/** Why nothing arrives while there is no connection. */
const WAITS = "waits for the connection to the dashboard";
/** Milliseconds after which the objects are requested again. Each request asks every manager. */
const KNOWN_MS = 5000;

let tahti, said, input, options, objectOptions, subjects, lacking, passing, pattern, only, watch, pause, standing;
let verbs = [];
let known = [], knownAt = -Infinity, asking = false;
const history = [];
let at = 0;
let isWatching = false, isPaused = false, held = [], dropped = 0, unseen = 0, state = "";

function print(line, ...inside) {
  const stamp = new Date().toTimeString().slice(0, 8);
  said.append(el("div", {}, el("span", { class: "faint" }, `${stamp} `), line, " ", ...inside));
  while (said.childElementCount > LINES_MAX) said.firstElementChild.remove();
  said.scrollTop = said.scrollHeight;
}

/** Prints the parts of a reply: code, value, duration, lines of its body. */
function reply(line, { code, text, lines, bytes, pulse, took_ns: took, good, perhaps, timed_out: late }) {
  const parts = [el("span", { class: good ? "good" : "bad", "data-part": "code" }, code), " "];
  if (late) parts.push(el("span", { class: "bad" }, perhaps ? "timed out: it may have happened, or may still; ask with get" : "timed out: nothing was done"), " ");
  // The text of a list repeats its lines.
  if (text && !(lines && text.startsWith(lines[0]))) parts.push(el("span", { "data-part": "value" }, text), " ");
  if (lines) parts.push(el("pre", { "data-part": "lines", tabindex: "0", "aria-label": `lines of the reply to ${line}` }, lines.join("\n")));
  if (bytes) parts.push(el("span", { class: "faint" }, `${bytes} bytes more `));
  if (pulse) parts.push(el("span", { class: "faint" }, `pulse ${pulse} `));
  if (!late && perhaps) parts.push(el("span", { class: "doubt" }, "it may have happened all the same "));
  print(line, ...parts, el("span", { class: "faint", "data-part": "took" }, time(took)));
}

async function send(event) {
  event.preventDefault();
  const line = input.value.trim();
  if (!line) return;
  const verb = verbs.find(({ word }) => word === line.split("/")[0]);
  if (verb?.writes && tahti.role === "operator" && !await tahti.confirm(`Send ${line}? It may change the equipment; the log will name you.`, `send ${verb.word}`)) return;
  if (history.at(-1) !== line) history.push(line);
  if (history.length > LINES_MAX) history.shift();
  at = history.length;
  input.value = "";
  try {
    reply(line, await tahti.ask({ do: "message", line }));
  } catch (error) {
    print(line, el("span", { class: "bad" }, error.message));
  }
}

/** Recalls older and newer lines, unless the user has typed something: then the browser's list of options uses the keys. */
function earlier(event) {
  const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (!step || !history.length || (input.value && input.value !== history[at])) return;
  at = Math.max(0, Math.min(history.length, at + step));
  input.value = history[at] ?? "";
  event.preventDefault();
}

async function refresh() {
  if (asking || performance.now() - knownAt < KNOWN_MS) return;
  asking = true;
  try {
    if (!verbs.length) verbs = await tahti.ask({ do: "verbs" });
    const answer = await tahti.ask({ do: "objects", pattern: "*" });
    known = answer.found;
    subjects.replaceChildren(...answer.subjects.map((value) => el("option", { value })));
    objectOptions.replaceChildren(...known.map((value) => el("option", { value })));
    say(lacking, answer.lacking.length ? `objects of these are not known: ${answer.lacking.join("; ")}` : "");
  } catch (error) {
    known = [];
    say(lacking, `objects are not known: ${error.message}`);
  }
  knownAt = performance.now();
  asking = false;
  complete();
}

function complete() {
  refresh();
  const [verb, object] = input.value.split("/");
  const found = object == null
    ? verbs.filter(({ writes }) => !writes || tahti.role === "operator").map(({ word, meaning }) => el("option", { value: `${word}/` }, meaning))
    : known.filter((one) => one.startsWith(object)).slice(0, 100).map((one) => el("option", { value: `${verb}/${one}/` }));
  options.replaceChildren(...found);
}

function standingWords() {
  const parts = [state];
  if (isPaused) parts.push(`paused, ${held.length} wait`);
  if (dropped + unseen) parts.push(`${dropped + unseen} left out for newer ones`);
  say(standing, parts.filter(Boolean).join("; "));
  say(watch, isWatching ? "stop" : "watch");
  pause.disabled = !isWatching;
}

function put(lines) {
  const wanted = only.value.trim();
  for (const line of lines) if (!wanted || line.includes(wanted)) passing.append(el("div", {}, line));
  while (passing.childElementCount > LINES_MAX) passing.firstElementChild.remove();
  passing.scrollTop = passing.scrollHeight;
}

async function toggle(event) {
  event.preventDefault();
  if (isWatching) {
    tahti.tell({ do: "unwatch" });
    [isWatching, state, dropped, unseen] = [false, "", 0, 0];
    if (isPaused) stopOrGo();
  } else await begin();
  standingWords();
}

/** Starts watching, now or after the next connection. Only a refusal of the dashboard ends it. */
async function begin() {
  [dropped, unseen, state, isWatching] = [0, 0, tahti.isConnected() ? "asking" : WAITS, true];
  if (!tahti.isConnected()) return;
  try {
    await tahti.ask({ do: "watch", pattern: pattern.value.trim() || "*/*" });
  } catch (error) {
    if (!isWatching) return;
    isWatching = !tahti.isConnected();
    state = isWatching ? WAITS : error.message;
  }
}

function stopOrGo() {
  isPaused = !isPaused;
  say(pause, isPaused ? "go on" : "pause");
  if (!isPaused) put(held.splice(0));
  standingWords();
}

export default {
  id: "messages",
  title: "Messages",
  topics: ["passing"],
  build(section, given) {
    tahti = given;
    options = el("datalist", { id: "message-options" });
    objectOptions = el("datalist", { id: "message-objects" });
    subjects = el("datalist", { id: "message-subjects" });
    input = el("input", { id: "message-line", list: "message-options", autocomplete: "off", spellcheck: "false", size: "50", placeholder: "get/sr_mag_ps_b/current_adc", input: complete, focus: complete, keydown: earlier });
    said = el("div", { class: "console", role: "log", "aria-label": "Messages and their replies", tabindex: "0" });
    lacking = el("p", { class: "doubt" });
    pattern = el("input", { id: "message-pattern", list: "message-objects", autocomplete: "off", spellcheck: "false", size: "24", placeholder: "put/sr_*", focus: refresh });
    only = el("input", { id: "message-only", list: "message-subjects", autocomplete: "off", spellcheck: "false", size: "16", focus: refresh });
    watch = el("button", { id: "message-watch" }, "watch");
    pause = el("button", { type: "button", disabled: true, click: stopOrGo }, "pause");
    standing = el("p", { role: "status", id: "message-watching" });
    passing = el("div", { class: "console", role: "log", "aria-live": "off", "aria-label": "Messages as they pass", tabindex: "0" });
    const field = (label, input) => el("span", { class: "field" }, el("label", { for: input.id }, label), " ", input);
    section.append(el("div", { class: "cards" },
      el("div", { class: "card half" }, el("h3", {}, "Console"), el("form", { submit: send }, el("label", { for: "message-line" }, "verb/object/complement"), input, options, el("button", {}, "send")), lacking, said,
        el("p", { class: "faint hint" }, "Replies appear here. Tab completes verbs and objects, ↑ recalls earlier lines.")),
      el("div", { class: "card half" }, el("h3", {}, "Passing messages"), el("form", { submit: toggle }, field("verb/object like", pattern), objectOptions, field("only lines with", only), subjects, watch, pause), standing, passing,
        el("p", { class: "faint hint" }, "Watch shows the messages of all clients as they pass the server."))));
  },
  connected() {
    knownAt = -Infinity;
    tahti.ask({ do: "verbs" }).then((all) => {
      verbs = all;
      // A user who was in the field before the connection existed has seen no options yet.
      if (document.activeElement === input) complete();
    }, () => {});
    if (isWatching) begin().then(standingWords);
  },
  show(_, data) {
    if (!isWatching) return;
    dropped = data.dropped;
    state = data.state;
    if (isPaused) {
      held.push(...data.lines);
      unseen += Math.max(0, held.length - LINES_MAX);
      held = held.slice(-LINES_MAX);
    } else put(data.lines);
    standingWords();
  },
};
