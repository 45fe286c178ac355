// The views of latency, processes and frames, with the history that the server keeps.
import assert from "node:assert/strict";
import { accessible, go, open, patience, plant, shot, tabTo } from "./browser.mjs";

/** Changes the messages of the server before the page gets them. */
const changed = (change) => (page) => page.routeWebSocket(/\/ws$/, (socket) => {
  const server = socket.connectToServer();
  server.onMessage((message) => {
    const told = typeof message === "string" ? JSON.parse(message) : null;
    if (told?.topic) change(told);
    socket.send(told ? JSON.stringify(told) : message);
  });
});

/** A page without figures in its messages draws the trends and the heat map that the server keeps. */
async function remembers() {
  const silent = changed((told) => { if (told.figures) told.figures = { second: told.figures.second, values: {}, loops: {} }; });
  const { page, wrong, context } = await open(plant.viewer, {}, silent);
  const enough = async () => {
    const past = await page.evaluate(async () => (await fetch("history")).json());
    return past.values["process/loop/cpu"]?.values.length > 3 && past.loops.loop?.cells.length > 0;
  };
  const tired = Date.now() + patience.timeout;
  while (!(await enough())) assert.ok(Date.now() < tired, "the server keeps no history");
  await page.reload();
  await go(page, "processes");
  await page.waitForFunction(() => document.querySelector("tr[data-process=loop] .spark-line")?.getAttribute("d")?.includes("L"), null, patience);
  await go(page, "latency");
  await page.locator("[data-loop=loop] canvas.heat[aria-label*='Maximum: '][aria-label$='s.']").waitFor(patience);
  assert.deepEqual(wrong, []);
  await context.close();
}

/** The table is sorted by keyboard and filtered. */
async function sorts() {
  const { page, wrong, context } = await open(plant.viewer, {}, undefined, "processes");
  const rows = page.locator("tr[data-process]"), names = () => rows.evaluateAll((all) => all.map((row) => row.dataset.process));
  await rows.nth(3).waitFor(patience);
  const before = await names();
  const header = page.getByRole("columnheader", { name: "process", exact: true }), button = header.getByRole("button");
  await button.focus();
  await page.keyboard.press("Enter");
  assert.equal(await header.getAttribute("aria-sort"), "ascending");
  assert.deepEqual(await names(), before.toSorted());
  await page.keyboard.press("Enter");
  assert.equal(await header.getAttribute("aria-sort"), "descending");
  assert.deepEqual(await names(), before.toSorted().reverse());
  await page.keyboard.press("Enter");
  assert.deepEqual([await header.getAttribute("aria-sort"), await names()], ["none", before]);
  await page.getByLabel("Filter", { exact: true }).fill("STEADY");
  await page.waitForFunction(() => document.querySelectorAll("tr[data-process]").length === 1, null, patience);
  assert.deepEqual(await names(), ["steady"]);
  assert.deepEqual(wrong, []);
  await context.close();
}

/** The address of a process opens its details: trends, the end of its log, starts, threads. */
async function details() {
  const { page, wrong, context } = await open(plant.viewer, {}, undefined, "processes/loop");
  const drawer = page.getByRole("complementary", { name: "Process loop" });
  await drawer.locator(".tail .line", { hasText: "armed:" }).first().waitFor(patience);
  await drawer.locator("[data-trend=p99] .spark-line[d]").waitFor({ state: "attached", ...patience });
  await drawer.getByText(/^running, process \d+ for /).waitFor(patience);
  await drawer.getByRole("rowheader", { name: "llrf" }).first().waitFor(patience);
  await accessible(page, "details of a process");
  await page.reload();
  await drawer.locator(".tail .line").first().waitFor(patience);
  await drawer.getByRole("button", { name: "close loop" }).click();
  await drawer.waitFor({ state: "hidden", ...patience });
  assert.equal(new URL(page.url()).hash, "#/processes");
  await page.getByRole("link", { name: "steady", exact: true }).click();
  await page.getByRole("complementary", { name: "Process steady" }).waitFor(patience);
  assert.deepEqual(wrong, []);
  await context.close();
}

