// The oscilloscope for variables of real-time loops: sets it up and shows its captures. The server sends only the visible part.
import { counted, download, el, say, table, tr } from "../dom.js";
import { decode, digits, overTime, persistence, seconds, spectra, xy } from "../scope/draw.js";

const PICTURE = 2, FILE = 3, VIEW_MS = 60;
const TRIGGERS = [
  ["none: begin at once", ""], ["rises to a level", "VAR > 1 rising"], ["falls to a level", "VAR < 1 falling"], ["crosses a level", "VAR = 1 crossing"],
  ["is above", "VAR > 1"], ["is below", "VAR < 1"], ["enters a window", "VAR enters 0..1"], ["leaves a window", "VAR leaves 0..1"],
  ["changes", "VAR changes"], ["deadline miss", "miss"], ["overrun", "overrun"], ["pulse number", "pulse 4711"], ["each so many-th pulse", "pulse % 1000 = 0"], ["alarm", "alarm *"], ["message", "message put/*"],
];
const HEADS = ["trace", ...["min", "mean", "max", "peak to peak", "RMS", "frequency", "at A", "at B", "B − A"].map((text) => ({ text, number: true }))];

let tahti, parts, readings, toSeconds;
let segments = [];
let picture = null, live = null, armed = null, timer = null, names = "";
// Null if absent, as in the messages of the server.
let window_ = null, cursors = null, active = 0, maths = [];
const waits = new Map();
let came = [];

const act = (what, more = {}) => tahti.ask({ do: "scope", act: { do: what, ...more } });

function field(id, text, element) {
  element.id = `scope-${id}`;
  parts[id] = element;
  return el("span", { class: "field" }, el("label", { for: element.id }, `${text} `), element);
}

function number(id, text, value, attributes = {}) {
  return field(id, text, el("input", { type: "number", value, step: "any", size: "6", required: true, ...attributes }));
}

function choice(id, text, options, change) {
  const select = el("select", { change });
  fill(select, options);
  return field(id, text, select);
}

/** Sets the options of a select. The chosen option stays chosen if it still exists. */
function fill(select, options) {
  const before = select.value;
  select.replaceChildren(...options.map(([value, text]) => el("option", { value }, text)));
  if (options.some(([value]) => String(value) === before)) select.value = before;
}

function button(text, click, attributes = {}) {
  return el("button", { type: "button", click, ...attributes }, text);
}

function told(text, bad = false) {
  say(parts.outcome, text);
  parts.outcome.className = bad ? "bad" : "";
}

async function list() {
  try {
    segments = (await act("list")).segments;
  } catch (error) {
    return told(error.message, true);
  }
  fill(parts.segment, segments.map((one) => [one.name, one.sampled ? one.name : `${one.name} (its loop does not sample)`]));
  if (!segments.length) told("nobody exports variables on this machine");
  variables();
}

/** The variables of the chosen segment. */
function variables() {
  const known = segments.find((one) => one.name === parts.segment.value)?.variables ?? [];
  const box = (one, index) => {
    const input = el("input", { type: "checkbox", value: one.name, id: `scope-channel-${index}`, checked: index < 4 });
    return el("span", { class: "chip" }, input, el("label", { for: input.id }, ` ${one.name}${one.unit ? ` [${one.unit}]` : ""}`));
  };
  parts.channels.replaceChildren(el("legend", {}, "Channels"), ...known.map(box));
  fill(parts.variable, known.map((one) => [one.name, one.name]));
}

function template() {
  parts.trigger.value = parts.kind.value.replace("VAR", parts.variable.value);
}

async function arm(event) {
  event.preventDefault();
  const channels = [...parts.channels.querySelectorAll("input:checked")].map((one) => one.value);
  const of = (id) => Number(parts[id].value);
  try {
    await act("arm", {
      segment: parts.segment.value, channels, trigger: parts.trigger.value.trim() || null, mode: parts.mode.value, pre: of("pre"),
      length: of("length"), every: of("every"), holdoff: of("holdoff"), keep: of("keep"),
    });
    told("set up");
    armed = parts.mode.value;
    [window_, parts.capture.value] = [null, ""];
    view();
  } catch (error) {
    told(error.message, true);
  }
}

