// The page with the list of JobSets.

import { age, announce, byId, element, setState, setText, text } from "./dom.js";

/** How often ages are brought up to date. */
const AGES = 5000;

export class ListPage {
  constructor() {
    this.rows = new Map();
    this.body = byId("list").tBodies[0];
    document.title = "JobSets";
    setInterval(() => this.#ages(), AGES);
  }

  show(update) {
    if (update.whole) {
      // As after a lost connection. Rows that stay keep the keyboard's focus.
      const listed = new Set(update.jobsets.map(({ namespace, name }) => `${namespace}/${name}`));
      for (const key of [...this.rows.keys()]) if (!listed.has(key)) this.#remove(key);
    }
    for (const [namespace, name] of update.removed) this.#remove(`${namespace}/${name}`);
    const isFirst = this.rows.size === 0;
    for (const jobset of update.jobsets) this.#set(jobset, update.whole && isFirst);
    byId("list").classList.toggle("one-namespace", update.namespace !== null);
    setText(byId("list-title"), update.namespace === null ? "JobSets" : `JobSets of namespace ${update.namespace}`);
    const empty = byId("list-empty");
    empty.hidden = this.rows.size > 0;
    byId("list").hidden = this.rows.size === 0;
    const place = update.namespace === null ? "any namespace" : `namespace ${update.namespace}`;
    setText(empty, update.complete ? `There is no JobSet in ${place}.` : "Reading the cluster.");
    if (update.complete) announce(this.#summary());
  }

  #remove(key) {
    this.rows.get(key)?.row.remove();
    this.rows.delete(key);
  }

  #set(jobset, last) {
    const key = `${jobset.namespace}/${jobset.name}`;
    let entry = this.rows.get(key);
    if (!entry) {
      entry = this.#add(jobset, last);
      this.rows.set(key, entry);
    }
    entry.jobset = jobset;
    const inPlace = jobset.strategy === "InPlaceRestart";
    setState(entry.state, jobset.state);
    const cells = [
      `${jobset.jobsReady}/${jobset.jobs}`, jobset.restarts.total, inPlace ? jobset.syncedEpoch : "-", jobset.pods,
      jobset.strategy, age(jobset.created),
    ];
    cells.forEach((content, index) => setText(entry.cells[index], content));
  }

  /** Adds a row, at the end if it is the last one. */
  #add(jobset, last) {
    const { namespace, name } = jobset;
    const href = `/jobset/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
    const state = element("span");
    const cells = ["number", "number", "number", "number", "", "number"].map((look) => element("td", { class: look }));
    const row = element(
      "tr", {}, text("td", namespace), element("th", { scope: "row" }, text("a", name, { href })), element("td", {}, state), ...cells,
    );
    // The rows are in the order of namespaces and names, in which a whole list arrives.
    const entry = { row, state, cells, jobset };
    let next = null;
    for (const other of last ? [] : this.rows.values()) {
      if (isBefore(jobset, other.jobset) && (!next || isBefore(other.jobset, next.jobset))) next = other;
    }
    this.body.insertBefore(row, next?.row ?? null);
    return entry;
  }

  #ages() {
    for (const { jobset, cells } of this.rows.values()) setText(cells[5], age(jobset.created));
  }

  #summary() {
    const states = new Map();
    for (const { jobset } of this.rows.values()) states.set(jobset.state, (states.get(jobset.state) ?? 0) + 1);
    return `JobSets: ${[...states].map(([state, count]) => `${count} ${state}`).join(", ") || "none"}`;
  }
}

const isBefore = (a, b) => a.namespace < b.namespace || (a.namespace === b.namespace && a.name < b.name);
