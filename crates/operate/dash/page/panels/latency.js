// Wake-up latency: a heat map, percentiles and a histogram of each loop, and the late wake-ups with their causes. A click on a cell of the heat map
// selects the late wake-ups of that second; the address has the cell (`#/latency/loop/SECOND/ROW`).
import { el, say, table, time, tr } from "../dom.js";
import { causeLegend, cellWords, heatMap, sparkline, stack } from "../draw.js";
import { edge, figure, late, loops as wakeups, rowOf } from "../figures.js";
import { address } from "../frame.js";
import { comparison, lateByCause } from "../latency/compare.js";

const HEADS = ["loop", { text: "cycles", number: true }, { text: "period", number: true }, { text: "p50", number: true },
  { text: "p99", number: true }, { text: "p99.9", number: true }, { text: "max", number: true }, { text: "missed", number: true }];
const LATE = ["when", "thread", { text: "CPU", number: true }, { text: "late by", number: true }, "because of", "to scale"];
/** Late wake-ups that are listed without a selection, and a difference of the clocks of loop and recorder in seconds. */
const SHOWN_MAX = 20, NEAR = 1;

let tahti, loops, drawings, lateList, lateTitle, lateWords, all, legend, byCause;
const shown = new Map();
/** Period of each loop, in nanoseconds. */
const periods = new Map();
/** The selected cell: loop, second, row; null without one. */
let chosen = null;

function known(figure) {
  return figure == null ? "beyond the histogram" : time(figure);
}

/** Draws bars over logarithmic axes of counts and of time. */
function drawHistogram(canvas, buckets) {
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = 120;
  if (!width) return;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const style = getComputedStyle(document.body);
  if (!buckets.length) return;
  const first = Math.max(Math.min(...buckets.map(([from]) => from)), 100), last = Math.max(...buckets.map(([, to]) => to), first * 10);
  const at = (ns) => (width - 2) * Math.log(Math.max(ns, first) / first) / Math.log(last / first);
  const most = Math.max(...buckets.map(([, , count]) => count));
  context.fillStyle = style.getPropertyValue("--bar");
  for (const [from, to, count] of buckets) {
    const tall = (height - 20) * (Math.log10(count) + 0.5) / (Math.log10(most) + 0.5);
    context.fillRect(at(from), height - 18 - tall, Math.max(at(to) - at(from) - 0.5, 1), tall);
  }
  context.fillStyle = style.getPropertyValue("--text");
  context.font = "12px system-ui";
  for (let tick = 10 ** Math.ceil(Math.log10(first)); tick <= last; tick *= 10) {
    context.fillRect(at(tick), height - 18, 1, 4);
    context.fillText(time(tick), Math.min(at(tick) + 2, width - 40), height - 4);
  }
}

function select(name, second, row) {
  location.hash = address("latency", `${name}/${second}/${row}`);
}

function drawing(name) {
  if (!shown.has(name)) {
    const canvas = el("canvas", { role: "img", height: "120", class: "histogram" }), compared = comparison(name, () => wakeups.get(name), () => drawLoop(name)),
      heat = heatMap(name, (second, row) => select(name, second, row), (from, to) => compared.add(from, to));
    const trends = { p99: sparkline(`99 % of wake-ups of ${name} are earlier than`, time), missed: sparkline(`Deadlines missed by ${name} in a second`) };
    const spans = { p99: el("span"), missed: el("span") };
    const trend = (key, title) => el("div", { class: "card" }, el("h3", {}, title, " ", spans[key]), trends[key].whole);
    const frame = el("div", { "data-loop": name, class: "cards" },
      el("div", { class: "card full" }, el("h3", {}, `Wake-up latency of ${name} over time`), heat.whole),
      trend("p99", "p99 over time"), trend("missed", "Missed deadlines"),
      el("div", { class: "card" }, el("h3", {}, "Since its start, both axes logarithmic"), canvas), compared.whole);
    shown.set(name, { canvas, frame, heat, trends, spans, compared });
    drawings.append(frame);
  }
  return shown.get(name);
}

function drawLoop(name) {
  const { heat, trends, spans, compared } = shown.get(name);
  heat.draw(wakeups.get(name), periods.get(name), chosen?.name === name ? chosen : null, compared.spans());
  compared.draw();
  for (const [key, { draw, span }] of Object.entries(trends)) {
    const history = figure(`process/${name}/${key}`);
    draw(history, { to: key === "missed" ? 1 : 0 });
    if (history.second != null) say(spans[key], span(history));
  }
}

