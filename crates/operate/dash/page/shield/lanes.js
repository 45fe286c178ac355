// A card for each CPU: what reached it over the last 15 minutes, a lane for each kind above a time axis, the sources of the last window, and what
// the shield could not move, with reasons. The time range is the same for all CPUs.
import { coded, el, renew, say } from "../dom.js";
import { spanWords, sparkline } from "../draw.js";
import { figure, intrusions } from "../figures.js";

/** Kinds of disturbances: figure, name, and why one can remain on a shielded CPU. */
const KINDS = [
  ["tasks", "tasks", "threads outside the shield that may run here"], ["interrupts", "interrupts", "of devices"], ["softirqs", "softirqs", "deferred work of the kernel"],
  ["ipis", "IPIs", "sent by other CPUs: wake-ups, function calls, TLB shootdowns"], ["ticks", "ticks", "a CPU that runs more than one thread needs them; no intrusion"],
];
const REASONS = {
  task: "a thread outside the shield that may run here", "kernel-thread": "a kernel thread; one that is bound to this CPU cannot be moved",
  interrupt: "of a device, or an exception; one that its driver manages cannot be moved", tick: "the timer; a CPU with several runnable threads needs it",
  softirq: "follows an interrupt or a timer of this CPU", ipi: "another CPU needs an answer from this one",
};

/** Distances of ticks in seconds. At most three of them fit the time range, so that their labels fit a phone. */
const STEPS = [30, 60, 120, 300];

/** The time range of all lanes: what the CPU with the longest history has, until the newest second. */
export function timeRange(cpus) {
  const histories = cpus.flatMap(({ cpu }) => KINDS.map(([key]) => figure(`cpu/${cpu}/${key}`))).filter(({ second }) => second != null);
  return histories.length ? { span: Math.max(...histories.map((one) => one.span())), end: Math.max(...histories.map(({ second }) => second)) } : null;
}

/** The ticks of a time range, each with its line through the lanes and its time of day. */
function ticks({ span, end }) {
  const step = STEPS.find((step) => span / step <= 3) ?? STEPS.at(-1), first = end - span + 1, all = [];
  for (let at = Math.ceil(first / step) * step; at <= end; at += step) {
    const time = new Date(at * 1000).toLocaleTimeString("sv"), tick = el("span", { "data-key": at }, step < 60 ? time : time.slice(0, 5));
    tick.style.left = `${(100 * (at - first)) / (span - 1)}%`;
    all.push(tick);
  }
  return all;
}

function lane(cpu, [key, name, about]) {
  const spark = sparkline(`${name} on CPU ${cpu} in a second`), now = el("b");
  const whole = el("div", { class: `lane lane-${key}`, title: about }, el("span", {}, name), spark.whole, now);
  const draw = (value, range) => {
    spark.draw(figure(`cpu/${cpu}/${key}`), { to: 10, ...range });
    say(now, value.toLocaleString("en"));
  };
  return { whole, draw };
}

/** Lines about what the shield could not move, each with its reason. */
export function unmovedLines(unmoved) {
  return unmoved.map(({ what, reason }) => el("li", {}, el("b", {}, what), ": ", el("span", { class: "faint" }, ...coded(reason))));
}

/** The card of a CPU. `draw(cpu, range, unmoved)` shows the counts of a message, the lanes in a time range, and what could not be moved away. */
export function cpuLanes(number) {
  const lanes = KINDS.map((kind) => lane(number, kind)), title = el("h3"), span = el("span", { class: "faint" }), axis = el("div", { class: "ticks", "aria-hidden": "true" }), sources = el("ul", { class: "sources", tabindex: "0", "aria-label": `Sources on CPU ${number}` });
  const stays = el("ul", { class: "sources", tabindex: "0", "aria-label": `Not moved from CPU ${number}` }), unmovedPart = el("div", { hidden: true }, el("h4", {}, "Not moved, and why"), stays);
  const whole = el("div", { class: "card half", "data-cpu": number }, el("div", { class: "row" }, title, span), el("div", { class: "lanes" }, axis, ...lanes.map((one) => one.whole)), sources, unmovedPart);
  const draw = (cpu, range, unmoved) => {
    const rest = intrusions(cpu), beside = cpu.beside ? `, shares a core with CPU ${cpu.beside}` : "";
    say(title, `CPU ${cpu.cpu}: ${cpu.shielded ? `shield, ${rest.toLocaleString("en")} intrusions` : `housekeeping${beside}`}`);
    const values = [cpu.tasks + cpu.kernel_threads, cpu.interrupts, cpu.softirqs, cpu.ipis, cpu.ticks];
    lanes.forEach((one, at) => one.draw(values[at], range));
    if (range) {
      say(span, spanWords(range.span));
      renew(axis, ticks(range));
    }
    const named = cpu.names.map(({ kind, name, count }) => el("li", {}, el("b", {}, name), ` ×${count} `, el("span", { class: "faint" }, REASONS[kind] ?? kind)));
    renew(sources, named);
    unmovedPart.hidden = !unmoved.length;
    renew(stays, unmovedLines(unmoved));
  };
  return { whole, draw };
}
