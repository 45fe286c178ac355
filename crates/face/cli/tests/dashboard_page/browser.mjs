// Shared by all tours: pages with separate cookies, and helpers that use the page by keyboard or check its accessibility.
import assert from "node:assert/strict";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const require = createRequire(path.join(process.env.NODE_MODULES, "x.js"));
const { chromium } = require("playwright-core");
const { AxeBuilder } = require("@axe-core/playwright");

/** The plant under test, as the test describes it. */
export const plant = JSON.parse(process.argv[3]);
export const patience = { timeout: 60_000 };
const shots = process.env.SHOTS;
/** A folder with files of the page, which are used in place of those of the dashboard. */
const files = process.env.PAGE;
const KINDS = { ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };

export const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium-headless-shell", args: ["--no-sandbox"] });

/** The open pages, and the errors of each. */
const pages = new Set();

/** The text of all open pages and their errors, for the report of a failed step. */
export async function seen() {
  const each = [...pages].filter(({ page }) => !page.isClosed()).map(async ({ page, wrong }) => [...wrong, await page.locator("body").innerText()].join("\n"));
  return (await Promise.all(each)).join("\n\n");
}

/** Answers with a file of the folder, or else as the dashboard does. */
async function serve(route) {
  const file = path.join(files, new URL(route.request().url()).pathname);
  if (!fs.existsSync(file)) return route.fallback();
  await route.fulfill({ contentType: KINDS[path.extname(file)], body: fs.readFileSync(file) });
}

/** Opens a page with separate cookies. Its errors fail the test. */
export async function open(address, options = {}, prepare = async () => {}, panel = null) {
  const context = await browser.newContext({ viewport: { width: 1100, height: 900 }, ...options });
  if (files) await context.route(/\.(js|css|svg)$/, serve);
  const page = await context.newPage();
  await prepare(page);
  const wrong = [];
  pages.add({ page, wrong });
  page.on("pageerror", (error) => wrong.push(`${error}`));
  page.on("console", (message) => { if (message.type() === "error" && !message.text().includes("401")) wrong.push(message.text()); });
  await page.goto(address);
  await page.waitForFunction(() => document.body.dataset.route, null, patience);
  if (panel) await go(page, panel);
  return { page, wrong, context };
}

/** Opens a panel by its address, as a link does. */
export async function go(page, panel) {
  await page.evaluate((panel) => { location.hash = `#/${panel}`; }, panel);
  await page.locator(`#${panel.split("/")[0]}-panel`).waitFor(patience);
}

/** A page that has no connection to the dashboard before `connect`. */
export async function early(address, panel) {
  let connect;
  const connects = new Promise((done) => { connect = done; });
  const hold = (page) => page.routeWebSocket(/\/ws$/, async (socket) => { await connects; socket.connectToServer(); });
  return { ...await open(address, {}, hold, panel), connect };
}

export async function shot(page, name, locator) {
  if (!shots) return;
  // Scrolls to the top, and keeps the header there, where it covers nothing.
  await page.evaluate(() => { document.querySelector("header").style.position = "static"; window.scrollTo(0, 0); });
  await (locator ?? page).screenshot({ path: path.join(shots, `${name}.png`) });
}

/** Sets a signal by the form in its row. */
export async function setSignal(page, name, value) {
  await page.getByRole("button", { name: `set ${name}`, exact: true }).click();
  await page.getByLabel(`New value of ${name}`).fill(value);
  await page.keyboard.press("Enter");
}

/** Checks a page with axe-core in both colour schemes. */
export async function accessible(page, what) {
  for (const colorScheme of ["dark", "light"]) {
    console.log(`axe: ${what}, ${colorScheme}`);
    await page.emulateMedia({ colorScheme });
    const { violations } = await new AxeBuilder({ page }).analyze();
    assert.deepEqual(violations.map((one) => `${what}, ${colorScheme}: ${one.id}: ${one.help}: ${one.nodes.map((node) => node.html).join(" ")}`), []);
  }
}

/** Goes to an element by the Tab key, as users without a pointer do. */
export async function tabTo(page, locator) {
  await locator.waitFor(patience);
  for (let steps = 0; steps < 400; steps++) {
    if (await locator.evaluate((element) => element === document.activeElement)) return;
    await page.keyboard.press("Tab");
  }
  assert.fail(`${locator} is not reached by Tab`);
}

/** Presses a button by keyboard alone. */
export async function press(page, button) {
  await tabTo(page, button);
  await page.keyboard.press("Enter");
}
