// A cell for each node, by pool, on canvases: 5,000 elements would be slow to lay out. A cell is drawn
// again only where it looks otherwise than before. The same nodes are in the table, for those who cannot
// see a canvas or use a mouse.

import { counted, percent, t } from "./i18n.js";
import { get, make, say, svg, tailOf } from "./draw.js";
import { INELIGIBLE, MARKED, PRESSURED, UNKNOWN } from "./model.js";

/** @typedef {import("./model.js").Node} Node */

/** Margins from which on a cell has the colour of the same place, the last one beyond all. */
const LIMITS = [-0.5, -0.25, -0.1, 0, 0.1];
const COLOURS = ["--cool-3", "--cool-2", "--cool-1", "--cool-0", "--hot-0", "--hot-1"];
const GAP = 2;
/** Pixels from which on a cell has its margin as a text. */
const READABLE = 40;
/** Of a cell with the node's name: how wide it is at least and at most, as there is room, and how high. */
const NAMED = [112, 190, 46];
/** How high all cells may be together and have names: a screen has more to show. */
const MOST = 330;
/** How many cells are pointed at, of nodes that became hot at once: more are seen anyway. */
const POINTED_AT = 20;
/** How strong a cell is that the filters leave out, and one of a node that is never marked. */
const [LEFT_OUT, FAINT] = [0.15, 0.4];
/** The flags that a cell shows. */
const SEEN = MARKED | PRESSURED | INELIGIBLE | UNKNOWN;

/** @typedef {string | number} Look all that the picture of a cell depends on, beside its size and the colours */
/** @typedef {{name: string, nodes: Node[], title: HTMLElement, canvas: HTMLCanvasElement, columns: number, wide: number, size: number, drawn: Look[]}} Pool; `size`: how high */

export class Grid {
  /** @param {(name: string) => void} open */
  constructor(open) {
    this.box = get("grid");
    this.open = open;
    /** @type {Map<string, Pool>} */
    this.pools = new Map();
    /** @type {import("./model.js").Model | null} */
    this.model = null;
    /** Those that fit the filters; null: all. @type {Set<Node> | null} */
    this.chosen = null;
    /** When the Snapshot was taken that is shown: Unix seconds. */
    this.seenAt = Infinity;
    // Both are kept, for to ask for them makes the browser lay out the page at once.
    this.width = this.box.clientWidth;
    this.colours = paint();
    new ResizeObserver(() => {
      this.width = this.box.clientWidth;
      this.draw();
    }).observe(this.box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.repaint());
    legend();
  }

  /** In other colours. */
  repaint() {
    this.colours = paint();
    for (const pool of this.pools.values()) pool.drawn = [];
    this.draw();
  }

  /** @param {import("./model.js").Model} model @param {Node[]} found those that fit the filters */
  update(model, found) {
    this.model = model;
    this.chosen = found.length === model.nodes.length ? null : new Set(found);
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
    this.pointAtHot(model);
  }

  /** Frame the cells of nodes that became hot since the last update, until something else is drawn. @param {import("./model.js").Model} model */
  pointAtHot({ data, nodes }) {
    const [indices, since] = data.nodes.since;
    const found = new Set(indices.filter((_, at) => since[at] > this.seenAt).map((index) => nodes[index]).filter((node) => node.state === "hot"));
    this.seenAt = data.taken_at;
    if (found.size === 0 || found.size > POINTED_AT || this.width === 0) return;
    /** @type {Element[]} */
    const frames = [];
    for (const { nodes, canvas, columns, wide, size } of this.pools.values()) {
      const begins = canvas.offsetTop;
      nodes.forEach((node, at) => {
        if (!found.has(node)) return;
        const frame = make("i");
        const place = { left: (at % columns) * (wide + GAP), top: begins + Math.floor(at / columns) * (size + GAP), width: wide, height: size };
        for (const [key, value] of Object.entries(place)) frame.style.setProperty(key, `${value}px`);
        frames.push(frame);
      });
    }
    this.box.append(...frames);
  }

