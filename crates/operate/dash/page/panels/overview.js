// The plant at a glance: six figures with their trends, what needs attention, the latency of its first loop, its processes.
import { bytes, coded, counted, el, renew, say, table, time, tr } from "../dom.js";
import { causeLegend, heatMap, sparkline, stack, tile } from "../draw.js";
import { figure, intrusions, loops } from "../figures.js";
import { address, outcomeWords } from "../frame.js";

const ATTENTION = ["what", "where", "since", "why", "what to do"];
const PROCESSES = ["name", "state", "class", "CPUs", { text: "CPU", number: true }, "CPU over time", { text: "memory", number: true }, { text: "missed", number: true }, { text: "restarts", number: true }];
const PLANTS = ["plant", "user", "verdict", "state", "why"];
const LATE_SHOWN = 8, ALARMS_SHOWN = 20;
/** Promises about deadlines. */
const ABOUT_TIME = ["skipped", "deadline", "value"];
const ENDED = ["stopped", "finished"];
/** Remedies for broken promises, by the kind of promise. NAME stands for the subject. */
const REMEDIES = {
  runs: "read `tahti logs NAME`, then start or restart it", ready: "read `tahti logs NAME`; raise `ready.within` if it needs longer",
  class: "another program changed it: `tahti restart NAME`", cpus: "another program changed it: `tahti restart NAME`",
  memory: "raise the limit of locked memory: `tahti doctor`", restarts: "read `tahti logs NAME` and its evidence, fix it, `tahti start NAME`",
  heartbeat: "it hangs or is starved of CPU: `tahti logs NAME`, `tahti restart NAME`", budget: "it uses more CPU than planned: `tahti top`",
  skipped: "find the cause on the page Latency, or by `tahti explain`", value: "find the cause on the page Latency, or by `tahti explain`",
  deadline: "find the cause on the page Latency, or by `tahti explain`", serves: "read `tahti logs NAME`", available: "`tahti doctor` names what is missing",
  isolated: "see the page CPUs and shield; `tahti shield status`", journal: "see `tahti shield status`", bounds: "another program changed it: `tahti shield status`",
};

let tahti, tiles, attention, calm, verdict, reasons, heatSection, heatTitle, heat, late, lateLack, lateSection, list, plantList, plantSection, unused;
const rows = new Map();

const rounded = (number) => Math.round(number).toLocaleString("en");

/** The first broken promise of these kinds, in words. */
function wrongOf(plant, claims) {
  const one = plant.attention.find(({ claim }) => claims.includes(claim));
  return one ? `${one.subject}: ${one.evidence || one.state}` : "";
}

function showDeadlines(plant) {
  const loops = plant.processes.filter((one) => one.loop).map((one) => one.loop);
  if (!loops.length) return tiles.deadlines.show("–", "no loop reports its deadlines");
  const missed = loops.reduce((sum, one) => sum + one.misses, 0), due = missed + loops.reduce((sum, one) => sum + one.cycles, 0);
  const share = due ? 100 * (1 - missed / due) : 100;
  // Not rounded up to 100 % if a deadline was missed.
  const text = missed && share > 99.999 ? "> 99.999 %" : `${share.toFixed(missed ? 3 : 0)} %`;
  const counts = `${rounded(missed)} of ${rounded(due)} missed`;
  const doubt = plant.within.some((claim) => ABOUT_TIME.includes(claim)) ? counts : "";
  tiles.deadlines.show(text, counts, { history: figure("missed"), wrong: wrongOf(plant, ABOUT_TIME), doubt, range: { to: 1 } });
}

function showWakeups() {
  const each = [...loops].filter(([, { minute }]) => minute?.p99 != null).map(([name, { minute }]) => ({ name, ...minute }));
  if (!each.length) return tiles.wakeups.show("–", tahti.newest("histograms")?.length ? "measuring" : "no loop reports its latency");
  const worst = each.sort((one, other) => other.p99 - one.p99)[0];
  const newest = tahti.newest("late")?.last?.[0];
  const words = newest ? `last late: ${time(newest.delay_ns)}, ${newest.parts[0]?.[0] ?? "unexplained"}` : `${worst.name}: maximum ${time(worst.max)}`;
  tiles.wakeups.show(time(worst.p99), words, { history: figure("p99") });
}

