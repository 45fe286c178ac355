// Alarms, the worst first: active, acknowledged and hidden ones. Operators acknowledge and shelve them.
import { counted, el, say, table, time, tr } from "../dom.js";

const HEADS = ["alarm", "severity", "now", "state", { text: "value", number: true }, "message", { text: "since", number: true }, "about", { text: "do", acts: true }];
const TIMES = ["10m", "1h", "8h", "24h"];
/** Alarms per request, which limits the length of its text. */
const AT_ONCE = 20;
/** New alarms that are announced one by one. */
const TOLD_MAX = 3;
/** Time in milliseconds for which new alarms are shown over the open panel. */
const NEWS_MS = 20_000;

let tahti, words, list, news, outcome, filter, aside, shelf, why, all;
let rows = [], newsTimer = null;
/** Level of each active alarm in the last message; null before the first one. */
let known = null;

async function act(what, paths, words) {
  say(outcome, `${words} …`);
  try {
    let changed = 0;
    for (let at = 0; at < paths.length; at += AT_ONCE) {
      changed += (await tahti.ask({ do: "alarm", act: { ...what, names: paths.slice(at, at + AT_ONCE) } })).changed;
    }
    say(outcome, `${words}: ${changed ? "done" : "nothing changes"}`);
  } catch (error) {
    say(outcome, `${words}: ${error.message}`);
  }
}

async function acknowledgeShown() {
  const paths = rows.filter((row) => row.is_active && !row.hidden && isShown(row)).map((row) => row.path);
  const count = counted(paths.length, "alarm");
  if (paths.length && await tahti.confirm(`acknowledge the ${count} shown? The journal will name you.`, `acknowledge ${count}`)) {
    await act({ do: "acknowledge" }, paths, `acknowledge ${count}`);
  }
}

/** The buttons of an alarm. They stay while its state changes, so each looks at the state when it is pressed. */
function controls(row) {
  if (tahti.role !== "operator") return "";
  const { path, channel } = row, now = () => rows.find((one) => one.path === path) ?? row;
  const button = (key, word, click, disabled) => el("button", { type: "button", "data-key": key, "aria-label": `${word} ${channel}`, disabled, click }, word);
  return el("span", {},
    button("acknowledge", row.is_active || !row.level ? "acknowledge" : "unacknowledge", () => {
      const word = now().is_active ? "acknowledge" : "unacknowledge";
      act({ do: word }, [path], `${word} ${channel}`);
    }, !row.level), " ",
    button("shelve", row.shelved ? "unshelve" : "shelve", () => (now().shelved ? act({ do: "unshelve" }, [path], `unshelve ${channel}`)
      : act({ do: "shelve", time: shelf.value, why: why.value.trim() }, [path], `shelve ${channel} for ${shelf.value}`))));
}

/** The state of an alarm in words, because colour must not be the only sign. */
function state(row, now) {
  const left = (until) => ` for ${time((until.seconds - now) * 1e9)}`;
  const mark = row.disabled ?? row.out_of_service ?? row.shelved;
  if (mark) return `${row.hidden}${mark.until ? left(mark.until) : ""} by ${mark.by}${mark.why ? `: ${mark.why}` : ""}`;
  if (row.hidden) return row.hidden;
  if (row.is_active) return row.current_severity === "OK" ? "over, not acknowledged" : "not acknowledged";
  return row.level ? "acknowledged" : "";
}

function kind(severity) {
  if (severity === "OK") return "good";
  if (severity.endsWith("_ACK")) return "faint";
  return severity === "MINOR" ? "doubt" : "bad";
}

function isShown(row) {
  const text = filter.value.trim().toLowerCase();
  return (aside.checked || !row.hidden) && (!text || `${row.path} ${row.description ?? ""} ${row.severity} ${row.message}`.toLowerCase().includes(text));
}