async function simple(what, more, done) {
  try {
    await act(what, more);
    told(done);
  } catch (error) {
    told(error.message, true);
  }
}

/** Requests the chosen view after a short delay, and once for many changes. */
function view() {
  timer ??= setTimeout(async () => {
    timer = null;
    const show = parts.show.value, of = (id) => Number(parts[id].value);
    const id = (select) => (select.value ? Number(select.value) : null);
    try {
      await act("view", {
        capture: id(parts.capture), reference: id(parts.reference), window: show === "persistence" ? null : window_, columns: Math.max(100, Math.min(2000, parts.canvas.parentElement.clientWidth)),
        cursors, maths, fft: show === "spectrum" ? parts.fade.value : null,
        xy: show === "xy" ? [of("x"), of("y")] : null, persistence: show === "persistence" ? of("x") : null,
      });
    } catch (error) {
      if (error.message !== "not connected") told(error.message, true);
    }
  }, VIEW_MS);
}

function take(message) {
  picture = decode(message);
  const known = picture.traces.map((trace) => trace.name).join("\n");
  if (known !== names) {
    names = known;
    for (const id of ["x", "y", "one", "two"]) fill(parts[id], picture.traces.map((trace, index) => [index, trace.name]));
    if (picture.traces.length > 1) parts.y.value = parts.two.value = "1";
  }
  draw();
}

function draw() {
  if (!picture) return;
  toSeconds = null;
  if (picture.spectrum) spectra(parts.canvas, picture);
  else if (picture.xy) xy(parts.canvas, picture);
  else if (picture.persistence) persistence(parts.canvas, picture);
  else toSeconds = overTime(parts.canvas, picture, cursors);
  parts.canvas.dataset.shown = picture.spectrum ? "spectrum" : picture.xy ? "XY" : picture.persistence ? "persistence" : "over time";
  const why = picture.trigger ? `${picture.cause} at pulse ${picture.trigger}` : "no trigger";
  const more = [[picture.misses, "deadline misses"], [picture.missing, "pulses skipped"]].filter(([count]) => count).map(([count, text]) => `, ${text}: ${count}`).join("");
  say(parts.about, `${picture.label}: ${why}, ${picture.rows} rows from ${seconds(picture.whole[0])} to ${seconds(picture.whole[1])}; shown ${seconds(picture.window[0])} to ${seconds(picture.window[1])}${more}`);
  const cell = (value, unit) => (value == null ? "-" : `${digits(value)}${unit ? ` ${unit}` : ""}`);
  readings.fill(picture.traces.map((trace, index) => {
    const at = trace.cursors, highest = picture.spectrum?.[index]?.highest;
    const frequency = highest ? `${digits(highest[1])} at ${digits(highest[0])} Hz` : cell(trace.frequency, "Hz");
    return tr([trace.name, ...[trace.min, trace.mean, trace.max, trace.max - trace.min, trace.rms].map((value) => cell(value, trace.unit)), frequency,
      ...[at?.values[0], at?.values[1], at?.difference].map((value) => cell(value, trace.unit))], HEADS, { "data-trace": trace.name });
  }));
  const at = picture.traces[0]?.cursors;
  say(parts.between, at ? `A ${seconds(at.seconds[0])} (pulse ${at.pulses[0]}), B ${seconds(at.seconds[1])} (pulse ${at.pulses[1]}); Δt ${seconds(at.time)}, 1/Δt ${at.time ? `${digits(1 / at.time)} Hz` : "-"}` : "");
}

function setCursors(at) {
  cursors = at;
  parts.cursors.checked = at != null;
  for (const [index, id] of ["a", "b"].entries()) parts[id].value = at ? digits(at[index] * 1e3, 7) : "";
  draw();
  view();
}

