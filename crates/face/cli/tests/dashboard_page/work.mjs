// Settings, the message console, and the history of signals.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { accessible, early, go, open, patience, plant, press, setSignal, shot, tabTo } from "./browser.mjs";

/** Saves settings, compares them after a change, and restores them. A viewer may compare, but not change anything. */
async function remembers() {
  const { page, wrong, context } = await open(plant.operator);
  await go(page, "settings");
  const section = page.locator("section[aria-labelledby=settings-title]");
  await page.locator("#settings-set option[value=station]").waitFor({ state: "attached", ...patience });
  await page.getByLabel("Note", { exact: true }).fill("before the test");
  await page.keyboard.press("Enter");
  await page.locator("#settings-outcome", { hasText: "2 of 2 channels saved" }).waitFor(patience);
  const file = section.locator("tr[data-file]");
  assert.match(await file.textContent(), /before the test2compare$/);

  await go(page, "signals");
  await page.getByLabel("Name", { exact: true }).fill("X:SET");
  await page.keyboard.press("Enter");
  const signal = page.locator("tr[data-signal='X:SET']");
  await signal.getByText("connected", { exact: true }).waitFor(patience);
  await setSignal(page, "X:SET", "4.25");
  await signal.getByText("4.25 A").waitFor(patience);
  await go(page, "settings");
  await file.getByRole("button", { name: /^compare/ }).click();
  await page.locator("#settings-compared", { hasText: "1 equal, 1 not" }).waitFor(patience);
  const row = section.locator("tr[data-channel='X:SET']");
  assert.match(await row.textContent(), /^X:SET3.54.25/);
  await accessible(page, "settings");
  await shot(page, "settings", section);
  await page.getByRole("button", { name: "restore selected" }).click();
  await page.getByRole("dialog").getByText("Write 1 channel of station back?").waitFor(patience);
  await page.locator("#ask-yes").click();
  await page.locator("#settings-outcome", { hasText: "1 channel restored" }).waitFor(patience);
  await signal.getByText("3.5 A").waitFor({ state: "attached", ...patience });
  await page.locator("#settings-compared", { hasText: "2 equal, 0 not" }).waitFor(patience);

  const other = await open(plant.viewer);
  await go(other.page, "settings");
  await other.page.locator("section[aria-labelledby=settings-title] tr[data-file]").waitFor(patience);
  assert.ok(await other.page.locator("section[aria-labelledby=settings-title] form button", { hasText: /^save$/ }).isDisabled());
  await other.page.getByRole("button", { name: /^compare/ }).click();
  await other.page.locator("#settings-compared", { hasText: "2 equal, 0 not" }).waitFor(patience);
  assert.deepEqual([...wrong, ...other.wrong], []);
  await context.close();
  await other.context.close();
}

/** A command is completed, confirmed, answered by parts, seen by a watcher, and recalled from the history. */
async function converses() {
  // A watch that was requested before the connection exists starts with the connection.
  const watcher = await early(plant.viewer, "messages");
  const passing = watcher.page.getByRole("log", { name: "Messages as they pass" });
  await watcher.page.getByLabel("verb/object like").fill("put/sr_rf_*");
  await watcher.page.keyboard.press("Enter");
  await watcher.page.locator("#message-watching", { hasText: "waits for the connection" }).waitFor(patience);
  watcher.connect();
  await watcher.page.locator("#message-watching", { hasText: "watching" }).waitFor(patience);

  const { page, wrong, context, connect } = await early(plant.operator, "messages");
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
  assert.equal(await said.locator("[data-part=value]", { hasText: "rf uid=" }).count(), 0, "lines are shown once");
  await accessible(page, "console");
  await shot(page, "messages", page.locator("section[aria-labelledby=messages-title]"));
  await shot(watcher.page, "passing", watcher.page.locator("section[aria-labelledby=messages-title]"));
  assert.deepEqual([...wrong, ...watcher.wrong], []);
  await context.close();
  await watcher.context.close();
}

/** A page shows archived samples of a signal from before the first sample that it received. */
async function remembersSignals() {
  const told = [];
  let answered;
  const listen = async (page) => page.on("websocket", (socket) => socket.on("framereceived", ({ payload }) => {
    if (typeof payload !== "string") return;
    told.push(JSON.parse(payload));
    if (told.at(-1).ok?.points || told.at(-1).error) answered();
  }));
  const until = Date.now() + patience.timeout;
  for (;;) {
    const answer = new Promise((done) => { answered = done; }), { page, wrong, context } = await open(plant.viewer, {}, listen);
    await go(page, "signals");
    await page.getByLabel("Name", { exact: true }).fill("X:COUNT");
    await page.keyboard.press("Enter");
    await page.locator(".u-over").first().waitFor(patience);
    await answer;
    assert.deepEqual(wrong, []);
    await context.close();
    // Rows from the archive: time, minimum, maximum, mean.
    if (told.some((one) => one.ok?.points?.length > 3 && one.ok.points.every(([at, least, most, mean]) => at > 1e9 && least <= mean && mean <= most))) return;
    assert.ok(Date.now() < until, "no past of X:COUNT");
  }
}

