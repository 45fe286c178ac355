// Frames: each minor on a time line with what its activities need of it, and the last events with their cause.
import { el, table, time, tr } from "../dom.js";

const HEADS = ["activity", { text: "budget", number: true }, { text: "p50", number: true }, { text: "p99", number: true }, { text: "max", number: true },
  { text: "calls", number: true }, { text: "overruns", number: true }, { text: "underruns", number: true }, { text: "absences", number: true }, "now"];
const MINORS = ["minor", { text: "length", number: true }, "used: half of the times, 99 %, the most", { text: "p50", number: true }, { text: "p99", number: true }, { text: "max", number: true }];

let place, none;
const shown = new Map();

function bar(minor) {
  const share = (ns) => Math.min(100, 100 * (ns ?? 0) / minor.length_ns);
  const width = 200, px = (ns) => `${(share(ns) * width) / 100}`;
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("width", width);
  svg.setAttribute("height", 12);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `at most ${share(minor.max).toFixed(0)} % of the minor is used`);
  const rect = (ns, opacity) => {
    const one = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [key, value] of Object.entries({ x: 0, y: 1, height: 10, width: px(ns), fill: "var(--bar)", "fill-opacity": opacity })) one.setAttribute(key, value);
    svg.append(one);
  };
  rect(minor.length_ns, 0.12);
  rect(minor.max, 0.3);
  rect(minor.p99, 0.45);
  rect(minor.p50, 1);
  return svg;
}

function make(name) {
  const parts = { words: el("p"), minors: table(`Minors of ${name}`, MINORS), activities: table(`Activities of ${name}`, HEADS), events: el("ol") };
  const frame = el("div", { "data-frame": name }, el("h3", {}, `Frame ${name}`), parts.words, parts.minors.frame, parts.activities.frame, el("h4", {}, "Last events"), parts.events);
  place.append(frame);
  return { frame, ...parts };
}

export default {
  id: "frames",
  title: "Frames",
  topics: ["frames"],
  build(section) {
    place = el("div");
    none = el("p", { class: "faint" }, "no frame was looked at yet");
    section.append(none, place);
  },
  show(_, frames) {
    none.textContent = frames.length ? "" : "this plant has no frame";
    for (const [name, parts] of shown) if (!frames.some((frame) => frame.name === name)) { parts.frame.remove(); shown.delete(name); }
    for (const frame of frames) {
      if (!shown.has(frame.name)) shown.set(frame.name, make(frame.name));
      const parts = shown.get(frame.name);
      if (frame.error) { parts.words.textContent = `not seen: ${frame.error}`; parts.frame.classList.add("faint"); continue; }
      parts.frame.classList.remove("faint");
      parts.words.textContent = `${frame.state}: pulse ${frame.pulse}, minor ${frame.minor} of ${frame.minors.length}${frame.mode ? `, mode ${frame.mode}` : ""}; ` +
        `${frame.counts.minors} minors, ${frame.counts.lost} lost, ${frame.counts.overruns} overruns, ${frame.counts.underruns} underruns, ${frame.counts.absences} absences`;
      parts.minors.fill(frame.minors.map((minor, at) => tr([String(at), time(minor.length_ns), bar(minor), time(minor.p50), time(minor.p99), time(minor.max)], MINORS)));
      parts.activities.fill(frame.activities.map((one) => tr([one.name, one.budget_ns ? time(one.budget_ns) : "-", time(one.p50), time(one.p99), time(one.max),
        String(one.calls), String(one.overruns), String(one.underruns), String(one.absences), one.who], HEADS)));
      parts.events.replaceChildren(...frame.events.map((text) => el("li", {}, text)));
    }
  },
};
