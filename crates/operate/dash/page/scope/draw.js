// Pictures of the oscilloscope: reads the binary messages of the server (their format is in src/scopes/picture.rs) and draws them.

const LANE = 120;
const LEFT = 70, RIGHT = 8, FOOT = 22, TOP = 4;

/** Formats a number with `count` digits. */
export function digits(value, count = 5) {
  return value == null || !Number.isFinite(value) ? "-" : String(Number(value.toPrecision(count)));
}

/** Formats seconds with a unit. */
export function seconds(value) {
  if (value == null) return "-";
  const size = Math.abs(value);
  const [unit, name] = size >= 1 ? [1, "s"] : size >= 1e-3 ? [1e-3, "ms"] : size >= 1e-6 || size === 0 ? [1e-6, "µs"] : [1e-9, "ns"];
  return size === 0 ? "0" : `${digits(value / unit)} ${name}`;
}

/** Decodes a message. Returns its head, with the columns added to the parts that they belong to. */
export function decode(view) {
  const length = view.getUint32(4, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(view.buffer, 8, length)));
  let at = 8 + length;
  const take = (Kind, count) => {
    const end = at + count * Kind.BYTES_PER_ELEMENT;
    // A copy, because typed arrays need aligned offsets and a head may have any length.
    const column = new Kind(view.buffer.slice(at, end));
    at = end;
    return column;
  };
  const sets = [head, head.reference].filter((set) => set);
  for (const set of sets) set.at = take(Float64Array, set.times);
  for (const set of sets) for (const trace of set.traces) [trace.least, trace.most] = [take(Float32Array, set.times), take(Float32Array, set.times)];
  for (const one of head.spectrum ?? []) if (one) one.amplitudes = take(Float32Array, one.lines);
  if (head.xy) head.xy.pairs = take(Float32Array, 2 * head.xy.points);
  if (head.persistence) head.persistence.counts = take(Uint8Array, head.persistence.columns * head.persistence.rows);
  return head;
}

function theme() {
  const style = getComputedStyle(document.body);
  const of = (name) => style.getPropertyValue(name).trim();
  return { text: of("--text"), faint: of("--faint"), line: of("--line"), traces: [0, 4, 1, 3, 2].map((cause) => of(`--cause-${cause}`)) };
}

/** Makes a canvas sharp on this screen. Returns its context, whose unit is a CSS pixel, with its size and the colours. */
function prepare(canvas, height) {
  const width = Math.max(100, canvas.parentElement.clientWidth - 12), ratio = window.devicePixelRatio || 1;
  [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = "12px system-ui, sans-serif";
  return { pen, width, height, colours: theme() };
}

/** Round numbers between two values, as ticks. */
function ticks(low, high, count) {
  const rough = (high - low) / count, size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * size).find((one) => one >= rough) ?? rough;
  const all = [];
  for (let at = Math.ceil(low / step); at * step <= high && all.length < 50; at++) all.push(at * step);
  return all;
}

/** Draws the horizontal axis and its grid. Returns a function from a value to its place. */
function across(drawn, [low, high], name) {
  const { pen, width, height, colours } = drawn;
  const x = (value) => LEFT + (value - low) / (high - low || 1) * (width - LEFT - RIGHT);
  pen.textAlign = "center";
  for (const tick of ticks(low, high, Math.max(2, width / 130))) {
    pen.strokeStyle = colours.line;
    pen.strokeRect(x(tick), TOP, 0, height - FOOT - TOP);
    pen.fillStyle = colours.faint;
    pen.fillText(name(tick), Math.min(x(tick), width - 30), height - 7);
  }
  return x;
}

/** Draws a lane with its scale. Returns a function from a value to its place. */
function lane(drawn, top, tall, [low, high], name, colour) {
  const { pen, width, colours } = drawn;
  if (!(low < high)) [low, high] = [low - 1, high + 1];
  const y = (value) => top + tall - 8 - (value - low) / (high - low) * (tall - 26);
  pen.strokeStyle = colours.line;
  pen.strokeRect(LEFT, top, width - LEFT - RIGHT, tall);
  pen.textAlign = "right";
  pen.fillStyle = colours.faint;
  for (const value of [low, high]) pen.fillText(digits(value), LEFT - 4, y(value) + 4);
  pen.textAlign = "left";
  pen.fillStyle = colour;
  pen.fillText(name, LEFT + 4, top + 12);
  return y;
}

function unit(trace) {
  return trace.unit ? `${trace.name} [${trace.unit}]` : trace.name;
}

/** Draws one trace: from the minimum to the maximum of each column, then on to the next. */
function line(pen, x, y, set, trace) {
  pen.beginPath();
  let on = false;
  for (let at = 0; at < set.times; at++) {
    const [least, most] = [trace.least[at] + trace.base, trace.most[at] + trace.base];
    if (Number.isNaN(least)) { on = false; continue; }
    const place = x(set.at[at]);
    if (on) pen.lineTo(place, y(least)); else pen.moveTo(place, y(least));
    if (most > least) pen.lineTo(place, y(most));
    on = true;
  }
  pen.stroke();
}

