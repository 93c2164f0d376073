// A cell for each node, by pool, on canvases: 5,000 elements would be slow to lay out. A cell is drawn
// again only where it looks otherwise than before. The same nodes are in the table, for those who cannot
// see a canvas or use a mouse.

import { counted, percent, t } from "./i18n.js";
import { get, make, say, svg } from "./draw.js";
import { INELIGIBLE, MARKED, PRESSURED, UNKNOWN } from "./model.js";

/** @typedef {import("./model.js").Node} Node */

/** Margins from which on a cell has the colour of the same place, the last one beyond all. */
const LIMITS = [-0.5, -0.25, -0.1, 0, 0.1];
const COLOURS = ["--cool-3", "--cool-2", "--cool-1", "--cool-0", "--hot-0", "--hot-1"];
const GAP = 2;
/** Pixels from which on a cell has its margin as a text. */
const READABLE = 40;
/** The flags that a cell shows. */
const SEEN = MARKED | PRESSURED | INELIGIBLE | UNKNOWN;

/** @typedef {string | number} Look all that the picture of a cell depends on, beside its size and the colours */
/** @typedef {{name: string, nodes: Node[], title: HTMLElement, canvas: HTMLCanvasElement, columns: number, size: number, drawn: Look[]}} Pool */

export class Grid {
  /** @param {(name: string) => void} open */
  constructor(open) {
    this.box = get("grid");
    this.open = open;
    /** @type {Map<string, Pool>} */
    this.pools = new Map();
    /** @type {import("./model.js").Model | null} */
    this.model = null;
    // Both are kept, for to ask for them makes the browser lay out the page at once.
    this.width = this.box.clientWidth;
    this.colours = paint();
    new ResizeObserver(() => {
      this.width = this.box.clientWidth;
      this.draw();
    }).observe(this.box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.colours = paint();
      for (const pool of this.pools.values()) pool.drawn = [];
      this.draw();
    });
    this.legend();
  }

  /** @param {import("./model.js").Model} model */
  update(model) {
    this.model = model;
    /** @type {Map<string, Node[]>} */
    const byPool = new Map();
    for (const node of model.nodes) {
      const found = byPool.get(node.pool);
      if (found) found.push(node);
      else byPool.set(node.pool, [node]);
    }
    const names = [...byPool.keys()].sort();
    for (const [name, pool] of this.pools) {
      if (byPool.has(name)) continue;
      pool.title.remove();
      pool.canvas.remove();
      this.pools.delete(name);
    }
    for (const name of names) {
      let pool = this.pools.get(name);
      if (!pool) {
        pool = this.addPool(name);
        this.pools.set(name, pool);
        this.box.append(pool.title, pool.canvas);
      }
      pool.nodes = byPool.get(name) ?? [];
      let [marked, hot, unknown] = [0, 0, 0];
      for (const { flags } of pool.nodes) {
        if (flags & MARKED) marked += 1;
        if (flags & PRESSURED) hot += 1;
        if (flags & UNKNOWN) unknown += 1;
      }
      const called = name || (names.length > 1 ? t("no_pool") : "");
      pool.title.hidden = called === "";
      say(pool.title, `${called} (${counted(pool.nodes.length)})`);
      pool.canvas.setAttribute(
        "aria-label",
        t("grid_label", called || t("all_nodes"), pool.nodes.length, marked, hot, unknown),
      );
    }
    this.draw();
  }

  /** @param {string} name @returns {Pool} */
  addPool(name) {
    const canvas = /** @type {HTMLCanvasElement} */ (make("canvas", { role: "img", "data-pool": name }));
    /** @type {Pool} */
    const pool = { name, nodes: [], title: make("h3"), canvas, columns: 1, size: 10, drawn: [] };
    canvas.addEventListener("click", (event) => {
      const node = this.at(pool, event);
      if (node) this.open(node.name);
    });
    canvas.addEventListener("mousemove", (event) => {
      const node = this.at(pool, event);
      canvas.title = node ? this.describe(node) : "";
    });
    return pool;
  }

  /** @param {Pool} pool @param {MouseEvent} event */
  at(pool, event) {
    const column = Math.floor(event.offsetX / (pool.size + GAP));
    const row = Math.floor(event.offsetY / (pool.size + GAP));
    return column < pool.columns ? pool.nodes[row * pool.columns + column] : undefined;
  }

  /** @param {Node} node */
  describe(node) {
    const rule = this.model?.data.rules[node.worst]?.name ?? "";
    const margin = node.worst < 0 ? "" : `, ${rule} ${percent(node.margin)}`;
    const mark = node.flags & MARKED ? `, ${t("s_marked")}` : "";
    return `${node.name}: ${t(`s_${node.state}`)}${margin}${mark}`;
  }

  draw() {
    if (!this.model) return;
    if (this.width === 0) return;
    const size = cellSize(this.model.nodes.length, this.width);
    for (const pool of this.pools.values()) this.drawPool(pool, this.width, size, this.colours);
  }

  /** @param {Pool} pool @param {number} width @param {number} size @param {Record<string, string>} colours */
  drawPool(pool, width, size, colours) {
    const { canvas, nodes } = pool;
    const ratio = devicePixelRatio || 1;
    const columns = Math.max(1, Math.floor((width + GAP) / (size + GAP)));
    const rows = Math.max(1, Math.ceil(nodes.length / columns));
    const height = rows * (size + GAP);
    const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (pool.drawn.length === 0 || pool.size !== size || pool.columns !== columns || canvas.width !== wide || canvas.height !== high) {
      canvas.width = wide; // this clears it
      canvas.height = high;
      canvas.style.height = `${height}px`;
      Object.assign(pool, { size, columns, drawn: [] });
    }
    const context = canvas.getContext("2d");
    if (!context) return;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.textAlign = "center";
    context.textBaseline = "middle";
    const x = (/** @type {number} */ at) => (at % columns) * (size + GAP);
    const y = (/** @type {number} */ at) => Math.floor(at / columns) * (size + GAP);
    const changed = changedCells(pool, size >= READABLE);
    // With the space around it: where pixels are no whole number of dots, its edge reaches into that.
    for (const at of changed) context.clearRect(x(at) - GAP / 2, y(at) - GAP / 2, size + GAP, size + GAP);
    // All cells of a colour together: to set the colour takes longer than to draw a cell.
    /** @type {Map<string, number[]>} */
    const cells = new Map();
    for (const at of changed) {
      if (at >= nodes.length) continue; // there is no such node any more
      const colour = colourOf(nodes[at]);
      const places = cells.get(colour);
      if (places) places.push(at);
      else cells.set(colour, [at]);
    }
    for (const [colour, places] of cells) {
      context.fillStyle = colours[colour];
      for (const at of places) {
        context.globalAlpha = nodes[at].flags & INELIGIBLE ? 0.4 : 1;
        context.fillRect(x(at), y(at), size, size);
      }
    }
    context.globalAlpha = 1;
    for (const places of cells.values()) {
      for (const at of places) {
        const node = nodes[at];
        if (size >= READABLE || node.flags || node.worst < 0 || node.state === "pending") {
          drawShape(context, node, x(at), y(at), size, colours);
        }
      }
    }
  }

  legend() {
    const item = (/** @type {string} */ key, /** @type {string} */ shape) =>
      make("li", {}, symbol(shape), t(key));
    get("legend").append(
      item("l_below", "below"), item("l_near", "near"), item("l_over", "over"), item("l_hot", "hot"),
      item("l_marked", "marked"), item("l_pending", "pending"), item("l_unknown", "unknown"),
    );
  }
}

