// Small drawings: sparklines, tiles, bars of causes, and the heat map of wake-up latency.
import { counted, el, say, time } from "./dom.js";
import { edge, KEPT, ROWS, rowOf } from "./figures.js";
import { address } from "./frame.js";

const WIDTH = 160, HEIGHT = 24, PARTS = 80;

/** An SVG element. */
export function svg(name, attributes, ...inside) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
}

/** A time range in words. */
export const spanWords = (seconds) => `last ${seconds / 60} min`;

/** A sparkline. `draw(history, {from, to, wrong, span, end})` shows the values of the history. Its range is `from` to `to`, or wider if the values
 *  need it. It shows the `span` seconds until `end`; by default, all that the history has. */
export function sparkline(name, words = (value) => String(Number(value.toPrecision(3)))) {
  const line = svg("path", { class: "spark-line" }), area = svg("path", { class: "spark-area" });
  const whole = svg("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${name}: nothing yet` }, area, line);
  const draw = (history, { from = 0, to = 0, wrong = false, span = history?.span(), end = history?.second } = {}) => {
    if (history?.second == null) return;
    const parts = history.parts(span, Math.min(PARTS, span), end);
    const known = parts.filter((value) => value != null);
    whole.classList.toggle("wrong", wrong);
    if (!known.length) return;
    const low = Math.min(from, ...known), high = Math.max(to, ...known), step = WIDTH / (parts.length - 1);
    const y = (value) => (high > low ? HEIGHT - 2 - ((value - low) / (high - low)) * (HEIGHT - 4) : HEIGHT - 2).toFixed(1);
    let path = "", below = "", begins = null;
    parts.forEach((value, at) => {
      const x = (at * step).toFixed(1);
      if (value != null) {
        path += `${begins == null ? "M" : "L"}${x} ${y(value)}`;
        if (begins == null) [begins, below] = [x, `${below}M${x} ${HEIGHT}`];
        below += `L${x} ${y(value)}`;
      }
      if (begins != null && (value == null || at === parts.length - 1)) {
        below += `L${value == null ? ((at - 1) * step).toFixed(1) : x} ${HEIGHT}Z`;
        begins = null;
      }
    });
    line.setAttribute("d", path);
    area.setAttribute("d", below);
    whole.setAttribute("aria-label", `${name}, ${spanWords(span)}: minimum ${words(Math.min(...known))}, maximum ${words(Math.max(...known))}`);
  };
  return { whole, draw, span: (history) => spanWords(history.span()) };
}

/** A figure with a name, a trend and a sentence. Links to the panel with the details, if there is one. */
export function tile(title, panel, spark) {
  const value = el("strong", {}, "–"), about = el("p", {}), span = el("span", { class: "faint" });
  const whole = el(panel ? "a" : "div", { class: "tile", href: panel && address(panel), "data-tile": panel ?? title }, el("h3", {}, title, " ", span), value, about, spark?.whole);
  /** `wrong` is the current fault, `doubt` the cause of a degraded verdict; both are empty if all is well. */
  const show = (text, words, { history, wrong = "", doubt = "", range = {} } = {}) => {
    say(value, text);
    say(about, wrong ? `◆ ${wrong}` : doubt ? `▲ ${doubt}` : words);
    whole.classList.toggle("wrong", wrong !== "");
    whole.classList.toggle("doubtful", wrong === "" && doubt !== "");
    if (history?.second == null) return;
    spark.draw(history, { ...range, wrong: wrong !== "" });
    say(span, spark.span(history).replace("last ", ""));
  };
  return { whole, show };
}

/** Kinds of causes, in the order of the legend. */
export const CAUSES = ["timer", "interrupt", "softirq", "other task", "kernel code", "host", "unexplained"];

/** The kind of a cause, from the recorder's description. */
export function causeKind(words) {
  if (words.startsWith("unexplained")) return "unexplained";
  if (/^(host|hardware)/.test(words)) return "host";
  if (/^(timer|idle exit)/.test(words)) return "timer";
  if (words.startsWith("softirq")) return "softirq";
  if (/^(interrupt \d|NMI)/.test(words) || / interrupt( from .*)?$/.test(words)) return "interrupt";
  if (/^(non-preemptible kernel code|interrupts masked)/.test(words)) return "kernel code";
  return "other task";
}

/** The parts of a delay as a bar to scale, each with its cause. */
export function stack(parts) {
  const sum = parts.reduce((all, [, ns]) => all + ns, 0) || 1;
  return el("div", { class: "stack", role: "img", "aria-label": parts.map(([who, ns]) => `${who} ${time(ns)}`).join(", ") }, ...parts.map(([who, ns]) => {
    const part = el("span", { class: `cause-${CAUSES.indexOf(causeKind(who))}`, title: `${who} ${time(ns)}` });
    part.style.width = `${(100 * ns) / sum}%`;
    return part;
  }));
}

export function causeLegend() {
  return el("p", { class: "legend" }, ...CAUSES.map((name, at) => el("span", {}, el("i", { class: `cause-${at}` }), name)));
}

const LEFT = 52, BOTTOM = 18, TALL = 210;
/** Minimum width of a column in pixels, and minimum number of columns: a page that was just opened does not show minutes without values. */
const COLUMN_MIN = 4, COLUMNS_MIN = 60;
/** Pixels from which on a movement is a drag. */
const DRAG_MIN = 6;

/** Wake-up latency over time: one column per second, darker for more wake-ups. `draw(wakeups, period, marked)` also marks a cell. A click calls
 *  `chosen(second, row)`, a drag `ranged(from, to)` with its first and last second. */
export function heatMap(name, chosen, ranged = null) {
  const canvas = el("canvas", { role: "img", class: "heat", "aria-label": `Wake-up latency of ${name} over time` });
  const about = el("p", { class: "faint" });
  let shown = null;
  canvas.addEventListener("pointermove", (event) => say(about, shown ? under(shown, event) : ""));
  let began = null;
  canvas.addEventListener("pointerdown", (event) => { began = event.offsetX; });
  canvas.addEventListener("click", (event) => {
    const cell = shown && cellUnder(shown, event), isDrag = ranged && began != null && Math.abs(event.offsetX - began) > DRAG_MIN;
    if (isDrag) {
      const [from, to] = [began, event.offsetX].map((x) => secondUnder(shown, x)).sort((one, other) => one - other);
      ranged(from, to);
    } else if (cell) chosen(cell.second, cell.row);
    began = null;
  });
  canvas.addEventListener("pointerleave", () => say(about, shown?.words ?? ""));
  const draw = (wakeups, periodNs, marked = null, spans = []) => {
    const width = canvas.clientWidth;
    if (!width || wakeups?.second == null) return;
    const fitting = Math.min(KEPT, Math.floor((width - LEFT) / COLUMN_MIN)), columns = Math.min(fitting, Math.max(COLUMNS_MIN, wakeups.second - wakeups.first));
    const wide = (width - LEFT) / columns;
    shown = { wakeups, columns, wide, words: paint(canvas, wakeups, columns, wide, periodNs, marked, spans) };
    canvas.setAttribute("aria-label", `Wake-up latency of ${name} over time. ${shown.words}`);
    if (!canvas.matches(":hover")) say(about, shown.words);
  };
  return { whole: el("div", {}, canvas, about), draw };
}

function paint(canvas, wakeups, columns, wide, periodNs, marked, spans) {
  const width = canvas.clientWidth, ratio = window.devicePixelRatio || 1, style = getComputedStyle(document.body);
  const colour = (key) => style.getPropertyValue(key).trim();
  [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(TALL * ratio)];
  const pen = canvas.getContext("2d"), tall = (TALL - BOTTOM) / ROWS, y = (row) => (ROWS - 1 - row) * tall;
  pen.scale(ratio, ratio);
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  for (let ns = 1000; ns <= 1e8; ns *= 10) {
    const at = y(rowOf(ns)) + tall;
    pen.fillStyle = colour("--grid");
    pen.fillRect(LEFT, at, width - LEFT, 1);
    pen.fillStyle = colour("--faint");
    pen.textAlign = "right";
    pen.fillText(time(ns).replace(/\.0+ /, " "), LEFT - 8, Math.max(7, at));
  }
  let most = 1, worst = 0;
  const tops = [];
  const each = (act) => {
    for (let column = 0; column < columns; column++) {
      const second = wakeups.second - columns + 1 + column;
      if (second <= wakeups.first) continue;
      const slot = second % KEPT;
      for (let row = 0; row < ROWS; row++) act(wakeups.cells[slot * ROWS + row], column, row);
      worst = Math.max(worst, wakeups.worst[slot]);
      if (wakeups.worst[slot]) tops[column] = rowOf(wakeups.worst[slot]);
    }
  };
  each((count) => { most = Math.max(most, count); });
  const late = periodNs ? rowOf(periodNs) : ROWS;
  each((count, column, row) => {
    if (!count) return;
    pen.globalAlpha = 0.25 + 0.75 * Math.sqrt(count / most);
    pen.fillStyle = colour(row >= late ? "--bad-fill" : "--bar");
    pen.fillRect(LEFT + column * wide, y(row), wide - 0.6, tall - 0.6);
  });
  pen.globalAlpha = 1;
  // The longest wake-up of each second, so that a single one is seen.
  tops.forEach((row, column) => {
    pen.fillStyle = colour(row >= late ? "--bad" : "--text");
    pen.fillRect(LEFT + column * wide, y(row), wide - 0.6, 2);
  });
  spans.forEach(([from, to], at) => {
    const place = (second) => Math.max(LEFT, LEFT + (columns - 1 - wakeups.second + second) * wide), left = place(from), right = place(to + 1);
    if (right <= LEFT) return;
    pen.fillStyle = colour("--link");
    pen.globalAlpha = 0.13;
    pen.fillRect(left, 0, right - left, TALL - BOTTOM);
    pen.globalAlpha = 1;
    pen.fillRect(left, 0, right - left, 2);
    pen.textAlign = "left";
    pen.fillText("AB"[at], left + 4, 12);
  });
  if (marked) {
    pen.strokeStyle = colour("--text");
    pen.lineWidth = 2;
    pen.strokeRect(LEFT + (columns - 1 - wakeups.second + marked.second) * wide - 1, y(marked.row) - 1, wide + 1, tall + 1);
    pen.lineWidth = 1;
  }
  if (periodNs && late < ROWS) {
    const at = y(late) + tall;
    pen.strokeStyle = colour("--bad");
    pen.setLineDash([4, 3]);
    pen.strokeRect(LEFT, at, width - LEFT, 0);
    const label = `period ${time(periodNs)}`;
    pen.fillStyle = colour("--back");
    pen.fillRect(LEFT, at - 16, pen.measureText(label).width + 8, 15);
    pen.fillStyle = colour("--faint");
    pen.textAlign = "left";
    pen.fillText(label, LEFT + 4, at - 8);
  }
  pen.fillStyle = colour("--faint");
  const step = columns > 600 ? 300 : columns > 90 ? 60 : 30;
  for (let back = 0; back < columns; back += step) {
    pen.textAlign = back ? "center" : "right";
    pen.fillText(back === 0 ? "now" : step < 60 ? `−${back} s` : `−${back / 60} min`, LEFT + (columns - back) * wide, TALL - 7);
  }
  return `A column is a second; darker: more wake-ups, at most ${most} in a cell. The dark edge is the longest of the second. Maximum: ${worst ? time(worst) : "none yet"}.`;
}

/** The second under a place, within the columns. */
function secondUnder({ wakeups, columns, wide }, x) {
  return wakeups.second - columns + 1 + Math.min(columns - 1, Math.max(0, Math.floor((x - LEFT) / wide)));
}

/** The second and row under the pointer; null outside the known cells. */
function cellUnder({ wakeups, columns, wide }, event) {
  const column = Math.floor((event.offsetX - LEFT) / wide), row = ROWS - 1 - Math.floor(event.offsetY / ((TALL - BOTTOM) / ROWS));
  const second = wakeups.second - columns + 1 + column;
  return column < 0 || column >= columns || row < 0 || second <= wakeups.first ? null : { second, row };
}

/** A cell in words. */
export function cellWords(wakeups, { second, row }) {
  const range = row === ROWS - 1 ? `over ${time(edge(row))}` : `${time(edge(row))} to ${time(edge(row + 1))}`;
  const isKept = wakeups && second > wakeups.second - KEPT && second <= wakeups.second, count = isKept ? wakeups.cells[(second % KEPT) * ROWS + row] : null;
  return `${new Date(second * 1000).toLocaleTimeString("sv")}, ${range}${count == null ? "" : `: ${counted(count, "wake-up")}`}`;
}

/** Describes the cell under the pointer. */
function under(shown, event) {
  const cell = cellUnder(shown, event);
  return cell ? cellWords(shown.wakeups, cell) : shown.words;
}
