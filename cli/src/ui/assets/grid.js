// The grid of one replicatedJob's Pods: a canvas, of which changed cells are drawn again, with a cursor for the keyboard.
//
// A screen reader finds a grid with one cell, the one at the cursor. Its text says which Pod it is and how it is.

import { element, text } from "./dom.js";

/** Sizes of cells, in pixels. The largest one with which the grid is not too high is taken. */
const SIZES = [30, 24, 20, 16, 14, 12, 11];
/** A grid of this many pixels is high enough. */
const HEIGHT = 640;

export class Grid {
  /**
   * @param pods the arrays of all Pods: `names`, `kinds` and `epochs`
   * @param layout the replicatedJob: its name, and its Jobs with their numbers of cells
   * @param first the place of its first cell in the arrays
   */
  constructor(pods, layout, first, tiles, { describe, open, point }) {
    Object.assign(this, { pods, first, tiles, describe, open, point });
    this.name = layout.name;
    this.jobs = layout.jobs;
    this.count = layout.jobs.reduce((sum, job) => sum + job.pods, 0);
    this.starts = new Set();
    layout.jobs.reduce((start, job) => (this.starts.add(start), start + job.pods), 0);
    this.active = 0;
    this.dirty = new Set();
    this.canvas = element("canvas", { "aria-hidden": "true" });
    this.cursor = element("div", { class: "cursor", "aria-hidden": "true" });
    // The text of a new cell is read, that of a changed one is not: the two cells take turns.
    this.cells = ["a", "b"].map((turn) => element("div", { role: "gridcell", id: `cell-${first}-${turn}` }));
    this.row = element("div", { role: "row", class: "unseen" });
    this.node = element("div", { role: "grid", tabindex: "0", class: "grid", "aria-readonly": "true" }, this.canvas, this.cursor, this.row);
    this.node.setAttribute("aria-label", `Pods of replicatedJob ${layout.name}`);
    this.node.setAttribute("aria-describedby", "grid-help");
    this.title = text("h3", layout.name);
    this.more = layout.more;
    const more = this.more ? [text("p", `${this.more} more Pods that should exist have no cell here.`)] : [];
    this.section = element("section", {}, this.title, this.node, ...more);
    this.#listen();
  }

  /** Chooses the size of the cells for this width, and draws all. */
  resize(width) {
    const ratio = devicePixelRatio || 1;
    const columns = (size) => Math.max(1, Math.floor(width / size));
    const fits = (size) => Math.ceil(this.count / columns(size)) * size <= HEIGHT;
    this.size = SIZES.find(fits) ?? SIZES.at(-1);
    this.columns = columns(this.size);
    this.ratio = ratio;
    const shown = Math.min(this.columns, Math.max(1, this.count)) * this.size;
    const height = Math.max(1, Math.ceil(this.count / this.columns)) * this.size;
    this.canvas.width = Math.round(shown * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${shown}px`;
    this.canvas.style.height = `${height}px`;
    this.context = this.canvas.getContext("2d");
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.node.setAttribute("aria-rowcount", Math.ceil(this.count / this.columns));
    this.node.setAttribute("aria-colcount", Math.min(this.columns, this.count));
    this.cursor.style.width = this.cursor.style.height = `${this.size - 1}px`;
    this.redraw();
    this.#select(this.active);
  }

  /** Marks a cell, by its place in the grid, as changed. */
  touch(place) {
    this.dirty.add(place);
  }

  /** Draws all cells. */
  redraw() {
    for (let place = 0; place < this.count; place++) this.dirty.add(place);
    this.draw();
  }

  /** Draws the changed cells. */
  draw() {
    const { context, tiles, size, columns, ratio, first, pods } = this;
    for (const place of this.dirty) {
      const [x, y] = [(place % columns) * size, Math.floor(place / columns) * size];
      tiles.draw(context, pods.kinds[first + place], pods.epochs[first + place], x, y, size, ratio);
      if (place > 0 && this.starts.has(place) && this.jobs.length < this.count) this.#divide(x, y);
    }
    if (this.dirty.has(this.active)) this.#describe(false);
    this.dirty.clear();
  }

  /** Marks where a Job begins. */
  #divide(x, y) {
    this.context.fillStyle = this.tiles.divider();
    this.context.fillRect(x, y, 1.5, this.size - 1);
  }

  #listen() {
    this.node.addEventListener("keydown", (event) => this.#key(event));
    this.node.addEventListener("focus", () => this.#select(this.active));
    this.canvas.addEventListener("pointermove", (event) => this.#at(event, (place) => this.point(this.first + place)));
    this.canvas.addEventListener("click", (event) => {
      this.#at(event, (place) => {
        this.node.focus({ preventScroll: true });
        this.#select(place);
        this.open(this.first + place);
      });
    });
  }

  #at(event, then) {
    const column = Math.floor(event.offsetX / this.size);
    const place = Math.floor(event.offsetY / this.size) * this.columns + column;
    if (column < this.columns && place < this.count) then(place);
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.count === 0) return;
    const { active, columns } = this;
    const row = active - (active % columns);
    const page = columns * 10;
    const moves = {
      ArrowRight: active + 1, ArrowLeft: active - 1, ArrowDown: active + columns, ArrowUp: active - columns,
      Home: row, End: row + columns - 1, PageDown: active + page, PageUp: active - page,
    };
    if (event.key === "Enter" || event.key === " ") {
      this.open(this.first + active);
    } else if (event.key in moves) {
      this.#select(Math.min(this.count - 1, Math.max(0, moves[event.key])));
    } else {
      return;
    }
    event.preventDefault();
  }

  #select(place) {
    this.active = Math.min(Math.max(0, this.count - 1), place);
    const [x, y] = [(this.active % this.columns) * this.size, Math.floor(this.active / this.columns) * this.size];
    this.cursor.style.transform = `translate(${x}px, ${y}px)`;
    if (document.activeElement === this.node) {
      this.cursor.scrollIntoView({ block: "nearest" });
      this.point(this.first + this.active);
    }
    this.#describe(true);
  }

  #describe(isNew) {
    if (this.count === 0) return;
    if (isNew) this.cells.reverse();
    const [cell] = this.cells;
    cell.textContent = this.describe(this.first + this.active);
    cell.setAttribute("aria-colindex", (this.active % this.columns) + 1);
    this.row.setAttribute("aria-rowindex", Math.floor(this.active / this.columns) + 1);
    this.row.replaceChildren(cell);
    this.node.setAttribute("aria-activedescendant", cell.id);
  }
}
