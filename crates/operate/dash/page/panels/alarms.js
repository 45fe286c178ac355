// Alarms, the worst first: active, acknowledged and hidden ones, with a tree of their areas and the figures of the alarm system. Operators acknowledge
// and shelve them. The address selects an area or an alarm: `#/alarms/PATH`.
import { RATE_MIN_SECS, alarmFigures } from "../alarms/figures.js";
import { counted, el, renew, say, table, time, tr } from "../dom.js";
import { sparkline, tile } from "../draw.js";
import { figure } from "../figures.js";
import { address, sectionOf } from "../frame.js";

const HEADS = ["alarm", "severity", { text: "value", number: true }, "message and state", { text: "since", number: true }, "about, and what to do", { text: "do", acts: true }];
const TIMES = [["10m", "10 min"], ["1h", "1 h"], ["8h", "8 h"], ["24h", "24 h"]];
/** Alarms per request, which limits the length of its text. */
const AT_ONCE = 20;
/** New alarms that are announced one by one. */
const TOLD_MAX = 3;
/** Time in milliseconds for which new alarms are shown over the open panel. */
const NEWS_MS = 20_000;
const FIGURES_EVERY_MS = 60_000;

let tahti, words, list, news, outcome, filter, aside, all, tiles, areas, cards, figures;
let rows = [], newsTimer = null, figuresAt = -Infinity;
/** The path in the address, and the path of the alarm whose form to shelve it is open. */
let opened = null, shelving = null;
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

const elementOf = (path) => list.body.querySelector(`[data-alarm="${CSS.escape(path)}"]`);

/** Opens or closes the form to shelve an alarm. */
function openShelf(path) {
  const before = shelving;
  shelving = path;
  draw();
  if (path) document.getElementById("alarm-why")?.focus();
  else elementOf(before)?.querySelector("[data-key=shelve]")?.focus();
}

/** The form to shelve an alarm, in its row: for how long and why. */
function shelf({ path, channel }) {
  const time = el("select", { id: "alarm-time" }, ...TIMES.map(([value, text]) => el("option", { value, selected: value === "1h" }, text)));
  const why = el("input", { id: "alarm-why", autocomplete: "off", size: "16", maxlength: "200" });
  const close = (event) => { event.preventDefault(); openShelf(null); };
  const shelve = (event) => {
    close(event);
    act({ do: "shelve", time: time.value, why: why.value.trim() }, [path], `shelve ${channel} for ${time.value}`);
  };
  return el("form", { "data-key": "shelf", submit: shelve, keydown: (event) => { if (event.key === "Escape") close(event); } }, el("label", { for: "alarm-time" }, "for"), time,
    el("label", { for: "alarm-why" }, "because"), why, el("button", {}, "shelve"), el("button", { type: "button", click: close }, "cancel"));
}