  /** @param {string} name @returns {Pool} */
  addPool(name) {
    const canvas = /** @type {HTMLCanvasElement} */ (make("canvas", { role: "img", "data-pool": name }));
    /** @type {Pool} */
    const pool = { name, nodes: [], title: make("h3"), canvas, columns: 1, wide: 10, size: 10, drawn: [] };
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
    const column = Math.floor(event.offsetX / (pool.wide + GAP));
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
    if (!this.model || this.width === 0) return;
    for (const frame of this.box.querySelectorAll("i")) frame.remove();
    const cell = cellOf([...this.pools.values()].map(({ nodes }) => nodes.length), this.width);
    for (const pool of this.pools.values()) this.drawPool(pool, this.width, cell, this.colours);
  }

  /** @param {Pool} pool @param {number} width @param {{wide: number, size: number}} cell @param {Record<string, string>} colours */
  drawPool(pool, width, { wide, size }, colours) {
    const { canvas, nodes } = pool;
    const ratio = devicePixelRatio || 1;
    const columns = Math.max(1, Math.floor((width + GAP) / (wide + GAP)));
    const rows = Math.max(1, Math.ceil(nodes.length / columns));
    const height = rows * (size + GAP);
    const dots = [Math.round(width * ratio), Math.round(height * ratio)];
    if (pool.drawn.length === 0 || pool.size !== size || pool.wide !== wide || canvas.width !== dots[0] || canvas.height !== dots[1]) {
      [canvas.width, canvas.height] = dots; // this clears it
      canvas.style.height = `${height}px`;
      Object.assign(pool, { size, wide, columns, drawn: [] });
    }
    const context = canvas.getContext("2d");
    if (!context) return;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.textBaseline = "middle";
    const x = (/** @type {number} */ at) => (at % columns) * (wide + GAP);
    const y = (/** @type {number} */ at) => Math.floor(at / columns) * (size + GAP);
    const changed = this.changedCells(pool);
    // With the space around it: where pixels are no whole number of dots, its edge reaches into that.
    for (const at of changed) context.clearRect(x(at) - GAP / 2, y(at) - GAP / 2, wide + GAP, size + GAP);
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
        context.globalAlpha = !this.isChosen(nodes[at]) ? LEFT_OUT : nodes[at].flags & INELIGIBLE ? FAINT : 1;
        context.fillRect(x(at), y(at), wide, size);
      }
    }
    context.globalAlpha = 1;
    for (const places of cells.values()) {
      for (const at of places) {
        const node = nodes[at];
        if (this.isChosen(node) && (size >= READABLE || node.flags || node.worst < 0 || node.state === "pending")) {
          drawShape(context, node, x(at), y(at), pool, colours);
        }
      }
    }
  }

  /** @param {Node} node */
  isChosen(node) {
    return this.chosen === null || this.chosen.has(node);
  }

  /** The places of the cells that look otherwise than they were drawn; from now on they are. @param {Pool} pool */
  changedCells({ nodes, drawn, wide, size }) {
    /** @type {number[]} */
    const changed = [];
    nodes.forEach((node, at) => {
      /** @type {Look} */
      let look = lookOf(node) * 2 + (this.isChosen(node) ? 1 : 0);
      if (size >= READABLE) look = `${look} ${percent(node.margin)} ${wide > size ? node.name : ""}`;
      if (drawn[at] === look) return;
      drawn[at] = look;
      changed.push(at);
    });
    for (let at = nodes.length; at < drawn.length; at += 1) changed.push(at);
    drawn.length = nodes.length;
    return changed;
  }
}

function legend() {
  const item = (/** @type {string} */ key, /** @type {string} */ shape) => make("li", {}, symbol(shape), t(key));
  get("legend").append(
    item("l_below", "below"), item("l_near", "near"), item("l_over", "over"), item("l_hot", "hot"), item("l_held", "held"),
    item("l_marked", "marked"), item("l_pending", "pending"), item("l_unknown", "unknown"),
  );
}

