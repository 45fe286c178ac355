// Goes through every panel as people do: node panels.mjs VIEWER-ADDRESS OPERATOR-ADDRESS SEGMENT FOLDER LOOP-PID TOUR, with NODE_MODULES.
// With SHOTS=folder it leaves pictures there.
import assert from "node:assert/strict";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const require = createRequire(path.join(process.env.NODE_MODULES, "x.js"));
const { chromium } = require("playwright-core");
const { AxeBuilder } = require("@axe-core/playwright");

const [viewer, operator, segment, folder, loop, tour] = process.argv.slice(2);
const patience = { timeout: 60_000 };
const shots = process.env.SHOTS;

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium-headless-shell", args: ["--no-sandbox"] });

/** A page with its own cookies; what goes wrong in it fails the test. */
async function open(address, options = {}, prepare = async () => {}) {
  const context = await browser.newContext({ viewport: { width: 1100, height: 900 }, ...options });
  const page = await context.newPage();
  await prepare(page);
  const wrong = [];
  page.on("pageerror", (error) => wrong.push(`${error}`));
  page.on("console", (message) => { if (message.type() === "error" && !message.text().includes("401")) wrong.push(message.text()); });
  await page.goto(address);
  return { page, wrong, context };
}

/** A page that has no connection to the dashboard before `connect`. */
async function early(address) {
  let connect;
  const connects = new Promise((done) => { connect = done; });
  const hold = (page) => page.routeWebSocket(/\/ws$/, async (socket) => { await connects; socket.connectToServer(); });
  return { ...await open(address, {}, hold), connect };
}

async function shot(page, name, locator) {
  if (!shots) return;
  // From the top; and the header stays there, where it covers nothing.
  await page.evaluate(() => { document.querySelector("header").style.position = "static"; window.scrollTo(0, 0); });
  await (locator ?? page).screenshot({ path: path.join(shots, `${name}.png`) });
}

/** What axe-core finds, in both sets of colours. */
async function accessible(page, what) {
  for (const colorScheme of ["dark", "light"]) {
    await page.emulateMedia({ colorScheme });
    const { violations } = await new AxeBuilder({ page }).analyze();
    assert.deepEqual(violations.map((one) => `${what}, ${colorScheme}: ${one.id}: ${one.help}: ${one.nodes.map((node) => node.html).join(" ")}`), []);
  }
}

/** Goes to an element as who has no pointer: by the Tab key. */
async function tabTo(page, locator) {
  await locator.waitFor(patience);
  for (let steps = 0; steps < 400; steps++) {
    if (await locator.evaluate((element) => element === document.activeElement)) return;
    await page.keyboard.press("Tab");
  }
  assert.fail(`${locator} is not reached by Tab`);
}

/** Presses a button by keyboard alone. */
async function press(page, button) {
  await tabTo(page, button);
  await page.keyboard.press("Enter");
}

