// Strip charts. All show the same time range: the latest seconds, live, with archived samples before them; or a past range from the archive.
import { download, el, say } from "./dom.js";

const POINTS = 500, POINTS_MAX = 4000;
const DRAW_MS = 100, QUIET_MS = 1000;
const SECONDS_LEAST = 0.01, SECONDS_MOST = 10 * 366 * 86400;
const SPANS = [[60, "1 min"], [600, "10 min"], [3600, "1 h"], [86400, "1 day"], [7 * 86400, "1 week"]];
const HEIGHT = 180;

let tahti, choice, standing, where;
let seconds = SPANS[0][0];
/** End of the time range, in seconds since 1970. Null: now. */
let until = null;
const strips = new Set();

const clock = (at, digits = 0) => {
  const day = new Date(at * 1000);
  return `${day.toLocaleDateString("sv")} ${day.toLocaleTimeString("sv")}${digits ? (at % 1).toFixed(digits).slice(1) : ""}`;
};
const digits = (number) => String(Number(number.toPrecision(6)));

/** Labels of the time axis: the time of day, with the date where a day begins. */
function dates(_, ticks, axis, space, step) {
  let day = null;
  return ticks.map((at) => {
    const [date, hour] = clock(at, step < 1 ? 1 : 0).split(" "), isNew = day !== null && day !== date;
    day = date;
    return step >= 86400 || isNew ? date.slice(5) : step >= 60 ? hour.slice(0, 5) : hour;
  });
}

/** The time range that is shown. */
function shown() {
  const to = until ?? tahti.now();
  return [to - seconds, to];
}

/** Shows another time range. A range that reaches the present is live. */
function show(length, to) {
  seconds = Math.min(Math.max(length, SECONDS_LEAST), SECONDS_MOST);
  until = to == null || to >= tahti.now() ? null : Math.max(to, seconds);
  choice.value = SPANS.some(([value]) => value === seconds) ? seconds : "";
  const [from, end] = shown(), fine = seconds < 10 ? 3 : 0;
  say(standing, until == null ? "live" : `${clock(from, fine)} to ${clock(end, fine)}`);
  strips.forEach((one) => { one.load(); one.draw(); });
}

/** Creates the controls. `box` is the parent of the charts. */
export function controls(given, box) {
  [tahti, where] = [given, box];
  choice = el("select", { id: "signal-span", change: () => choice.value && show(Number(choice.value), until) },
    ...SPANS.map(([value, text]) => el("option", { value }, text)), el("option", { value: "", hidden: true }, "as chosen"));
  standing = el("span", { id: "signal-time", role: "status" }, "live");
  const step = (text, label, act) => el("button", { type: "button", "aria-label": label, click: act }, text);
  const end = () => until ?? tahti.now();
  const around = (factor) => show(seconds * factor, until == null ? null : until + seconds * (factor - 1) / 2);
  setInterval(() => strips.forEach((one) => { if ((one.changed || one.isDue()) && !document.hidden) one.draw(); }), DRAW_MS);
  return el("div", { class: "row", role: "group", "aria-label": "Time that the charts show" }, el("label", { for: "signal-span" }, "Time"), choice,
    step("◀", "earlier", () => show(seconds, end() - seconds / 2)), step("▶", "later", () => show(seconds, end() + seconds / 2)),
    step("+", "closer", () => around(1 / 2)), step("−", "wider", () => around(2)), step("now", "live", () => show(seconds, null)), standing);
}

/** The chart of a signal. */
export class Strip {
  constructor(name) {
    this.name = name;
    this.units = "";
    /** Names of the states, if the signal has states. */
    this.labels = [];
    /** Alarm limits: name and value. */
    this.limits = [];
    /** Received samples: time, minimum, maximum, last value. */
    this.live = [[], [], [], []];
    /** Archived samples of a past range: time, minimum, maximum, mean, number of samples. Null if live. */
    this.past = null;
    this.gaps = [];
    /** Time since which this page receives samples. Earlier ones come from the archive. */
    this.since = tahti.now();
    this.loads = 0;
    this.about = el("p", { class: "faint" });
    const save = el("button", { type: "button", "aria-label": `save what the chart of ${name} shows`, click: () => this.save() }, "csv");
    this.plane = el("div");
    this.facts = el("dl", { class: "facts-list", hidden: true, "data-about": name });
    this.frame = el("div", { class: "card plot", tabindex: "0", role: "group", "aria-label": `Strip chart of ${name}; its value is in the table above` }, el("h3", { class: "name" }, name),
      this.plane, el("div", { class: "row" }, this.about, save), this.facts);
    strips.add(this);
    this.fits = new ResizeObserver(() => { if (this.plot && this.plot.width !== this.width()) this.plot.setSize({ width: this.width(), height: HEIGHT }); });
    this.fits.observe(this.frame);
    where.append(this.frame);
    this.load();
  }

