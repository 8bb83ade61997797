// A page in Debian's Chromium, and what its script measures of itself.

import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];

/** Starts a browser with an empty profile. */
export function launch() {
  return chromium.launchPersistentContext(mkdtempSync(join(tmpdir(), "jobset-ui-")), {
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    headless: true,
    args: FLAGS,
    viewport: { width: 1280, height: 900 },
    colorScheme: "light",
  });
}

/** Opens a page and notes its requests, its errors, and the paintings of its grid. */
export async function open(browser, address) {
  const page = await browser.newPage();
  const seen = { requests: [], errors: [] };
  page.on("request", (request) => seen.requests.push(request.url()));
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  page.on("console", (message) => message.type() === "error" && seen.errors.push(message.text()));
  await page.addInitScript(() => {
    window.paintings = [];
    const note = (entry) => window.paintings.push({
      changes: entry.detail.changes, milliseconds: entry.duration,
      at: performance.timeOrigin + entry.startTime + entry.duration,
    });
    new PerformanceObserver((list) => list.getEntries().filter((entry) => entry.name === "jobset-ui").forEach(note)).observe({ type: "measure" });
  });
  await page.goto(address);
  return { page, seen };
}

/** The paintings of the grid since the last call. */
export const paintings = (page) => page.evaluate(() => window.paintings.splice(0));

/** Waits until the row of counts of a replicatedJob has a text in a column, and returns the time. */
export async function counted(page, column, wanted, timeout = 120000) {
  await page.waitForFunction(([column, wanted]) => {
    const table = document.getElementById("counts");
    const heads = [...(table?.tHead.rows[0].cells ?? [])].map((cell) => cell.textContent);
    return table?.tBodies[0].rows[0]?.cells[heads.indexOf(column)]?.textContent === wanted;
  }, [column, wanted], { timeout, polling: "raf" });
}

/** When the browser first painted anything, and any content, in milliseconds after the navigation began. */
export const firstPaint = (page) => page.evaluate(() => Object.fromEntries(
  performance.getEntriesByType("paint").map((entry) => [entry.name, entry.startTime]),
));