async function looks() {
  const { page, wrong, context } = await open(viewer);
  await page.locator("tr[data-process=loop] >> text=running").waitFor(patience);
  assert.ok(!page.url().includes("token"), "the token leaves the address bar");
  assert.match(await page.title(), /^p /);
  assert.equal(await page.locator("tr[data-process] button").count(), 0, "viewers have no buttons");
  await page.locator("#standing", { hasText: "you are a viewer" }).waitFor(patience);
  assert.equal(await page.locator("body.stale").count(), 0);
  await page.getByLabel("show threads").check();
  await page.locator("tr.thread").first().waitFor(patience);

  const shield = page.getByRole("region", { name: "What reached each CPU" });
  // Without root the kernel tells nobody; then the panel says so.
  await shield.locator("tbody tr").first().or(page.getByText("what reaches the CPUs is not known")).first().waitFor({ state: "attached", ...patience });
  if (process.getuid() === 0) assert.match(await shield.locator("tbody tr").first().textContent(), /^0housekeeping\d/);

  await page.locator("[data-loop=loop] canvas").waitFor(patience);
  await page.waitForFunction(() => {
    const canvas = document.querySelector("[data-loop=loop] canvas");
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    return pixels.some((value) => value > 0);
  }, null, patience);
  const cycles = () => page.locator("section[aria-labelledby=latency-title] tbody tr td").first().textContent();
  const before = Number(await cycles());
  await page.waitForFunction((old) => Number(document.querySelector("section[aria-labelledby=latency-title] tbody tr td").textContent) > old, before, patience);
  await page.getByText("this plant has no flight recorder").waitFor(patience);
  const line = page.locator("svg[data-line]");
  await line.waitFor(patience);
  assert.match(await line.getAttribute("aria-label"), /^Time line of .*, 40.0 ms: sensor in each minor; filter in minors 1, 3$/);
  await page.waitForFunction(() => document.querySelectorAll("svg[data-line] rect[fill-opacity='1']").length === 6, null, patience);
  await page.getByText(/minors, \d+ lost/).waitFor(patience);
  await shot(page, "frames", page.locator("section[aria-labelledby=frames-title]"));

  const alarm = page.locator("tr[data-alarm$='/RF/X:TEMP']");
  await alarm.getByText("not acknowledged").waitFor(patience);
  assert.match(await alarm.textContent(), /MAJOR.*53.*HIHI.*Cooling water.*Pump: switch to pump 2/);
  assert.equal(await page.locator("tr[data-alarm] button").count(), 0, "viewers have no buttons");
  await page.getByLabel("Only alarms with").fill("no such alarm");
  await alarm.waitFor({ state: "hidden", ...patience });
  await page.getByLabel("Only alarms with").fill("cooling");
  await alarm.waitFor(patience);
  await shot(page, "alarms", page.locator("section[aria-labelledby=alarms-title]"));

  // By keyboard alone: to the name, a signal, Enter.
  await page.getByLabel("Name", { exact: true }).focus();
  await page.keyboard.type("X:COUNT");
  await page.keyboard.press("Enter");
  const row = page.locator("tr[data-signal='X:COUNT']");
  await row.getByText("connected", { exact: true }).waitFor(patience);
  await page.waitForFunction(() => /\d+ turns/.test(document.querySelector("tr[data-signal='X:COUNT'] td").textContent), null, patience);
  await page.locator(".u-over").first().waitFor(patience);
  await row.getByRole("button", { name: "describe X:COUNT" }).click();
  await page.getByText(/X:COUNT: .*type double.*units turns/).waitFor(patience);
  await page.getByLabel("Name", { exact: true }).pressSequentially("X:CO");
  await page.locator("#signal-names option[value='X:COUNT']").waitFor({ state: "attached", ...patience });
  await page.getByLabel("Name", { exact: true }).fill("");

  await page.getByLabel("verb/object/complement").fill("get/nobody/x");
  await page.keyboard.press("Enter");
  await page.locator("[role=log] .bad").waitFor(patience);
  await page.getByLabel("verb/object/complement").fill("put/nobody/1A");
  await page.keyboard.press("Enter");
  await page.locator("[role=log]", { hasText: "viewers may look" }).waitFor(patience);

  await accessible(page, "all panels");
  await page.getByLabel("show threads").uncheck();
  await page.locator("tr.thread").first().waitFor({ state: "detached", ...patience });
  await shot(page, "dashboard");
  await shot(page, "signals", page.locator("section[aria-labelledby=signals-title]"));
  assert.deepEqual(wrong, []);
  await context.close();
}

