// The Pods of a JobSet: grids, legend, counts, and the details of one Pod.

import { age, byId, element, setFacts, setText, text } from "./dom.js";
import { Grid } from "./grid.js";
import { STATES, Tiles } from "./tiles.js";

export class Pods {
  constructor(namespace, jobset) {
    Object.assign(this, { namespace, jobset, names: [], kinds: [], epochs: [], grids: [], pointed: Infinity, frame: 0, arrived: 0, changes: 0 });
    this.tiles = new Tiles();
    this.groups = byId("groups");
    new ResizeObserver(([entry]) => this.#resize(entry.contentRect.width)).observe(this.groups);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#recolor());
    byId("details-close").addEventListener("click", () => byId("details").close());
    byId("details").addEventListener("close", () => {
      this.#focus(this.opener);
      // The grid may be gone.
      if (document.activeElement === document.body) byId("main").focus();
    });
  }

  /** Takes in a whole grid. */
  load(grid, arrived) {
    const before = this.grids.map((it) => ({ name: it.name, active: it.active, pod: this.names[it.first + it.active] }));
    const focused = this.grids.find((it) => it.node === document.activeElement)?.name;
    this.names = grid.pods;
    this.kinds = [...grid.kinds];
    this.epochs = grid.epochs.map((epoch) => epoch ?? -1);
    const shape = JSON.stringify(grid.groups);
    // As after a lost connection. Grids that stay keep the keyboard's focus and place.
    if (shape === this.shape) {
      for (const it of this.grids) it.redraw();
      return this.#draw(arrived, this.names.length);
    }
    this.shape = shape;
    let first = 0;
    this.grids = grid.groups.map((layout) => {
      const made = new Grid(this, layout, first, this.tiles, {
        describe: (place) => this.describe(place),
        open: (place) => this.open(place, layout.name),
        point: (place) => this.#point(place),
      });
      const old = before.find((it) => it.name === layout.name);
      const pods = this.names.slice(first, first + made.count);
      made.active = old?.pod && pods.includes(old.pod) ? pods.indexOf(old.pod) : old?.active ?? 0;
      first += made.count;
      return made;
    });
    this.groups.replaceChildren(...this.grids.map((it) => it.section));
    this.#resize(this.groups.clientWidth);
    this.#focus(focused);
    this.#draw(arrived, this.names.length);
  }

  /** Gives the keyboard's focus to the grid of a replicatedJob. */
  #focus(name) {
    this.grids.find((it) => it.name === name)?.node.focus({ preventScroll: true });
  }

  /** Takes in changed cells. */
  apply(cells, arrived) {
    let index = 0;
    for (const [place, kind, epoch, name] of cells) {
      this.kinds[place] = kind;
      this.epochs[place] = epoch ?? -1;
      this.names[place] = name;
      // The changes are in the order of the places.
      while (place >= this.grids[index].first + this.grids[index].count) index += 1;
      this.grids[index].touch(place - this.grids[index].first);
    }
    this.#draw(arrived, cells.length);
  }