function showShield(shield) {
  if (shield.error) return tiles.shield.show("unknown", shield.error);
  if (!shield.want) return tiles.shield.show("none", "no shield is active");
  const shielded = shield.cpus.filter((one) => one.shielded), reached = shielded.reduce((sum, one) => sum + intrusions(one), 0);
  const wrong = shield.drift.length ? `${counted(shield.drift.length, "setting")} changed by another program` : "";
  tiles.shield.show(`CPU ${shield.want.cpus}`, `${rounded((reached * 1000) / shield.window_ms)} intrusions a second`, { history: figure("intrusions"), wrong, range: { to: 10 } });
}

function showProcesses(plant) {
  // A process that is stopped by a signal exists, but does not run.
  const runs = ({ name, state }) => state === "running" && !plant.attention.some(({ subject, claim }) => subject === name && claim === "runs");
  const running = plant.processes.filter(runs).length;
  const wrong = plant.processes.filter(({ name, state }) => state === "FAULT" || plant.attention.some(({ subject }) => subject === name));
  const first = wrong.map(({ name, state }) => plant.attention.find(({ subject }) => subject === name) ?? { subject: name, evidence: state })[0];
  const off = plant.processes.filter((one) => ENDED.includes(one.state)).length;
  tiles.processes.show(`${running} / ${plant.processes.length}`, off ? `${off} stopped or finished` : "all run", {
    history: figure("cpu"), wrong: first ? `${first.subject}: ${first.evidence || first.state}` : "", range: { to: 10 },
  });
}

function showAlarms(alarms) {
  if (alarms.error) return tiles.alarms.show("–", "this plant has no alarms");
  const worst = alarms.rows.find((row) => row.is_active && !row.hidden);
  tiles.alarms.show(`${alarms.active} active`, `${alarms.acknowledged} acknowledged, ${alarms.aside} shelved or disabled`, {
    history: figure("alarms"), [worst?.severity === "MINOR" ? "doubt" : "wrong"]: worst ? `${worst.severity} ${worst.channel}` : "", range: { to: 3 },
  });
}

function showArchive(archive) {
  if (!archive.is_configured) return tiles.archive.show("–", "this plant has no archive");
  if (archive.error) return tiles.archive.show("unknown", "", { wrong: archive.error });
  const { samples_per_s: rate, samples, last_sync: sync, disk, last_error: error } = archive.status;
  const lost = samples.lost_on_disk + samples.lost_by_overflow;
  const wrong = error ?? (lost ? `${counted(lost, "sample")} lost` : "");
  tiles.archive.show(`${rounded(rate)} /s`, `synced ${sync == null ? "never" : sync < 1e6 ? "just now" : `${time(sync)} ago`}, ${bytes(disk.free)} free`, { history: figure("archive"), wrong, range: { to: 1 } });
}

/** Lists what needs an operator's attention, the worst first: broken promises, then alarms. */
function showAttention() {
  const plant = tahti.newest("plant"), alarms = tahti.newest("alarms");
  if (!plant) return;
  const link = (panel, thing) => el("a", { href: address(panel, thing) }, thing);
  const isProcess = (name) => plant.processes.some((one) => one.name === name);
  const wide = (text) => el("td", { class: "wide" }, ...coded(text));
  const promises = plant.attention.map((one) => tr([
    el("span", { class: "tag failed" }, `◆ ${one.state}`), isProcess(one.subject) ? link("processes", one.subject) : one.subject, time(one.since_ns),
    wide(`${one.evidence || "no evidence"} (promised: ${one.promise}${one.line ? `, line ${one.line}` : ""})`), wide((REMEDIES[one.claim] ?? "`tahti status` shows all promises").replaceAll("NAME", one.subject)),
  ], ATTENTION, { "data-attention": one.subject, "data-key": `${one.subject} ${one.claim}` }));
  const active = (alarms?.rows ?? []).filter((row) => row.is_active && !row.hidden).slice(0, ALARMS_SHOWN);
  const raised = active.map((row) => tr([
    el("span", { class: `tag ${row.severity === "MINOR" ? "degraded" : "failed"}` }, `${row.severity === "MINOR" ? "▲" : row.severity === "MAJOR" ? "◆" : "■"} ${row.severity}`), link("alarms", row.path),
    time(Math.max(0, alarms.now_s - row.time.seconds) * 1e9), wide(`${row.current_severity === "OK" ? "over, not acknowledged: " : ""}${row.description ? `${row.description}: ` : ""}${row.message}, value ${row.value}`),
    wide((row.guidance ?? []).map((guide) => `${guide.title}: ${guide.details}`).join("; ") || (row.message.startsWith("skips periods") ? "the page Latency has the causes" : "find the cause, then acknowledge it on the page Alarms")),
  ], ATTENTION, { "data-attention": row.path, "data-key": row.path }));
  const all = [...promises, ...raised];
  attention.fill(all);
  attention.frame.hidden = !all.length;
  say(calm, all.length ? "" : plant.outcome === "unknown" ? plant.words : "Nothing needs attention now.");
  // The verdict covers the whole life of the plant, so its reasons may be over.
  say(verdict, plant.reasons.length ? `The verdict since the start of the plant is ${plant.outcome}:` : "");
  renew(reasons, [...plant.reasons.map(({ outcome, words }) => el("li", {}, `${outcome}: `, ...coded(words))), ...plant.shortfalls.map((text) => el("li", {}, `unavailable: ${text}`))]);
}

