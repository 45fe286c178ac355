// The samples of a signal: live ones of this page, archived ones before them, or those of a past time range.
import { clock, seconds, shown, tahti, traces, until } from "./time.js";

const POINTS = 500, POINTS_MAX = 4000;
/** Alarm transitions that are kept per signal. */
const MARKS_MAX = 200;
const SEVERITIES = ["no alarm", "MINOR", "MAJOR", "INVALID"];
/** Seconds between a transition and the alarm that it causes: both have the time of the sample. */
const SAME_S = 0.5;

export const digits = (number) => String(Number(number.toPrecision(6)));

export class Trace {
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
    /** Transitions of the alarm severity: time, severity 0 to 3, words. */
    this.marks = [];
    /** The elements of an array, and how many it has. Null for a signal with one value. */
    this.elements = null;
    this.count = 0;
    /** Time since which this page receives samples. Earlier ones come from the archive. */
    this.since = tahti.now();
    this.loads = 0;
    this.isChanged = true;
    traces.add(this);
    this.load();
  }

  /** Adds a row: time, minimum, maximum and last of the samples since the previous row. */
  push(...row) {
    // uPlot needs ascending times. If the clock was set back, new rows replace those with later times.
    while (this.live[0].length && this.live[0].at(-1) >= row[0]) this.live.forEach((column) => column.pop());
    row.forEach((value, index) => this.live[index].push(value));
    // A hidden page draws nothing, but receives.
    if (this.live[0].length > 2 * POINTS_MAX) this.live = this.live.map((column) => column.slice(-POINTS_MAX));
    this.isChanged = true;
  }

  /** Takes the severity of a sample. The first one after a connection is no transition. */
  judge(at, severity, value) {
    if (this.severity != null && severity !== this.severity) this.marks.push({ at, severity, words: `${SEVERITIES[severity] ?? severity} ${this.name} ${this.text(value)}` });
    if (this.marks.length > MARKS_MAX) this.marks.shift();
    this.severity = severity;
  }

  /** The transitions that this page has received, and the last one that the alarm server knows, with its message. */
  transitions(rows) {
    const last = rows?.find(({ channel, level }) => channel === this.name && level);
    if (!last) return this.marks;
    const severity = SEVERITIES.indexOf(last.severity.replace("_ACK", "")), at = last.time.seconds;
    const isLast = (mark) => mark.severity === severity && Math.abs(mark.at - at) < SAME_S;
    if (this.marks.some(isLast)) return this.marks.map((mark) => (isLast(mark) ? { ...mark, words: `${mark.words}: ${last.message}` } : mark));
    return [...this.marks, { at, severity: severity < 0 ? 3 : severity, words: `${last.severity} ${this.name} ${last.value}: ${last.message}` }];
  }

  /** Takes the text of an array of numbers. Truncated text has as many elements as are complete. */
  take(text) {
    const parts = text.match(/^\[(.*)(?:\]|…)$/s)?.[1].split(", ") ?? [];
    if (text.endsWith("…")) parts.pop();
    const numbers = parts.map((part) => (/^(NaN|-?inf)$/.test(part) ? null : Number(part)));
    this.elements = numbers.length && !numbers.some(Number.isNaN) ? numbers : null;
    this.isChanged = true;
  }

  /** Interrupts the line, which must not cross a time without data. */
  cut() {
    this.severity = null;
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
    this.isChanged = true;
  }

  /** What a chart draws: time, minimum, maximum, and the last value, which is held until now; of a past range, the mean. */
  columns(now) {
    if (this.past) return this.past.slice(0, 4);
    const [from] = shown();
    let old = 0;
    // The last sample before the range stays: its value holds until the next one.
    while (old < this.live[0].length && ((until == null && this.live[0][old + 1] < from) || this.live[0].length - old > POINTS_MAX)) old++;
    if (old) this.live = this.live.map((column) => column.slice(old));
    const last = this.live.map((column) => column.at(-1));
    return last[1] != null && last[0] < now ? this.live.map((column, at) => [...column, at ? last[3] : now]) : this.live;
  }

  /** A value in words. */
  text(value) {
    return this.labels[value] ?? `${digits(value)}${this.units ? ` ${this.units}` : ""}`;
  }

  /** Names of the columns of `rows`. The value of a live row is the last one; that of an archived interval before it, the mean. */
  heads() {
    return ["time", "least", "most", ...(this.past ? ["mean", "samples"] : ["value"])];
  }

  /** The rows within a time range. */
  rows([from, to] = shown()) {
    const data = this.past ?? this.live;
    return data[0].map((_, row) => data.map((column) => column[row])).filter(([at, least]) => at >= from && at <= to && least != null);
  }

  /** The rows to save: the value that the line holds at the start of the time range, and the rows within. */
  saved(range) {
    const held = this.past ? null : this.live[3][this.live[0].findLastIndex((at) => at < range[0])];
    return held == null ? this.rows(range) : [[range[0], held, held, held], ...this.rows(range)];
  }

  words() {
    if (this.elements) {
      const known = this.elements.filter((value) => value != null), range = known.length ? `: minimum ${this.text(Math.min(...known))}, maximum ${this.text(Math.max(...known))}` : "";
      return `elements 1 to ${this.elements.length} of ${Math.max(this.count, this.elements.length)}${range}${this.count > this.elements.length ? "; the dashboard sends only these" : ""}`;
    }
    const rows = this.rows();
    const gaps = this.past && this.gaps.length ? `; gaps: ${[...new Set(this.gaps.map(([, cause, lost]) => (lost ? `${cause} (${lost} lost)` : cause)))].join(", ")}` : "";
    const [at, , , value] = this.past ? [] : this.live.map((column) => column.at(-1));
    if (!rows.length && value != null) return `${this.text(value)} since ${clock(at)}${gaps}`;
    if (!rows.length) return `nothing in this time${gaps}`;
    const least = rows.reduce((least, row) => Math.min(least, row[1]), Infinity), most = rows.reduce((most, row) => Math.max(most, row[2]), -Infinity);
    if (this.labels.length) return least === most ? `${this.text(least)}${gaps}` : `${[...new Set(rows.flatMap((row) => [row[1], row[2]]))].sort((one, other) => one - other).map((one) => this.text(one)).join(", ")}${gaps}`;
    const samples = this.past ? rows.reduce((sum, row) => sum + row[4], 0) : 0;
    const mean = samples ? `, mean ${this.text(rows.reduce((sum, row) => sum + row[3] * row[4], 0) / samples)} of ${samples} samples` : "";
    return `minimum ${this.text(least)}, maximum ${this.text(most)}${mean}${gaps}`;
  }
}
