// A chart of one or more signals over time. Each unit has a scale, and the first two have an axis. Signals with states have a lane below. The chart of an
// array shows its elements.
import { download, el, renew, say } from "../dom.js";
import { charts, clock, dates, show, shown, tahti, until } from "./time.js";
import { digits } from "./trace.js";

const QUIET_MS = 1000;
/** Heights in pixels: a chart of one signal, one of several, the lane of a signal with states, the marks of alarms, the time axis, the space above. */
const HEIGHT = 180, HEIGHT_COMMON = 280, LANE = 34, MARK = 24, AXIS = 30, TOP = 8;
/** Charts below this width have less space for numbers. */
const NARROW = 500;
const AXES_MAX = 2;
const COLOURS = 6;
/** Symbol and class of each severity. */
const SIGNS = [["○", ""], ["▲", "doubt"], ["◆", "bad"], ["■", "bad"]];
/** Transitions that a mark names, if there are several at one place. */
const NAMED_MAX = 4;

const letter = (at) => String.fromCharCode(65 + (at % 26));
const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

export class Chart {
  /** `title` is the name of a signal, or of a chart of several ones, which has the whole width. */
  constructor(title, isCommon = false) {
    [this.title, this.isCommon] = [title, isCommon];
    this.traces = [];
    this.about = el(isCommon ? "ul" : "p", { class: isCommon ? "legend-list" : "faint" });
    this.plane = el("div");
    const save = el("button", { type: "button", "aria-label": `save what the ${isCommon ? "common chart" : `chart of ${title}`} shows`, click: () => this.save() }, "csv");
    this.frame = el("div", { class: `card plot${isCommon ? " full" : ""}`, tabindex: "0", role: "group", hidden: true }, el("h3", { class: "name" }, title), this.plane, el("div", { class: "row" }, this.about, save));
    charts.add(this);
    this.fits = new ResizeObserver(() => { if (this.plot && this.plot.width !== this.width()) this.plot.setSize({ width: this.width(), height: this.plot.height }); });
    this.fits.observe(this.frame);
  }

  /** Shows these signals. The chart is hidden without signals. */
  take(traces) {
    if (traces.length === this.traces.length && traces.every((one, at) => one === this.traces[at])) return;
    this.traces = traces;
    this.frame.hidden = !traces.length;
    this.frame.setAttribute("aria-label", `Strip chart of ${traces.map(({ name }) => name).join(", ")}; ${traces.length > 1 ? "their values are" : "its value is"} in the table above`);
    traces.forEach((one) => { one.isChanged = true; });
    this.plot?.destroy();
    this.plot = this.shape = null;
  }

  remove() {
    charts.delete(this);
    this.fits.disconnect();
    this.plot?.destroy();
    this.frame.remove();
  }

  width() {
    return this.plane.clientWidth > 12 ? this.plane.clientWidth : 600;
  }

  /** Whether there are new samples, or a live chart without new ones must move on. */
  isDue() {
    return this.traces.some((one) => one.isChanged) || (until == null && performance.now() - (this.drawn ?? 0) > QUIET_MS && this.frame.clientWidth > 0);
  }

  draw() {
    if (!this.traces.length) return;
    this.drawn = performance.now();
    const now = tahti.now(), { elements } = this.traces[0];
    this.columns = this.traces.map((one) => one.columns(now));
    this.traces.forEach((one) => { one.isChanged = false; });
    const rows = tahti.newest("alarms")?.rows, [from, to] = shown();
    this.marks = elements ? [] : this.traces.flatMap((one) => one.transitions(rows)).filter(({ at }) => at >= from && at <= to).sort((one, other) => one.at - other.at);
    const data = elements ? [elements.map((_, at) => at + 1), elements] : uPlot.join(this.columns);
    // The scales, axes and lanes of a plot are made once.
    const shape = JSON.stringify([elements != null, this.traces.map(({ name, units, labels }) => [name, units, labels])]);
    if (shape !== this.shape) {
      this.plot?.destroy();
      this.plot = elements ? this.ofElements(data) : this.ofTime(data);
      this.shape = shape;
    } else this.plot.setData(data);
    this.tell();
  }

  /** The legend of several signals; of one signal, its figures. */
  tell() {
    if (!this.isCommon) return say(this.about, this.traces[0].words());
    const lines = this.traces.map((one, at) => {
      const sign = el("b", { class: "letter" }, letter(at));
      sign.style.borderColor = `var(--cause-${at % COLOURS})`;
      return el("li", {}, sign, " ", el("b", {}, one.name), ` ${one.words()}`);
    });
    const rest = this.units.slice(AXES_MAX).map((unit) => unit || "without a unit");
    renew(this.about, [...lines, ...(rest.length ? [el("li", { class: "faint" }, `scaled without an axis: ${rest.join(", ")}`)] : [])]);
  }