async function acts() {
  const { page, wrong, context } = await open(operator);
  const row = page.locator("tr[data-process=steady]");
  await row.getByText("running", { exact: true }).waitFor(patience);
  const stop = row.getByRole("button", { name: "stop steady" });
  await press(page, stop);
  await page.getByRole("dialog").getByText("stop process steady?").waitFor(patience);
  await accessible(page, "dialog");
  // What is asked stands on "Cancel".
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor({ state: "hidden", ...patience });
  assert.equal(await row.getByText("running", { exact: true }).count(), 1);
  await press(page, stop);
  await press(page, page.locator("#ask-yes"));
  await row.getByText("stopped", { exact: true }).waitFor(patience);
  await press(page, row.getByRole("button", { name: "start steady", exact: true }));
  await press(page, page.locator("#ask-yes"));
  await row.getByText("running", { exact: true }).waitFor(patience);

  await page.getByLabel("Name", { exact: true }).fill("X:SET");
  await page.keyboard.press("Enter");
  const signal = page.locator("tr[data-signal='X:SET']");
  await signal.getByText("connected", { exact: true }).waitFor(patience);
  page.once("dialog", (dialog) => dialog.accept("3.5"));
  await signal.getByRole("button", { name: "set X:SET" }).click();
  await signal.getByText("3.5 A").waitFor(patience);
  assert.deepEqual(wrong, []);
  await context.close();
}

/** By keyboard: an alarm is acknowledged, put on the shelf and is back, with who did it. */
async function acknowledges() {
  const { page, wrong, context } = await open(operator);
  const alarm = page.locator("tr[data-alarm$='/RF/X:TEMP']");
  await alarm.getByText("not acknowledged").waitFor(patience);
  const act = (name) => press(page, alarm.getByRole("button", { name, exact: true }));
  await act("acknowledge X:TEMP");
  await alarm.getByText("MAJOR_ACK").waitFor(patience);
  await page.getByText("acknowledge X:TEMP: done").waitFor(patience);
  await page.locator("[data-alarm] button:focus", { hasText: "unacknowledge" }).waitFor(patience);
  await act("unacknowledge X:TEMP");
  await page.locator("#alarm-news", { hasText: "MAJOR X:TEMP, Cooling water" }).waitFor(patience);
  await page.getByLabel("because").fill("pump on order");
  await act("shelve X:TEMP");
  await alarm.getByText(/shelved for .* by .*: pump on order/).waitFor(patience);
  await page.getByLabel("also what is put aside").uncheck();
  await alarm.waitFor({ state: "hidden", ...patience });
  await page.getByLabel("also what is put aside").check();
  await act("unshelve X:TEMP");
  await alarm.getByText("not acknowledged").waitFor(patience);
  await accessible(page, "alarms");
  await page.getByRole("button", { name: "acknowledge all shown" }).click();
  await page.locator("#ask-yes").click();
  await alarm.getByText("MAJOR_ACK").waitFor(patience);
  assert.deepEqual(wrong, []);
  await context.close();
}

/** A command is completed, confirmed, answered by parts, seen as it passes, and called back from history. */
async function converses() {
  // What is wished for before there is a connection is done once there is one.
  const watcher = await early(viewer);
  const passing = watcher.page.getByRole("log", { name: "Messages as they pass" });
  await watcher.page.getByLabel("verb/object like").fill("put/sr_rf_*");
  await watcher.page.keyboard.press("Enter");
  await watcher.page.locator("#message-watching", { hasText: "waits for the connection" }).waitFor(patience);
  watcher.connect();
  await watcher.page.locator("#message-watching", { hasText: "watching" }).waitFor(patience);

  const { page, wrong, context, connect } = await early(operator);
  const line = page.getByLabel("verb/object/complement"), said = page.getByRole("log", { name: "Messages and their replies" });
  await line.focus();
  connect();
  await page.locator("#message-options option[value='put/']").waitFor({ state: "attached", ...patience });
  await page.keyboard.type("put/sr_");
  await page.locator("#message-options option[value='put/sr_rf_acc/']").waitFor({ state: "attached", ...patience });
  await page.keyboard.type("rf_acc/on");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").getByText("Send put/sr_rf_acc/on?").waitFor(patience);
  await page.getByRole("button", { name: "Cancel" }).click();
  assert.equal(await said.locator("div").count(), 0, "what was not confirmed is not sent");
  await line.press("Enter");
  await page.locator("#ask-yes").click();
  await said.locator("[data-part=code]", { hasText: "OK" }).waitFor(patience);
  await passing.getByText(/dashboard uid=\d+ .*put\/sr_rf_acc\/on -> OK/).waitFor(patience);

  await watcher.page.getByRole("button", { name: "pause" }).click();
  await line.press("ArrowUp");
  assert.equal(await line.inputValue(), "put/sr_rf_acc/on");
  await line.fill("put/sr_rf_phase/500deg");
  await line.press("Enter");
  await page.locator("#ask-yes").click();
  await said.locator("[data-part=code]", { hasText: "RANGE" }).waitFor(patience);
  await watcher.page.locator("#message-watching", { hasText: "paused, 1 wait" }).waitFor(patience);
  assert.equal(await passing.locator("div").count(), 1, "nothing moves while it is paused");
  await watcher.page.getByRole("button", { name: "go on" }).click();
  await passing.getByText("put/sr_rf_phase/500deg -> RANGE").waitFor(patience);
  await line.fill("list/server");
  await line.press("Enter");
  await said.locator("[data-part=lines]", { hasText: "rf uid=" }).waitFor(patience);
  await accessible(page, "console");
  await shot(page, "messages", page.locator("section[aria-labelledby=messages-title]"));
  await shot(watcher.page, "passing", watcher.page.locator("section[aria-labelledby=messages-title]"));
  assert.deepEqual([...wrong, ...watcher.wrong], []);
  await context.close();
  await watcher.context.close();
}

