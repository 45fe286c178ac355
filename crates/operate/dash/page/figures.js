// Figures of the plant and their last 15 minutes. The server keeps no history, so it begins when the page is opened and is lost when the page
// is closed. Memory is bounded: 900 values of 8 bytes for each figure, and 58 kB for the heat map of each loop.

/** Length of the history, in seconds. */
export const KEPT = 900;
/** Time ranges of a sparkline, in seconds. */
const SPANS = [60, 300, KEPT];
/** A value is drawn for this many seconds, because messages do not arrive exactly once per second. */
const BRIDGED = 3;

/** Rows of the heat map: six per decade from 1 µs to 100 ms, and one at each end for the values beyond. */
export const ROWS = 32;
const ROWS_PER_DECADE = 6, LOW_NS = 1000;
const COUNT_MAX = 0xffff;

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
  constructor() {
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

  /** The maximum of each of `count` equal parts of the last `span` seconds, oldest first; null for a part without values. */
  parts(span, count) {
    const parts = new Array(count).fill(null);
    if (this.second == null) return parts;
    let held = NaN, age = 0;
    for (let at = this.second - span + 1; at <= this.second; at++) {
      const value = at > this.second - KEPT ? this.values[((at % KEPT) + KEPT) % KEPT] : NaN;
      if (!Number.isNaN(value)) [held, age] = [value, 0];
      else if (++age >= BRIDGED) held = NaN;
      if (Number.isNaN(held)) continue;
      const part = Math.min(count - 1, Math.floor(((at - (this.second - span + 1)) * count) / span));
      parts[part] = Math.max(parts[part] ?? -Infinity, held);
    }
    return parts;
  }
}

/** Wake-ups of a loop, from histograms that count since its start. */
export class Wakeups {
  constructor() {
    this.p99 = new History();
    this.cells = new Uint16Array(KEPT * ROWS);
    this.worst = new Float64Array(KEPT);
    this.first = this.second = null;
    /** The histograms of the last minute, oldest first. */
    this.minute = [];
  }

  put(at, buckets) {
    const second = Math.floor(at), before = this.minute.at(-1);
    this.minute.push({ second, buckets });
    while (this.minute[0].second < second - 60 || this.minute.length > 64) this.minute.shift();
    if (this.second != null && second < this.second) {
      // The clock was set back.
      this.cells.fill(0);
      this.minute = [{ second, buckets }];
      this.first = this.second = null;
    }
    this.first ??= second;
    this.second ??= second;
    if (this.minute.length < 2) return;
    for (let empty = Math.max(this.second + 1, second - KEPT); empty <= second; empty++) {
      this.cells.fill(0, (empty % KEPT) * ROWS, (empty % KEPT + 1) * ROWS);
      this.worst[empty % KEPT] = 0;
    }
    this.second = second;
    const fresh = since(before.buckets, buckets);
    // Messages do not arrive exactly once per second. Wake-ups that were counted over several seconds are spread over them.
    const seconds = Math.min(BRIDGED, Math.max(1, second - before.second));
    for (const [from, to, count] of fresh) {
      const row = rowOf(Math.sqrt(Math.max(from, 1) * Math.max(to, 1)));
      for (let back = 0; back < seconds; back++) {
        const slot = (second - back) % KEPT, cell = slot * ROWS + row;
        this.cells[cell] = Math.min(COUNT_MAX, this.cells[cell] + Math.ceil(count / seconds));
        this.worst[slot] = Math.max(this.worst[slot], to);
      }
    }
    this.p99.put(at, quantile(fresh, 0.99));
  }

  /** Buckets of the last minute. */
  lastMinute() {
    return this.minute.length < 2 ? [] : since(this.minute[0].buckets, this.minute.at(-1).buckets);
  }
}

/** Wake-ups counted between two histograms; all of the later one if its loop was restarted in between. */
function since(old, fresh) {
  const before = new Map(old.map(([from, , count]) => [from, count]));
  const more = fresh.map(([from, to, count]) => [from, to, count - (before.get(from) ?? 0)]);
  return more.some(([, , count]) => count < 0) ? fresh : more.filter(([, , count]) => count > 0);
}

/** The upper edge of the bucket with this quantile; null if there are no wake-ups. */
export function quantile(buckets, share) {
  const all = buckets.reduce((sum, [, , count]) => sum + count, 0);
  let left = Math.ceil(all * share);
  for (const [, to, count] of buckets) if ((left -= count) <= 0) return to;
  return null;
}

/** Disturbances that a shield keeps away from its CPUs: foreign tasks, kernel threads, interrupts, softirqs, IPIs. */
export function intrusions(cpu) {
  return cpu.tasks + cpu.kernel_threads + cpu.interrupts + cpu.softirqs + cpu.ipis;
}

/** Histories of the figures of the whole plant, and of each process and loop by name. */
export const figures = { cpu: new History(), missed: new History(), p99: new History(), intrusions: new History(), alarms: new History(), archive: new History(), processes: new Map(), loops: new Map() };
/** Missed deadlines of all loops at the last message. */
let missedBefore = null;

/** The entry of a name. Created if it is missing. */
function entry(map, name, Kind) {
  if (!map.has(name)) map.set(name, new Kind());
  return map.get(name);
}

/** Drops the entries of names that no longer exist. */
function keep(map, list) {
  for (const name of map.keys()) if (!list.some((one) => one.name === name)) map.delete(name);
}

const COLLECTED = {
  plant({ processes }, at) {
    keep(figures.processes, processes);
    for (const { name, cpu_percent: used } of processes) entry(figures.processes, name, History).put(at, used);
    figures.cpu.put(at, processes.reduce((sum, one) => sum + (one.cpu_percent ?? 0), 0));
    const loops = processes.filter((one) => one.loop);
    if (!loops.length) return;
    const missed = loops.reduce((sum, one) => sum + one.loop.misses, 0);
    figures.missed.put(at, missedBefore == null ? null : Math.max(0, missed - missedBefore));
    missedBefore = missed;
  },
  histograms(all, at) {
    keep(figures.loops, all);
    for (const { name, buckets } of all) entry(figures.loops, name, Wakeups).put(at, buckets);
    const last = all.map(({ name }) => figures.loops.get(name).p99).map(({ values, second }) => values[second % KEPT]).filter((value) => !Number.isNaN(value));
    if (last.length) figures.p99.put(at, Math.max(...last));
  },
  shield({ cpus }, at) {
    const shielded = cpus?.filter((one) => one.shielded) ?? [];
    if (shielded.length) figures.intrusions.put(at, shielded.reduce((sum, one) => sum + intrusions(one), 0));
  },
  alarms({ active }, at) {
    if (active != null) figures.alarms.put(at, active);
  },
  archive({ status }, at) {
    if (status) figures.archive.put(at, status.samples_per_s);
  },
};

/** Topics of which a message has arrived over this connection. */
const heard = new Set();

/** Reads the figures of a server message. Ignores the first message of each topic, which may be old: the server keeps it for new clients. */
export function collect(topic, data, at) {
  if (heard.has(topic)) COLLECTED[topic]?.(data, at);
  heard.add(topic);
}

/** Called after a reconnection. Counters are compared only with values from the new connection. */
export function reconnected() {
  heard.clear();
  missedBefore = null;
  for (const loop of figures.loops.values()) loop.minute = [];
}
