// Frames: a time line of the minors and the time that the activities use, and the last events with their causes.
import { counted, el, renew, say, table, time, tr } from "../dom.js";
import { sparkline, svg } from "../draw.js";
import { figure } from "../figures.js";

const HEADS = ["activity", { text: "budget", number: true }, { text: "p50", number: true }, { text: "p99", number: true }, { text: "max", number: true },
  { text: "calls", number: true }, { text: "overruns", number: true }, { text: "underruns", number: true }, { text: "absences", number: true }, "now"];
const MINORS = ["minor", { text: "length", number: true }, "used: half of the times, 99 %, the longest", { text: "p50", number: true }, { text: "p99", number: true }, { text: "max", number: true }];

/** Maximum number of minors on the time line. More would be too narrow to see. */
const DRAWN_MAX = 64;
const LANE = 36, BAR = 22, TOP = 18, LABEL = 110, WIDTH = 900;

let place, none;
const shown = new Map();

/** The used time to scale: the median filled, 99 % lighter, the longest hatched. What exceeds the budget has the colour of faults. */
function used({ p50, p99, max, budget_ns: budget }, x, y, height, px) {
  const isOver = budget && max > budget;
  const part = (ns, more) => (ns > 0 ? [svg("rect", { x, y, height, width: Math.max(1, px(ns)), ...more })] : []);
  return [...part(max, { fill: isOver ? "url(#frame-hatch-bad)" : "url(#frame-hatch)" }), ...part(p99, { fill: "var(--bar)", "fill-opacity": 0.35 }), ...part(p50, { fill: "var(--bar)", "fill-opacity": 1 })];
}

function hatch(id, colour) {
  return svg("pattern", { id, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("rect", { width: 1.5, height: 5, fill: colour }));
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
  const px = (ns) => (ns / major) * (WIDTH - LABEL), bottom = TOP + LANE * activities.length, height = bottom + 22;
  const ink = { fill: "currentColor", "font-size": 12 };
  const parts = activities.flatMap((one, lane) => {
    const y = TOP + LANE * lane + 15, isOver = one.overruns > 0;
    const label = svg("text", { x: 0, y, ...ink }, one.name.length > 15 ? `${one.name.slice(0, 14)}…` : one.name);
    const words = isOver ? `◆ ${counted(one.overruns, "overrun")}` : one.max ? `longest ${time(one.max)}` : "";
    return [label, svg("text", { x: 0, y: y + 14, ...ink, "font-size": 11, class: isOver ? "frame-over" : "frame-calm" }, words)];
  });
  const words = activities.map(() => []);
  let begins = 0, labelled = -Infinity;
  const tick = (x, ns) => {
    parts.push(svg("line", { x1: x, x2: x, y1: 0, y2: bottom, stroke: "var(--line)" }));
    if (x - labelled < 60) return;
    labelled = x;
    parts.push(svg("text", { x, y: height - 5, ...ink, "font-size": 11, class: "frame-calm", "text-anchor": x > WIDTH - 30 ? "end" : "middle" }, ns === 0 ? "0" : time(ns)));
  };
  drawn.forEach((minor, at) => {
    const x = LABEL + px(begins), width = px(minor.length_ns);
    if (at === now) parts.push(svg("rect", { x, y: 0, width, height: bottom, fill: "var(--link)", "fill-opacity": 0.09 }));
    tick(x, begins);
    if (width >= 14) parts.push(svg("text", { x: x + 3, y: 12, ...ink, "font-size": 11, class: "frame-calm" }, String(at)));
    let turn = 0;
    for (const lane of minor.queue) {
      const one = activities[lane];
      if (!one) continue;
      const from = LABEL + px(begins + Math.min(turn, minor.length_ns)), y = TOP + LANE * lane + 5, most = x + width - from, isOver = one.overruns > 0;
      parts.push(...used(one, from, y, BAR, (ns) => Math.min(px(ns), most)));
      if (one.budget_ns) {
        parts.push(svg("rect", { x: from, y, height: BAR, width: Math.max(1, Math.min(px(one.budget_ns), most)), fill: "none", stroke: isOver ? "var(--bad)" : "currentColor", "stroke-width": isOver ? 2 : 1, "stroke-opacity": isOver ? 1 : 0.6 }));
      }
      turn += one.p50 ?? 0;
      words[lane].push(at);
    }
    begins += minor.length_ns;
  });
  tick(WIDTH, major);
  const told = activities.map((one, lane) => `${one.name} in ${words[lane].length === drawn.length ? "each minor" : words[lane].length ? `minors ${words[lane].join(", ")}` : "no minor"}`);
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, class: "frame-line", role: "img", "data-line": name,
    "aria-label": `Time line of ${name}, ${time(major)}: ${told.join("; ")}` }, svg("defs", {}, hatch("frame-hatch", "var(--bar)"), hatch("frame-hatch-bad", "var(--bad)")), ...parts);
}

const LEGEND = [["outline", "budget"], ["median", "used by half of the calls"], ["most", "99 %"], ["worst", "longest"], ["over", "over the budget"]];

function make(name) {
  const parts = { words: el("p"), line: el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Time line of ${name}` }), minors: table(`Minors of ${name}`, MINORS), activities: table(`Activities of ${name}`, HEADS),
    noEvents: el("p", { class: "faint" }, "none so far"), events: el("ol"), more: el("span", { class: "faint" }), trend: sparkline(`Overruns and lost minors of ${name} in a second`), span: el("span") };
  const legend = el("p", { class: "legend" }, ...LEGEND.map(([key, words]) => el("span", {}, el("i", { class: `frame-key-${key}` }), words)), parts.more);
  const card = (size, title, ...inside) => el("div", { class: `card ${size}` }, el("h3", {}, ...[title].flat()), ...inside);
  const frame = el("div", { "data-frame": name, class: "cards" }, card("full", `Frame ${name}`, parts.words, parts.line, legend),
    card("wide", "Activities and minor frames", parts.activities.frame, parts.minors.frame), card("", ["Overruns and lost minors in a second ", parts.span], parts.trend.whole, el("h4", {}, "Last events"), parts.noEvents, parts.events));
  place.append(frame);
  return { frame, ...parts };
}

/** Goes to the frame that the address names. */
function reveal(name) {
  shown.get(name)?.frame.scrollIntoView({ block: "start" });
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
      renew(parts.line, [line(frame)]);
      say(parts.more, frame.minors.length > DRAWN_MAX ? `the first ${DRAWN_MAX} minors` : "");
      const history = figure(`frame/${frame.name}/late`);
      parts.trend.draw(history, { to: 1 });
      if (history.second != null) say(parts.span, parts.trend.span(history));
      parts.minors.fill(frame.minors.map((minor, at) => tr([String(at), time(minor.length_ns), bar(minor), time(minor.p50), time(minor.p99), time(minor.max)], MINORS)));
      parts.activities.fill(frame.activities.map((one) => tr([one.name, one.budget_ns ? time(one.budget_ns) : "-", time(one.p50), time(one.p99), time(one.max),
        String(one.calls), String(one.overruns), String(one.underruns), String(one.absences), el("td", { class: "wraps" }, one.who)], HEADS)));
      renew(parts.events, frame.events.map((text) => el("li", {}, text)));
      parts.noEvents.hidden = frame.events.length > 0;
    }
  },
  open: reveal,
};
