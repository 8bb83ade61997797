// The page of one JobSet.

import { age, announce, byId, element, setFacts, setState, setText, text, withCode } from "./dom.js";
import { buckets, goodput, stall } from "./goodput.js";
import { Pods, fill } from "./pods.js";
import { showRestarts } from "./restarts.js";

export class JobSetPage {
  constructor(namespace, name) {
    this.pods = new Pods(namespace, name);
    this.name = name;
    setText(byId("title"), `${namespace}/${name}`);
    setText(byId("crumb"), ` / ${namespace} / ${name}`);
    document.title = name;
    setInterval(() => this.#times(), 1000);
  }

  show(update, arrived) {
    byId("gone").hidden = update.exists || !update.complete;
    byId("content").hidden = !update.exists;
    if (!update.exists) return;
    if (update.head) this.#head(update.head);
    if (update.grid) this.pods.load(update.grid, arrived);
    if (update.cells) this.pods.apply(update.cells, arrived);
    if (update.restarts) showRestarts(update.restarts);
    if (update.explanation) this.#explain(update.explanation);
  }

  #head(head) {
    this.head = head;
    document.title = `${head.state}: ${this.name}`;
    setState(byId("state"), head.state);
    this.#times();
    this.#barrier();
    const workers = head.workers ? ` ${head.workers.expected - head.workers.waiting} of ${head.workers.expected} workers run.` : "";
    const barrier = head.barrier && !head.barrier.lifted ? ` ${barrierText(head.barrier)}.` : "";
    announce(`${this.name} is ${head.state}.${workers}${barrier}`);
  }

  /** Shows what changes with the time, too. */
  #times() {
    if (!this.head) return;
    this.#facts();
    this.#conditions();
  }

  #conditions() {
    const lines = this.head.conditions.map((it) => [it.type, it.status, it.reason, age(it.lastTransitionTime), it.message]);
    fill(byId("conditions"), ["Type", "Status", "Reason", "Age", "Message"], lines);
    byId("conditions-details").hidden = lines.length === 0;
  }

  #facts() {
    const { head } = this;
    const { workers, epochs, restarts } = head;
    setFacts(byId("facts"), [
      ["Jobs", `${head.jobsReady} of ${head.jobs} ready`],
      ["Workers", workers && `${workers.expected - workers.waiting} of ${workers.expected} run`],
      ["Restarts", `${restarts.total}; ${restarts.counted} of ${restarts.max} counted`],
      ["Strategy", head.strategy],
      ["Epoch", epochs && `${epochs.synced} synced, ${epochs.deprecated} deprecated`],
      ["Agents", onStream(head.agentStream)],
      ["Back-off", left(head.barrierUntil)],
      ["Deadline", left(head.deadline)],
      ["Avoids", avoided(head.avoidedNodes)],
      ["Goodput", goodput(head.ledger)],
      ["Time", buckets(head.ledger)],
      ["Stall", stall(head.conditions)],
      ["Age", age(head.created)],
    ]);
  }

  #barrier() {
    const { barrier } = this.head;
    byId("barrier").hidden = !barrier;
    if (!barrier) return;
    setText(byId("barrier-text"), barrierText(barrier));
    const bar = byId("barrier-bar");
    bar.max = Math.max(1, barrier.expected);
    bar.value = barrier.lifted ? bar.max : barrier.reported;
    bar.textContent = byId("barrier-text").textContent;
  }

  #explain({ runs, findings }) {
    byId("why").hidden = findings.length === 0 && runs;
    setText(byId("why-title"), runs ? "Remarks" : "Why it does not run");
    const none = text("li", "No cause found yet.");
    const items = findings.map(({ what, details = [], advice }) => element(
      "li", {}, element("p", {}, ...withCode(what)),
      details.length ? element("ul", { class: "evidence" }, ...details.map((it) => text("li", it))) : "",
      element("p", { class: "advice" }, ...withCode(advice)),
    ));
    const list = byId("findings");
    const key = JSON.stringify(findings);
    if (list.dataset.shown === key) return;
    list.dataset.shown = key;
    list.replaceChildren(...(items.length ? items : [none]));
  }
}

function barrierText({ lifted, epoch, reported, expected }) {
  if (lifted) return `Barrier lifted: the workers of epoch ${epoch} may run`;
  return `Barrier closed: ${reported} of ${expected} Pods have reported epoch ${epoch}`;
}

/** How many agents are on the agent stream, and how old that may be. */
function onStream(agents) {
  if (!agents) return undefined;
  const { connectedPods, expectedPods, lastUpdateTime } = agents;
  return `${connectedPods} of ${expectedPods} on the agent stream, last written ${age(lastUpdateTime)} ago`;
}

/** The nodes that new Pods keep away from, and for how long still. */
function avoided(nodes = []) {
  const now = nodes.map(({ node, until }) => [node, left(until)]).filter(([, ends]) => ends);
  return now.length ? now.map(([node, ends]) => `${node} (${ends})`).join(", ") : undefined;
}

/** How long it is until a time, if that is to come. */
function left(time) {
  const seconds = time ? (Date.parse(time) - Date.now()) / 1000 : -1;
  return seconds > 0 ? `ends in ${age(new Date(Date.now() - seconds * 1000).toISOString())}` : undefined;
}
