// The timelines of recent restarts.

import { byId, element, seconds, setText, text } from "./dom.js";

const STEPS = [
  ["failed", "the first worker fails"],
  ["began", "the restart starts"],
  ["lifted", "the barrier is lifted"],
  ["recovered", "all Jobs are ready"],
];

/** Shows a report of restarts, the newest first. */
export function showRestarts(report) {
  const times = report.groupRestarts === 1 ? "once" : `${report.groupRestarts} times`;
  const summary = report.groupRestarts === 0
    ? `It has not restarted as a group (${report.strategy}); ${report.spent}.`
    : `It has restarted ${times} (${report.strategy}); ${report.spent}.`;
  const missing = report.expired > 0 ? ` Not listed: ${report.expired} of them, which neither the status nor an Event describes.` : "";
  setText(byId("restarts-summary"), summary + missing);
  byId("restarts").replaceChildren(...report.restarts.toReversed().map(timeline));
}

function timeline(restart) {
  const manner = { InPlace: "in place", Recreate: "by recreation" }[restart.manner] ?? "";
  const counted = { true: "counted", false: "not counted" }[restart.counted];
  const epoch = restart.epoch === undefined ? "" : `from epoch ${restart.epoch}`;
  const took = restart.total !== undefined ? seconds(restart.total) : restart.superseded ? "not recovered" : restart.recovered ? "" : "in progress";
  const about = [manner, epoch, counted, took].filter(Boolean).join(", ");
  const title = text("h3", `Restart ${restart.number ?? ""}: ${about}`);
  const item = element("li", { class: "restart" }, title);
  if (restart.cause) item.append(text("p", restart.cause, { class: "cause" }));
  if (restart.phases.length) item.append(bar(restart.phases));
  item.append(steps(restart));
  return item;
}

/** A bar in which each phase has its share of the time. */
function bar(phases) {
  const words = phases.map((phase) => `${phase.name} ${seconds(phase.seconds)}`);
  const made = element("div", { class: "bar", role: "img", "aria-label": words.join(", ") });
  phases.forEach((phase, index) => {
    const part = text("span", words[index], { class: `phase ${phase.name}` });
    part.style.flexGrow = Math.max(phase.seconds, 0.001);
    made.append(part);
  });
  return made;
}

function steps(restart) {
  const known = STEPS.map(([key, words]) => [restart[key], words]).filter(([at]) => at);
  known.sort(([a], [b]) => Date.parse(a) - Date.parse(b));
  const start = known.length ? Date.parse(known[0][0]) : 0;
  const list = known.map(([at, words]) => {
    const offset = `+${seconds((Date.parse(at) - start) / 1000)}`;
    return element("li", {}, text("time", clock(at), { datetime: at }), " ", text("span", offset, { class: "offset" }), ` ${words}`);
  });
  return element("ul", { class: "steps" }, ...list);
}

/** The time of day in UTC, as the other commands show it. */
const clock = (time) => new Date(time).toISOString().slice(11, 23);
