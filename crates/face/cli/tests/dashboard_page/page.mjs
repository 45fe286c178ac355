// The page as a whole: stale data, on a phone, without a token.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { accessible, go, open, patience, plant, shot } from "./browser.mjs";

/** Stale data look stale after two heartbeats, in the whole page or in single panels. The page reports dropped updates. */
async function stales() {
  let silent = false, page_ = null, opened = 0;
  const { page, wrong, context } = await open(plant.viewer, {}, async (page) => {
    await page.clock.install();
    await page.routeWebSocket(/\/ws$/, (socket) => {
      page_ = socket;
      opened++;
      const server = socket.connectToServer();
      server.onMessage((message) => { if (!silent) socket.send(message); });
    });
  });
  await page.locator("[data-tile=processes] strong", { hasText: /^\d+ \/ \d+$/ }).waitFor(patience);
  await page.clock.pauseAt(Date.now() + 5_000);
  // The page's clock is paused. Wait for a new message.
  await page.evaluate(() => { document.getElementById("standing").textContent = "waits"; });
  const heard = () => page.evaluate(() => new Promise((done) => { new MutationObserver(done).observe(document.querySelector("#panels"), { childList: true, subtree: true, characterData: true }); }).then(() => true));
  await heard();
  silent = true;
  await page.clock.runFor(1_900);
  assert.equal(await page.locator("body.stale").count(), 0, "two heartbeats are not over");
  await page.clock.runFor(400);
  assert.equal(await page.locator("body.stale").count(), 1, "two heartbeats are over");
  assert.match(await page.locator("#standing").textContent(), /^STALE: nothing was heard/);
  assert.match(await page.title(), /^p STALE – tahti$/);
  page_.send(JSON.stringify({ beat: { dropped: 17, stale: ["frames"] } }));
  await page.locator("section.stale[aria-labelledby=frames-title]").waitFor({ state: "attached", ...patience });
  await page.clock.runFor(300);
  assert.equal(await page.locator("body.stale").count(), 0, "it is heard again");
  assert.equal(await page.locator("#standing").getAttribute("title"), "17 updates were skipped for newer ones");
  assert.equal(await page.locator("section.stale").count(), 1, "the others go on");

  // The network of a connection that is silent for long may be down: the page tries another connection.
  await page.clock.runFor(9_500);
  assert.equal(opened, 1);
  await page.clock.runFor(1_000);
  silent = false;
  const tired = Date.now() + patience.timeout;
  while (opened < 2) {
    assert.ok(Date.now() < tired, "no other connection is tried");
    await page.clock.runFor(300);
  }
  await heard();
  await page.clock.runFor(300);
  await page.locator("#standing", { hasText: "you are a viewer" }).waitFor(patience);
  assert.deepEqual(wrong, []);
  await context.close();
}

