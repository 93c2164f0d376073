// A cell for each node, by pool, on canvases, because 5,000 elements would be slow to lay out. The table has the
// same nodes for users who cannot see a canvas or use a mouse.

import { counted, t, valueOf } from "./i18n.js";
import { get, make, say, tailOf } from "./draw.js";
import { COLOURS, DECIDED, INELIGIBLE, MARKED, byName, colourOf, sharedBy } from "./model.js";
import { asShown } from "./still.js";

/** @typedef {import("./model.js").Node} Node */

/** Minimum size of a cell, in pixels, that shows its value as text, and of one that shows a shape and an edge. */
const [READABLE, SHAPED] = [40, 12];
/** Pixels of a cell with the node's name: minimum and maximum width, and height. */
const NAMED = [112, 190, 46];
/** Maximum height of all cells together, in pixels: a screen has more to show. */
const MOST = 330;
/** Maximum cells that are framed if nodes become hot at once. More are noticed anyway. */
const POINTED_AT = 20;
/** Opacity of a cell that the filters leave out, and of one whose node is never marked. */
const [LEFT_OUT, FAINT] = [0.15, 0.4];
/** Pixels between cells. @param {number} size */
const gapOf = (size) => (size < SHAPED ? 1 : 2);

/** @typedef {{name: string, nodes: Node[], shared: [string, string], about: string, title: HTMLElement, canvas: HTMLCanvasElement, columns: number, wide: number, size: number}} Pool; `size`: height of a cell */