/** The colours as the style sheet has them now. @returns {Record<string, string>} */
function paint() {
  const style = getComputedStyle(document.documentElement);
  const dark = style.colorScheme === "dark" || (style.colorScheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  // As they are written: light-dark(#rrggbb, #rrggbb).
  const colour = (/** @type {string} */ name) => style.getPropertyValue(name).match(/#\w+/g)?.[dark ? 1 : 0] ?? "#000000";
  return Object.fromEntries([...COLOURS, "--unknown", "--text", "--back"].map((name) => [name, colour(name)]));
}

/** Pixels of a cell, so that all are seen without much scrolling: with its name where there are few. @param {number[]} counts by pool @param {number} width */
function cellOf(counts, width) {
  const [least, most, high] = NAMED;
  for (let columns = Math.ceil((width + GAP) / (most + GAP)); (least + GAP) * columns <= width + GAP; columns += 1) {
    const rows = counts.reduce((sum, count) => sum + Math.ceil(count / columns), 0);
    if (rows * (high + GAP) <= MOST) return { wide: Math.floor((width + GAP) / columns) - GAP, size: high };
  }
  const wanted = Math.sqrt((width * MOST) / Math.max(1, counts.reduce((sum, count) => sum + count, 0))) - GAP;
  const size = Math.round(Math.max(7, Math.min(64, wanted)));
  return { wide: size, size };
}

/** A name as far as there is room, cut in its middle. @param {CanvasRenderingContext2D} context @param {string} name @param {number} width */
function cut(context, name, width) {
  const end = tailOf(name);
  let [keep, text] = [name.length - end.length, name];
  while (keep > 1 && context.measureText(text).width > width) {
    keep -= 1;
    text = `${name.slice(0, keep)}…${end}`;
  }
  return text;
}

/** Colour, shape and frame of a cell as one number. @param {Node} node */
function lookOf(node) {
  const shape = node.state === "held" ? 2 : node.state === "pending" || node.state === "early" ? 1 : 0;
  return ((node.flags & SEEN) * 4 + shape) * 8 + (node.worst < 0 ? COLOURS.length : colourAt(node));
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
 * @param {number} x @param {number} y @param {Pool} pool @param {Record<string, string>} colours
 */
function drawShape(context, node, x, y, { wide, size }, colours) {
  const ink = node.flags & INELIGIBLE ? colours["--text"] : inkOn(colours[colourOf(node)]);
  context.fillStyle = context.strokeStyle = ink;
  const named = wide > size;
  const reach = named ? 6 : size >= READABLE ? size * 0.16 : size * 0.28;
  const [middle, centre] = named ? [x + wide - 16, y + size * 0.68] : [x + size / 2, y + size * (size >= READABLE ? 0.34 : 0.5)];
  const margin = size < READABLE ? "" : node.worst < 0 ? "–" : percent(node.margin);
  context.textAlign = named ? "start" : "center";
  if (named) {
    context.font = "12px system-ui, sans-serif";
    context.fillText(cut(context, node.name, wide - 16), x + 8, y + size * 0.32);
    context.font = "600 13px system-ui, sans-serif";
    context.fillText(margin, x + 8, y + size * 0.7);
  } else if (size >= READABLE) {
    context.font = `600 ${Math.round(size / 4)}px system-ui, sans-serif`;
    context.fillText(margin, middle, y + size * 0.72, size - 4);
  }
  context.beginPath();
  if (node.flags & PRESSURED) {
    const up = node.state === "held" ? -1 : 1; // it points down while it cools
    context.moveTo(middle, centre - reach * up);
    context.lineTo(middle + reach, centre + reach * 0.8 * up);
    context.lineTo(middle - reach, centre + reach * 0.8 * up);
    context.fill();
  } else if (node.worst < 0 || node.flags & UNKNOWN) {
    context.lineWidth = Math.max(1, reach / 4);
    context.moveTo(middle - reach, centre - reach);
    context.lineTo(middle + reach, centre + reach);
    context.moveTo(middle + reach, centre - reach);
    context.lineTo(middle - reach, centre + reach);
    context.stroke();
  } else if (node.state === "pending" || node.state === "early") {
    context.arc(middle, centre, reach * 0.7, 0, 2 * Math.PI);
    context.fill();
  }
  if (node.flags & MARKED) {
    const line = Math.max(2, Math.min(3, size / 10));
    context.lineWidth = line;
    context.strokeStyle = colours["--text"];
    context.strokeRect(x + line / 2, y + line / 2, wide - line, size - line);
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
  if (shape === "hot" || shape === "held") parts.push(svg("path", { d: shape === "hot" ? "M7 3L11 10H3Z" : "M7 11L11 4H3Z", fill: "currentColor" }));
  if (shape === "pending") parts.push(svg("circle", { cx: 7, cy: 7, r: 3, fill: "currentColor" }));
  if (shape === "unknown") parts.push(svg("path", { d: "M4 4L10 10M10 4L4 10", stroke: "currentColor" }));
  return svg("svg", { width: 14, height: 14, viewBox: "0 0 14 14", "aria-hidden": "true" }, ...parts);
}
