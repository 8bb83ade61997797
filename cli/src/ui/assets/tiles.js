// Draws the cells of the grid. A state has a colour, a pattern and a letter; the epoch is a number, or a corner if it is odd.

/** The states, by their letters: the words, and the pattern. The order is that of the legend. */
export const STATES = {
  R: { words: "runs", pattern: "solid" },
  W: { words: "waits at the barrier", pattern: "bars" },
  O: { words: "restarts, old epoch", pattern: "stripes" },
  S: { words: "starts", pattern: "dots" },
  F: { words: "fails", pattern: "cross" },
  D: { words: "is being deleted", pattern: "checks" },
  C: { words: "has completed", pattern: "frame" },
  "-": { words: "does not exist", pattern: "empty" },
};

/** Cells of at least this many pixels have a letter. */
const LETTER = 11;
/** Cells of at least this many pixels have the number of the epoch, too. */
const NUMBER = 22;
/** The most tiles that are kept. There is one for each state and epoch. */
const KEPT = 256;

export class Tiles {
  constructor() {
    this.kept = new Map();
    this.colors = null;
  }

  /** Forgets all tiles: the size or the colours have changed. */
  reset() {
    this.kept.clear();
    this.colors = null;
  }

  /** Draws the cell of a state and an epoch, with its upper left corner at a point. */
  draw(context, kind, epoch, x, y, size, ratio) {
    const numbered = size >= NUMBER;
    const mark = epoch < 0 ? -1 : numbered ? epoch : epoch % 2;
    const key = `${kind}${mark}/${size}/${ratio}`;
    let tile = this.kept.get(key);
    if (!tile) {
      if (this.kept.size >= KEPT) this.kept.clear();
      tile = this.#make(kind, mark, size, ratio, numbered);
      this.kept.set(key, tile);
    }
    context.clearRect(x, y, size, size);
    context.drawImage(tile, x, y, size, size);
  }

  /** The colour of the line where a Job begins. */
  divider() {
    this.colors ??= readColors();
    return this.colors.divider;
  }

  #make(kind, mark, size, ratio, numbered) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = Math.round(size * ratio);
    const context = tile.getContext("2d");
    context.scale(tile.width / size, tile.height / size);
    const [fill, ink] = this.#color(kind);
    // The gap between cells is part of the cell.
    const inner = size - 1;
    context.beginPath();
    context.roundRect(0, 0, inner, inner, Math.min(3, size / 6));
    context.clip();
    paint(context, STATES[kind].pattern, inner, fill, ink);
    if (mark >= 0 && !numbered && mark % 2) {
      context.fillStyle = ink;
      context.beginPath();
      context.moveTo(inner * 0.62, 0);
      context.lineTo(inner, 0);
      context.lineTo(inner, inner * 0.38);
      context.fill();
    }
    if (size >= LETTER && kind !== "-") {
      context.fillStyle = ink;
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.font = `600 ${Math.round(inner * (numbered ? 0.42 : 0.68))}px system-ui, sans-serif`;
      context.fillText(kind, inner / 2, inner * (numbered ? 0.3 : 0.54));
      if (numbered && mark >= 0) {
        const digits = String(mark);
        context.font = `${Math.round(inner * Math.min(0.42, 1.2 / digits.length))}px system-ui, sans-serif`;
        context.fillText(digits, inner / 2, inner * 0.72);
      }
    }
    return tile;
  }

  #color(kind) {
    this.colors ??= readColors();
    return this.colors[kind];
  }
}

/** The colours of the states, as the style sheet has them for the scheme: of the area, and of what is drawn on it. */
function readColors() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  const suffix = (kind) => (kind === "-" ? "missing" : kind.toLowerCase());
  const colors = Object.keys(STATES).map((kind) => [kind, [of(`--cell-${suffix(kind)}`), of(`--ink-${suffix(kind)}`)]]);
  return { ...Object.fromEntries(colors), divider: of("--text") };
}

function paint(context, pattern, size, fill, ink) {
  const lines = (width, alpha, draw) => {
    context.save();
    context.globalAlpha = alpha;
    context.strokeStyle = context.fillStyle = ink;
    context.lineWidth = width;
    context.beginPath();
    draw();
    context.stroke();
    context.restore();
  };
  if (pattern !== "empty") {
    context.fillStyle = fill;
    context.fillRect(0, 0, size, size);
  }
  const step = Math.max(4, size / 4);
  switch (pattern) {
    case "bars":
      lines(step / 2, 0.22, () => {
        for (let y = step / 2; y < size; y += step) (context.moveTo(0, y), context.lineTo(size, y));
      });
      break;
    case "stripes":
      lines(step / 2.4, 0.28, () => {
        for (let x = -size; x < size; x += step) (context.moveTo(x, size), context.lineTo(x + size, 0));
      });
      break;
    case "dots":
      context.save();
      context.globalAlpha = 0.28;
      context.fillStyle = ink;
      for (let y = step / 2; y < size; y += step) {
        for (let x = step / 2; x < size; x += step) context.fillRect(x - step / 5, y - step / 5, step / 2.5, step / 2.5);
      }
      context.restore();
      break;
    case "cross":
      lines(Math.max(1, size / 10), 0.45, () => {
        (context.moveTo(0, 0), context.lineTo(size, size), context.moveTo(size, 0), context.lineTo(0, size));
      });
      break;
    case "checks":
      context.save();
      context.globalAlpha = 0.25;
      context.fillStyle = ink;
      context.fillRect(0, 0, size / 2, size / 2);
      context.fillRect(size / 2, size / 2, size / 2, size / 2);
      context.restore();
      break;
    case "frame":
      lines(Math.max(2, size / 6), 0.7, () => context.rect(0, 0, size, size));
      break;
    case "empty":
      context.setLineDash([2, 2]);
      lines(1.5, 0.9, () => context.rect(0.5, 0.5, size - 1, size - 1));
      break;
    default:
  }
}