export class Grid {
  /** @param {(name: string) => void} open */
  constructor(open) {
    this.box = get("grid");
    this.open = open;
    /** @type {Map<string, Pool>} */
    this.pools = new Map();
    /** @type {import("./model.js").Model | null} */
    this.model = null;
    /** Nodes that match the filters; null: all. @type {Set<Node> | null} */
    this.chosen = null;
    /** When the tick that is shown was taken, in Unix seconds. */
    this.seenAt = Infinity;
    // Both are stored, because reading them makes the browser lay out the page at once.
    this.width = this.box.clientWidth;
    this.colours = paint();
    new ResizeObserver(() => {
      this.width = this.box.clientWidth;
      this.draw();
    }).observe(this.box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.colours = paint();
      this.draw();
    });
  }

  /** @param {import("./model.js").Model} model @param {Node[]} found those that match the filters @param {boolean} still whether cells stay where they are */
  update(model, found, still) {
    this.model = model;
    this.chosen = found.length === model.nodes.length ? null : new Set(found);
    /** @type {Map<string, Node[]>} */
    const byPool = new Map();
    for (const node of model.nodes) {
      const found = byPool.get(node.pool);
      if (found) found.push(node);
      else byPool.set(node.pool, [node]);
    }
    const names = byName([...byPool.keys()]);
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
      pool.shared = sharedBy((byPool.get(name) ?? []).map((node) => node.name));
      const sorted = (byPool.get(name) ?? []).sort((a, b) => b.danger - a.danger || a.rank - b.rank);
      pool.nodes = still ? asShown(sorted, pool.nodes.map((node) => node.name), new Map(sorted.map((node) => [node.name, node]))) : sorted;
      const called = name || (names.length > 1 ? t("no_pool") : "");
      const counts = DECIDED.slice(0, DECIDED.indexOf("cool")).flatMap((state) => {
        const count = sorted.filter((node) => node.state === state).length;
        return count ? t("of_state", counted(count), t(`s_${state}`)) : [];
      });
      const about = [t("count_all", counted(sorted.length)), ...counts].join(t("comma"));
      pool.title.hidden = called === "";
      pool.about = `${called}${t("colon")}${about}`;
      pool.canvas.setAttribute("aria-label", t("grid_label", called || t("all_nodes"), about));
    }
    this.draw();
    this.pointAtHot(model);
  }

  /** Frame the cells of nodes that became hot since the last update. The next drawing removes the frames. @param {import("./model.js").Model} model */
  pointAtHot({ data, nodes }) {
    const found = new Set(nodes.filter((node) => node.state === "hot" && data.nodes.since[node.index] > this.seenAt));
    this.seenAt = data.taken_at;
    if (found.size === 0 || found.size > POINTED_AT || this.width === 0) return;
    /** @type {Element[]} */
    const frames = [];
    for (const { nodes, canvas, columns, wide, size } of this.pools.values()) {
      const begins = canvas.offsetTop;
      nodes.forEach((node, at) => {
        if (!found.has(node)) return;
        const frame = make("i");
        const gap = gapOf(size);
        const place = { left: (at % columns) * (wide + gap), top: begins + Math.floor(at / columns) * (size + gap), width: wide, height: size };
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
    const pool = { name, nodes: [], shared: ["", ""], about: "", title: make("h3"), canvas, columns: 1, wide: 10, size: 10 };
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
    const gap = gapOf(pool.size);
    const column = Math.floor(event.offsetX / (pool.wide + gap));
    const row = Math.floor(event.offsetY / (pool.size + gap));
    return column < pool.columns ? pool.nodes[row * pool.columns + column] : undefined;
  }

  /** @param {Node} node */
  valueOf(node) {
    const rule = this.model?.data.rules[node.worst];
    return rule ? valueOf(rule, node.value) : "–";
  }

  /** @param {Node} node */
  describe(node) {
    const rule = this.model?.data.rules[node.worst]?.name;
    const mark = node.flags & MARKED ? `, ${t("s_marked")}` : "";
    return `${node.name}: ${t(`s_${node.state}`)}${rule ? `, ${rule} ${this.valueOf(node)}` : ""}${mark}`;
  }

  draw() {
    if (!this.model || this.width === 0) return;
    for (const frame of this.box.querySelectorAll("i")) frame.remove();
    const cell = cellOf([...this.pools.values()].map(({ nodes }) => nodes.length), this.width);
    for (const pool of this.pools.values()) {
      // The part of the names that cells leave out.
      const left = cell.wide > cell.size && pool.shared.some(Boolean) ? t("semicolon") + t("shared", pool.shared.join("…")) : "";
      say(pool.title, pool.about + left);
    }
    for (const pool of this.pools.values()) this.drawPool(pool, this.width, cell);
  }

  /** @param {Pool} pool @param {number} width @param {{wide: number, size: number}} cell */
  drawPool(pool, width, { wide, size }) {
    const { canvas, nodes } = pool;
    const ratio = devicePixelRatio || 1;
    const gap = gapOf(size);
    const columns = Math.max(1, Math.floor((width + gap) / (wide + gap)));
    const height = Math.max(1, Math.ceil(nodes.length / columns)) * (size + gap);
    Object.assign(pool, { size, wide, columns });
    [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)]; // this clears it
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    if (!context) return;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.textBaseline = "middle";
    nodes.forEach((node, at) => {
      const [x, y] = [(at % columns) * (wide + gap), Math.floor(at / columns) * (size + gap)];
      const isChosen = this.chosen === null || this.chosen.has(node);
      context.fillStyle = this.colours[colourOf(node)];
      context.globalAlpha = !isChosen ? LEFT_OUT : node.flags & INELIGIBLE ? FAINT : 1;
      context.fillRect(x, y, wide, size);
      context.globalAlpha = 1;
      if (isChosen && size >= SHAPED) this.drawText(context, node, x, y, pool);
    });
  }

  /**
   * Draw in a cell: an edge if the node is marked, a shape for its state, its value and its name.
   * @param {CanvasRenderingContext2D} context @param {Node} node @param {number} x @param {number} y @param {Pool} pool
   */
  drawText(context, node, x, y, { shared, wide, size }) {
    const ink = node.flags & INELIGIBLE ? this.colours.text : inkOn(this.colours[colourOf(node)]);
    context.fillStyle = context.strokeStyle = ink;
    if (node.flags & MARKED) context.fillRect(x + 2, y + 2, Math.max(2, Math.min(4, size / 10)), size - 4);
    const named = wide > size;
    const value = this.valueOf(node);
    if (named) {
      const rule = this.model?.data.rules[node.worst]?.name ?? "";
      context.textAlign = "start";
      context.font = "12px system-ui, sans-serif";
      context.fillText(cut(context, node.name.slice(shared[0].length, node.name.length - shared[1].length), wide - 16), x + 10, y + size * 0.32);
      context.font = "600 13px system-ui, sans-serif";
      context.fillText(value, x + 10, y + size * 0.7);
      const begin = x + 16 + context.measureText(value).width;
      context.font = "12px system-ui, sans-serif";
      const room = x + wide - (node.state === "cool" ? 8 : 26) - begin;
      // Cool cells do not name the first rule. Less than half of a name would say too little.
      const ruleName = node.state !== "cool" || node.worst !== 0 ? cut(context, rule, room) : "";
      if (2 * ruleName.length > rule.length) context.fillText(ruleName, begin, y + size * 0.7);
    } else if (size >= READABLE) {
      context.textAlign = "center";
      context.font = `600 ${Math.round(size / 4)}px system-ui, sans-serif`;
      context.fillText(value, x + size / 2, y + size * 0.72, size - 4);
    }
    const [middle, centre] = named ? [x + wide - 14, y + size * 0.68] : [x + size / 2, y + size * (size >= READABLE ? 0.34 : 0.5)];
    drawShape(context, node.state, middle, centre, named ? 6 : size >= READABLE ? size * 0.16 : size * 0.22);
  }
}

/** The current colours of the style sheet. @returns {Record<string, string>} */
function paint() {
  const style = getComputedStyle(document.documentElement);
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  // The property is returned as it is written: light-dark(#rrggbb, #rrggbb).
  const colour = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).match(/#\w+/g)?.[dark ? 1 : 0] ?? "#000000";
  return Object.fromEntries([...COLOURS, "ineligible", "text"].map((name) => [name, colour(name)]));
}

/** The size of a cell in pixels, so that all can be seen without much scrolling. A few cells have room for names. @param {number[]} counts by pool @param {number} width */
function cellOf(counts, width) {
  const [[least, most, high], gap] = [NAMED, gapOf(READABLE)];
  for (let columns = Math.ceil((width + gap) / (most + gap)); (least + gap) * columns <= width + gap; columns += 1) {
    const rows = counts.reduce((sum, count) => sum + Math.ceil(count / columns), 0);
    if (rows * (high + gap) <= MOST) return { wide: Math.floor((width + gap) / columns) - gap, size: high };
  }
  const wanted = Math.sqrt((width * MOST) / Math.max(1, counts.reduce((sum, count) => sum + count, 0))) - gap;
  const size = Math.round(Math.max(4, Math.min(64, wanted)));
  return { wide: size, size };
}

/** A name, cut in its middle if there is not enough room. @param {CanvasRenderingContext2D} context @param {string} name @param {number} width */
function cut(context, name, width) {
  const end = tailOf(name);
  let [keep, text] = [name.length - end.length, name];
  while (keep > 1 && context.measureText(text).width > width) {
    keep -= 1;
    text = `${name.slice(0, keep)}…${end}`;
  }
  return text;
}

/**
 * Draw the shape of a state: up is hot, down is cooling, a dot is pending, a cross is unknown.
 * @param {CanvasRenderingContext2D} context @param {string} state @param {number} x @param {number} y @param {number} reach
 */
function drawShape(context, state, x, y, reach) {
  context.beginPath();
  if (state === "hot" || state === "held") {
    const up = state === "hot" ? 1 : -1;
    context.moveTo(x, y - reach * up);
    context.lineTo(x + reach, y + reach * 0.8 * up);
    context.lineTo(x - reach, y + reach * 0.8 * up);
    context.fill();
  } else if (state === "pending") {
    context.arc(x, y, reach * 0.7, 0, 2 * Math.PI);
    context.fill();
  } else if (state === "unknown") {
    context.lineWidth = Math.max(1, reach / 4);
    context.moveTo(x - reach, y - reach);
    context.lineTo(x + reach, y + reach);
    context.moveTo(x + reach, y - reach);
    context.lineTo(x - reach, y + reach);
    context.stroke();
  }
}

/** Black or white, whichever has more contrast. @param {string} colour as #rrggbb */
function inkOn(colour) {
  const parts = [1, 3, 5].map((at) => {
    const part = parseInt(colour.trim().slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  const light = 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  return light > 0.179 ? "#000000" : "#ffffff";
}