/** The buttons of an alarm. They stay while its state changes, so each reads the state when it is pressed. */
function controls(row) {
  if (tahti.role !== "operator") return "";
  const { path, channel } = row, now = () => rows.find((one) => one.path === path) ?? row;
  const button = (key, word, click, more) => el("button", { type: "button", "data-key": key, "aria-label": `${word} ${channel}`, click, ...more }, word);
  return el("div", { class: "acts-row" },
    button("acknowledge", row.is_active || !row.level ? "acknowledge" : "unacknowledge", () => {
      const word = now().is_active ? "acknowledge" : "unacknowledge";
      act({ do: word }, [path], `${word} ${channel}`);
    }, { disabled: !row.level }),
    button("shelve", row.shelved ? "unshelve" : "shelve", () => (now().shelved ? act({ do: "unshelve" }, [path], `unshelve ${channel}`) : openShelf(shelving === path ? null : path)),
      row.shelved ? {} : { "aria-expanded": String(shelving === path) }),
    shelving === path && !row.shelved ? shelf(row) : null);
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

/** Shape, class and word of a severity. One that is not acknowledged flashes. */
function severityTag(row) {
  const isCalm = row.hidden || !row.is_active, kind = isCalm ? "" : row.severity === "MINOR" ? "degraded" : "failed";
  const sign = row.severity.startsWith("MINOR") ? "▲" : row.severity.startsWith("MAJOR") ? "◆" : row.level ? "■" : "○";
  return el("span", { class: `tag ${kind}${isCalm ? "" : " flashes"}` }, el("i", { "aria-hidden": "true" }, sign), " ", row.severity);
}

function isShown(row) {
  const text = filter.value.trim().toLowerCase();
  return (aside.checked || !row.hidden) && (!text || `${row.path} ${row.description ?? ""} ${row.severity} ${row.message}`.toLowerCase().includes(text));
}

/** The page of a channel: its process if the alarm is about one, else its chart. */
function pageOf(channel) {
  const process = channel.match(/^process (.+)$/);
  return process ? address("processes", process[1]) : address("signals", channel);
}

function cells(row, now) {
  const guidance = (row.guidance ?? []).map((guide) => el("div", { class: "guide" }, el("b", {}, guide.title), `: ${guide.details}`));
  const area = row.path.split("/").slice(2, -1).join("/"), isOver = row.current_severity !== row.severity.replace("_ACK", "");
  return tr([
    el("div", {}, el("a", { href: pageOf(row.channel) }, row.channel), el("div", { class: "faint area" }, area)), severityTag(row), row.value,
    el("td", { class: "wraps" }, el("div", {}, row.message), el("div", { class: row.is_active && !row.hidden ? "" : "faint" }, `${state(row, now)}${isOver ? `; now ${row.current_severity}` : ""}`)),
    row.level ? time(Math.max(0, now - row.time.seconds) * 1e9) : "-", el("td", { class: "wraps" }, row.description ?? "", ...guidance), controls(row),
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

/** The areas that have alarms, each with the number of those that are not acknowledged, as a tree of links. */
function showAreas() {
  const root = new Map();
  for (const row of rows) {
    let level = root, path = "";
    for (const name of row.path.split("/").slice(1, -1)) {
      path += `/${name}`;
      if (!level.has(name)) level.set(name, { path, active: 0, all: 0, below: new Map() });
      const area = level.get(name);
      area.all++;
      if (row.is_active && !row.hidden) area.active++;
      level = area.below;
    }
  }
  const tree = (level) => el("ul", {}, ...[...level].sort(([one], [other]) => one.localeCompare(other)).map(([name, { path, active, all: count, below }]) => el("li", { "data-key": path },
    el("a", { href: address("alarms", path), "aria-current": opened === path ? "true" : null }, el("span", {}, name), el("span", { class: active ? "bad" : "faint" }, active ? `◆ ${active} of ${count}` : String(count))),
    below.size ? tree(below) : null)));
  const few = [...root.values()].every((area) => !area.below.size);
  areas.hidden = few;
  cards.classList.toggle("with-areas", !few);
  const every = el("ul", {}, el("li", { "data-key": "/" }, el("a", { href: address("alarms"), "aria-current": opened == null ? "true" : null }, "all areas")));
  renew(areas.lastElementChild, [every, tree(root)]);
}

function showTiles(data) {
  const worst = rows.find((row) => row.is_active && !row.hidden);
  tiles.active.show(String(data.active), "no alarm waits for an operator", { history: figure("alarms"), range: { to: 3 }, [worst?.severity === "MINOR" ? "doubt" : "wrong"]: worst ? `${worst.severity} ${worst.channel}` : "" });
  const oldest = rows.filter((row) => row.is_active && !row.hidden).reduce((age, row) => Math.max(age, data.now_s - row.time.seconds), 0);
  tiles.oldest.show(data.active ? time(oldest * 1e9) : "–", data.active ? "the oldest waits for this time" : "");
  tiles.acknowledged.show(String(data.acknowledged), "still in alarm");
  tiles.aside.show(String(data.aside), "shelved, suppressed or disabled");
  tiles.channels.show(`${data.alarms - data.disconnected} / ${data.alarms}`, "channels connected", { doubt: data.disconnected ? `${counted(data.disconnected, "channel")} not connected` : "" });
}

function summary(data) {
  const parts = [data.name];
  if (data.maintenance) parts.push("MAINTENANCE: what is invalid or not connected is acknowledged by itself");
  if (data.left_out) parts.push(`the ${data.left_out} least severe are not shown`);
  return parts.join(": ");
}

/** Requests the figures once a minute while the panel is open. The server reads its journal for them. */
async function refresh() {
  if (sectionOf("alarms").hidden || !tahti.isConnected() || performance.now() - figuresAt < FIGURES_EVERY_MS) return;
  figuresAt = performance.now();
  try {
    const answer = await tahti.ask({ do: "alarm-figures" });
    figures.show(answer);
    const known = answer.evaluated_secs >= RATE_MIN_SECS, rate = known ? answer.per_hour : 0;
    tiles.rate.show(known ? `${Number(rate.toPrecision(2))} /h` : "–", known ? "good: up to 6, limit: 12" : `${counted(answer.alarms, "alarm")} in ${time(answer.evaluated_secs * 1e9)}; a rate needs an hour`,
      { [rate > 12 ? "wrong" : "doubt"]: rate > 12 ? "over the limit of 12 an hour" : rate > 6 ? "over 6 an hour" : "" });
  } catch (error) {
    figures.fail(error.message);
  }
}

export default {
  id: "alarms",
  title: "Alarms",
  group: "Operate",
  topics: ["alarms"],
  build(section, given) {
    tahti = given;
    words = el("p", { class: "faint" }, "waiting for the alarms");
    // Outside the section, so that it is announced whichever panel is open.
    news = document.getElementById("alarm-news");
    outcome = el("p", { role: "status" });
    filter = el("input", { id: "alarm-filter", type: "search", autocomplete: "off", size: "20", input: draw });
    aside = el("input", { id: "alarm-aside", type: "checkbox", checked: true, change: draw });
    all = el("button", { type: "button", hidden: true, click: acknowledgeShown }, "acknowledge all shown");
    const look = el("form", { class: "bar-row", submit: (event) => event.preventDefault() }, el("label", { for: "alarm-filter" }, "Only alarms with"), filter,
      el("span", { class: "field" }, aside, " ", el("label", { for: "alarm-aside" }, "show shelved and disabled alarms")), all);
    list = table("Alarms, the worst first", HEADS);
    list.frame.classList.add("as-cards");
    areas = el("div", { class: "card areas", role: "navigation", "aria-label": "Areas with alarms", hidden: true }, el("h3", {}, "Areas"), el("div"));
    figures = alarmFigures();
    tiles = {
      active: tile("Unacknowledged", null, sparkline("Alarms that are not acknowledged")), oldest: tile("Oldest of them"), acknowledged: tile("Acknowledged"),
      aside: tile("Set aside"), rate: tile("Rate, last 24 h"), channels: tile("Channels"),
    };
    cards = el("div", { class: "cards" }, areas, el("div", { class: "card rest" }, el("h3", {}, "Alarms, the worst first"), look, list.frame, outcome), figures.whole);
    section.append(words, el("div", { class: "tiles" }, ...Object.values(tiles).map((one) => one.whole)), cards);
  },
  connected() {
    all.hidden = tahti.role !== "operator";
    known = null;
    figuresAt = -Infinity;
  },
  show(_, data) {
    const absent = data.error != null;
    say(words, absent ? data.error : summary(data));
    cards.hidden = absent;
    cards.previousElementSibling.hidden = absent;
    last = absent ? null : data;
    rows = data.rows ?? [];
    tahti.badge("alarms", data.active ?? 0);
    if (absent) return list.fill([]);
    tell();
    showTiles(data);
    showAreas();
    draw();
    refresh();
  },
  open(path) {
    opened = filter.value = path;
    showAreas();
    draw();
  },
  close() {
    if (opened != null && filter.value === opened) filter.value = "";
    opened = null;
    showAreas();
    draw();
  },
};
