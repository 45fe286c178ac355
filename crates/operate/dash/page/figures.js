// Figures of the plant and their last 15 minutes. The server computes and keeps them; the page asks for the past after each connection and adds
// the figures of each message. Memory is bounded: 900 values of 8 bytes for each figure, and 65 kB for the heat map of each loop.

/** Length of the history, in seconds. */
export const KEPT = 900;
/** Time ranges of a sparkline, in seconds. */
const SPANS = [60, 120, 180, 300, 600, KEPT];
/** A value is drawn for this many seconds, because messages do not arrive exactly once per second. The server counts what reaches the CPUs every 15 s
 *  while no page is open. */
const BRIDGED = 3, BRIDGED_CPUS = 16;

/** Rows of the heat map: six per decade from 1 µs to 100 ms, and one at each end for the values beyond. */
export const ROWS = 32;
const ROWS_PER_DECADE = 6, LOW_NS = 1000;

/** The row of a latency. Row 0 has everything below 1 µs. */
export function rowOf(ns) {
  return Math.min(ROWS - 1, Math.max(0, 1 + Math.floor(ROWS_PER_DECADE * Math.log10(ns / LOW_NS) + 1e-9)));
}

/** The lower edge of a row in nanoseconds. */
export function edge(row) {
  return row <= 0 ? 0 : LOW_NS * 10 ** ((row - 1) / ROWS_PER_DECADE);
}

/** The last 15 minutes of a figure, one value a second. */
export class History {
  constructor(bridged = BRIDGED) {
    this.bridged = bridged;
    this.values = new Float64Array(KEPT).fill(NaN);
    this.first = this.second = null;
  }

  put(at, value) {
    const second = Math.floor(at);
    // At the first value, or after the clock was set back, which makes the stored times wrong.
    if (this.second == null || second < this.second) {
      this.values.fill(NaN);
      this.first = second;
    } else {
      for (let empty = Math.max(this.second + 1, second - KEPT); empty <= second; empty++) this.values[empty % KEPT] = NaN;
    }
    this.second = second;
    this.values[second % KEPT] = value ?? NaN;
  }

  /** The shortest time range that shows all stored values. */
  span() {
    return SPANS.find((span) => this.second - this.first < span) ?? KEPT;
  }

  /** The maximum of each of `count` equal parts of the `span` seconds until `end`, oldest first; null for a part without values. */
  parts(span, count, end = this.second) {
    const parts = new Array(count).fill(null);
    if (this.second == null) return parts;
    let held = NaN, age = 0;
    for (let at = end - span + 1; at <= end; at++) {
      const value = at > this.second - KEPT && at <= this.second ? this.values[((at % KEPT) + KEPT) % KEPT] : NaN;
      if (!Number.isNaN(value)) [held, age] = [value, 0];
      else if (++age >= this.bridged) held = NaN;
      if (Number.isNaN(held)) continue;
      const part = Math.min(count - 1, Math.floor(((at - (end - span + 1)) * count) / span));
      parts[part] = Math.max(parts[part] ?? -Infinity, held);
    }
    return parts;
  }
}

/** Wake-ups of a loop. */
export class Wakeups {
  constructor() {
    this.cells = new Uint16Array(KEPT * ROWS);
    this.worst = new Float64Array(KEPT);
    this.first = this.second = null;
    /** The 99th percentile and the maximum of the last minute, in nanoseconds. */
    this.minute = null;
  }

  /** Takes the wake-ups that were counted in the last `seconds` seconds: the count of each row in one of these seconds, and the longest. */
  put(second, { cells, seconds = 1, worst, minute }) {
    if (this.second != null && second < this.second) {
      // The clock was set back.
      this.cells.fill(0);
      this.first = this.second = null;
    }
    this.first ??= second - seconds;
    for (let empty = Math.max((this.second ?? second - seconds) + 1, second - KEPT + 1); empty <= second; empty++) {
      this.cells.fill(0, (empty % KEPT) * ROWS, (empty % KEPT + 1) * ROWS);
      this.worst[empty % KEPT] = 0;
    }
    this.second = second;
    for (let back = 0; back < seconds; back++) {
      const slot = (second - back) % KEPT;
      for (const [row, count] of cells) this.cells[slot * ROWS + row] += count;
      this.worst[slot] = Math.max(this.worst[slot], worst);
    }
    if (minute) this.minute = minute;
  }
}

/** Disturbances that a shield keeps away from its CPUs: foreign tasks, kernel threads, interrupts, softirqs, IPIs. */
export function intrusions(cpu) {
  return cpu.tasks + cpu.kernel_threads + cpu.interrupts + cpu.softirqs + cpu.ipis;
}

const histories = new Map();

/** Heat maps of the loops by name. */
export const loops = new Map();

/** The history of a figure, such as `missed` or `process/loop/cpu`. Names are in src/history.rs. */
export function figure(name) {
  if (!histories.has(name)) histories.set(name, new History(/^(cpu\/|intrusions$)/.test(name) ? BRIDGED_CPUS : BRIDGED));
  return histories.get(name);
}

function loop(name) {
  if (!loops.has(name)) loops.set(name, new Wakeups());
  return loops.get(name);
}

/** The late wake-ups of the last 15 minutes with their causes, oldest first. */
export const late = [];

/** Adds the figures of a message. */
export function collect({ second, values, loops: columns, late: fresh = [] }) {
  late.push(...fresh);
  while (late.length && late[0].second < second - KEPT) late.shift();
  for (const [name, value] of Object.entries(values)) figure(name).put(second, value);
  for (const [name, column] of Object.entries(columns)) loop(name).put(second, column);
}

/** Replaces all figures by those that the server keeps. */
export function restore({ values, loops: all, late: past }) {
  late.splice(0, late.length, ...past);
  histories.clear();
  const minutes = new Map([...loops].map(([name, { minute }]) => [name, minute]));
  loops.clear();
  for (const [name, { second, values: past }] of Object.entries(values)) past.forEach((value, at) => figure(name).put(second - past.length + 1 + at, value));
  for (const [name, { first, second, cells, worst }] of Object.entries(all)) {
    const wakeups = loop(name);
    wakeups.put(second, { cells: [], worst: 0, minute: minutes.get(name) });
    wakeups.first = first;
    worst.forEach((ns, at) => { wakeups.worst[(first + at) % KEPT] = ns; });
    for (const [at, row, count] of cells) wakeups.cells[((first + at) % KEPT) * ROWS + row] = count;
  }
}

/** Drops the figures of processes that the plant no longer has. */
export function keepOnly(processes) {
  const has = new Set(processes.map(({ name }) => name));
  for (const name of histories.keys()) if (name.startsWith("process/") && !has.has(name.split("/")[1])) histories.delete(name);
  for (const name of loops.keys()) if (!has.has(name)) loops.delete(name);
}