/** Settings are saved, compared after something was changed, and written back; a viewer sees and does nothing of it. */
async function remembers() {
  const { page, wrong, context } = await open(operator);
  const section = page.locator("section[aria-labelledby=settings-title]");
  await page.locator("#settings-set option[value=station]").waitFor({ state: "attached", ...patience });
  await page.getByLabel("Note", { exact: true }).fill("before the test");
  await page.keyboard.press("Enter");
  await page.locator("#settings-outcome", { hasText: "2 of 2 channels saved" }).waitFor(patience);
  const file = section.locator("tr[data-file]");
  assert.match(await file.textContent(), /before the test2compare$/);

  await page.getByLabel("Name", { exact: true }).fill("X:SET");
  await page.keyboard.press("Enter");
  const signal = page.locator("tr[data-signal='X:SET']");
  await signal.getByText("connected", { exact: true }).waitFor(patience);
  page.once("dialog", (dialog) => dialog.accept("4.25"));
  await signal.getByRole("button", { name: "set X:SET" }).click();
  await signal.getByText("4.25 A").waitFor(patience);
  await file.getByRole("button", { name: /^compare/ }).click();
  await page.locator("#settings-compared", { hasText: "1 equal, 1 not" }).waitFor(patience);
  const row = section.locator("tr[data-channel='X:SET']");
  assert.match(await row.textContent(), /^X:SET3.54.25/);
  await accessible(page, "settings");
  await shot(page, "settings", section);
  await page.getByRole("button", { name: "restore what is chosen" }).click();
  await page.getByRole("dialog").getByText("Write 1 channels of station back?").waitFor(patience);
  await page.locator("#ask-yes").click();
  await page.locator("#settings-outcome", { hasText: "1 channels hold what was saved" }).waitFor(patience);
  await signal.getByText("3.5 A").waitFor(patience);
  await page.locator("#settings-compared", { hasText: "2 equal, 0 not" }).waitFor(patience);

  const other = await open(viewer);
  await other.page.locator("section[aria-labelledby=settings-title] tr[data-file]").waitFor(patience);
  assert.ok(await other.page.locator("section[aria-labelledby=settings-title] form button", { hasText: /^save$/ }).isDisabled());
  await other.page.getByRole("button", { name: /^compare/ }).click();
  await other.page.locator("#settings-compared", { hasText: "2 equal, 0 not" }).waitFor(patience);
  assert.deepEqual([...wrong, ...other.wrong], []);
  await context.close();
  await other.context.close();
}

/** Exports what is shown; the file's path. */
async function exported(page, section, kind) {
  const waits = page.waitForEvent("download", patience);
  await page.locator("#scope-form").selectOption(kind);
  await section.getByRole("button", { name: "export", exact: true }).click();
  const download = await waits;
  const file = path.join(folder, download.suggestedFilename());
  assert.ok(file.endsWith(`.${kind}`), file);
  await download.saveAs(file);
  return file;
}