/** Reuses the elements of a row, so that the keyboard's focus and the drawings survive an update. */
function row(name) {
  if (!rows.has(name)) {
    const spark = sparkline(`CPU of ${name}`, (value) => `${value.toFixed(1)} %`);
    const link = el("a", { href: address("processes", name) }, name), cells = PROCESSES.slice(1).map(() => el("span"));
    rows.set(name, { spark, cells, whole: tr([link, ...cells.map((cell, at) => (at === 4 ? spark.whole : cell))], PROCESSES) });
  }
  return rows.get(name);
}

function showList(plant) {
  for (const [name, { whole }] of rows) if (!plant.processes.some((one) => one.name === name)) { whole.remove(); rows.delete(name); }
  plant.processes.forEach((one, at) => {
    const { spark, cells, whole } = row(one.name), alive = one.pid != null;
    const isWrong = one.state === "FAULT" || plant.attention.some(({ subject }) => subject === one.name);
    const texts = [`${isWrong ? "◆ " : ""}${one.state}`, one.class, one.cpus, alive && one.cpu_percent != null ? `${one.cpu_percent.toFixed(1)} %` : "–", null, alive ? bytes(one.memory) : "–",
      one.loop ? rounded(one.loop.misses) : "", one.restarts ? String(one.restarts) : ""];
    texts.forEach((text, cell) => { if (text != null) say(cells[cell], text); });
    cells[0].className = isWrong ? "bad" : ENDED.includes(one.state) ? "faint" : "";
    spark.draw(figure(`process/${one.name}/cpu`), { to: 10, wrong: isWrong });
    if (list.body.children[at] !== whole) list.body.insertBefore(whole, list.body.children[at] ?? null);
  });
}

function showLate(data) {
  lateSection.hidden = data.error != null;
  if (data.error != null) return;
  say(lateLack, data.shortfall ?? "");
  renew(late, data.last.slice(0, LATE_SHOWN).map((one) => el("li", {}, el("span", { class: "faint" }, `${time(data.now_ns - one.at_ns)} ago`), stack(one.parts), el("b", {}, time(one.delay_ns)))));
}

function showHeat() {
  const process = tahti.newest("plant")?.processes.find((one) => one.loop && loops.has(one.name));
  heatSection.hidden = !process;
  if (!process) return;
  if (heatSection.dataset.name !== process.name) {
    heatSection.dataset.name = process.name;
    heat?.whole.remove();
    heat = heatMap(process.name, (second, row) => { location.hash = address("latency", `${process.name}/${second}/${row}`); });
    heatSection.append(heat.whole);
    say(heatTitle, `Wake-up latency of ${process.name}`);
  }
  heat.draw(loops.get(process.name), process.loop.period_ns);
}

/** Lists the parts of tahti that the plant file does not use, each with the entry that adds it. */
function showUnused() {
  const frames = tahti.newest("frames"), lines = [];
  const line = (what, toml) => lines.push(el("li", {}, `${what}: add `, el("code", {}, toml)));
  if (tahti.newest("shield") && !tahti.newest("shield").want) line("Shield for CPUs of the loops", "[shield]");
  if (tahti.newest("late")?.error) line("Flight recorder, for the causes of late wake-ups", "[recorder]");
  if (frames && !frames.length) line("Frames", "[[frame]]");
  if (tahti.newest("alarms")?.error) line("Alarms", "[alarms]");
  if (tahti.newest("archive")?.is_configured === false) line("Archive", "[archive]");
  unused.hidden = !lines.length;
  renew(unused.querySelector("ul"), lines);
}