  /** Sets the unit and the names of the states. New ones need a new chart, because its axis is made once. */
  measured(units, labels) {
    if (units === this.units && labels.join() === this.labels.join()) return;
    [this.units, this.labels] = [units, labels];
    this.plot?.destroy();
    this.plot = null;
    this.changed = true;
  }

  /** Whether a live chart without new samples must move on. */
  isDue() {
    return until == null && performance.now() - (this.drawn ?? 0) > QUIET_MS && this.frame.clientWidth > 0;
  }

  /** Sets the alarm limits, which are drawn as lines. */
  limited(limits) {
    this.limits = limits;
    this.changed = true;
  }

  remove() {
    strips.delete(this);
    this.fits.disconnect();
    this.plot?.destroy();
    this.frame.remove();
  }

  width() {
    return this.plane.clientWidth > 12 ? this.plane.clientWidth : 600;
  }

  /** Adds a row: time, minimum, maximum and last of the samples since the previous row. */
  push(...row) {
    // uPlot needs ascending times. If the clock was set back, new rows replace those with later times.
    while (this.live[0].length && this.live[0].at(-1) >= row[0]) this.live.forEach((column) => column.pop());
    row.forEach((value, index) => this.live[index].push(value));
    this.changed = true;
  }

  /** Interrupts the line, which must not cross a time without data. */
  cut() {
    if (this.live[0].length) this.push(tahti.now(), null, null, null);
  }

  /** Called after a reconnection. */
  again() {
    this.cut();
    this.since = tahti.now();
    this.load();
  }

  /** Requests the archived samples of the time range that this page did not receive. */
  async load() {
    const own = ++this.loads;
    if (until == null) this.past = null;
    try {
      const { points, gaps } = await tahti.ask({ do: "history", name: this.name, seconds, points: POINTS, ...(until == null ? {} : { until }) });
      if (own !== this.loads) return;
      this.gaps = gaps;
      const breaks = gaps.map(([at]) => [at, null, null, null, 0]);
      const all = [...points, ...breaks].sort((one, other) => one[0] - other[0]).filter(([at], index, list) => index === 0 || at > list[index - 1][0]);
      const columns = (rows, width) => Array.from({ length: width }, (_, column) => rows.map((row) => row[column]));
      if (until == null) {
        const came = this.live[0].map((_, row) => this.live.map((column) => column[row])).filter(([at], index, list) => at >= this.since || index === list.length - 1);
        const first = came[0]?.[0] ?? Infinity;
        this.live = columns([...all.filter(([at]) => at < first), ...came], 4);
      } else this.past = columns(all, 5);
    } catch {
      if (own !== this.loads) return;
      // No archive, or it does not have the signal. Only samples that this page received are shown.
      this.gaps = [];
    }
    this.changed = true;
  }

  draw() {
    this.changed = false;
    this.drawn = performance.now();
    const [from] = shown();
    let old = 0;
    // The last sample before the range stays: its value holds until the next one.
    while (old < this.live[0].length && ((until == null && this.live[0][old + 1] < from) || this.live[0].length - old > POINTS_MAX)) old++;
    if (old) this.live = this.live.map((column) => column.slice(old));
    const data = (this.past ?? this.held()).slice(0, 4);
    if (!this.plot) this.plot = this.made(data);
    else this.plot.setData(data);
    say(this.about, this.words());
  }

  /** The live samples, the last value held until now. */
  held() {
    const now = tahti.now(), last = this.live.map((column) => column.at(-1));
    return last[1] != null && last[0] < now ? this.live.map((column, at) => [...column, at ? last[3] : now]) : this.live;
  }