/** A click on a cell of the heat map lists the late wake-ups of that second with their parts. */
async function cells() {
  const told = { second: null };
  const one = (second, delay, cause) => ({ at_ns: second, tid: 7, name: "llrf", cpu: 0, delay_ns: delay, parts: [[cause, delay]], second });
  const silent = changed((message) => {
    if (message.topic !== "late") return;
    message.data = { now_ns: 1e9, above_ns: 1000, wakeups: 9, late: 2, unexplained_percent: 0, last: [] };
    message.figures.late = [];
  });
  // The late wake-ups come with the history, which replaces what messages before it brought.
  const { page, wrong, context } = await open(plant.viewer, {}, async (page) => {
    await silent(page);
    await page.route("**/history", async (route) => {
      const answer = await route.fetch(), past = await answer.json();
      told.second ??= past.values["process/loop/cpu"].second - 5;
      past.late = [one(told.second - 60, 2_000_000, "timer"), one(told.second, 9_000_000, "softirq NET_RX")];
      await route.fulfill({ response: answer, json: past });
    });
  }, "latency");
  await page.locator("#late tbody tr", { hasText: "softirq NET_RX 9.00 ms" }).waitFor(patience);
  assert.equal(await page.locator("#late tbody tr").count(), 2);
  const link = page.locator("#late tbody tr", { hasText: "softirq NET_RX" }).getByRole("link");
  await link.focus();
  const before = await link.elementHandle(), words = await link.textContent();
  await page.waitForFunction(([link, words]) => link.textContent !== words, [before, words], patience);
  assert.ok(await before.evaluate((link) => link.isConnected && document.activeElement === link), "the link stays, with the focus, while its text changes");
  await link.click();
  await page.locator("#late h3", { hasText: /Late wake-ups of loop at \d\d:\d\d:\d\d, 6\.81 ms to 10\.0 ms/ }).waitFor(patience);
  assert.equal(new URL(page.url()).hash, `#/latency/${encodeURIComponent(`loop/${told.second}/24`)}`);
  assert.equal(await page.locator("#late tbody tr").count(), 1);
  await page.getByRole("link", { name: "show the last late wake-ups of all threads" }).click();
  await page.locator("#late h3", { hasText: "Last late wake-ups" }).waitFor(patience);
  // By the pointer, at the newest column.
  const map = page.locator("[data-loop=loop] canvas.heat[aria-label*='Maximum: ']");
  await map.waitFor(patience);
  const { width } = await map.boundingBox();
  await map.click({ position: { x: width - 3, y: 40 } });
  await page.locator("#late h3", { hasText: "Late wake-ups of loop at" }).waitFor(patience);
  assert.match(decodeURIComponent(new URL(page.url()).hash), /^#\/latency\/loop\/\d+\/\d+$/);
  await page.getByText("The recorder has no late wake-up here").waitFor(patience);
  await accessible(page, "a cell of the heat map");
  // The late time by cause, and two time ranges: by the pointer, then by keyboard.
  assert.deepEqual(await page.locator("#by-cause [data-cause]").evaluateAll((all) => all.map((one) => one.dataset.cause)), ["softirq", "timer"]);
  const ranges = page.locator("[data-compare=loop]");
  await map.scrollIntoViewIfNeeded();
  const box = await map.boundingBox();
  for (const [from, to] of [[0.5, 0.7], [0.75, 0.95]]) {
    await page.mouse.move(box.x + box.width * from, box.y + 40);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * to, box.y + 50, { steps: 3 });
    await page.mouse.up();
  }
  await ranges.getByText(/^A: \d\d:\d\d:\d\d to .*; B: /).waitFor(patience);
  await ranges.getByRole("row", { name: /^p99 ≤/ }).waitFor(patience);
  await ranges.getByRole("button", { name: "clear" }).click();
  await ranges.getByRole("row").first().waitFor({ state: "hidden", ...patience });
  await ranges.getByRole("button", { name: "compare the last two minutes" }).press("Enter");
  await ranges.getByRole("row", { name: /^maximum/ }).waitFor(patience);
  assert.deepEqual(wrong, []);
  await context.close();
}