function typed() {
  const [a, b] = [parts.a, parts.b].map((input) => (input.value === "" ? NaN : Number(input.value) / 1e3));
  if (Number.isFinite(a) && Number.isFinite(b)) setCursors([a, b]);
}

function toggle() {
  const [low, high] = picture?.window ?? [0, 1];
  setCursors(parts.cursors.checked ? [low + (high - low) / 3, high - (high - low) / 3] : null);
}

function zoom(factor, shift = 0) {
  if (!picture) return;
  const [low, high] = window_ ?? picture.whole, half = (high - low) / 2 * factor, middle = (low + high) / 2 + shift * (high - low);
  window_ = [middle - half, middle + half];
  if (window_[0] <= picture.whole[0] && window_[1] >= picture.whole[1]) window_ = null;
  view();
}

/** Keys on the picture: + and − zoom, arrows move, a and b choose a cursor, arrows with Shift move it, 0 shows all. */
function key(event) {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (event.key === "+" || event.key === "=") zoom(0.5);
  else if (event.key === "-") zoom(2);
  else if (event.key === "0") { window_ = null; view(); }
  else if (event.key === "a" || event.key === "b") { active = event.key === "a" ? 0 : 1; if (!cursors) { parts.cursors.checked = true; toggle(); } }
  else if (step && event.shiftKey && cursors && picture) {
    const [low, high] = picture.window;
    setCursors(cursors.map((at, index) => (index === active ? at + step * (high - low) / 100 : at)));
  } else if (step) zoom(1, step / 4);
  else return;
  event.preventDefault();
}

/** A drag zooms to the range between its ends. A click moves the nearer cursor. */
function pointer(down) {
  const place = (event) => toSeconds?.(event.clientX - parts.canvas.getBoundingClientRect().left);
  const from = place(down), began = down.clientX;
  if (from == null) return;
  parts.canvas.setPointerCapture(down.pointerId);
  parts.canvas.addEventListener("pointerup", (up) => {
    const to = place(up);
    if (Math.abs(up.clientX - began) > 6) { window_ = [Math.min(from, to), Math.max(from, to)]; view(); }
    else if (cursors) { active = Math.abs(cursors[0] - to) < Math.abs(cursors[1] - to) ? 0 : 1; setCursors(cursors.map((at, index) => (index === active ? to : at))); }
  }, { once: true });
}

function addMaths() {
  const made = [parts.operation.value, Number(parts.one.value), Number(parts.two.value)];
  if (maths.length < 4) maths.push(made);
  view();
}

function chosen() {
  return parts.capture.value ? Number(parts.capture.value) : picture?.capture;
}

async function save() {
  const capture = chosen(), kind = parts.form.value;
  if (capture == null) return told("nothing was captured yet", true);
  waits.set(capture, `${(picture?.label ?? "capture").replace(/[^\w.-]+/g, "-")}.${kind}`);
  await simple("export", { capture, kind }, "");
}

/** Receives a part of a file. Other messages arrive between the parts, so a slow connection still shows new data. */
function file(message) {
  const more = message.getUint8(1) === 1, capture = message.getUint32(4, true), name = waits.get(capture);
  came.push(message.buffer.slice(8));
  if (more) return told(`${name}: ${digits(came.reduce((sum, part) => sum + part.byteLength, 0) / 1024)} KiB have come`);
  waits.delete(capture);
  download(name ?? "capture", came);
  came = [];
  told(`exported to ${name}`);
}

async function open() {
  const [given] = parts.file.files;
  if (!given) return;
  try {
    const bytes = await given.arrayBuffer();
    const answer = act("open", { name: given.name, bytes: bytes.byteLength });
    tahti.send(bytes);
    const { capture } = await answer;
    window_ = null;
    parts.capture.dataset.next = capture;
    told(`${given.name} is open`);
  } catch (error) {
    told(`${given.name}: ${error.message}`, true);
  }
  parts.file.value = "";
}