/** A past time range: chosen by the buttons and by a drag, with its figures and as a file; then back to the present. */
async function looksBack() {
  const { page, wrong, context } = await open(plant.viewer);
  await go(page, "signals");
  await page.getByLabel("Name", { exact: true }).fill("X:COUNT");
  await page.keyboard.press("Enter");
  await page.locator(".u-over").first().waitFor(patience);
  const controls = page.getByRole("group", { name: "Time that the charts show" });
  const control = (name) => controls.getByRole("button", { name, exact: true });
  for (let times = 0; times < 4; times++) await press(page, control("closer"));
  assert.equal(await page.locator("#signal-time").textContent(), "live");
  // The archive receives more samples of the signal during this loop.
  const figures = page.locator(".plot p"), until = Date.now() + patience.timeout;
  for (;;) {
    await press(page, control("earlier"));
    await page.waitForFunction(() => / to /.test(document.getElementById("signal-time").textContent), null, patience);
    if (await figures.getByText(/^minimum .* turns, maximum .* turns, mean .* turns of \d{2,} samples/).waitFor({ timeout: 3000 }).then(() => true, () => false)) break;
    assert.ok(Date.now() < until, `no past of X:COUNT: ${await figures.textContent()}`);
    await press(page, control("live"));
  }
  const before = await page.locator("#signal-time").textContent();
  const over = page.locator(".u-over").first();
  await over.scrollIntoViewIfNeeded();
  const plot = await over.boundingBox();
  await page.mouse.move(plot.x + plot.width / 4, plot.y + 20);
  await page.mouse.down();
  await page.mouse.move(plot.x + plot.width * 3 / 4, plot.y + 40, { steps: 4 });
  await page.mouse.up();
  await page.waitForFunction((before) => document.getElementById("signal-time").textContent !== before, before, patience);
  assert.equal(await page.locator("#signal-span").inputValue(), "");
  await accessible(page, "the past of a signal");
  await shot(page, "past", page.locator("section[aria-labelledby=signals-title]"));
  const [file] = await Promise.all([page.waitForEvent("download", patience), page.getByRole("button", { name: "save what the chart of X:COUNT shows" }).click()]);
  assert.equal(file.suggestedFilename(), "X_COUNT.csv");
  const [heads, ...lines] = (await readFile(await file.path(), "utf8")).trim().split("\n");
  assert.equal(heads, "time,least,most,mean,samples");
  assert.ok(lines.length > 0 && lines.every((line) => /^\d{4}-.*Z,[\d.]+,[\d.]+,[\d.]+,[1-9]\d*$/.test(line)), lines[0]);
  await press(page, control("live"));
  assert.equal(await page.locator("#signal-time").textContent(), "live");
  assert.deepEqual(wrong, []);
  await context.close();
}

/** Signals of several units and one with states in a common chart, chosen by keyboard; the elements of an array. The page keeps the choice. */
async function compares() {
  const { page, wrong, context } = await open(plant.viewer, {}, undefined, "signals");
  const together = ["X:COUNT", "X:SET", "X:TEMP", "X:MODE"], choice = (name) => page.getByLabel(`common chart: ${name}`);
  for (const name of [...together, "X:ARRAY"]) {
    await page.getByLabel("Name", { exact: true }).fill(name);
    await page.keyboard.press("Enter");
    await page.locator(`tr[data-signal='${name}']`).getByText("connected", { exact: true }).waitFor(patience);
  }
  for (const name of together) {
    await tabTo(page, choice(name));
    await page.keyboard.press("Space");
  }
  const common = page.getByRole("group", { name: `Strip chart of ${together.join(", ")}; their values are in the table above` });
  for (const text of [/^A X:COUNT minimum \d+ turns, maximum \d+ turns$/, /^B X:SET [\d.]+ A since /, /^C X:TEMP 53 since /, /^D X:MODE standby since /, /^scaled without an axis: without a unit$/]) {
    await common.getByRole("listitem").filter({ hasText: text }).waitFor(patience);
  }
  assert.equal(await page.locator(".charts > .plot:not([hidden])").count(), 2, "what is in the common chart has no chart of its own");
  await page.getByRole("group", { name: "Strip chart of X:ARRAY" }).getByText("elements 1 to 3 of 3: minimum 1 V, maximum 4 V").waitFor(patience);
  await choice("X:ARRAY").waitFor({ state: "hidden", ...patience });
  await page.getByRole("button", { name: "describe X:SET" }).click();
  await common.locator("[data-about='X:SET']", { hasText: /unitsA/ }).waitFor(patience);
  await accessible(page, "a common chart");
  await shot(page, "common", page.locator("section[aria-labelledby=signals-title]"));
  const saved = async (what) => {
    const [file] = await Promise.all([page.waitForEvent("download", patience), page.getByRole("button", { name: `save what the ${what} shows` }).click()]);
    return [file.suggestedFilename(), ...(await readFile(await file.path(), "utf8")).trim().split("\n")];
  };
  const [name, heads, first, second] = await saved("common chart");
  assert.deepEqual([name, heads], ["signals.csv", ["time", ...together.flatMap((one) => ["least", "most", "value"].map((kind) => `${one} ${kind}`))].join(",")]);
  assert.match(first, /^\d{4}-.*Z,([\d.]*,){3}[\d.]+,[\d.]+,[\d.]+,53,53,53,1,1,1$/, "the held values come first");
  assert.match(second, /^\d{4}-.*Z,\d+,\d+,[\d.]+,,,,,,,,,$/);
  assert.deepEqual(await saved("chart of X:ARRAY"), ["X_ARRAY.csv", "element,value", "1,1", "2,4", "3,2.5"]);
  await page.reload();
  await common.waitFor(patience);
  await choice("X:MODE").uncheck();
  await page.getByRole("group", { name: "Strip chart of X:MODE; its value" }).waitFor(patience);
  assert.deepEqual(wrong, []);
  await context.close();
}

export default [remembers, converses, remembersSignals, looksBack, compares];
