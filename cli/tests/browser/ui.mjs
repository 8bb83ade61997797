// Looks at the page of a JobSet in a browser: node ui.mjs ADDRESS PODS [FOLDER OF SCREENSHOTS].

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { counted, firstPaint, launch, open, paintings } from "./page.mjs";
import { contains, end, equal, step } from "./steps.mjs";

const [address, count, folder] = process.argv.slice(2);
const pods = Number(count);
const { origin } = new URL(address);
const browser = await launch();
const { page, seen } = await open(browser, address);
const grid = page.getByRole("grid", { name: "Pods of replicatedJob workers" });
const picture = async (name, options = { fullPage: true }) => {
  if (!folder) return;
  mkdirSync(folder, { recursive: true });
  await page.evaluate(() => document.activeElement.blur());
  await page.screenshot({ path: join(folder, `${name}.png`), ...options });
};

/** The one painting of all Pods that a change of the JobSet causes. */
async function paintingOfAll(state) {
  await counted(page, state, String(pods));
  await page.waitForFunction((pods) => window.paintings.some(({ changes }) => changes === pods), pods);
  const all = (await paintings(page)).filter(({ changes }) => changes === pods);
  if (all.length !== 1) throw new Error(`${all.length} paintings of all Pods`);
  return all[0];
}

/** The text of the cell at the cursor, as a screen reader has it. */
const active = () => grid.evaluate((node) => document.getElementById(node.getAttribute("aria-activedescendant")).textContent);

async function firstSight() {
  await counted(page, "runs", String(pods));
  const [painting] = (await paintings(page)).filter(({ changes }) => changes === pods);
  equal(new URL(page.url()).search, "", "the token leaves the address");
  return { paint: await firstPaint(page), snapshot: painting };
}

async function keyboard() {
  await page.keyboard.press("Tab");
  equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the content", "the first stop of Tab");
  await grid.focus();
  const first = await active();
  contains(first, "bench-workers-0-0 runs, epoch 3", "the first cell");
  for (const key of ["ArrowRight", "ArrowRight", "ArrowLeft"]) await page.keyboard.press(key);
  contains(await active(), "bench-workers-0-1 ", "one to the right");
  const columns = Number(await grid.getAttribute("aria-colcount"));
  await page.keyboard.press("ArrowDown");
  contains(await active(), `bench-workers-0-${columns + 1} `, "one down");
  equal(await page.locator("#pointed").textContent(), await active(), "what is shown below the grid");
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog", { name: `bench-workers-0-${columns + 1}` });
  await dialog.waitFor();
  await dialog.getByText(`node-${columns + 1}`, { exact: true }).waitFor();
  equal(await page.evaluate(() => document.activeElement.textContent), "Close", "the focus in the dialog");
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "hidden" });
  equal(await grid.evaluate((node) => node === document.activeElement), true, "the focus after Escape");
  const outline = await page.locator(".cursor").first().evaluate((node) => {
    const { visibility, outlineStyle, outlineWidth } = getComputedStyle(node);
    return [visibility, outlineStyle, outlineWidth];
  });
  equal(outline, ["visible", "solid", "3px"], "the cursor");
  // A page in the background has no connection. Afterwards, it gets everything again.
  const cell = await active();
  await page.evaluate(() => {
    for (const hidden of [true, false]) {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }
  });
  await page.locator("#connection[data-state=live]").waitFor();
  await page.waitForFunction((pods) => window.paintings.some(({ changes }) => changes === pods), pods);
  await paintings(page);
  equal(await active(), cell, "the cell after a lost connection");
  equal(await grid.evaluate((node) => node === document.activeElement), true, "the focus after a lost connection");
  await page.keyboard.press("PageDown");
  await page.keyboard.press("Home");
  await page.keyboard.press("End");
}

async function names() {
  const tree = await page.locator("body").ariaSnapshot();
  for (const part of [
    "- navigation \"Pages\"", "- link \"JobSets\"", "- main", "heading \"browser/bench", "progressbar \"Barrier closed: ",
    "heading \"Pods\"", "- grid \"Pods of replicatedJob workers\"", "- table \"Pods by replicatedJob and state\"",
    "heading \"Recent restarts\"", "- img \"detect 0.50 s, register 1.50 s, lift 1.50 s\"", "list \"Legend\"", "- status",
  ]) contains(tree, part, "accessible names");
  const nameless = await page.evaluate(() => [...document.querySelectorAll("a, button, progress, [role=grid], [role=img], table, section, dialog")]
    .filter((node) => node.checkVisibility() && !(node.textContent.trim() || node.getAttribute("aria-label") || node.getAttribute("aria-labelledby") || node.labels?.length))
    .map((node) => node.outerHTML));
  equal(nameless, [], "elements without a name");
}

async function schemes() {
  const look = () => page.evaluate(() => {
    const canvas = document.querySelector(".grid canvas");
    const [red, green, blue] = canvas.getContext("2d").getImageData(2, Math.floor(canvas.height / 4), 1, 1).data;
    return { back: getComputedStyle(document.body).backgroundColor, pixel: [red, green, blue] };
  });
  const light = await look();
  await page.emulateMedia({ colorScheme: "dark" });
  await page.waitForTimeout(200);
  const dark = await look();
  equal([light.back, dark.back], ["rgb(255, 255, 255)", "rgb(13, 17, 23)"], "the backgrounds");
  if (String(light.pixel) === String(dark.pixel)) throw new Error(`the grid keeps its colour ${light.pixel}`);
  await picture("ui-dark");
  await page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
  equal(await page.locator(".cursor").first().evaluate((node) => getComputedStyle(node).transitionDuration), "0s", "motion");
  await page.emulateMedia({ reducedMotion: "no-preference" });
}

async function list() {
  await page.getByRole("link", { name: "JobSets" }).click();
  const row = page.getByRole("row", { name: /bench/ });
  await row.waitFor();
  contains(await row.textContent(), String(pods), "the row of the JobSet");
  await picture("ui-list", { clip: { x: 0, y: 0, width: 1280, height: 240 } });
  await page.getByRole("link", { name: "bench" }).click();
  await counted(page, "Pods", String(pods));
}

async function alone() {
  const foreign = seen.requests.filter((url) => new URL(url).origin !== origin);
  equal(foreign, [], "requests to others");
  equal(seen.errors, [], "errors of the page");
  await browser.clearCookies();
  const other = await browser.newPage();
  const answer = await other.goto(address);
  equal(answer.status(), 401, "the spent token");
  contains(await other.textContent("body"), "kubectl jobset ui", "the advice");
  await other.close();
}

try {
  const first = await firstSight();
  await keyboard();
  await step("running", first);
  const restart = await paintingOfAll("restarts, old epoch");
  await step("restarting", { painting: restart });
  await counted(page, "waits at the barrier", String(pods / 2));
  await names();
  await picture("ui-light");
  await schemes();
  await paintings(page);
  await step("half");
  await counted(page, "Epochs reported", `4 by ${pods}`);
  await step("waiting", { paintings: await paintings(page) });
  const lifted = await paintingOfAll("runs");
  const facts = await page.locator("#facts").textContent();
  for (const fact of ["Goodput90.0% of 2h46m", "Timerunning 2h30m, stalled 16m40s", "Stallno worker has made progress"]) {
    contains(facts, fact, "the facts");
  }
  await step("lifted", { painting: lifted });
  await step("restarted", { painting: await paintingOfAll("restarts, old epoch") });
  await list();
  await alone();
  await step("last", { requests: seen.requests.length });
  await page.getByText("Connection lost").waitFor();
} finally {
  end();
  await browser.close();
}