/** Draws traces over time, one lane each. Returns a function from a place on the canvas to seconds. */
export function overTime(canvas, picture, cursors) {
  const drawn = prepare(canvas, TOP + picture.traces.length * LANE + FOOT);
  const { pen, colours, width, height } = drawn;
  const x = across(drawn, picture.window, seconds);
  picture.traces.forEach((trace, index) => {
    const behind = picture.reference?.traces.find((other) => other.name === trace.name);
    const least = Math.min(trace.min ?? 0, behind?.min ?? Infinity), most = Math.max(trace.max ?? 0, behind?.max ?? -Infinity);
    const colour = colours.traces[index % colours.traces.length], top = TOP + index * LANE;
    const y = lane(drawn, top, LANE, [least, most], unit(trace), colour);
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, top, width - LEFT - RIGHT, LANE);
    pen.clip();
    if (behind) {
      pen.strokeStyle = colours.faint;
      pen.setLineDash([4, 3]);
      line(pen, x, y, picture.reference, behind);
      pen.setLineDash([]);
    }
    pen.strokeStyle = colour;
    pen.lineWidth = 1.3;
    line(pen, x, y, picture, trace);
    pen.restore();
  });
  const mark = (at, text, dash) => {
    if (at < picture.window[0] || at > picture.window[1]) return;
    pen.strokeStyle = pen.fillStyle = colours.text;
    pen.setLineDash(dash);
    pen.beginPath();
    pen.moveTo(x(at), TOP);
    pen.lineTo(x(at), height - FOOT);
    pen.stroke();
    pen.setLineDash([]);
    pen.textAlign = "left";
    pen.fillText(text, x(at) + 3, height - FOOT - 4);
  };
  if (picture.trigger) mark(0, "T", [1, 3]);
  cursors?.forEach((at, index) => mark(at, "AB"[index], [6, 2]));
  const [low, high] = picture.window;
  return (place) => low + (place - LEFT) / (width - LEFT - RIGHT) * (high - low);
}

/** Draws amplitudes over frequency, one lane each. */
export function spectra(canvas, picture) {
  const drawn = prepare(canvas, TOP + picture.traces.length * LANE + FOOT);
  const end = Math.max(...picture.spectrum.map((one) => one?.end ?? 0), 1e-9);
  const x = across(drawn, [0, end], (value) => `${digits(value)} Hz`);
  picture.traces.forEach((trace, index) => {
    const one = picture.spectrum[index], colour = drawn.colours.traces[index % drawn.colours.traces.length];
    const most = one ? one.amplitudes.reduce((a, b) => Math.max(a, b), 0) : 0;
    const y = lane(drawn, TOP + index * LANE, LANE, [0, most || 1], one ? unit(trace) : `${unit(trace)}: no spectrum of fewer than 8 rows, or of what is no number`, colour);
    if (!one) return;
    drawn.pen.strokeStyle = colour;
    drawn.pen.beginPath();
    one.amplitudes.forEach((value, at) => drawn.pen.lineTo(x(at / one.lines * one.end), y(value)));
    drawn.pen.stroke();
  });
}

/** Draws one channel over another. */
export function xy(canvas, picture) {
  const drawn = prepare(canvas, Math.min(400, canvas.parentElement.clientWidth));
  const { x: left, y: up, pairs, points } = picture.xy;
  const [over, under] = [picture.traces[up], picture.traces[left]];
  const colour = drawn.colours.traces[0];
  const x = across(drawn, [under.min, under.max > under.min ? under.max : under.min + 1], (value) => digits(value));
  const y = lane(drawn, TOP, drawn.height - FOOT - TOP, [over.min, over.max], `${unit(over)} over ${unit(under)}`, colour);
  drawn.pen.strokeStyle = colour;
  drawn.pen.beginPath();
  for (let at = 0; at < points; at++) drawn.pen.lineTo(x(pairs[2 * at]), y(pairs[2 * at + 1]));
  drawn.pen.stroke();
}

/** Draws how often a trace passed each cell. */
export function persistence(canvas, picture) {
  const drawn = prepare(canvas, 320);
  const { pen, width, height, colours } = drawn;
  const { channel, columns, rows, low, high, counts, captures } = picture.persistence;
  const trace = picture.traces[channel], colour = colours.traces[0];
  const x = across(drawn, picture.whole, seconds);
  lane(drawn, TOP, height - FOOT - TOP, [low, high], `${unit(trace)}: ${captures} captures`, colour);
  const [wide, tall] = [(width - LEFT - RIGHT) / columns, (height - FOOT - TOP - 26) / rows];
  pen.fillStyle = colour;
  counts.forEach((count, at) => {
    if (!count) return;
    pen.globalAlpha = 0.2 + 0.8 * count / Math.max(1, Math.min(captures, 255));
    pen.fillRect(LEFT + (at % columns) * wide, TOP + 18 + Math.floor(at / columns) * tall, Math.ceil(wide), Math.ceil(tall));
  });
  pen.globalAlpha = 1;
  return x;
}
