// What reaches each CPU, counted over one second: a lane for each kind over the last 15 minutes, what remains on shielded CPUs, and drift.
import { counted, el, renew, say, table, tr } from "../dom.js";
import { cpuLanes, timeRange, unmovedLines } from "../shield/lanes.js";

const HEADS = ["CPU", "belongs to", { text: "foreign tasks", number: true }, { text: "kernel threads", number: true },
  { text: "interrupts", number: true }, { text: "ticks", number: true }, { text: "softirqs", number: true }, { text: "IPIs", number: true }, "what reached it"];
/** CPUs with lanes, shielded ones first; the table has all. */
const LANES_MAX = 16;

let words, list, drift, rest, place, more, all;
const lanes = new Map();

function reached(cpu) {
  const names = cpu.names.slice(0, 6).map((one) => `${one.name} ×${one.count}`);
  return el("td", { class: "wide" }, names.join(", ") + (cpu.names.length > 6 ? ` and ${cpu.names.length - 6} more` : ""));
}

function showLanes({ cpus, unmoved, unmoved_more: unsent }) {
  const drawn = cpus.toSorted((one, other) => other.shielded - one.shielded).slice(0, LANES_MAX), range = timeRange(drawn);
  for (const cpu of drawn) {
    if (!lanes.has(cpu.cpu)) lanes.set(cpu.cpu, cpuLanes(cpu.cpu));
    lanes.get(cpu.cpu).draw(cpu, range, unmoved.filter((one) => one.cpu === cpu.cpu));
  }
  for (const number of lanes.keys()) if (!drawn.some(({ cpu }) => cpu === number)) lanes.delete(number);
  renew(place, drawn.map(({ cpu }) => lanes.get(cpu).whole));
  // What concerns no drawn CPU alone is above the lanes.
  const others = unmoved.filter(({ cpu }) => !lanes.has(cpu)).map((one) => (one.cpu == null ? one : { ...one, what: `CPU ${one.cpu}, ${one.what}` }));
  if (unsent) others.push({ what: `${unsent} more`, reason: "`tahti shield status` lists all" });
  rest.hidden = !others.length;
  renew(rest.querySelector("ul"), unmovedLines(others));
  say(more, cpus.length > drawn.length ? `${counted(cpus.length - drawn.length, "CPU")} more in the table` : "");
}

export default {
  id: "shield",
  title: "CPUs and shield",
  topics: ["shield"],
  build(section) {
    words = el("p", {}, "counting");
    list = table("What reached each CPU within the last window", HEADS);
    drift = el("ul");
    rest = el("div", { hidden: true }, el("h3", {}, "Not moved, and why"), el("ul", { class: "reasons" }));
    place = el("div", { class: "cards" });
    more = el("p", { class: "faint" });
    all = el("div", { class: "card full", hidden: true }, el("h3", {}, "All CPUs, last window"), list.frame);
    section.append(el("div", { class: "card full", role: "group", "aria-label": "State of the shield" }, words, drift, rest), place, more, all);
  },
  show(_, shield) {
    all.hidden = shield.error != null;
    if (shield.error) {
      say(words, `what reaches the CPUs is not known: ${shield.error}`);
      renew(place, []);
      renew(drift, []);
      rest.hidden = true;
      return list.fill([]);
    }
    const stands = shield.want ? `${/^\d+$/.test(shield.want.cpus) ? `CPU ${shield.want.cpus} is` : `CPUs ${shield.want.cpus} are`} shielded` : "no shield is active";
    say(words, `${stands}; counted over ${shield.window_ms} ms`);
    showLanes(shield);
    list.fill(shield.cpus.map((cpu) => tr([
      String(cpu.cpu), cpu.shielded ? el("span", { class: "good" }, "shield") : "housekeeping", cpu.tasks, cpu.kernel_threads,
      cpu.interrupts, cpu.ticks, cpu.softirqs, cpu.ipis, reached(cpu),
    ].map((cell) => (typeof cell === "number" ? String(cell) : cell)), HEADS)));
    const lines = [...shield.drift.map((one) => `not as it was written: ${one}`), ...shield.newcomers.map((one) => `has come since: ${one}`)];
    renew(drift, lines.map((text) => el("li", { class: "bad" }, text)));
  },
};
