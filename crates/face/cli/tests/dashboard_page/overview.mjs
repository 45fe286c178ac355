// The overview, the way to each panel, and texts from outside.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { accessible, go, open, patience, plant, shot } from "./browser.mjs";

/** A process that is stopped by a signal appears in the tile, the status bar and the list, with its age, its cause and a remedy, until it continues.
 *  */
async function attends() {
  const { page, wrong, context } = await open(plant.viewer);
  const tile = page.locator("[data-tile=processes]"), row = page.locator("[data-attention=steady]");
  await tile.locator("strong", { hasText: /^(\d+) \/ \1$/ }).waitFor(patience);
  assert.equal(await row.count(), 0);
  await go(page, "processes");
  const pid = Number(await page.locator("tr[data-process=steady] td").first().textContent());
  await go(page, "overview");
  process.kill(pid, "SIGSTOP");
  try {
    await row.waitFor(patience);
    const cells = await row.locator("th, td").allTextContents();
    assert.match(cells[0], /^◆ broken$/);
    assert.deepEqual(cells[1], "steady");
    assert.match(cells[2], /^[\d.]+ (ms|s)$/);
    assert.match(cells[3], /stopped by a signal.*\(promised: runs, line \d+\)/);
    assert.match(cells[4], /tahti logs steady/);
    await page.locator("[data-tile=processes].wrong", { hasText: "steady: stopped by a signal" }).waitFor(patience);
    await page.locator("#verdict", { hasText: /^◆ failed: / }).waitFor(patience);
    assert.match(await page.title(), /◆ failed/);
    await accessible(page, "what needs attention");
    await shot(page, "attention");
  } finally {
    process.kill(pid, "SIGCONT");
  }
  await row.waitFor({ state: "detached", ...patience });
  await tile.locator("strong", { hasText: /^(\d+) \/ \1$/ }).waitFor(patience);
  assert.deepEqual(wrong, []);
  await context.close();
}

/** Goes to a process by keyboard and a part of its name. The address then names the process. */
async function leads() {
  const { page, wrong, context } = await open(plant.viewer);
  await page.locator("[data-tile=processes]").waitFor(patience);
  await page.locator("#uptime").waitFor(patience);
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox").pressSequentially("stead");
  await page.getByRole("option", { name: "steady" }).first().waitFor(patience);
  await accessible(page, "palette");
  await page.keyboard.press("Enter");
  await page.locator("tr.marked[data-process=steady]").waitFor(patience);
  assert.equal(new URL(page.url()).hash, "#/processes/steady");
  // The same address opens the same item.
  await page.reload();
  await page.locator("tr.marked[data-process=steady]").waitFor(patience);
  await page.goBack();
  await page.locator("#overview-panel").waitFor(patience);
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keys" }).waitFor(patience);
  await accessible(page, "keys");
  await page.keyboard.press("Escape");
  await page.getByRole("dialog", { name: "Keys" }).waitFor({ state: "hidden", ...patience });
  await page.keyboard.press("]");
  await page.locator("#latency-panel").waitFor(patience);
  assert.deepEqual(wrong, []);
  await context.close();
}

/** Texts from the plant never become elements. */
async function quotes() {
  const evil = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>";
  const { page, wrong, context } = await open(plant.viewer, {}, (page) => page.routeWebSocket(/\/ws$/, (socket) => {
    const server = socket.connectToServer();
    server.onMessage((message) => {
      const told = typeof message === "string" ? JSON.parse(message) : null;
      if (told?.topic === "plant") {
        told.data.reasons = [{ outcome: evil, words: evil }];
        told.data.shortfalls = [evil];
        told.data.attention = [{ subject: evil, claim: "runs", promise: evil, state: evil, evidence: `\`${evil}\``, line: 1, since_ns: 1e9 }];
        for (const one of told.data.processes) [one.state, one.class, one.cpus] = [evil, evil, evil];
        told.data.processes[0].name = evil;
      } else if (told?.topic === "alarms") {
        for (const row of told.data.rows ?? []) Object.assign(row, { path: `/${evil}`, channel: evil, severity: evil, message: evil, description: evil, value: evil, is_active: true });
      } else if (told?.topic === "archive") Object.assign(told, { data: { is_configured: true, error: evil } });
      else if (told?.topic === "late") {
        told.data = { now_ns: 2, above_ns: 1, wakeups: 1, late: 1, unexplained_percent: 0, last: [{ at_ns: 1, name: evil, tid: 1, cpu: 0, delay_ns: 9, parts: [[evil, 9]] }] };
      }
      if (told?.ok?.unreadable) {
        told.ok.lines = [[told.ok.newest, evil, evil, evil, evil]];
        Object.assign(told.ok, { processes: [evil], unreadable: [evil] });
      }
      socket.send(told ? JSON.stringify(told) : message);
    });
  }));
  await page.locator("[data-attention]").first().waitFor(patience);
  await page.locator(".late .stack").waitFor(patience);
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox").pressSequentially("onerror");
  await page.getByRole("option").first().waitFor(patience);
  await page.keyboard.press("Escape");
  for (const panel of ["processes", "alarms", "latency", "overview"]) await go(page, panel);
  await go(page, "logs");
  await page.locator(".logs .line", { hasText: "onerror" }).first().waitFor(patience);
  assert.equal(await page.locator("body img, body script").count(), 0);
  assert.doesNotMatch(await page.title(), /^run$/);
  assert.deepEqual(wrong, []);
  await context.close();
}

/** Another plant of this machine is in the overview with its verdict, in the status bar and in the palette, until it is down. */
async function neighbors() {
  const { page, wrong, context } = await open(plant.viewer);
  await page.locator("#uptime").waitFor(patience);
  const row = page.locator("tr[data-plant=other]"), bar = page.locator("#plants");
  assert.equal(await row.count(), 0);
  const folder = path.join(plant.folder, "run", "other");
  fs.mkdirSync(folder, { mode: 0o711 });
  fs.writeFileSync(path.join(folder, "state.json"), "{}");
  try {
    await row.waitFor(patience);
    assert.deepEqual(await row.locator("th, td").allTextContents(), ["other", "same", "■ unknown", "", "it has lost its supervisor; tahti up other continues it"]);
    await bar.filter({ hasText: /^2 plants, 1 not good$/ }).waitFor(patience);
    await page.locator("tr[data-plant]", { hasText: /(○ good|▲ degraded|◆ failed).*up for / }).waitFor(patience);
    await accessible(page, "several plants");
    await shot(page, "plants");
    await page.keyboard.press("Control+k");
    await page.getByRole("combobox").pressSequentially("plant oth");
    await page.getByRole("option", { name: "other" }).waitFor(patience);
    await page.keyboard.press("Escape");
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
  await row.waitFor({ state: "detached", ...patience });
  await bar.waitFor({ state: "hidden", ...patience });
  assert.deepEqual(wrong, []);
  await context.close();
}

export default [attends, leads, quotes, neighbors];
