// Disturbances of each CPU, counted over one second.
import { el, renew, say, table, tr } from "../dom.js";

const HEADS = ["CPU", "belongs to", { text: "foreign tasks", number: true }, { text: "kernel threads", number: true },
  { text: "interrupts", number: true }, { text: "ticks", number: true }, { text: "softirqs", number: true }, { text: "IPIs", number: true }, "what reached it"];

let words, list, drift;

function reached(cpu) {
  const names = cpu.names.slice(0, 6).map((one) => `${one.name} ×${one.count}`);
  return el("td", { class: "wide" }, names.join(", ") + (cpu.names.length > 6 ? ` and ${cpu.names.length - 6} more` : ""));
}

export default {
  id: "shield",
  title: "Shield",
  topics: ["shield"],
  build(section) {
    words = el("p");
    list = table("What reached each CPU within the last window", HEADS);
    drift = el("ul");
    section.append(words, list.frame, drift);
  },
  show(_, shield) {
    if (shield.error) {
      say(words, `what reaches the CPUs is not known: ${shield.error}`);
      return list.fill([]);
    }
    const stands = shield.want ? `${/^\d+$/.test(shield.want.cpus) ? `CPU ${shield.want.cpus} is` : `CPUs ${shield.want.cpus} are`} shielded` : "no shield is active";
    say(words, `${stands}; counted over ${shield.window_ms} ms`);
    list.fill(shield.cpus.map((cpu) => tr([
      String(cpu.cpu), cpu.shielded ? el("span", { class: "good" }, "shield") : "housekeeping", cpu.tasks, cpu.kernel_threads,
      cpu.interrupts, cpu.ticks, cpu.softirqs, cpu.ipis, reached(cpu),
    ].map((cell) => (typeof cell === "number" ? String(cell) : cell)), HEADS)));
    const lines = [...shield.drift.map((one) => `not as it was written: ${one}`), ...shield.newcomers.map((one) => `has come since: ${one}`)];
    renew(drift, lines.map((text) => el("li", { class: "bad" }, text)));
  },
};
