// Small helpers. Texts of the cluster go into the document as text alone, never as HTML.

export const byId = (id) => document.getElementById(id);

/** A new element with children: nodes or texts. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** A new element with a text. */
export const text = (name, content, attributes = {}) => element(name, attributes, String(content));

/** Sets a text, if it is another one: a screen reader is not told the same again. */
export function setText(node, content) {
  const wanted = String(content);
  if (node.textContent !== wanted) node.textContent = wanted;
}

/** Sets the pairs of a description list. Pairs without a value are left out. */
export function setFacts(list, pairs) {
  const shown = pairs.filter(([, value]) => value !== undefined && value !== null && value !== "");
  const key = JSON.stringify(shown);
  if (list.dataset.shown === key) return;
  list.dataset.shown = key;
  list.replaceChildren(...shown.map(([name, value]) => element("div", {}, text("dt", name), text("dd", value))));
}

/** A text in which words between backquotes are code. */
export function withCode(content) {
  return content.split("`").map((part, index) => (index % 2 ? text("code", part) : part));
}

/** How long ago a time was, as kubectl writes it. */
export function age(time, now = Date.now()) {
  if (!time) return "unknown";
  const seconds = Math.max(0, Math.floor((now - Date.parse(time)) / 1000));
  const [minutes, hours, days] = [60, 3600, 86400].map((unit) => Math.floor(seconds / unit));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 600) return `${minutes}m${seconds % 60}s`;
  if (seconds < 10800) return `${minutes}m`;
  if (seconds < 28800) return `${hours}h${minutes % 60}m`;
  if (seconds < 172800) return `${hours}h`;
  return `${days}d`;
}

/** A duration, with two decimal places below 100 s. */
export const seconds = (value) => `${value < 100 ? value.toFixed(2) : value.toFixed(0)} s`;

const SIGNS = {
  Running: "●", Completed: "✓", Failed: "✕", Invalid: "✕", Restarting: "↻", Starting: "◔", NotReady: "▲",
  Suspended: "‖", Deleting: "⌫", NoJobs: "○", ManagedElsewhere: "→",
};
const LOOKS = { Running: "good", Completed: "good", Failed: "bad", Invalid: "bad" };

/** Shows a state by word, sign and colour. */
export function setState(node, state) {
  node.className = `state ${LOOKS[state] ?? "wait"}`;
  if (node.dataset.state === state) return;
  node.dataset.state = state;
  node.replaceChildren(text("span", SIGNS[state] ?? "?", { "aria-hidden": "true" }), ` ${state}`);
}

let announced = "";
let waiting = null;
let last = -Infinity;
/** The shortest time between two announcements. A screen reader has to finish a sentence. */
const QUIET = 5000;

/** Tells a screen reader, politely and not too often. Of several texts, it says the newest. */
export function announce(content) {
  if (content === announced) return;
  announced = content;
  if (waiting) return;
  waiting = setTimeout(() => {
    waiting = null;
    last = performance.now();
    setText(byId("announcer"), announced);
  }, Math.max(0, last + QUIET - performance.now()));
}