/** An overrun is marked in the time line with a colour, a symbol and its number. */
async function overruns() {
  const { page, wrong, context } = await open(plant.viewer, {}, changed((told) => {
    if (told.topic !== "frames") return;
    Object.assign(told.data[0].activities[0], { budget_ns: 3e6, p50: 1e6, p99: 2e6, max: 5e6, overruns: 2 });
    Object.assign(told.data[0].activities[1], { budget_ns: 5e6, p50: 1e6, p99: 2e6, max: 3e6, overruns: 0 });
  }), "frames");
  await page.locator("svg[data-line] text.frame-over", { hasText: "◆ 2 overruns" }).waitFor(patience);
  assert.equal(await page.locator("svg[data-line] text.frame-over").count(), 1);
  assert.equal(await page.locator("svg[data-line] rect[fill='url(#frame-hatch-bad)']").count(), 4, "in each minor frame");
  assert.equal(await page.locator("svg[data-line] rect[fill='url(#frame-hatch)']").count(), 2);
  await page.locator("svg[data-line] text", { hasText: /^40\.0 ms$/ }).waitFor(patience);
  await accessible(page, "overruns");
  assert.deepEqual(wrong, []);
  await context.close();
}

/** Alarm transitions are marks on the time axis of a chart: those of the samples, and the last one of the alarm server with its message. */
async function annotates() {
  const at = Date.now() / 1000 - 10;
  const { page, wrong, context } = await open(plant.viewer, {}, changed((told) => {
    if (told.topic === "alarms") for (const row of told.data.rows ?? []) if (row.channel === "X:TEMP") Object.assign(row, { severity: "MAJOR", level: 4, value: "53", message: "HIHI_ALARM", time: { ...row.time, seconds: at } });
  }), "signals");
  for (const name of ["X:SAW", "X:TEMP"]) {
    await page.getByLabel("Name", { exact: true }).fill(name);
    await page.keyboard.press("Enter");
  }
  const mark = (signal, text) => page.getByRole("group", { name: `Strip chart of ${signal};` }).getByRole("img", { name: text }).first();
  await mark("X:SAW", /\d\d:\d\d:\d\d (MINOR|no alarm) X:SAW \d+ kV/).waitFor(patience);
  const alarm = mark("X:TEMP", /^\d\d:\d\d:\d\d MAJOR X:TEMP 53: HIHI_ALARM$/);
  await alarm.waitFor(patience);
  await tabTo(page, alarm);
  const shown = await alarm.evaluate((one) => getComputedStyle(one, "::after").content);
  assert.ok(shown.includes("HIHI_ALARM"), shown);
  await accessible(page, "alarms in a chart");
  await shot(page, "marks");
  assert.deepEqual(wrong, []);
  await context.close();
}

/** The views fit a desk and a phone, and are accessible in both colour schemes. */
async function fits() {
  for (const [name, width, height] of [["desk", 1440, 900], ["phone", 390, 844]]) {
    for (const colorScheme of ["light", "dark"]) {
      const { page, wrong, context } = await open(plant.viewer, { viewport: { width, height }, colorScheme });
      for (const view of ["overview", "latency", "processes", "processes/loop", "frames", "alarms"]) {
        await go(page, view);
        await page.locator(`#${view.split("/")[0]}-panel`).locator(".spark-line[d], svg[data-line]").first().waitFor({ state: "attached", ...patience });
        const wider = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
        assert.ok(wider <= 0, `${view} is ${wider} pixels wider than ${width}`);
        await shot(page, `${name}-${colorScheme}-${view.replace("/", "-")}`);
      }
      assert.deepEqual(wrong, []);
      await context.close();
    }
  }
}

export default [remembers, sorts, details, cells, overruns, annotates, fits];