function status(data) {
  ({ live } = data);
  const ignored = live?.ignored ? `; ${counted(live.ignored, "trigger")} came while none counted` : "";
  const whose = live && !live.own ? " (set up by somebody else)" : "";
  say(parts.state, live ? `${live.segment}${whose}: ${live.phase}, ${counted(live.captures ?? 0, "capture")}${ignored}${data.note ? `; ${data.note}` : ""}` : data.note || "not set up");
  parts.state.className = !live && data.note ? "bad" : "";
  const isOn = live?.own && live.phase !== "stopped";
  for (const one of parts.setup.querySelectorAll("[data-mode]")) one.setAttribute("aria-pressed", String(isOn && armed === one.dataset.mode));
  const each = data.captures.map((one) => [one.id, `${one.label}${one.cause ? `, ${one.cause}` : ""}, ${one.rows} rows`]);
  fill(parts.capture, [["", "the newest"], ...each]);
  fill(parts.reference, [["", "none"], ...each]);
  const next = parts.capture.dataset.next;
  if (next && each.some(([id]) => String(id) === next)) {
    parts.capture.value = next;
    delete parts.capture.dataset.next;
    view();
  }
}

/** Fields that are rarely used. Closed until a user opens them. */
function drawer(title, ...inside) {
  return el("details", {}, el("summary", {}, title), ...inside);
}

/** Sets the mode and arms, as the buttons of an instrument do. */
function runs(mode, words, title) {
  return button(words, () => { parts.mode.value = mode; parts.setup.requestSubmit(); }, { title, "data-mode": mode });
}

/** The column of controls: acquisition, channels, trigger; the rest is in drawers. */
function setup() {
  parts.channels = el("fieldset", { class: "chips" });
  parts.setup = el("form", { submit: arm, "aria-label": "Set up the oscilloscope" },
    el("div", { class: "keys", role: "group", "aria-label": "Acquisition" },
      runs("normal", "run", "a capture at each trigger"), runs("single", "single", "one capture at the next trigger"), runs("auto", "auto", "a capture at each trigger, or without one after a while"),
      button("stop", () => simple("stop", {}, "stopped")), button("force", () => simple("force", {}, "forced"), { title: "a capture now, without a trigger" })),
    el("div", { class: "row" }, choice("segment", "Loop", [], variables), button("refresh", list, { "aria-label": "refresh the list of variables" }), button("look only", () => simple("look", { segment: parts.segment.value }, "shows what the loop has captured"), { title: "the settings of another client" })),
    parts.channels,
    el("fieldset", {}, el("legend", {}, "Trigger"), choice("kind", "at", TRIGGERS.map(([text, value]) => [value, text]), template), choice("variable", "of", [], template),
      field("trigger", "as text", el("input", { size: "20", spellcheck: "false", autocomplete: "off" }))),
    drawer("Length, holdoff, mode", el("div", { class: "fields" }, number("length", "Rows", 1000, { min: 2 }), number("pre", "before trigger, %", 30, { min: 0, max: 100 }), number("holdoff", "Holdoff, cycles", 0, { min: 0 }),
      number("every", "A row each cycles", 1, { min: 1 }), number("keep", "Keep", 4, { min: 1, max: 64 }), choice("mode", "Mode", ["single", "normal", "auto", "roll"].map((word) => [word, word])), el("button", {}, "arm"))));
  const quiet = (event) => event.preventDefault();
  return el("div", { class: "card controls" }, parts.setup,
    drawer("Captures and files", el("form", { class: "fields", submit: quiet, "aria-label": "Captures" },
      choice("capture", "Capture", [["", "the newest"]], () => { window_ = null; view(); }), choice("reference", "compared with", [["", "none"]], view),
      button("forget", () => { const capture = chosen(); if (capture != null) simple("forget", { capture }, "forgotten"); }, { "aria-label": "forget this capture" }),
      choice("form", "Export as", ["csv", "npy", "json"].map((word) => [word, `.${word}`])), button("export", save), field("file", "Open", el("input", { type: "file", accept: ".csv,.npy,.json", change: open })))),
    drawer("Maths", el("form", { class: "row", submit: quiet, "aria-label": "Maths" },
      choice("one", "Trace", [], null), choice("operation", "", [["minus", "−"], ["times", "·"]], null), choice("two", "", [], null),
      button("add", addMaths, { "aria-label": "add the trace that is made of two" }), button("none", () => { maths = []; view(); }, { "aria-label": "no made traces" }))));
}

