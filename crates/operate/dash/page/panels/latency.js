// Histograms of each loop's wake-up latency, and the last late wake-ups with their causes.
import { el, say, table, time, tr } from "../dom.js";
import { causeLegend, heatMap, stack } from "../draw.js";
import { figures } from "../figures.js";

const HEADS = ["loop", { text: "cycles", number: true }, { text: "period", number: true }, { text: "p50", number: true },
  { text: "p99", number: true }, { text: "p99.9", number: true }, { text: "max", number: true }, { text: "missed", number: true }];
const LATE = ["when", "thread", { text: "CPU", number: true }, { text: "late by", number: true }, "because of", "to scale"];

let loops, drawings, late, lateWords, legend;
const canvases = new Map();
/** Period of each loop, in nanoseconds. */
const periods = new Map();

function known(figure) {
  return figure == null ? "beyond the histogram" : time(figure);
}

/** Draws bars over logarithmic axes of counts and of time. */
function draw(canvas, buckets) {
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
  context.font = "11px system-ui";
  for (let tick = 10 ** Math.ceil(Math.log10(first)); tick <= last; tick *= 10) {
    context.fillRect(at(tick), height - 18, 1, 4);
    context.fillText(time(tick), Math.min(at(tick) + 2, width - 40), height - 4);
  }
}

function drawing(name) {
  if (!canvases.has(name)) {
    const canvas = el("canvas", { role: "img", height: "120" });
    canvas.style.width = "100%";
    canvas.style.height = "120px";
    const heat = heatMap(name);
    const frame = el("div", { "data-loop": name }, el("h3", {}, `Wake-up latency of ${name}, last minutes`), heat.whole,
      el("h3", {}, `Wake-up latency of ${name} since its start (both axes logarithmic)`), canvas);
    canvases.set(name, { canvas, frame, heat });
    drawings.append(frame);
  }
  return canvases.get(name);
}

export default {
  id: "latency",
  title: "Latency",
  topics: ["plant", "histograms", "late"],
  build(section) {
    loops = table("Wake-up latency of the loops", HEADS);
    drawings = el("div");
    lateWords = el("p");
    legend = causeLegend();
    late = table("The last late wake-ups", LATE);
    section.append(loops.frame, drawings, el("h3", {}, "Last late wake-ups"), lateWords, late.frame, legend);
  },
  show(topic, data) {
    if (topic === "plant") {
      for (const { name, loop } of data.processes) if (loop) periods.set(name, loop.period_ns);
      loops.fill(data.processes.filter((one) => one.loop).map(({ name, loop }) => tr([
        name, String(loop.cycles), time(loop.period_ns), known(loop.wake.p50), known(loop.wake.p99), known(loop.wake.p999), known(loop.wake.max), String(loop.misses),
      ], HEADS)));
    } else if (topic === "histograms") {
      for (const [name, { frame }] of canvases) if (!data.some((one) => one.name === name)) { frame.remove(); canvases.delete(name); periods.delete(name); }
      for (const { name, buckets } of data) {
        const { canvas, heat } = drawing(name);
        heat.draw(figures.loops.get(name), periods.get(name));
        draw(canvas, buckets);
        const count = buckets.reduce((sum, [, , many]) => sum + many, 0);
        canvas.setAttribute("aria-label", `Histogram of ${count} wake-ups of ${name}; the table above has its figures`);
      }
    } else if (data.error) {
      say(lateWords, data.error);
      legend.hidden = late.frame.hidden = true;
      late.fill([]);
    } else {
      legend.hidden = late.frame.hidden = false;
      say(lateWords, `${data.late} of ${data.wakeups} wake-ups were later than ${time(data.above_ns)}; ${data.unexplained_percent.toFixed(1)} % of that delay is not explained`);
      late.fill(data.last.map((one) => tr([
        `${time(data.now_ns - one.at_ns)} ago`, `${one.name} (${one.tid})`, String(one.cpu), time(one.delay_ns),
        el("td", { class: "wide" }, one.parts.map(([who, ns]) => `${who} ${time(ns)}`).join(", ")), stack(one.parts),
      ], LATE)));
    }
  },
};
