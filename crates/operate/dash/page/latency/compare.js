// Late time by cause, and two time ranges of a loop beside each other.
import { counted, el, renew, say, table, time } from "../dom.js";
import { causeKind, CAUSES } from "../draw.js";
import { edge, KEPT, late, ROWS } from "../figures.js";

const HEADS = ["figure", { text: "A", number: true }, { text: "B", number: true }];
const NAMED_MAX = 5;

/** Sums the delays of late wake-ups by the kind of their causes, and by cause. */
function sums(wakeups) {
  const kinds = new Map(CAUSES.map((kind) => [kind, 0])), causes = new Map();
  for (const [who, ns] of wakeups.flatMap(({ parts }) => parts)) {
    kinds.set(causeKind(who), kinds.get(causeKind(who)) + ns);
    causes.set(who, (causes.get(who) ?? 0) + ns);
  }
  return { kinds, causes, total: [...kinds.values()].reduce((sum, ns) => sum + ns, 0) };
}

const share = (ns, total) => `${((100 * ns) / (total || 1)).toFixed(ns && ns < total / 10 ? 1 : 0)} %`;

/** The card with the late time of the last 15 minutes by cause. `draw()` updates it. */
export function lateByCause() {
  const words = el("p", { class: "faint" }), list = el("ul", { class: "by-cause" }), named = el("ul", { class: "sources", tabindex: "0", "aria-label": "Largest causes" });
  const whole = el("div", { class: "card full", id: "by-cause", hidden: true }, el("h3", {}, "Late time by cause, last 15 min"), words, el("div", { class: "halves" }, list, named));
  const draw = () => {
    whole.hidden = !late.length;
    if (!late.length) return;
    const { kinds, causes, total } = sums(late), most = Math.max(...kinds.values());
    say(words, `${counted(late.length, "late wake-up")} of all threads, late by ${time(total)} together. At most 1,000 are kept.`);
    renew(list, [...kinds].filter(([, ns]) => ns).sort(([, one], [, other]) => other - one).map(([kind, ns]) => {
      const bar = el("span", { class: `cause-${CAUSES.indexOf(kind)}` });
      bar.style.width = `${(100 * ns) / most}%`;
      return el("li", { "data-cause": kind }, el("span", {}, kind), el("span", { class: "track" }, bar), el("b", {}, time(ns)), el("span", { class: "faint" }, share(ns, total)));
    }));
    renew(named, [...causes].sort(([, one], [, other]) => other - one).slice(0, NAMED_MAX).map(([who, ns]) => el("li", {}, who, " ", el("b", {}, time(ns)))));
  };
  return { whole, draw };
}

/** Counts of each row in a range of seconds, and the longest wake-up. */
function counts(wakeups, [from, to]) {
  const rows = new Array(ROWS).fill(0);
  let worst = 0;
  for (let second = Math.max(from, wakeups.first + 1, wakeups.second - KEPT + 1); second <= Math.min(to, wakeups.second); second++) {
    const slot = second % KEPT;
    for (let row = 0; row < ROWS; row++) rows[row] += wakeups.cells[slot * ROWS + row];
    worst = Math.max(worst, wakeups.worst[slot]);
  }
  return { rows, worst, all: rows.reduce((sum, count) => sum + count, 0) };
}

/** The upper edge of the row with a percentile: the heat map has six rows per decade. */
function percentile({ rows, worst, all }, part) {
  let sum = 0;
  const row = rows.findIndex((count) => (sum += count) >= part * all);
  return all ? `≤ ${time(row === ROWS - 1 ? worst : Math.min(worst || Infinity, edge(row + 1)))}` : "–";
}

function clock(second) {
  return new Date(second * 1000).toLocaleTimeString("sv");
}

/** The card that compares two ranges of a loop. `add(from, to)` takes a range: the first is A, the second B. `changed()` is called after each change. */
export function comparison(name, wakeupsOf, changed) {
  const list = table(`Two time ranges of ${name}`, HEADS), words = el("p", { role: "status" });
  let spans = [];
  const set = (next) => {
    spans = next;
    draw();
    changed();
  };
  const minutes = () => {
    const { second } = wakeupsOf() ?? {};
    if (second != null) set([[second - 119, second - 60], [second - 59, second]]);
  };
  const clear = el("button", { type: "button", click: () => set([]) }, "clear");
  const whole = el("div", { class: "card full", "data-compare": name }, el("h3", {}, "Two time ranges"),
    el("div", { class: "row" }, words, el("button", { type: "button", click: minutes }, "compare the last two minutes"), clear), list.frame);
  const draw = () => {
    const wakeups = wakeupsOf();
    clear.hidden = !spans.length;
    list.frame.hidden = spans.length < 2 || wakeups?.second == null;
    say(words, spans.length === 0 ? "Drag over the heat map to select range A, and again for range B." : spans.length === 1 ? "Drag over the heat map to select range B." : spans.map(([from, to], at) => `${"AB"[at]}: ${clock(from)} to ${clock(to)}`).join("; "));
    if (list.frame.hidden) return;
    const each = spans.map((span) => counts(wakeups, span)), causes = spans.map(([from, to]) => sums(late.filter(({ second }) => second >= from && second <= to)));
    const parts = [["p50", 0.5], ["p99", 0.99], ["p99.9", 0.999]].map(([key, part]) => [key, ...each.map((one) => percentile(one, part))]);
    const kinds = CAUSES.filter((kind) => causes.some((one) => one.kinds.get(kind))).map((kind) => [`late by ${kind}`, ...causes.map(({ kinds: all, total }) => `${time(all.get(kind))}, ${share(all.get(kind), total)}`)]);
    list.fill([["wake-ups", ...each.map(({ all }) => all.toLocaleString("en"))], ...parts, ["maximum", ...each.map(({ worst }) => (worst ? time(worst) : "–"))], ...kinds]);
  };
  draw();
  return { whole, draw, add: (from, to) => set([...(spans.length > 1 ? [] : spans), [from, to]]), spans: () => spans };
}
