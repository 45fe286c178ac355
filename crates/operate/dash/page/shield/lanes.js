// A card for each CPU: what reached it over the last 15 minutes, a lane for each kind, and the sources of the last window.
import { el, renew, say } from "../dom.js";
import { sparkline } from "../draw.js";
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

function lane(cpu, [key, name, about]) {
  const spark = sparkline(`${name} on CPU ${cpu} in a second`), now = el("b");
  const whole = el("div", { class: `lane lane-${key}`, title: about }, el("span", {}, name), spark.whole, now);
  const draw = (value) => {
    const history = figure(`cpu/${cpu}/${key}`);
    spark.draw(history, { to: 10 });
    say(now, value.toLocaleString("en"));
    return history;
  };
  return { whole, draw, spark };
}

/** The card of a CPU. `draw(cpu)` shows the counts of a message. */
export function cpuLanes(number) {
  const lanes = KINDS.map((kind) => lane(number, kind)), title = el("h3"), span = el("span", { class: "faint" }), sources = el("ul", { class: "sources", tabindex: "0", "aria-label": `Sources on CPU ${number}` });
  const whole = el("div", { class: "card half", "data-cpu": number }, el("div", { class: "row" }, title, span), el("div", { class: "lanes" }, ...lanes.map((one) => one.whole)), sources);
  const draw = (cpu) => {
    const rest = intrusions(cpu), beside = cpu.beside ? `, shares a core with CPU ${cpu.beside}` : "";
    say(title, `CPU ${cpu.cpu}: ${cpu.shielded ? `shield, ${rest.toLocaleString("en")} intrusions` : `housekeeping${beside}`}`);
    const values = [cpu.tasks + cpu.kernel_threads, cpu.interrupts, cpu.softirqs, cpu.ipis, cpu.ticks];
    const histories = lanes.map((one, at) => one.draw(values[at]));
    if (histories[0].second != null) say(span, lanes[0].spark.span(histories[0]));
    const named = cpu.names.map(({ kind, name, count }) => el("li", {}, el("b", {}, name), ` ×${count} `, el("span", { class: "faint" }, REASONS[kind] ?? kind)));
    renew(sources, named);
  };
  return { whole, draw };
}
