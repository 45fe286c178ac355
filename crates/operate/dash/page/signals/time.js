// The time range that all charts of signals show: the latest seconds, live, with archived samples before them; or a past range from the archive.
import { el, say } from "../dom.js";

const DRAW_MS = 100;
const SECONDS_LEAST = 0.01, SECONDS_MOST = 10 * 366 * 86400;
const SPANS = [[60, "1 min"], [600, "10 min"], [3600, "1 h"], [86400, "1 day"], [7 * 86400, "1 week"]];

/** The interface of main.js. */
export let tahti;
let choice, standing;
export let seconds = SPANS[0][0];
/** End of the time range, in seconds since 1970. Null: now. */
export let until = null;
/** Signals whose samples are loaded again for another time range. */
export const traces = new Set();
export const charts = new Set();

export const clock = (at, digits = 0) => {
  const day = new Date(at * 1000);
  return `${day.toLocaleDateString("sv")} ${day.toLocaleTimeString("sv")}${digits ? (at % 1).toFixed(digits).slice(1) : ""}`;
};

/** Labels of the time axis: the time of day, with the date where a day begins. */
export function dates(_, ticks, axis, space, step) {
  let day = null;
  return ticks.map((at) => {
    const [date, hour] = clock(at, step < 1 ? 1 : 0).split(" "), isNew = day !== null && day !== date;
    day = date;
    return step >= 86400 || isNew ? date.slice(5) : step >= 60 ? hour.slice(0, 5) : hour;
  });
}

/** The time range that is shown. */
export function shown() {
  const to = until ?? tahti.now();
  return [to - seconds, to];
}

/** Shows another time range. A range that reaches the present is live. */
export function show(length, to) {
  seconds = Math.min(Math.max(length, SECONDS_LEAST), SECONDS_MOST);
  until = to == null || to >= tahti.now() ? null : Math.max(to, seconds);
  choice.value = SPANS.some(([value]) => value === seconds) ? seconds : "";
  const [from, end] = shown(), fine = seconds < 10 ? 3 : 0;
  say(standing, until == null ? "live" : `${clock(from, fine)} to ${clock(end, fine)}`);
  traces.forEach((one) => one.load());
  charts.forEach((one) => one.draw());
}

/** Creates the controls. */
export function controls(given) {
  tahti = given;
  choice = el("select", { id: "signal-span", change: () => choice.value && show(Number(choice.value), until) },
    ...SPANS.map(([value, text]) => el("option", { value }, text)), el("option", { value: "", hidden: true }, "as chosen"));
  standing = el("span", { id: "signal-time", role: "status" }, "live");
  const step = (text, label, act) => el("button", { type: "button", "aria-label": label, click: act }, text);
  const end = () => until ?? tahti.now();
  const around = (factor) => show(seconds * factor, until == null ? null : until + seconds * (factor - 1) / 2);
  setInterval(() => charts.forEach((one) => { if (one.isDue() && !document.hidden) one.draw(); }), DRAW_MS);
  return el("div", { class: "row", role: "group", "aria-label": "Time that the charts show" }, el("label", { for: "signal-span" }, "Time"), choice,
    step("◀", "earlier", () => show(seconds, end() - seconds / 2)), step("▶", "later", () => show(seconds, end() + seconds / 2)),
    step("+", "closer", () => around(1 / 2)), step("−", "wider", () => around(2)), step("now", "live", () => show(seconds, null)), standing);
}