/** Each kind of trigger and mode; the first one without a pointer. */
async function triggers() {
  const { page, wrong, context } = await open(viewer);
  const section = page.locator("section[aria-labelledby=scope-title]"), about = page.locator("#scope-about");
  await page.locator(`#scope-segment option[value='${segment}']`).waitFor({ state: "attached", ...patience });
  await page.locator("#scope-segment").selectOption(segment);
  const set = async (trigger, { mode = "single", length = 50, pre = 20, holdoff = 0, keep = 4 } = {}) => {
    await page.locator("#scope-mode").selectOption(mode);
    for (const [id, value] of Object.entries({ trigger, length, pre, holdoff, keep })) await page.locator(`#scope-${id}`).fill(String(value));
    await page.locator("#scope-keep").press("Enter");
  };
  const captured = (text) => about.filter({ hasText: text }).waitFor(patience);
  const pulse = async () => Number((await about.textContent()).match(/at pulse (\d+), /)[1]);

  await tabTo(page, page.locator("#scope-trigger"));
  await page.keyboard.type("pulse % 100 = 7");
  await tabTo(page, page.locator("#scope-length"));
  await page.keyboard.press("Control+A");
  await page.keyboard.type("60");
  await page.keyboard.press("Enter");
  await captured(/trigger at pulse \d+07, 60 rows/);
  await page.locator("#scope-state", { hasText: "stopped, 1 captures" }).waitFor(patience);

  // Each comes from the value before it: 0 and 1 by turns.
  for (const [at, trigger] of ["beam enters 0.5..1.5", "beam leaves 0.5..1.5", "beam = 0.5 crossing", "beam > 0.5 rising", "beam < 0.5 falling"].entries()) {
    await set(trigger, { length: 20 + at });
    await captured(new RegExp(`trigger at pulse \\d+, ${20 + at} rows`));
  }
  // Ten a second would come; the holdoff lets one of five.
  await set("pulse % 100 = 0", { mode: "normal", length: 30, holdoff: 450 });
  await page.locator("#scope-state", { hasText: /triggers came while none counted/ }).waitFor(patience);
  // As many as are kept: those of the setups before are gone.
  await page.locator("#scope-state", { hasText: /, ([4-9]|\d\d+) captures/ }).waitFor(patience);
  await section.getByRole("button", { name: "stop", exact: true }).click();
  await page.locator("#scope-state", { hasText: "stopped" }).waitFor(patience);
  assert.equal(await page.locator("#scope-capture option").count(), 5, "the newest, and four");
  const kept = [];
  for (let at = 1; at <= 4; at++) {
    await page.locator("#scope-capture").selectOption({ index: at });
    const label = (await page.locator("#scope-capture option").nth(at).textContent()).split(",")[0];
    await captured(`${label}: trigger at pulse`);
    kept.push(await pulse());
  }
  for (const [at, one] of kept.entries()) assert.ok(one % 100 === 0 && (at === 0 || one - kept[at - 1] > 450), `${kept}`);

  await set("amplitude > 99", { mode: "auto", length: 31 });
  await captured(/auto at pulse \d+, 31 rows/);
  await set("amplitude > 99", { mode: "normal", length: 32 });
  await page.locator("#scope-state", { hasText: "armed, 0 captures" }).waitFor(patience);
  await section.getByRole("button", { name: "force" }).click();
  await captured(/forced at pulse \d+, 32 rows/);
  for (const [trigger, length] of [["miss", 33], ["overrun", 34]]) {
    await set(trigger, { length, pre: 0 });
    const seen = about.filter({ hasText: `, ${length} rows` }), until = Date.now() + patience.timeout;
    while (await seen.count() === 0) {
      assert.ok(Date.now() < until, `${trigger} begins no capture`);
      // The loop stands for some of its cycles.
      process.kill(Number(loop), "SIGSTOP");
      await page.waitForTimeout(30);
      process.kill(Number(loop), "SIGCONT");
      await page.waitForTimeout(200);
    }
    assert.match(await about.textContent(), /trigger at pulse/);
  }
  await section.getByRole("button", { name: "stop", exact: true }).click();
  assert.deepEqual(wrong, []);
  await context.close();
}