/** The controls of the picture. */
function shown() {
  const only = (show, ...fields) => el("span", { class: "row", "data-for": show }, ...fields);
  return el("form", { class: "bar-row", submit: (event) => event.preventDefault(), "aria-label": "What is shown" },
    choice("show", "Show", [["time", "over time"], ["spectrum", "spectrum"], ["xy", "XY"], ["persistence", "persistence"]], () => { fitting(); view(); }),
    only("spectrum", choice("fade", "window", [["hann", "Hann"], ["flat-top", "flat top"], ["rectangle", "rectangle"]], view)), only("xy persistence", choice("x", "x, or channel", [], view)), only("xy", choice("y", "y", [], view)),
    el("span", { class: "row", role: "group", "aria-label": "Zoom" }, button("zoom in", () => zoom(0.5)), button("zoom out", () => zoom(2)), button("◀", () => zoom(1, -0.25), { "aria-label": "earlier" }), button("▶", () => zoom(1, 0.25), { "aria-label": "later" }),
      button("all", () => { window_ = null; view(); })),
    el("span", { class: "row" }, field("cursors", "Cursors", el("input", { type: "checkbox", change: toggle })), field("a", "A, ms", el("input", { type: "number", step: "any", size: "8", change: typed })), field("b", "B, ms", el("input", { type: "number", step: "any", size: "8", change: typed }))));
}

/** Shows the fields that the chosen kind of picture uses. */
function fitting() {
  for (const one of document.querySelectorAll("#scope-panel [data-for]")) one.hidden = !one.dataset.for.split(" ").includes(parts.show.value);
}

export default {
  id: "scope",
  title: "Oscilloscope",
  topics: ["scope"],
  build(section, given) {
    tahti = given;
    parts = { state: el("p", { role: "status", id: "scope-state" }, "not set up"), outcome: el("p", { role: "status", id: "scope-outcome" }), about: el("p", { id: "scope-about" }), between: el("p", { id: "scope-between", "aria-live": "polite" }) };
    parts.canvas = el("canvas", { "aria-hidden": "true", pointerdown: pointer, dblclick: () => { window_ = null; view(); } });
    const frame = el("div", { class: "plot", id: "scope-plot", tabindex: "0", role: "group", "aria-label": "Picture of the capture; its readings are in the table below. Plus and minus zoom, arrows move, A or B and Shift with arrows move a cursor, 0 shows all", keydown: key }, parts.canvas);
    readings = table("Readings", HEADS);
    const controls = setup();
    section.append(el("div", { class: "scope" }, controls, el("div", { class: "card" }, el("div", { class: "row" }, parts.state, parts.outcome), shown(), frame, parts.about, parts.between, readings.frame)));
    fitting();
    parts.operation.setAttribute("aria-label", "less or times");
    parts.two.setAttribute("aria-label", "the other trace");
    tahti.onBinary(PICTURE, take);
    tahti.onBinary(FILE, file);
    window.addEventListener("resize", () => { draw(); view(); });
  },
  connected() {
    came = [];
    list();
    // The captures were lost with the connection that made them.
    status({ live: null, captures: [], note: picture ? "the connection was lost, and the captures with it: arm again" : "" });
  },
  show(_, data) {
    status(data);
  },
};