/** The colours as the style sheet has them now. @returns {Record<string, string>} */
function paint() {
  const style = getComputedStyle(document.documentElement);
  const names = [...COLOURS, "--unknown", "--text", "--back"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(name)]));
}

/** Pixels of a cell: so that all are seen without much scrolling. @param {number} count @param {number} width */
function cellSize(count, width) {
  const wanted = Math.sqrt((width * 320) / Math.max(1, count)) - GAP;
  return Math.round(Math.max(7, Math.min(64, wanted)));
}

/** The places of the cells that look otherwise than they were drawn; from now on they are. @param {Pool} pool @param {boolean} readable */
function changedCells({ nodes, drawn }, readable) {
  /** @type {number[]} */
  const changed = [];
  nodes.forEach((node, at) => {
    const look = readable ? `${lookOf(node)} ${percent(node.margin)}` : lookOf(node);
    if (drawn[at] === look) return;
    drawn[at] = look;
    changed.push(at);
  });
  for (let at = nodes.length; at < drawn.length; at += 1) changed.push(at);
  drawn.length = nodes.length;
  return changed;
}

/** Colour, shape and frame of a cell as one number. @param {Node} node */
function lookOf(node) {
  const dotted = node.state === "pending" || node.state === "early" ? 1 : 0;
  return ((node.flags & SEEN) * 2 + dotted) * 8 + (node.worst < 0 ? COLOURS.length : colourAt(node));
}