/** A page with the past of a signal from the archive, before the first sample that came to it. */
async function remembersSignals() {
  const told = [];
  const listen = async (page) => page.on("websocket", (socket) => socket.on("framereceived", ({ payload }) => { if (typeof payload === "string") told.push(JSON.parse(payload)); }));
  const until = Date.now() + patience.timeout;
  for (;;) {
    const { page, wrong, context } = await open(viewer, {}, listen);
    await page.getByLabel("Name", { exact: true }).fill("X:COUNT");
    await page.keyboard.press("Enter");
    await page.locator(".u-over").first().waitFor(patience);
    assert.deepEqual(wrong, []);
    await context.close();
    // Beside the archive's: time, least, largest, mean.
    if (told.some((one) => one.ok?.points?.length > 3 && one.ok.points.every(([at, least, most, mean]) => at > 1e9 && least <= mean && mean <= most))) return;
    assert.ok(Date.now() < until, "no past of X:COUNT");
  }
}

/** What is stale looks stale after two heartbeats, whole or by panels; what was left out is told. */
async function stales() {
  let silent = false, page_ = null;
  const { page, wrong, context } = await open(viewer, {}, async (page) => {
    await page.clock.install();
    await page.routeWebSocket(/\/ws$/, (socket) => {
      page_ = socket;
      const server = socket.connectToServer();
      server.onMessage((message) => { if (!silent) socket.send(message); });
    });
  });
  await page.locator("tr[data-process=loop] >> text=running").waitFor(patience);
  await page.clock.pauseAt(Date.now() + 60_000);
  // The page's clock stands; something comes, now.
  await page.evaluate(() => { document.getElementById("standing").textContent = "waits"; });
  const heard = () => page.evaluate(() => new Promise((done) => { new MutationObserver(done).observe(document.querySelector("#panels"), { childList: true, subtree: true, characterData: true }); }).then(() => true));
  await heard();
  silent = true;
  await page.clock.runFor(1_900);
  assert.equal(await page.locator("body.stale").count(), 0, "two heartbeats are not over");
  await page.clock.runFor(400);
  assert.equal(await page.locator("body.stale").count(), 1, "two heartbeats are over");
  assert.match(await page.locator("#standing").textContent(), /^STALE: nothing was heard/);
  page_.send(JSON.stringify({ beat: { dropped: 17, stale: ["frames"] } }));
  await page.locator("section.stale[aria-labelledby=frames-title]").waitFor({ state: "attached", ...patience });
  await page.clock.runFor(300);
  assert.equal(await page.locator("body.stale").count(), 0, "it is heard again");
  assert.match(await page.locator("#standing").textContent(), /17 updates left out for newer ones/);
  assert.equal(await page.locator("section.stale").count(), 1, "the others go on");
  assert.deepEqual(wrong, []);
  await context.close();
}

