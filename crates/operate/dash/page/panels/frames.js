// Frames: a time line of the minors and the time that the activities use, and the last events with their causes.
import { el, table, time, tr } from "../dom.js";
import { svg } from "../draw.js";

const HEADS = ["activity", { text: "budget", number: true }, { text: "p50", number: true }, { text: "p99", number: true }, { text: "max", number: true },
  { text: "calls", number: true }, { text: "overruns", number: true }, { text: "underruns", number: true }, { text: "absences", number: true }, "now"];
const MINORS = ["minor", { text: "length", number: true }, "used: half of the times, 99 %, the most", { text: "p50", number: true }, { text: "p99", number: true }, { text: "max", number: true }];

/** Maximum number of minors on the time line. More would be too narrow to see. */
const DRAWN_MAX = 64;
const LANE = 18, LABEL = 110, WIDTH = 720;

let place, none;
const shown = new Map();

/** The used time to scale: half of the calls, 99 %, the maximum, drawn over each other. */
function used({ p50, p99, max }, x, y, height, px) {
  return [[max, 0.3], [p99, 0.45], [p50, 1]].filter(([ns]) => ns > 0)
    .map(([ns, opacity]) => svg("rect", { x, y, height, width: Math.max(1, px(ns)), fill: "var(--bar)", "fill-opacity": opacity }));
}

function bar(minor) {
  const width = 200, share = (ns) => Math.min(100, 100 * (ns ?? 0) / minor.length_ns), px = (ns) => (share(ns) * width) / 100;
  return svg("svg", { width, height: 12, role: "img", "aria-label": `at most ${share(minor.max).toFixed(0)} % of the minor is used` },
    svg("rect", { x: 0, y: 1, width, height: 10, fill: "var(--bar)", "fill-opacity": 0.12 }), ...used(minor, 0, 1, 10, px));
}

/** The major frame to scale, with a lane for each activity. A call is drawn where it starts if each call before it takes its median time. */
function line({ name, minors, activities, minor: now }) {
  const drawn = minors.slice(0, DRAWN_MAX);
  const major = drawn.reduce((sum, minor) => sum + minor.length_ns, 0);
  const px = (ns) => (ns / major) * (WIDTH - LABEL), height = LANE * (activities.length + 1);
  const parts = activities.map((one, lane) => svg("text", { x: 0, y: LANE * (lane + 2) - 5, fill: "currentColor", "font-size": 12 }, one.name.length > 16 ? `${one.name.slice(0, 15)}…` : one.name));
  const words = activities.map(() => []);
  let begins = 0;
  drawn.forEach((minor, at) => {
    const x = LABEL + px(begins), width = px(minor.length_ns);
    if (at === now) parts.push(svg("rect", { x, y: 0, width, height, fill: "var(--bar)", "fill-opacity": 0.12 }));
    parts.push(svg("line", { x1: x, x2: x, y1: 0, y2: height, stroke: "currentColor", "stroke-opacity": 0.35 }));
    if (width >= 14) parts.push(svg("text", { x: x + 2, y: 12, fill: "currentColor", "font-size": 11 }, String(at)));
    let turn = 0;
    for (const lane of minor.queue) {
      const one = activities[lane];
      if (!one) continue;
      const from = LABEL + px(begins + Math.min(turn, minor.length_ns)), y = LANE * (lane + 1) + 3, most = x + width - from;
      if (one.budget_ns) parts.push(svg("rect", { x: from, y, height: LANE - 6, width: Math.max(1, Math.min(px(one.budget_ns), most)), fill: "none", stroke: "currentColor", "stroke-opacity": 0.6 }));
      parts.push(...used(one, from, y, LANE - 6, (ns) => Math.min(px(ns), most)));
      turn += one.p50 ?? 0;
      words[lane].push(at);
    }
    begins += minor.length_ns;
  });
  const told = activities.map((one, lane) => `${one.name} in ${words[lane].length === drawn.length ? "each minor" : words[lane].length ? `minors ${words[lane].join(", ")}` : "no minor"}`);
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, width: WIDTH, height, role: "img", "data-line": name,
    "aria-label": `Time line of ${name}, ${time(major)}: ${told.join("; ")}` }, ...parts);
}

function make(name) {
  const parts = { words: el("p"), line: el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Time line of ${name}` }), minors: table(`Minors of ${name}`, MINORS), activities: table(`Activities of ${name}`, HEADS), noEvents: el("p", { class: "faint" }, "none so far"), events: el("ol") };
  const frame = el("div", { "data-frame": name }, el("h3", {}, `Frame ${name}`), parts.words, parts.line, parts.minors.frame, parts.activities.frame, el("h4", {}, "Last events"), parts.noEvents, parts.events);
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
      parts.line.replaceChildren(line(frame), el("p", { class: "faint" }, "Outlined: budget. Filled: half of the calls, 99 %, the longest." +
        (frame.minors.length > DRAWN_MAX ? ` The first ${DRAWN_MAX} minors.` : "")));
      parts.minors.fill(frame.minors.map((minor, at) => tr([String(at), time(minor.length_ns), bar(minor), time(minor.p50), time(minor.p99), time(minor.max)], MINORS)));
      parts.activities.fill(frame.activities.map((one) => tr([one.name, one.budget_ns ? time(one.budget_ns) : "-", time(one.p50), time(one.p99), time(one.max),
        String(one.calls), String(one.overruns), String(one.underruns), String(one.absences), one.who], HEADS)));
      parts.events.replaceChildren(...frame.events.map((text) => el("li", {}, text)));
      parts.noEvents.hidden = frame.events.length > 0;
    }
  },
};