function cells(row, now) {
  const guidance = (row.guidance ?? []).map((guide) => el("div", { class: "faint" }, `${guide.title}: ${guide.details}`));
  return tr([
    row.path, el("span", { class: kind(row.severity) }, row.severity), el("span", { class: kind(row.current_severity) }, row.current_severity),
    el("td", { class: "wraps" }, state(row, now)), row.value, el("td", { class: "wraps" }, row.message), row.level ? time(Math.max(0, now - row.time.seconds) * 1e9) : "-",
    el("td", { class: "wraps" }, row.description ?? "", ...guidance), controls(row),
  ], HEADS, { "data-alarm": row.path, "data-key": row.path, class: row.hidden ? "faint" : null });
}

/** Announces the alarms that have become worse since the last message. */
function tell() {
  const before = known;
  known = new Map(rows.map((row) => [row.path, row.is_active && !row.hidden ? row.level : 0]));
  if (!before) return;
  const worse = rows.filter((row) => known.get(row.path) > (before.get(row.path) ?? 0));
  if (!worse.length) return;
  const each = worse.slice(0, TOLD_MAX).map((row) => `${row.severity} ${row.channel}${row.description ? `, ${row.description}` : ""}`);
  const more = worse.length > TOLD_MAX ? `; and ${worse.length - TOLD_MAX} more` : "";
  clearTimeout(newsTimer);
  newsTimer = setTimeout(() => { news.textContent = ""; }, NEWS_MS);
  news.textContent = `new at ${new Date().toLocaleTimeString("sv")}: ${each.join("; ")}${more}`;
}

let last = null;
function draw() {
  if (!last) return;
  list.fill(rows.filter(isShown).map((row) => cells(row, last.now_s)));
}

function summary(data) {
  const parts = [`${data.active} active`, `${data.acknowledged} acknowledged`, `${data.aside} shelved or disabled`, `${data.alarms} in all`];
  if (data.disconnected) parts.push(`${data.disconnected} not connected`);
  if (data.maintenance) parts.push("MAINTENANCE: what is invalid or not connected is acknowledged by itself");
  if (data.left_out) parts.push(`the ${data.left_out} least of them are not shown`);
  return `${data.name}: ${parts.join(", ")}`;
}

export default {
  id: "alarms",
  title: "Alarms",
  group: "Operate",
  topics: ["alarms"],
  build(section, given) {
    tahti = given;
    words = el("p", {}, "not looked at yet");
    // Outside the section, so that it is announced whichever panel is open.
    news = document.getElementById("alarm-news");
    outcome = el("p", { role: "status" });
    filter = el("input", { id: "alarm-filter", type: "search", autocomplete: "off", size: "20", input: draw });
    aside = el("input", { id: "alarm-aside", type: "checkbox", checked: true, change: draw });
    const look = el("form", { submit: (event) => event.preventDefault() }, el("label", { for: "alarm-filter" }, "Only alarms with"), filter,
      aside, el("label", { for: "alarm-aside" }, "show shelved and disabled alarms"));
    shelf = el("select", { id: "alarm-time" }, ...TIMES.map((one) => el("option", { value: one, selected: one === "1h" }, one)));
    why = el("input", { id: "alarm-why", autocomplete: "off", size: "20", maxlength: "200" });
    all = el("form", { hidden: true, submit: (event) => { event.preventDefault(); acknowledgeShown(); } }, el("button", {}, "acknowledge all shown"),
      el("label", { for: "alarm-time" }, "Shelve for"), shelf, el("label", { for: "alarm-why" }, "because"), why);
    list = table("Alarms, the worst first", HEADS);
    section.append(words, look, all, list.frame, outcome);
  },
  connected() {
    all.hidden = tahti.role !== "operator";
    known = null;
  },
  show(_, data) {
    const absent = data.error != null;
    say(words, absent ? data.error : summary(data));
    list.frame.hidden = absent;
    last = absent ? null : data;
    rows = data.rows ?? [];
    tahti.badge("alarms", data.active ?? 0);
    if (absent) return list.fill([]);
    tell();
    draw();
  },
  open(path) {
    filter.value = path;
    draw();
  },
};
