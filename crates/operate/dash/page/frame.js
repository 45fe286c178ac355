// The parts that are always visible: the status bar, the navigation, and the panel that the address names (`#/latency`, `#/processes/loop`).
import { counted, el, say, time } from "./dom.js";

/** Symbol and icon of each outcome, because colour must not be the only sign. */
const OUTCOMES = {
  good: { sign: "○", icon: "icon.svg" },
  degraded: { sign: "▲", icon: "icon-degraded.svg" },
  failed: { sign: "◆", icon: "icon-failed.svg" },
  unknown: { sign: "■", icon: "icon-failed.svg" },
};
/** Pages in the bottom bar of a phone; the others are behind "More". */
const ON_PHONE = ["overview", "processes", "latency", "alarms"];

const byId = (id) => document.getElementById(id);
const links = new Map();
let panels = [], route = null;

/** The address of a panel, or of an item in it. */
export function address(panel, thing) {
  return `#/${panel}${thing == null ? "" : `/${encodeURIComponent(thing)}`}`;
}

/** Makes a section and a link for each panel. */
export function build(all) {
  panels = all;
  const list = byId("contents");
  let group = null;
  for (const panel of panels) {
    if (panel.group && panel.group !== group) list.append(el("li", { class: "group", "aria-hidden": "true" }, panel.group));
    group = panel.group ?? group;
    const badge = el("span", { class: "badge", hidden: true }), link = el("a", { href: address(panel.id) }, el("span", {}, panel.title), badge);
    links.set(panel.id, { link, badge });
    list.append(el("li", { class: ON_PHONE.includes(panel.id) ? null : "more" }, link));
    const title = el("h2", { id: `${panel.id}-title` }, panel.title);
    byId("panels").append(el("section", { "aria-labelledby": title.id, id: `${panel.id}-panel`, hidden: true }, title));
  }
  byId("more").addEventListener("click", () => openMore(byId("more").getAttribute("aria-expanded") !== "true"));
  byId("skip").addEventListener("click", (event) => { event.preventDefault(); byId("panels").focus(); });
}

export function sectionOf(id) {
  return byId(`${id}-panel`);
}

/** Opens the panel of the address, now and after each change. Calls `opened(panel, thing)` each time. */
export function start(opened) {
  window.addEventListener("hashchange", () => go(opened));
  go(opened);
}

function openMore(open) {
  byId("more").setAttribute("aria-expanded", String(open));
  document.querySelector("nav").classList.toggle("open", open);
}

/** Opens the panel of the address, or the first panel if the address names none. */
function go(opened) {
  const [, id, thing] = location.hash.match(/^#\/([a-z]+)(?:\/(.*))?$/) ?? [];
  const panel = panels.find((one) => one.id === id) ?? panels[0];
  let name = null;
  try { name = thing ? decodeURIComponent(thing) : null; } catch { /* An address that was cut off names a panel only. */ }
  const before = route;
  route = panel.id;
  document.body.dataset.route = panel.id;
  for (const one of panels) {
    byId(`${one.id}-panel`).hidden = one !== panel;
    const { link } = links.get(one.id);
    if (one === panel) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  openMore(false);
  if (before && before !== panel.id) window.scrollTo(0, 0);
  opened(panel, name);
}

/** Goes to the panel that is `by` places further. */
export function step(by) {
  const at = panels.findIndex((one) => one.id === route);
  location.hash = address(panels[(at + by + panels.length) % panels.length].id);
}

/** Shows how many things in a panel need attention. The title says it in words, for users who cannot see where the number is. */
export function badge(id, count) {
  const { badge } = links.get(id);
  say(badge, count ? String(count) : "");
  badge.hidden = !count;
  badge.setAttribute("title", `${counted(count, "thing")} to look at`);
}

/** Marks the section of a panel whose data are stale. */
export function markStale(id, isStale) {
  byId(`${id}-panel`).classList.toggle("stale", isStale);
}

/** The verdict with its first reason, in the status bar, in the tab's title and in its icon. */
export function showVerdict({ outcome, reasons }, plant, isStale) {
  const { sign, icon: file } = OUTCOMES[outcome] ?? OUTCOMES.unknown, verdict = byId("verdict");
  const [first, ...more] = reasons;
  const why = first == null ? "" : `: ${first.words}${more.length ? ` (and ${more.length} more)` : ""}`;
  say(verdict, `${sign} ${outcome}${why}`);
  // The bar may truncate the text. The overview shows all reasons.
  verdict.title = reasons.map(({ words }) => words).join("\n");
  verdict.dataset.outcome = outcome;
  verdict.hidden = false;
  const state = isStale ? " STALE" : outcome === "good" ? "" : ` ${sign} ${outcome}`;
  document.title = `${plant}${state} – tahti`;
  const icon = byId("icon");
  if (icon.getAttribute("href") !== file) icon.setAttribute("href", file);
}

/** Updates the figures of the status bar. They change every second, so screen readers do not announce them. */
export function showPlant({ processes, phase, up_ns: upNs }) {
  const misses = processes.reduce((sum, one) => sum + (one.loop?.misses ?? 0), 0);
  const hasLoop = processes.some((one) => one.loop);
  fact("missed", hasLoop ? `${misses.toLocaleString("en")} missed` : "", "deadlines missed since the start of each loop");
  fact("uptime", upNs == null ? "" : `${phase} ${time(upNs)}`, "time since the plant was started");
}

export function showAlarms({ error, active }) {
  fact("alarm-count", error != null ? "" : counted(active, "alarm"), "alarms that are not acknowledged");
  byId("alarm-count").classList.toggle("bad", !error && active > 0);
}

/** The number of plants on this machine, if there are several, and how many of the others are not good. */
export function showPlants(plants, own) {
  const others = plants.filter((one) => !(one.is_own && one.name === own)), wrong = others.filter(({ outcome }) => outcome !== "good").length;
  fact("plants", others.length ? `${plants.length} plants${wrong ? `, ${wrong} not good` : ""}` : "", "plants of this machine; the overview lists them with their verdicts");
}

/** The verdict of a plant with its symbol. */
export function outcomeWords(outcome) {
  return `${(OUTCOMES[outcome] ?? OUTCOMES.unknown).sign} ${outcome}`;
}

export function showClock(seconds) {
  fact("clock", new Date(seconds * 1000).toLocaleTimeString("sv", { timeZoneName: "short" }), "the clock of the plant's machine");
}

function fact(id, text, title) {
  const element = byId(id);
  say(element, text);
  element.title = title;
  element.hidden = text === "";
}
