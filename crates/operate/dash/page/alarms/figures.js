// Figures of the alarm system for the last day by ISA-18.2, each with its good range and its limit.
import { counted, el, renew, say, table, time, tr } from "../dom.js";
import { svg } from "../draw.js";

const HEADS = ["figure", { text: "last 24 h", number: true }, "good, tolerable, beyond", "good"];
/** Fewer alarms than this give no meaningful shares. */
const SHARES_MIN = 20;
/** Alarms were evaluated for at least this long, or there is no meaningful rate. */
export const RATE_MIN_SECS = 3600;
const WIDTH = 120, HEIGHT = 14;
const LISTED_MAX = 5;

/** A value on its scale: the good range, the range up to the limit, and what is beyond. */
function band(value, good, limit) {
  const most = Math.max(1.4 * limit, value) || 1, x = (at) => (WIDTH * at) / most, part = (from, to, kind) => svg("rect", { x: x(from), y: 3, width: Math.max(0, x(to) - x(from)), height: 8, class: kind });
  const place = Math.min(WIDTH - 3, x(value));
  return svg("svg", { class: "band", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, "aria-hidden": "true" },
    part(0, good, "band-good"), part(good, limit, "band-fair"), part(limit, most, "band-beyond"), svg("rect", { x: place, y: 0, width: 3, height: HEIGHT, class: "band-mark" }));
}

const percent = (share) => `${Number(share.toPrecision(2))} %`;

/** Rows: name, text, value, end of the good range, limit, unit of both. */
function rows(figures) {
  const { alarms, by_severity: by, top } = figures;
  const share = (severity) => (100 * (by[severity] ?? 0)) / alarms, first = top.slice(0, 10).reduce((sum, one) => sum + one.percent, 0);
  const enough = alarms >= SHARES_MIN;
  return [
    ...(figures.evaluated_secs >= RATE_MIN_SECS ? [["alarms an hour", Number(figures.per_hour.toPrecision(2)).toString(), figures.per_hour, 6, 12, ""]] : []),
    ["most in ten minutes", String(figures.ten_minutes_max), figures.ten_minutes_max, 2, 10, ""],
    ["time in floods", percent(figures.flooded_percent), figures.flooded_percent, 1, 1, " %"],
    ["chattering alarms", String(figures.chattering.length), figures.chattering.length, 0, 0, ""],
    ["active for more than a day", String(figures.stale.length), figures.stale.length, 0, 5, ""],
    ...(enough ? [["the ten most frequent", percent(first), first, 5, 20, " %"], ["MAJOR or worse", percent(100 - share("MINOR")), 100 - share("MINOR"), 20, 40, " %"]] : []),
  ];
}

function judged(value, good, limit) {
  if (value <= good) return ["", ""];
  return value <= limit ? ["▲ ", "doubt"] : ["◆ ", "bad"];
}

/** The card with the figures, and the alarms that cause them. `show(figures)` fills it, `fail(why)` says why there are none. */
export function alarmFigures() {
  const words = el("p", { class: "faint" }, "computed while this page is open"), list = table("Figures of the alarm system by ISA-18.2", HEADS), causes = el("div", { class: "causes" });
  const whole = el("div", { class: "card full" }, el("h3", {}, "Alarm system, last 24 h (ISA-18.2)"), words, el("div", { class: "halves" }, list.frame, causes));
  list.frame.hidden = true;
  const part = (title, lines) => (lines.length ? [el("div", {}, el("h4", {}, title), el("ul", {}, ...lines.slice(0, LISTED_MAX).map((line) => el("li", {}, ...line))))] : []);
  const show = (figures) => {
    const after = figures.acknowledged_after_secs == null ? "" : `, half of them within ${time(figures.acknowledged_after_secs * 1e9)}`;
    say(words, `${counted(figures.alarms, "alarm")} while alarms were evaluated (${time(figures.evaluated_secs * 1e9)}); ${figures.acknowledged} acknowledged${after}${figures.alarms < SHARES_MIN ? "; too few for shares" : ""}${figures.evaluated_secs < RATE_MIN_SECS ? "; too short for a rate" : ""}`);
    list.fill(rows(figures).map(([name, text, value, good, limit, unit]) => {
      const [sign, kind] = judged(value, good, limit), target = good === limit ? `up to ${good}${unit}` : `up to ${good}${unit}, limit ${limit}${unit}`;
      return tr([name, el("span", { class: kind }, `${sign}${text}`), el("span", {}, band(value, good, limit)), target], HEADS, { "data-figure": name });
    }));
    list.frame.hidden = false;
    const code = (text) => el("code", {}, text);
    renew(causes, [
      ...part("Most frequent", figures.top.map((one) => [`${one.count} × `, el("b", {}, one.path), ` (${percent(one.percent)})`])),
      ...part("Chattering", figures.chattering.map((one) => [el("b", {}, one.path), ` ${one.per_minute} times in a minute; `, code(`off_delay = "${one.off_delay}"`), " would make one of them"])),
      ...part("Active for more than a day", figures.stale.map((one) => [`${one.severity} `, el("b", {}, one.path)])),
    ]);
  };
  return { whole, show, fail: (why) => { list.frame.hidden = true; renew(causes, []); say(words, why); } };
}