  style() {
    const style = getComputedStyle(document.body), font = "12px system-ui, sans-serif", colour = (key) => style.getPropertyValue(key).trim();
    const axis = { stroke: colour("--faint"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false }, font, labelFont: font };
    // Charts below each other have their times below each other, with or without a unit.
    const values = (unit) => ({ ...axis, label: unit || " ", labelSize: 20, size: this.width() < NARROW ? 48 : 64 });
    return { colour, axis, values };
  }

  colourOf(at) {
    return this.style().colour(this.isCommon ? `--cause-${at % COLOURS}` : "--bar");
  }

  ofTime(data) {
    const { axis, values } = this.style(), steps = uPlot.paths.stepped({ align: 1 }), isNumber = ({ labels }) => !labels.length;
    this.units = [...new Set(this.traces.filter(isNumber).map(({ units }) => units))];
    this.lanes = this.traces.filter((one) => !isNumber(one));
    this.low = new Map();
    const scaleOf = (one) => (isNumber(one) ? `unit ${this.units.indexOf(one.units)}` : "states");
    const series = this.traces.flatMap((one, at) => {
      const stroke = this.colourOf(at), scale = scaleOf(one), none = { scale, points: { show: false }, paths: () => null };
      const value = (_, value) => (value == null ? "–" : one.labels[value] ?? digits(value));
      const bound = (label) => ({ label, class: this.isCommon ? "bound" : undefined, stroke, width: 0, scale, value, ...(isNumber(one) ? {} : none) });
      return [bound("minimum"), bound("maximum"), { label: this.isCommon ? one.name : "value", stroke, width: 1.5, scale, value, ...(isNumber(one) ? { paths: steps } : none) }];
    });
    const bands = this.traces.flatMap((one, at) => (isNumber(one) ? [{ series: [3 * at + 2, 3 * at + 1], fill: `${this.colourOf(at)}55` }] : []));
    const above = (key) => (_, ticks) => ticks.map((at) => (at < this.low.get(key) ? null : at));
    const axes = this.units.slice(0, AXES_MAX).map((unit, at) => {
      const key = `unit ${at}`, filter = above(key);
      return { ...values(unit), scale: key, side: at ? 1 : 3, filter, grid: { ...axis.grid, show: !at, filter } };
    });
    const empty = { ...values(""), scale: "states", values: () => [], grid: { show: false } };
    const height = (this.units.length ? (this.isCommon ? HEIGHT_COMMON : HEIGHT) : TOP + AXIS + MARK) + this.lanes.length * LANE;
    this.space = height - TOP - AXIS;
    return new uPlot({
      width: this.width(), height, padding: [TOP, null, 0, null], legend: { show: true },
      axes: [{ ...axis, values: dates, size: AXIS, space: 80 }, ...(axes.length ? axes : [empty])],
      series: [{ value: (_, at) => (at == null ? "–" : clock(at, 1)) }, ...series], bands,
      scales: { x: { time: true, range: shown }, states: { range: [0, 1] }, ...Object.fromEntries(this.units.map((_, at) => [`unit ${at}`, { range: (_, low, high) => this.ranged(`unit ${at}`, low, high) }])) },
      cursor: { drag: { x: true, y: false, setScale: false }, sync: { key: "signals" }, hover: { skip: [undefined], prox: null, bias: -1 }, points: { size: (_, at) => (at > 0 && series[at - 1].scale !== "states" && series[at - 1].width > 0 ? 7 : 0) } },
      hooks: { drawAxes: [(plot) => this.drawBands(plot)], draw: [(plot) => { this.drawLimits(plot); this.drawLanes(plot); this.drawLetters(plot); this.showMarks(plot); }], setSelect: [(plot) => {
        const { left, width } = plot.select, [from, to] = [left, left + width].map((at) => plot.posToVal(at, "x"));
        plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        if (width > 2) show(to - from, to);
      }] },
    }, data, this.plane);
  }