async function phone() {
  const { page, context } = await open(plant.operator, { viewport: { width: 375, height: 700 }, hasTouch: true });
  /** Nothing of the panel is beyond the edge of the screen, except in elements that scroll. */
  const fits = async (panel) => {
    const wider = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    assert.ok(wider <= 0, `${panel} is ${wider} pixels wider than a phone`);
    const out = await page.evaluate(() => [...document.querySelectorAll("button, input, select, a[href]")]
      .filter((one) => !one.closest(".scroll, .skip, pre") && !one.matches(".skip") && one.getClientRects().length)
      .filter((one) => { const { left, right } = one.getBoundingClientRect(); return left < 0 || right > window.innerWidth; }).map((one) => one.outerHTML));
    assert.deepEqual(out, [], `controls of ${panel} are off a phone's screen`);
    await accessible(page, `phone, ${panel}`);
    await shot(page, `phone-${panel}`);
  };
  await page.locator("[data-tile=alarms]", { hasText: "active" }).waitFor(patience);
  await fits("overview");
  await page.locator("nav").getByRole("link", { name: "Processes" }).tap();
  await page.locator("tr[data-process=loop]").waitFor(patience);
  await page.getByLabel("show threads").check();
  await fits("processes");
  await page.locator("nav").getByRole("link", { name: "Alarms" }).tap();
  await page.locator("tr[data-alarm]").first().waitFor(patience);
  const beyond = await page.locator("tr[data-alarm] button").evaluateAll((all) => all.filter((one) => one.getBoundingClientRect().right > window.innerWidth).length);
  assert.equal(beyond, 0, "the buttons of each alarm are on the screen");
  await fits("alarms");
  await page.getByRole("button", { name: "More" }).tap();
  await page.locator("nav").getByRole("link", { name: "Signals" }).tap();
  await page.getByLabel("Name", { exact: true }).fill("X:COUNT");
  await page.keyboard.press("Enter");
  await page.locator(".u-over").first().waitFor(patience);
  await fits("signals");
  await go(page, "scope");
  await page.locator(`#scope-segment option[value='${plant.segment}']`).waitFor({ state: "attached", ...patience });
  await page.locator("#scope-segment").selectOption(plant.segment);
  await page.getByRole("button", { name: "single", exact: true }).tap();
  await page.locator("#scope-about", { hasText: "rows" }).waitFor(patience);
  await fits("scope");
  await go(page, "messages");
  await page.getByLabel("verb/object/complement").fill("list/server");
  await page.keyboard.press("Enter");
  await page.locator("[data-part=lines]").first().waitFor(patience);
  await fits("messages");
  await go(page, "logs");
  await page.locator(".logs .line").first().waitFor(patience);
  await fits("logs");
  await go(page, "settings");
  await page.getByRole("button", { name: /^compare/ }).first().tap();
  await page.locator("#settings-compared", { hasText: "equal" }).waitFor(patience);
  await fits("settings");
  await context.close();
}

async function strangers() {
  const { page, context } = await open(plant.viewer.replace(/#.*/, ""));
  await page.locator("#standing", { hasText: "LOCKED" }).waitFor(patience);
  assert.equal(await page.locator("tr[data-process]").count(), 0);
  await context.close();
}

/** The dashboard ends and starts again. Meanwhile the page looks stale; then it restores all that it showed. If the dashboard refuses it, the page
 *  reports that. Must be the last test, because its token is invalid afterwards. */
async function returns() {
  const tahti = (...words) => execFileSync(plant.tahti, [...words, "dashboard"], { timeout: patience.timeout });
  const { page, wrong, context } = await open(plant.viewer);
  const value = () => page.locator("tr[data-signal='X:COUNT'] td").first().textContent();
  await go(page, "signals");
  await page.getByLabel("Name", { exact: true }).fill("X:COUNT");
  await page.keyboard.press("Enter");
  await page.locator("tr[data-signal='X:COUNT']", { hasText: "turns" }).waitFor(patience);
  await go(page, "scope");
  await page.locator("#scope-segment").selectOption(plant.segment);
  await page.getByRole("button", { name: "single", exact: true }).click();
  await page.locator("#scope-about", { hasText: "rows" }).waitFor(patience);
  tahti("stop");
  await page.locator("body.stale #standing", { hasText: /^STALE: nothing was heard from the dashboard since \d\d:\d\d:\d\d; what is shown was true then$/ }).waitFor(patience);
  const before = await value();
  tahti("start");
  await page.locator("body:not(.stale) #standing", { hasText: "you are a viewer" }).waitFor(patience);
  await page.waitForFunction((old) => document.querySelector("tr[data-signal='X:COUNT'] td").textContent !== old, before, patience);
  await page.locator("#scope-state", { hasText: "the connection was lost, and the captures with it: arm again" }).waitFor(patience);
  await page.getByRole("button", { name: "single", exact: true }).click();
  await page.locator("#scope-state", { hasText: "stopped, 1 capture" }).waitFor(patience);

  fs.rmSync(path.join(process.env.TAHTI_RUN, "p/dashboard/access.json"));
  tahti("restart");
  await page.locator("body.stale #standing", { hasText: /^LOCKED: open the address/ }).waitFor(patience);
  const absent = /net::ERR_|WebSocket connection to/;
  assert.deepEqual(wrong.filter((one) => !absent.test(one)), []);
  await context.close();
}

export default [stales, phone, strangers, returns];
