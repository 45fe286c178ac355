// The page: one connection to the dashboard, the panels and their topics, and the marking of stale data.
import { say } from "./dom.js";
import { collect, keepOnly, restore } from "./figures.js";
import * as frame from "./frame.js";
import { setUp } from "./palette.js";
import panels from "./panels.js";

const STALE_MS = 2000;
const AGAIN_MS = 1000;
/** A connection that is silent for this long is closed. Its network may be down, which causes no event. */
const SILENT_MS = 10_000;

const standing = document.getElementById("standing");
const asked = new Map();
const binaries = new Map();
let socket = null;
let lastId = 0;
let openedAt = -Infinity, heardAt = -Infinity, heardClock = 0;
let refused = "";
/** The newest message of each topic. */
const newest = new Map();
let dropped = 0;
/** Difference between the dashboard's clock and this machine's, in seconds. Positive if the dashboard's is ahead. */
let ahead = 0;

/** The interface for panels. */
export const tahti = {
  role: "viewer",
  hello: {},
  /** The dashboard's time, in seconds since 1970. The clock of this machine may be wrong. */
  now() {
    return Date.now() / 1000 + ahead;
  },
  /** Whether the page is connected to the dashboard. */
  isConnected() {
    return socket?.readyState === WebSocket.OPEN;
  },
  /** The newest message of a topic; undefined before the first. */
  newest(topic) {
    return newest.get(topic);
  },
  /** Shows in the navigation how many things in a panel need attention. */
  badge: frame.badge,
  /** Sends a message that has no answer. */
  tell(what) {
    if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(what));
  },
  /** Sends a request. The promise resolves to the answer, or fails with the reason. */
  ask(what) {
    const id = ++lastId;
    return new Promise((good, bad) => {
      if (socket?.readyState !== WebSocket.OPEN) return bad(new Error("not connected"));
      asked.set(id, { good, bad });
      socket.send(JSON.stringify({ id, ...what }));
    });
  },
  /** Sends bytes, in parts that the server accepts. */
  send(bytes) {
    const most = 48 * 1024;
    for (let at = 0; at < bytes.byteLength && socket?.readyState === WebSocket.OPEN; at += most) socket.send(bytes.slice(at, at + most));
  },
  /** Calls `take(view)` with each binary message of this kind, as a DataView of the whole message. */
  onBinary(kind, take) {
    binaries.set(kind, take);
  },
  /** Asks the operator to confirm an action. */
  async confirm(text, yes) {
    const dialog = document.getElementById("ask");
    document.getElementById("ask-text").textContent = text;
    document.getElementById("ask-yes").textContent = yes;
    dialog.returnValue = "no";
    dialog.showModal();
    await new Promise((done) => dialog.addEventListener("close", done, { once: true }));
    return dialog.returnValue === "yes";
  },
};