  made(data) {
    const style = getComputedStyle(document.body), font = "12px system-ui, sans-serif";
    const axis = { stroke: style.getPropertyValue("--faint"), grid: { stroke: style.getPropertyValue("--grid"), width: 1 }, ticks: { show: false }, font, labelFont: font };
    const bar = style.getPropertyValue("--bar"), steps = uPlot.paths.stepped({ align: 1 }), labels = this.labels;
    const states = labels.length ? { values: (_, ticks) => ticks.map((at) => labels[at] ?? ""), incrs: [1] } : {};
    return new uPlot({
      width: this.width(), height: HEIGHT, legend: { show: true }, axes: [{ ...axis, values: dates, size: 30, space: 80 }, { ...axis, label: this.units || undefined, size: 64, ...states }],
      series: [{ value: (_, at) => (at == null ? "–" : clock(at, 1)) }, { label: "minimum", stroke: bar, width: 0 }, { label: "maximum", stroke: bar, width: 0 },
        { label: "value", stroke: bar, width: 1.5, paths: steps, value: (_, value) => (value == null ? "–" : labels[value] ?? digits(value)) }],
      bands: [{ series: [2, 1], fill: `${bar}55` }],
      scales: { x: { time: true, range: shown } },
      cursor: { drag: { x: true, y: false, setScale: false }, sync: { key: "signals" } },
      hooks: { draw: [(plot) => this.drawLimits(plot)], setSelect: [(plot) => {
        const { left, width } = plot.select, [from, to] = [left, left + width].map((at) => plot.posToVal(at, "x"));
        plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        if (width > 2) show(to - from, to);
      }] },
    }, data, this.plane);
  }

  /** Draws each alarm limit within the range of the values as a dashed line with its name. */
  drawLimits({ ctx: pen, bbox, scales, valToPos }) {
    const ratio = window.devicePixelRatio || 1, { min, max } = scales.y;
    pen.save();
    pen.strokeStyle = pen.fillStyle = getComputedStyle(document.body).getPropertyValue("--faint");
    pen.font = `${11 * ratio}px system-ui, sans-serif`;
    pen.textAlign = "right";
    pen.lineWidth = ratio;
    pen.setLineDash([6 * ratio, 4 * ratio]);
    for (const [name, value] of this.limits.filter(([, value]) => value > min && value < max)) {
      const y = valToPos(value, "y", true);
      pen.beginPath();
      pen.moveTo(bbox.left, y);
      pen.lineTo(bbox.left + bbox.width, y);
      pen.stroke();
      pen.fillText(`${name} ${digits(value)}`, bbox.left + bbox.width - 4 * ratio, y - 4 * ratio);
    }
    pen.restore();
  }

  /** The rows within the time range. */
  rows() {
    const [from, to] = shown(), data = this.past ?? this.live;
    return data[0].map((_, row) => data.map((column) => column[row])).filter(([at, least]) => at >= from && at <= to && least != null);
  }

  words() {
    const rows = this.rows(), unit = this.units ? ` ${this.units}` : "";
    const gaps = this.past && this.gaps.length ? `; gaps: ${[...new Set(this.gaps.map(([, cause, lost]) => (lost ? `${cause} (${lost} lost)` : cause)))].join(", ")}` : "";
    const [at, , , value] = this.past ? [] : this.live.map((column) => column.at(-1));
    if (!rows.length && value != null) return `${this.labels[value] ?? `${digits(value)}${unit}`} since ${clock(at)}${gaps}`;
    if (!rows.length) return `nothing in this time${gaps}`;
    const least = rows.reduce((least, row) => Math.min(least, row[1]), Infinity), most = rows.reduce((most, row) => Math.max(most, row[2]), -Infinity);
    const samples = this.past ? rows.reduce((sum, row) => sum + row[4], 0) : 0;
    const mean = samples ? `, mean ${digits(rows.reduce((sum, row) => sum + row[3] * row[4], 0) / samples)}${unit} of ${samples} samples` : "";
    return `minimum ${digits(least)}${unit}, maximum ${digits(most)}${unit}${mean}${gaps}`;
  }

  save() {
    const heads = ["time", "least", "most", ...(this.past ? ["mean", "samples"] : ["last"])];
    const lines = this.rows().map(([at, ...rest]) => [new Date(at * 1000).toISOString(), ...rest].join(","));
    download(`${this.name.replace(/[^\w.-]/g, "_")}.csv`, [[heads.join(","), ...lines, ""].join("\n")]);
  }
}