/** Through a capture as people go: a trigger by keyboard, cursors, zoom, spectrum, a made trace, a file and back. */
async function captures() {
  const { page, wrong, context } = await open(viewer, { acceptDownloads: true });
  const section = page.locator("section[aria-labelledby=scope-title]");
  const about = page.locator("#scope-about"), readings = section.getByRole("region", { name: "Readings" });
  await page.locator(`#scope-segment option[value='${segment}']`).waitFor({ state: "attached", ...patience });
  await page.locator("#scope-segment").selectOption(segment);
  for (const name of ["drive", "drive-phase"]) await section.locator(`fieldset input[value='${name}']`).uncheck();
  await page.locator("#scope-variable").selectOption("beam");
  await page.locator("#scope-kind").selectOption({ label: "changes" });
  assert.equal(await page.locator("#scope-trigger").inputValue(), "beam changes");
  await page.locator("#scope-length").fill("200");
  await page.locator("#scope-mode").selectOption("normal");
  await page.locator("#scope-length").press("Enter");
  await about.filter({ hasText: /trigger at pulse \d+, 200 rows/ }).waitFor(patience);
  const pixels = () => page.evaluate(() => {
    const canvas = document.querySelector("#scope-plot canvas");
    return canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.reduce((sum, value, at) => sum + (at % 4 === 3 && value > 0 ? 1 : 0), 0);
  });
  assert.ok(await pixels() > 1000, "traces are drawn");
  assert.equal(await readings.locator("tbody tr").count(), 2);
  await page.locator("#scope-capture option").nth(2).waitFor({ state: "attached", ...patience });

  // Another viewer looks and does not take it away.
  const other = await open(viewer);
  await other.page.locator(`#scope-segment option[value='${segment}']`).waitFor({ state: "attached", ...patience });
  await other.page.locator("#scope-segment").selectOption(segment);
  await other.page.getByRole("button", { name: "arm", exact: true }).click();
  await other.page.locator("#scope-outcome", { hasText: "somebody else has set up the oscilloscope" }).waitFor(patience);
  await other.page.getByRole("button", { name: "look only" }).click();
  await other.page.locator("#scope-about", { hasText: "trigger at pulse" }).waitFor(patience);
  assert.deepEqual(other.wrong, []);
  await other.context.close();

  // A trigger that is no loop's business: a message of somebody else.
  await page.locator("#scope-kind").selectOption({ label: "message" });
  assert.equal(await page.locator("#scope-trigger").inputValue(), "message put/*");
  await page.locator("#scope-trigger").fill("message get/sr_*");
  await page.locator("#scope-length").press("Enter");
  // "armed" may still be the setup before: messages are sent until one of them was taken for the trigger.
  const byMessage = about.filter({ hasText: /message at pulse \d+, 200 rows/ }), until = Date.now() + patience.timeout;
  while (await byMessage.count() === 0) {
    assert.ok(Date.now() < until, "a message begins no capture");
    await page.getByLabel("verb/object/complement").fill("get/sr_rf_acc/status");
    await page.keyboard.press("Enter");
    await page.waitForTimeout(500);
  }

  await section.getByRole("button", { name: "stop", exact: true }).click();
  await page.locator("#scope-state", { hasText: "stopped" }).waitFor(patience);
  await page.locator("#scope-capture").selectOption({ index: 1 });
  await page.locator("#scope-plot").focus();
  await page.keyboard.press("a");
  await page.locator("#scope-between", { hasText: /Δt .*s, 1\/Δt .* Hz/ }).waitFor(patience);
  await page.locator("#scope-a").fill("-10");
  await page.locator("#scope-b").fill("10");
  await page.locator("#scope-b").press("Tab");
  const [, triggered] = (await about.textContent()).match(/at pulse (\d+), /);
  const capture = JSON.parse(fs.readFileSync(await exported(page, section, "json"), "utf8"));
  // A cursor stands on a row: where the loop gave pulses up, on the nearest one that is there.
  const pulses = capture.pulses.map((pulse) => Number(pulse) - Number(triggered));
  const digits = (value) => Number(value.toPrecision(5));
  const nearest = (at) => Math.min(...pulses.map((pulse) => Math.abs(pulse - at)));
  const late = Date.now() + patience.timeout;
  for (;;) {
    const between = await page.locator("#scope-between").textContent();
    const [from, to] = between.match(/pulse (\d+)/g).map((text) => Number(text.slice(6)) - Number(triggered));
    const stand = pulses.includes(from) && pulses.includes(to) && Math.abs(from + 10) === nearest(-10) && Math.abs(to - 10) === nearest(10);
    // The time of a pulse is the measured one.
    const time = (to - from) * capture.period_s;
    if (stand && between.includes(`Δt ${digits(time * 1e3)} ms, 1/Δt ${digits(1 / time)} Hz`)) break;
    assert.ok(Date.now() < late, `${between} of ${pulses}`);
    await page.waitForTimeout(50);
  }
  assert.match(await readings.locator("tr[data-trace=amplitude] td").nth(8).textContent(), /\d/);
  await page.locator("#scope-plot").focus();
  await page.keyboard.press("+");
  await about.filter({ hasText: /shown -?\d/ }).waitFor(patience);
  await page.waitForFunction(() => { const [, whole, shown] = document.querySelector("#scope-about").textContent.match(/rows from (.*); shown ([^,]*)/); return whole !== shown; }, null, patience);
  const alone = await pixels(), tired = Date.now() + patience.timeout;
  await page.locator("#scope-reference").selectOption({ index: 2 });
  while (await pixels() <= alone) {
    assert.ok(Date.now() < tired, "the other capture is not drawn");
    await page.waitForTimeout(50);
  }
  await shot(page, "scope", section);
  await page.keyboard.press("0");
  await section.getByRole("button", { name: "add the trace that is made of two" }).click();
  await readings.locator("tr[data-trace='amplitude − phase']").waitFor(patience);
  for (const show of ["spectrum", "XY", "persistence", "over time"]) {
    await page.locator("#scope-show").selectOption({ label: show });
    await page.locator(`#scope-plot canvas[data-shown='${show}']`).waitFor(patience);
    assert.ok(await pixels() > 500, `${show} is drawn`);
  }

  const before = await readings.locator("tr[data-trace=amplitude] td").first().textContent();
  for (const kind of ["csv", "npy", "json"]) {
    const file = await exported(page, section, kind);
    await page.locator("#scope-file").setInputFiles(file);
    await page.locator("#scope-outcome", { hasText: `${path.basename(file)} is open` }).waitFor(patience);
    await about.filter({ hasText: path.basename(file) }).filter({ hasText: "200 rows" }).waitFor(patience);
    assert.equal(await readings.locator("tr[data-trace=amplitude] td").first().textContent(), before);
  }
  await page.locator("#scope-file").setInputFiles({ name: "bad.csv", mimeType: "text/csv", buffer: Buffer.from("a,b\n") });
  await page.locator("#scope-outcome", { hasText: "bad.csv: line 1" }).waitFor(patience);
  await accessible(page, "oscilloscope");
  assert.deepEqual(wrong, []);
  await context.close();
}