export default {
  id: "overview",
  title: "Overview",
  topics: ["plant", "histograms", "late", "shield", "frames", "alarms", "archive", "plants"],
  build(section, given) {
    tahti = given;
    tiles = {
      deadlines: tile("Deadlines met", "latency", sparkline("Deadlines missed in a second")), wakeups: tile("Wake-up p99", "latency", sparkline("99 % of wake-ups are earlier than", time)),
      shield: tile("Shield", "shield", sparkline("Intrusions into the shield")), processes: tile("Processes", "processes", sparkline("CPU of all processes", (value) => `${value.toFixed(1)} %`)),
      alarms: tile("Alarms", "alarms", sparkline("Active alarms")), archive: tile("Archive", "signals", sparkline("Samples archived in a second")),
    };
    attention = table("What needs attention, the worst first", ATTENTION);
    calm = el("p", { id: "calm" }, "waiting for the plant");
    verdict = el("p", { class: "verdict faint" });
    reasons = el("ul", { class: "reasons" });
    heatTitle = el("h3");
    heatSection = el("div", { class: "card wide", hidden: true }, heatTitle);
    late = el("ul", { class: "late" });
    lateLack = el("p", { role: "status" });
    lateSection = el("div", { class: "card", hidden: true }, el("h3", {}, "Last late wake-ups"), lateLack, late, causeLegend());
    list = table("Processes and their CPU", PROCESSES);
    plantList = table("Plants of this machine and their verdicts", PLANTS);
    plantSection = el("div", { class: "card full", hidden: true }, el("h3", {}, "Plants of this machine"), plantList.frame);
    unused = el("div", { class: "card full", hidden: true }, el("h3", {}, "Not used by this plant"), el("ul", { class: "reasons" }));
    section.append(el("div", { class: "tiles" }, ...Object.values(tiles).map((one) => one.whole)), el("div", { class: "cards" },
      el("div", { class: "card full" }, el("h3", {}, "Needs attention"), calm, attention.frame, verdict, reasons), heatSection, lateSection, el("div", { class: "card full" }, el("h3", {}, "Processes"), list.frame), plantSection, unused));
  },
  stale(topics) {
    const all = Object.entries(partsOf()), old = new Set(all.filter(([topic]) => topics.includes(topic)).flatMap(([, parts]) => parts));
    all.flatMap(([, parts]) => parts).forEach((part) => part.classList.toggle("stale", old.has(part)));
  },
  show(topic, data) {
    ({ plant: showPlant, histograms: () => { showWakeups(); showHeat(); }, late: showLate, shield: showShield, alarms: showAlarms, archive: showArchive, plants: showPlants })[topic]?.(data);
    if (topic === "plant" || topic === "alarms") showAttention();
    if (topic !== "plant" && topic !== "histograms" && topic !== "plants") showUnused();
  },
};

/** Lists the plants of this machine, if there are several. */
function showPlants({ plants }) {
  plantSection.hidden = plants.length < 2;
  const classes = { good: null, degraded: "tag degraded" };
  plantList.fill(plants.map(({ name, user, is_own: isOwn, outcome, state, why }) => tr([
    name, isOwn ? "same" : String(user), el("span", { class: outcome in classes ? classes[outcome] : "tag failed" }, outcomeWords(outcome)), state, el("td", { class: "wide" }, ...coded(why)),
  ], PLANTS, { "data-plant": name })));
}

/** The parts of the panel that show each topic. */
function partsOf() {
  const { deadlines, wakeups, shield, processes, alarms, archive } = tiles;
  const [attends, runs] = [attention, list].map(({ frame }) => frame.parentElement);
  return { plant: [deadlines.whole, processes.whole, attends, runs], histograms: [wakeups.whole, heatSection], shield: [shield.whole], alarms: [alarms.whole, attends], archive: [archive.whole], late: [lateSection], plants: [plantSection] };
}

function showPlant(plant) {
  showDeadlines(plant);
  showProcesses(plant);
  showList(plant);
}