/** @param {Node} node */
function colourAt(node) {
  const at = LIMITS.findIndex((limit) => node.margin <= limit);
  return at < 0 ? LIMITS.length : at;
}

/** @param {Node} node */
export function colourOf(node) {
  return node.worst < 0 ? "--unknown" : COLOURS[colourAt(node)];
}

/**
 * @param {CanvasRenderingContext2D} context @param {Node} node
 * @param {number} x @param {number} y @param {number} size @param {Record<string, string>} colours
 */
function drawShape(context, node, x, y, size, colours) {
  const ink = node.flags & INELIGIBLE ? colours["--text"] : inkOn(colours[colourOf(node)]);
  const [middle, centre] = [x + size / 2, y + size / 2];
  context.fillStyle = ink;
  context.strokeStyle = ink;
  if (size >= READABLE) {
    context.font = `600 ${Math.round(size / 4)}px system-ui, sans-serif`;
    if (node.worst >= 0) context.fillText(percent(node.margin), middle, y + size * 0.72, size - 4);
  }
  const shapeAt = size >= READABLE ? y + size * 0.34 : centre;
  const reach = size >= READABLE ? size * 0.16 : size * 0.28;
  context.beginPath();
  if (node.worst < 0 || node.flags & UNKNOWN) {
    context.lineWidth = Math.max(1, size / 14);
    context.moveTo(middle - reach, shapeAt - reach);
    context.lineTo(middle + reach, shapeAt + reach);
    context.moveTo(middle + reach, shapeAt - reach);
    context.lineTo(middle - reach, shapeAt + reach);
    context.stroke();
  } else if (node.flags & PRESSURED) {
    context.moveTo(middle, shapeAt - reach);
    context.lineTo(middle + reach, shapeAt + reach * 0.8);
    context.lineTo(middle - reach, shapeAt + reach * 0.8);
    context.fill();
  } else if (node.state === "pending" || node.state === "early") {
    context.arc(middle, shapeAt, reach * 0.7, 0, 2 * Math.PI);
    context.fill();
  }
  if (node.flags & MARKED) {
    const line = Math.max(2, size / 10);
    context.lineWidth = line;
    context.strokeStyle = colours["--text"];
    context.strokeRect(x + line / 2, y + line / 2, size - line, size - line);
  }
}

/** @type {Map<string, string>} */
const inks = new Map();

/** Black or white, whichever is read better. @param {string} colour as #rrggbb */
function inkOn(colour) {
  const known = inks.get(colour);
  if (known) return known;
  const parts = [1, 3, 5].map((at) => {
    const part = parseInt(colour.trim().slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  const light = 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  const ink = light > 0.179 ? "#000000" : "#ffffff";
  inks.set(colour, ink);
  return ink;
}

/** A cell of the legend. @param {string} shape */
function symbol(shape) {
  /** @type {Record<string, string>} */
  const fills = { below: "var(--cool-3)", near: "var(--cool-0)", over: "var(--hot-1)" };
  const cell = svg("rect", { x: 0.5, y: 0.5, width: 13, height: 13, fill: fills[shape] ?? "none", stroke: "currentColor", "stroke-width": shape === "marked" ? 3 : 0.7 });
  const parts = [cell];
  if (shape === "hot") parts.push(svg("path", { d: "M7 3L11 10H3Z", fill: "currentColor" }));
  if (shape === "pending") parts.push(svg("circle", { cx: 7, cy: 7, r: 3, fill: "currentColor" }));
  if (shape === "unknown") parts.push(svg("path", { d: "M4 4L10 10M10 4L4 10", stroke: "currentColor" }));
  return svg("svg", { width: 14, height: 14, viewBox: "0 0 14 14", "aria-hidden": "true" }, ...parts);
}
