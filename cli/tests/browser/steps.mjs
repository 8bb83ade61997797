// How the script and the test in Rust talk: the script writes a line of JSON at each step, and reads a line before it goes on.

import { createInterface } from "node:readline";

const input = createInterface({ input: process.stdin });
const lines = input[Symbol.asyncIterator]();

/** Ends the talk: an open input would keep the script alive. */
export const end = () => input.close();

/** Tells the test what is seen, and waits until it has changed the cluster. */
export async function step(name, facts = {}) {
  process.stdout.write(`${JSON.stringify({ step: name, ...facts })}\n`);
  const { done } = await lines.next();
  if (done) throw new Error(`the test has ended before ${name}`);
}

/** Fails if two values differ. */
export function equal(actual, expected, what) {
  const [a, b] = [actual, expected].map((value) => JSON.stringify(value));
  if (a !== b) throw new Error(`${what}: ${a}, expected ${b}`);
}

/** Fails if a text does not contain another one. */
export function contains(text, part, what) {
  if (!text.includes(part)) throw new Error(`${what}: no ${JSON.stringify(part)} in ${text}`);
}