/** Whether a late wake-up belongs to the selected cell. Loop and recorder count it in the same or in neighbouring seconds. */
function isChosen({ second, delay_ns: delay }) {
  return Math.abs(second - chosen.second) <= NEAR && Math.abs(rowOf(delay) - chosen.row) <= 1;
}

function showLate() {
  byCause.draw();
  const recorder = tahti.newest("late");
  if (!recorder) return;
  legend.hidden = lateList.frame.hidden = recorder.error != null;
  all.hidden = chosen == null;
  say(lateTitle, chosen ? `Late wake-ups of ${chosen.name} at ${cellWords(wakeups.get(chosen.name), chosen)}` : "Last late wake-ups");
  if (recorder.error != null) return say(lateWords, recorder.error);
  const found = chosen ? late.filter(isChosen) : late.slice(-SHOWN_MAX);
  const isBelow = chosen && edge(chosen.row + 1) <= recorder.above_ns;
  say(lateWords, !chosen ? recorder.shortfall ?? `${recorder.late} of ${recorder.wakeups} wake-ups were later than ${time(recorder.above_ns)}; ${recorder.unexplained_percent.toFixed(1)} % of that delay is not explained`
    : found.length ? "" : isBelow ? `The recorder explains wake-ups later than ${time(recorder.above_ns)}: \`above\` in [recorder]` : "The recorder has no late wake-up here");
  const now = tahti.now();
  lateList.fill(found.toReversed().map((one) => tr([
    el("a", { href: address("latency", `${chosen?.name ?? [...shown.keys()][0] ?? one.name}/${one.second}/${rowOf(one.delay_ns)}`) }, `${time(Math.max(0, now - one.second) * 1e9)} ago`),
    `${one.name} (${one.tid})`, String(one.cpu), time(one.delay_ns),
    el("td", { class: "wide" }, one.parts.map(([who, ns]) => `${who} ${time(ns)}`).join(", ")), stack(one.parts),
  ], LATE, { "data-key": `${one.tid} ${one.at_ns}` })));
}

export default {
  id: "latency",
  title: "Latency",
  topics: ["plant", "histograms", "late"],
  build(section, given) {
    tahti = given;
    loops = table("Wake-up latency of the loops", HEADS);
    drawings = el("div");
    lateTitle = el("h3");
    lateWords = el("p", { role: "status" });
    all = el("a", { href: address("latency"), hidden: true }, "show the last late wake-ups of all threads");
    legend = causeLegend();
    lateList = table("The last late wake-ups", LATE);
    lateList.frame.classList.add("as-cards");
    byCause = lateByCause();
    section.append(drawings, byCause.whole, el("div", { class: "card full", id: "late" }, lateTitle, lateWords, lateList.frame, legend, all),
      el("div", { class: "card full" }, el("h3", {}, "Loops since their start"), loops.frame));
  },
  show(topic, data) {
    if (topic === "plant") {
      for (const { name, loop } of data.processes) if (loop) periods.set(name, loop.period_ns);
      loops.fill(data.processes.filter((one) => one.loop).map(({ name, loop }) => tr([
        name, String(loop.cycles), time(loop.period_ns), known(loop.wake.p50), known(loop.wake.p99), known(loop.wake.p999), known(loop.wake.max), String(loop.misses),
      ], HEADS)));
    } else if (topic === "histograms") {
      for (const [name, { frame }] of shown) if (!data.some((one) => one.name === name)) { frame.remove(); shown.delete(name); periods.delete(name); }
      for (const { name, buckets } of data) {
        const { canvas } = drawing(name);
        drawLoop(name);
        drawHistogram(canvas, buckets);
        const count = buckets.reduce((sum, [, , many]) => sum + many, 0);
        canvas.setAttribute("aria-label", `Histogram of ${count} wake-ups of ${name}; the table below has its figures`);
      }
    } else showLate();
  },
  close() {
    chosen = null;
    for (const loop of shown.keys()) drawLoop(loop);
    showLate();
  },
  /** `thing` is the name of a loop, or a cell of its heat map. */
  open(thing) {
    const [, name, second, row] = thing.match(/^([^/]+)(?:\/(\d{1,12})\/(\d{1,2}))?$/) ?? [];
    chosen = second == null ? null : { name, second: Number(second), row: Number(row) };
    for (const loop of shown.keys()) drawLoop(loop);
    showLate();
    if (chosen) document.getElementById("late").scrollIntoView({ block: "nearest" });
    else if (name) shown.get(name)?.frame.scrollIntoView({ block: "nearest" });
  },
};