  /** Draws what has changed with the next frame, and measures the time until it is painted. */
  #draw(arrived, changes) {
    this.arrived ||= arrived;
    this.changes += changes;
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      const detail = { changes: this.changes };
      const start = this.arrived;
      (this.frame = 0), (this.arrived = 0), (this.changes = 0);
      for (const grid of this.grids) grid.draw();
      this.#point(this.pointed);
      this.#count();
      // A task that is posted in a frame runs after the frame has been painted.
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => {
        performance.measure("jobset-ui", { start, detail });
        performance.clearMeasures("jobset-ui");
        port1.close();
      };
      port2.postMessage(null);
    });
  }

  #resize(width) {
    this.tiles.reset();
    for (const grid of this.grids) grid.resize(width);
  }

  #recolor() {
    this.tiles.reset();
    for (const grid of this.grids) grid.redraw();
  }

  /** A Pod in words. */
  describe(place) {
    const [name, kind, epoch] = [this.names[place], this.kinds[place], this.epochs[place]];
    if (!name) return `${this.#job(place)}: a Pod that does not exist`;
    return `${name} ${STATES[kind].words}${epoch >= 0 ? `, epoch ${epoch}` : ""}`;
  }

  /** Says in words which Pod is at the cursor or below the pointer. */
  #point(place) {
    this.pointed = place;
    setText(byId("pointed"), place < this.names.length ? this.describe(place) : "");
  }

  #job(place) {
    const grid = this.grids.find(({ first, count }) => place < first + count);
    let rest = place - grid.first;
    return grid.jobs.find((job) => (rest -= job.pods) < 0).name;
  }

  /** Shows the details of a Pod until the user closes them. */
  async open(place, opener) {
    const name = this.names[place];
    const dialog = byId("details");
    this.opener = opener;
    setText(byId("details-title"), name || "This Pod does not exist");
    const known = [["Job", this.#job(place)], ["Shown as", STATES[this.kinds[place]].words]];
    setFacts(byId("details-facts"), known);
    if (!dialog.open) dialog.showModal();
    if (!name) return;
    const path = [this.namespace, this.jobset, name].map(encodeURIComponent).join("/");
    const answer = await fetch(`/pod/${path}`).catch(() => null);
    if (!answer?.ok) return setFacts(byId("details-facts"), [...known, ["Details", "The Pod is gone, or the server has ended."]]);
    const pod = await answer.json();
    setFacts(byId("details-facts"), [
      ...known,
      ["Status", pod.state],
      ["Ready", `${pod.containers[0]} of ${pod.containers[1]} containers`],
      ["Epoch", pod.epoch],
      ["Barrier", pod.barrier],
      ["Restarts", pod.restarts],
      ["Node", pod.node],
      ["Last exit", pod.lastExit],
      ["Age", age(pod.created)],
      ["Logs", `kubectl logs -n ${this.namespace} ${name} --all-containers`],
    ]);
  }

  /** The legend, and the numbers of Pods: the grid for those who do not see it. */
  #count() {
    const total = {};
    const rows = this.grids.map((grid) => {
      const counts = {};
      const epochs = new Map();
      for (let place = grid.first; place < grid.first + grid.count; place++) {
        const [kind, epoch] = [this.kinds[place], this.epochs[place]];
        counts[kind] = (counts[kind] ?? 0) + 1;
        total[kind] = (total[kind] ?? 0) + 1;
        if (epoch >= 0) epochs.set(epoch, (epochs.get(epoch) ?? 0) + 1);
      }
      return [grid.title.textContent, grid.count + grid.more, counts, epochs];
    });
    const kinds = Object.keys(STATES).filter((kind) => total[kind]);
    this.#legend(kinds);
    const heads = ["ReplicatedJob", "Pods", ...kinds.map((kind) => STATES[kind].words), "Epochs reported"];
    const lines = rows.map(([name, count, counts, epochs]) => [
      name, count, ...kinds.map((kind) => counts[kind] ?? 0),
      [...epochs].sort(([a], [b]) => a - b).map(([epoch, pods]) => `${epoch} by ${pods}`).join(", ") || "none",
    ]);
    fill(byId("counts"), heads, lines);
  }

  #legend(kinds) {
    const list = byId("legend");
    if (list.dataset.kinds === kinds.join("")) return;
    list.dataset.kinds = kinds.join("");
    list.replaceChildren(...kinds.map((kind) => element(
      "li", {}, text("span", kind, { class: "key", "data-kind": kind, "aria-hidden": "true" }), ` ${STATES[kind].words}`,
    )));
  }
}

/** Fills a table, and leaves cells alone whose text has not changed. */
export function fill(table, heads, lines) {
  const [head] = table.tHead.rows;
  if (head.cells.length !== heads.length) head.replaceChildren(...heads.map(() => element("th", { scope: "col" })));
  heads.forEach((content, index) => setText(head.cells[index], content));
  const body = table.tBodies[0];
  while (body.rows.length > lines.length) body.deleteRow(-1);
  lines.forEach((line, index) => {
    const row = body.rows[index] ?? body.insertRow();
    if (row.cells.length !== line.length) {
      row.replaceChildren(...line.map((_, column) => element(column ? "td" : "th", column ? {} : { scope: "row" })));
    }
    line.forEach((content, column) => setText(row.cells[column], content));
  });
}