async function phone() {
  const { page, context } = await open(viewer, { viewport: { width: 375, height: 700 }, hasTouch: true });
  await page.locator("tr[data-process=loop]").waitFor(patience);
  await page.locator("tr[data-alarm]").first().waitFor(patience);
  await page.getByLabel("show threads").check();
  await page.getByLabel("Name", { exact: true }).fill("X:COUNT");
  await page.keyboard.press("Enter");
  await page.locator(".u-over").first().waitFor(patience);
  await page.locator(`#scope-segment option[value='${segment}']`).waitFor({ state: "attached", ...patience });
  await page.locator("#scope-segment").selectOption(segment);
  await page.getByRole("button", { name: "arm", exact: true }).tap();
  await page.locator("#scope-about", { hasText: "rows" }).waitFor(patience);
  await page.getByLabel("verb/object/complement").fill("list/server");
  await page.keyboard.press("Enter");
  await page.locator("[data-part=lines]").first().waitFor(patience);
  await page.getByRole("button", { name: /^compare/ }).first().tap();
  await page.locator("#settings-compared", { hasText: "equal" }).waitFor(patience);
  const wider = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  assert.ok(wider <= 0, `the page is ${wider} pixels wider than a phone`);
  await accessible(page, "phone");
  await shot(page, "phone");
  await context.close();
}

async function strangers() {
  const { page, context } = await open(viewer.replace(/#.*/, ""));
  await page.locator("#standing", { hasText: "LOCKED" }).waitFor(patience);
  assert.equal(await page.locator("tr[data-process]").count(), 0);
  await context.close();
}

const TOURS = {
  panels: [looks, acts, acknowledges],
  work: [remembers, converses, remembersSignals],
  scope: [triggers, captures],
  page: [stales, phone, strangers],
};

try {
  for (const step of TOURS[tour]) {
    console.log(`${tour}: ${step.name}`);
    await step();
  }
  console.log("all good");
} finally {
  await browser.close();
}