/** Exchanges the token for a cookie. The token is behind the #, which is sent to no server and written to no log. */
async function login() {
  const token = location.hash.match(/^#token=([0-9a-f]+)$/)?.[1];
  if (!token) return;
  history.replaceState(null, "", location.pathname);
  const answer = await fetch("login", { method: "POST", body: token });
  if (!answer.ok) throw new Error((await answer.text()).trim());
}

/** Connects as soon as a dashboard runs and accepts this page. For a WebSocket, a refusal and an absent server look the same; plain HTTP shows the
 *  difference. */
async function connect() {
  const answer = await fetch("who", { signal: AbortSignal.timeout(SILENT_MS) }).catch(() => null);
  if (answer?.status === 401) locked((await answer.text()).trim());
  if (answer?.ok) open();
  else setTimeout(connect, AGAIN_MS);
}

function open() {
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  const own = new WebSocket(`${scheme}//${location.host}/ws`);
  [socket, openedAt, refused] = [own, performance.now(), ""];
  own.binaryType = "arraybuffer";
  own.addEventListener("message", (event) => {
    if (own !== socket) return;
    [heardAt, heardClock] = [performance.now(), Date.now()];
    if (typeof event.data === "string") text(JSON.parse(event.data));
    else binary(event.data);
  });
  own.addEventListener("close", () => lost(own));
}

function lost(own) {
  if (own !== socket) return;
  socket = null;
  own.close();
  asked.forEach(({ bad }) => bad(new Error("the connection was lost")));
  asked.clear();
  setTimeout(connect, AGAIN_MS);
}

function locked(why) {
  refused = why;
  watch();
}

function text(message) {
  if (message.hello) hello(message.hello);
  else if (message.topic) {
    newest.set(message.topic, message.data);
    if (message.figures) collect(message.figures);
    if (message.topic === "plant") {
      if (message.data.outcome !== "unknown") keepOnly(message.data.processes);
      frame.showPlant(message.data);
    }
    if (message.topic === "alarms") frame.showAlarms(message.data);
    if (message.topic === "plants") frame.showPlants(message.data.plants, tahti.hello.plant);
    for (const panel of panels) if (panel.topics.includes(message.topic)) panel.show(message.topic, message.data);
  } else if (message.answer != null) {
    const waits = asked.get(message.answer);
    asked.delete(message.answer);
    if (message.error != null) waits?.bad(new Error(message.error));
    else waits?.good(message.ok);
  } else if (message.beat) {
    dropped = message.beat.dropped;
    clock(message.beat.now);
    // The dashboard is alive, but its sources may be stale.
    for (const panel of panels) {
      if (panel.stale) panel.stale(message.beat.stale);
      else frame.markStale(panel.id, panel.topics.some((topic) => message.beat.stale.includes(topic)));
    }
  }
}

function binary(data) {
  const view = new DataView(data);
  binaries.get(view.getUint8(0))?.(view);
}

function clock(now) {
  ahead = now - Date.now() / 1000;
}

function hello(what) {
  clock(what.now);
  tahti.hello = what;
  tahti.role = what.role;
  document.title = `${what.plant} – tahti`;
  document.getElementById("plant").textContent = what.plant;
  document.body.dataset.role = what.role;
  tahti.tell({ do: "want", topics: [...new Set(panels.flatMap((panel) => panel.topics))] });
  recall();
  for (const panel of panels) panel.connected?.();
}

/** Fetches the history of the figures. Without it the page has the figures since its last connection. */
async function recall() {
  const past = await fetch("history", { signal: AbortSignal.timeout(SILENT_MS) }).then((answer) => (answer.ok ? answer.json() : null)).catch(() => null);
  if (past) restore(past);
}

function watch() {
  const now = performance.now(), stale = now - heardAt > STALE_MS;
  if (socket && now - Math.max(openedAt, heardAt) > SILENT_MS) lost(socket);
  if (refused) say(standing, refused);
  else if (!stale) {
    say(standing, `you are ${tahti.role === "operator" ? "an operator" : "a viewer"}`);
    // A slow connection or page shows fewer, but always the newest values.
    standing.title = dropped ? `${dropped} updates were skipped for newer ones` : "";
  } else if (heardAt > 0) {
    say(standing, `STALE: nothing was heard from the dashboard since ${new Date(heardClock).toLocaleTimeString("sv")}; what is shown was true then`);
  }
  document.body.classList.toggle("stale", stale || refused !== "");
  const plant = newest.get("plant");
  if (plant) frame.showVerdict(plant, tahti.hello.plant, stale || refused !== "");
  if (!stale && !refused) frame.showClock(tahti.now());
}

/** The targets that the palette can open. */
function things() {
  const pages = panels.map(({ id, title }) => ({ kind: "page", name: title, panel: id }));
  const processes = newest.get("plant")?.processes.map(({ name }) => ({ kind: "process", name, panel: "processes", thing: name })) ?? [];
  const alarms = newest.get("alarms")?.rows?.map(({ path }) => ({ kind: "alarm", name: path, panel: "alarms", thing: path })) ?? [];
  const plants = newest.get("plants")?.plants.map(({ name }) => ({ kind: "plant", name, panel: "overview" })) ?? [];
  return [...pages, ...processes, ...alarms, ...plants];
}

/** A panel was opened. Its drawings depend on its width, which is known only now. */
function opened(panel, thing) {
  window.dispatchEvent(new Event("resize"));
  for (const topic of panel.topics) if (newest.has(topic)) panel.show(topic, newest.get(topic));
  if (thing != null) panel.open?.(thing);
  else panel.close?.();
}

frame.build(panels);
for (const panel of panels) panel.build(frame.sectionOf(panel.id), tahti);
setUp({ things, signals: async (text) => (await tahti.ask({ do: "search", pattern: `*${text}*` })).found });
document.body.classList.add("stale");
// Removes the token from the address before the address names a panel.
const refusal = await login().then(() => null, (error) => error.message);
frame.start(opened);
if (refusal == null) connect();
else locked(refusal);
setInterval(watch, 250);