  /** The elements of an array by their number. */
  ofElements(data) {
    const { axis, values } = this.style(), [{ units }] = this.traces, stroke = this.colourOf(0);
    [this.units, this.lanes] = [[units], []];
    return new uPlot({
      width: this.width(), height: HEIGHT, padding: [TOP, null, 0, null], scales: { x: { time: false } }, cursor: { drag: { x: false, y: false } },
      axes: [{ ...axis, size: AXIS, space: 40, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] }, values(units)],
      series: [{ label: "element" }, { label: "value", stroke, width: 1.5, points: { show: true, size: 5, fill: stroke }, value: (_, value) => (value == null ? "–" : digits(value)) }],
    }, data, this.plane);
  }

  /** Height of the marks, which are below the lanes. */
  below() {
    return this.marks.length || !this.units.length ? MARK : 0;
  }

  /** The range of a scale, with space for the lanes and the marks at the bottom. */
  ranged(key, least, most) {
    const [low, high] = uPlot.rangeNum(least ?? 0, most ?? 1, 0.1, true), part = (this.lanes.length * LANE + this.below()) / this.space;
    this.low.set(key, low);
    return [low - ((high - low) * part) / (1 - part), high];
  }

  /** Calls `act(pen, ratio, colour)` with a saved state of the canvas. A plot that was replaced may be drawn once more, without these parts. */
  paint(plot, act) {
    if (plot !== this.plot) return;
    const { ctx: pen } = plot, ratio = window.devicePixelRatio || 1;
    pen.save();
    pen.font = `${12 * ratio}px system-ui, sans-serif`;
    pen.textAlign = "left";
    act(pen, ratio, this.style().colour);
    pen.restore();
  }

  /** The alarm limits of a signal that are within the range of its scale: name, value, place in pixels. */
  limitsOf({ units, limits, labels }, { scales, valToPos }) {
    const key = `unit ${this.units.indexOf(units)}`, scale = scales[key];
    return labels.length ? [] : limits.filter(([, value]) => value > this.low.get(key) && value < scale.max).map(([name, value]) => [name, value, valToPos(value, key, true)]);
  }

  /** Areas beyond the alarm limits: faint, more so for the inner ones. Only if one signal has limits, because those of several would overlap. */
  drawBands(plot) {
    const limited = this.traces.filter((one) => one.limits.length && !one.labels.length);
    if (limited.length !== 1) return;
    const [one] = limited, { bbox } = plot, key = `unit ${this.units.indexOf(one.units)}`, of = (name) => one.limits.find(([key]) => key === name)?.[1];
    const place = (value) => plot.valToPos(Math.min(plot.scales[key].max, Math.max(this.low.get(key), value)), key, true);
    this.paint(plot, (pen, ratio, colour) => {
      for (const [inner, outer, sign] of [["HIGH", "HIHI", 1], ["LOW", "LOLO", -1]]) {
        const [edge, worse] = [of(inner) ?? of(outer), of(outer) ?? sign * Infinity];
        if (edge == null) continue;
        for (const [from, to, fill] of [[edge, worse, "--doubt-fill"], [worse, sign * Infinity, "--bad-fill"]]) {
          pen.fillStyle = colour(fill);
          pen.globalAlpha = 0.14;
          pen.fillRect(bbox.left, place(from), bbox.width, place(to) - place(from));
        }
      }
    });
  }

  /** Draws each alarm limit within the range of the values as a dashed line with its name. */
  drawLimits(plot) {
    const { bbox } = plot;
    this.paint(plot, (pen, ratio, colour) => {
      pen.textAlign = "right";
      pen.lineWidth = ratio;
      pen.setLineDash([6 * ratio, 4 * ratio]);
      pen.strokeStyle = colour("--faint");
      this.traces.forEach((one, at) => this.limitsOf(one, plot).forEach(([name, value, y]) => {
        pen.beginPath();
        pen.moveTo(bbox.left, y);
        pen.lineTo(bbox.left + bbox.width, y);
        pen.stroke();
        const text = `${this.isCommon ? `${letter(at)} ` : ""}${name} ${digits(value)}`, right = bbox.left + bbox.width - 18 * ratio, wide = pen.measureText(text).width;
        pen.fillStyle = colour("--back");
        pen.globalAlpha = 0.7;
        pen.fillRect(right - wide, y - 14 * ratio, wide, 13 * ratio);
        pen.globalAlpha = 1;
        pen.fillStyle = colour("--faint");
        pen.fillText(text, right, y - 4 * ratio);
      }));
    });
  }

  /** Draws a lane for each signal with states: a bar per state, with its name. */
  drawLanes(plot) {
    const { bbox } = plot, right = bbox.left + bbox.width, x = (at) => Math.min(right, Math.max(bbox.left, plot.valToPos(at, "x", true)));
    this.paint(plot, (pen, ratio, colour) => {
      this.lanes.forEach((one, at) => {
        const index = this.traces.indexOf(one), top = bbox.top + bbox.height - ((this.lanes.length - at) * LANE + this.below()) * ratio, name = `${this.isCommon ? `${letter(index)} ` : ""}${one.name}`;
        const bar = (top + 16 * ratio), tall = 16 * ratio;
        pen.fillStyle = colour("--faint");
        pen.fillText(name, bbox.left + 2 * ratio, top + 12 * ratio);
        for (const [from, to, value] of bars(this.columns[index])) {
          const [left, end] = [x(from), x(to)], text = value == null ? "changes" : one.labels[value] ?? String(value);
          if (end <= left) continue;
          pen.globalAlpha = 0.35;
          pen.fillStyle = colour(value == null ? "--grid" : `--cause-${value % COLOURS}`);
          pen.fillRect(left, bar, end - left, tall);
          pen.globalAlpha = 1;
          pen.fillStyle = colour("--text");
          pen.fillRect(left, bar, ratio, tall);
          if (pen.measureText(text).width + 8 * ratio < end - left) pen.fillText(text, left + 4 * ratio, bar + 12 * ratio);
        }
      });
    });
  }

  /** Draws the letter of each line at its end. */
  drawLetters(plot) {
    if (!this.isCommon) return;
    this.paint(plot, (pen, ratio, colour) => {
      pen.textAlign = "right";
      const drawn = [];
      this.traces.forEach((one, at) => {
        const value = this.columns[at][3].findLast((value) => value != null);
        if (one.labels.length || value == null) return;
        const y = plot.valToPos(value, `unit ${this.units.indexOf(one.units)}`, true), right = plot.bbox.left + plot.bbox.width - (3 + 13 * drawn.filter((other) => Math.abs(other - y) < 16 * ratio).length) * ratio;
        drawn.push(y);
        pen.fillStyle = colour("--back");
        pen.fillRect(right - 11 * ratio, y - 8 * ratio, 13 * ratio, 16 * ratio);
        pen.fillStyle = colour("--text");
        pen.fillText(letter(at), right, y + 4 * ratio);
      });
    });
  }

  /** Shows the alarm transitions on the time axis: a line, and a symbol whose text is shown while it has the focus or the pointer. */
  showMarks(plot) {
    const { over } = plot, { width } = over.getBoundingClientRect(), groups = [];
    for (const mark of this.marks) {
      const x = plot.valToPos(mark.at, "x");
      if (groups.length && x - groups.at(-1).x < MARK) groups.at(-1).all.push(mark);
      else groups.push({ x, all: [mark] });
    }
    this.paint(plot, (pen, ratio, colour) => {
      for (const { at, severity } of this.marks) {
        pen.fillStyle = colour(`--${SIGNS[severity]?.[1] || "faint"}`);
        pen.globalAlpha = 0.6;
        pen.fillRect(plot.valToPos(at, "x", true), plot.bbox.top, ratio, plot.bbox.height);
      }
    });
    const marks = groups.map(({ x, all }) => {
      const worst = Math.max(...all.map(({ severity }) => severity)), [sign, kind] = SIGNS[worst] ?? SIGNS[3], rest = all.length - NAMED_MAX;
      const words = [...(rest > 0 ? [`${rest} earlier`] : []), ...all.slice(-NAMED_MAX).map(({ at, words }) => `${clock(at).slice(11)} ${words}`)].join("; ");
      const mark = el("span", { "data-key": all[0].at, class: `mark ${kind}${x > width / 2 ? " on-left" : ""}`, tabindex: "0", role: "img", "aria-label": words }, sign);
      mark.style.left = `${x}px`;
      return mark;
    });
    if (this.place?.parentElement !== over.parentElement) over.after(this.place = el("div", { class: "marks" }));
    Object.assign(this.place.style, { left: over.style.left, width: over.style.width, top: `${over.offsetTop + over.offsetHeight - MARK}px` });
    renew(this.place, marks);
  }

  /** Saves what is shown. The columns of several signals have their names, and a row has what was received at its time. */
  save() {
    const [first] = this.traces, range = shown(), file = this.isCommon ? "signals" : first.name.replace(/[^\w.-]/g, "_");
    const time = (at) => new Date(at * 1000).toISOString();
    const write = (heads, rows) => download(`${file}.csv`, [[heads.map(quoted), ...rows, []].map((row) => row.join(",")).join("\n")]);
    if (first.elements) return write(["element", "value"], first.elements.map((value, at) => [at + 1, value]));
    if (!this.isCommon) return write(first.heads(), first.saved(range).map(([at, ...rest]) => [time(at), ...rest]));
    const tables = this.traces.map((one) => {
      const rows = one.saved(range);
      return one.heads().map((_, column) => rows.map((row) => row[column]));
    });
    const [times, ...columns] = uPlot.join(tables), heads = this.traces.flatMap((one) => one.heads().slice(1).map((head) => `${one.name} ${head}`));
    write(["time", ...heads], times.map((at, row) => [time(at), ...columns.map((column) => column[row] ?? "")]));
  }
}

/** The bars of a lane: from, to, state. The state is null where an archived interval has several. */
function bars([times, least, most]) {
  const all = [];
  times.forEach((at, index) => {
    const next = times[index + 1] ?? at, value = least[index] === most[index] ? least[index] : null, last = all.at(-1);
    if (least[index] == null) return;
    if (last && last[1] === at && last[2] === value) last[1] = next;
    else all.push([at, next, value]);
  });
  return all;
}
