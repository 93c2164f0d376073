// The table of nodes: a row for each place, in which what differs is written.

import { TICK, get, make, say, sparkline, svg } from "./draw.js";
import { counted, number, t } from "./i18n.js";
import { leading } from "./model.js";
import { Row } from "./row.js";

/** @typedef {import("./model.js").Node} Node */
/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./model.js").View} View */
/** @typedef {import("./data.js").Past} Past */

/** Rows that are shown at first, and that the button adds. */
const PAGE = 50;

export class Table {
  /**
   * @param {View} view changed by a click on a heading
   * @param {{changed: () => void, open: (name: string) => void, filter: (key: "pool" | "state", value: string) => void}} on
   */
  constructor(view, on) {
    this.view = view;
    this.on = on;
    this.most = PAGE;
    this.head = get("nodes").querySelector("thead");
    this.body = /** @type {HTMLElement} */ (get("nodes").querySelector("tbody"));
    /** In the order in which they stand there. @type {Row[]} */
    this.rows = [];
    /** Of the nodes that are shown, and what they are drawn of. @type {Map<string, {shows: string, picture: Element}>} */
    this.curves = new Map();
    this.columns = "";
    /** @type {Node[]} */
    this.visible = [];
    get("more").addEventListener("click", () => {
      this.most += 4 * PAGE;
      on.changed();
    });
    this.body.addEventListener("keydown", (event) => this.move(event));
    // One listener for all rows, which are of another node after each update.
    this.body.addEventListener("click", (event) => this.click(event));
  }

  /** @param {Model} model @param {Node[]} found those that fit the filters @param {Map<string, Past>} past @param {number} now */
  update(model, found, past, now) {
    this.headings(model);
    barLegend(model);
    get("nodes").classList.toggle("no-pools", !model.data.pools.some(Boolean));
    this.visible = leading(model, this.view, found, this.most);
    const all = model.nodes.length;
    say(get("count"), found.length === all ? t("count_all", counted(all)) : t("count", counted(found.length), counted(all)));
    const more = get("more");
    more.hidden = found.length <= this.most;
    say(more, t("more", Math.min(4 * PAGE, found.length - this.visible.length)));
    const empty = this.body.querySelector(".none");
    if (found.length > 0) empty?.remove();
    else if (!empty) {
      this.body.append(make("tr", { class: "none" }, make("td", { colspan: 20, text: t("no_nodes") })));
    }
    this.keepFocus(model);
    for (const row of this.rows.splice(this.visible.length)) row.element.remove();
    const curves = this.draw(model, past);
    this.visible.forEach((node, at) => {
      const row = this.rows[at] ?? this.add(node, model);
      row.show(node, model, now, curves[at]);
    });
  }

  /** The past came. @param {Model} model @param {Map<string, Past>} past */
  remember(model, past) {
    this.draw(model, past).forEach((picture, at) => this.rows[at]?.showPast(picture));
  }

  /** The curve of each node that is shown, drawn where it is another one. @param {Model} model @param {Map<string, Past>} past */
  draw(model, past) {
    const before = this.curves;
    this.curves = new Map();
    return this.visible.map((node) => {
      const found = past.get(node.name);
      if (!found || found.times.length < 2) return null;
      // While nothing is known now, that of a rule of which something was.
      const shown = node.worst < 0 ? model.shown.map((at) => model.data.rules[at]) : [model.data.rules[node.worst]];
      const rule = shown.find(({ name }) => found.values[name]?.some((value) => value !== null));
      if (!rule) return null;
      const shows = `${rule.name} ${found.times[found.times.length - 1]}`;
      let kept = before.get(node.name);
      if (kept?.shows !== shows) {
        kept = { shows, picture: sparkline(rule, found) };
      }
      this.curves.set(node.name, kept);
      return kept.picture;
    });
  }

  /** The row that has the focus goes where its node is now: it must not come to be on another node. @param {Model} model */
  keepFocus(model) {
    const focused = /** @type {HTMLElement | null} */ (document.activeElement);
    if (!this.body.contains(focused)) return;
    const from = this.rows.findIndex((row) => row.element.contains(focused));
    const to = this.visible.findIndex((node) => node.name === this.rows[from]?.node.name);
    if (from === to || from < 0) return;
    const [row] = this.rows.splice(from, 1);
    row.element.remove();
    if (to < 0) return;
    while (this.rows.length < to) this.add(this.visible[this.rows.length], model);
    this.body.insertBefore(row.element, this.rows[to]?.element ?? null);
    this.rows.splice(to, 0, row);
    focused?.focus({ preventScroll: true });
  }

  /** @param {Model} model */
  headings(model) {
    const rules = model.shown.map((at) => model.data.rules[at]);
    const columns = JSON.stringify(rules.map((rule) => [rule.name, rule.threshold, rule.op, rule.shadow]));
    if (columns !== this.columns) {
      this.columns = columns;
      this.body.replaceChildren();
      this.rows = [];
      const heading = (/** @type {string} */ sort, /** @type {string} */ text, /** @type {string} */ kind, note = "") => {
        const button = make("button", { type: "button", "data-sort": sort, title: t("sort_by", text), text });
        button.addEventListener("click", () => this.sort(sort));
        const cell = make("th", { scope: "col", class: kind }, button);
        if (note) cell.append(make("small", { text: note }));
        return cell;
      };
      this.head?.replaceChildren(
        make("tr", {},
          heading("node", t("node"), ""),
          heading("pool", t("pool"), "w4 pool-column"),
          heading("margin", t("margin"), "num"),
          heading("state", t("state"), ""),
          heading("since", t("since"), "w4 num"),
          heading("mark", t("mark"), ""),
          ...rules.map((rule) =>
            heading(`rule:${rule.name}`, rule.name, "w2", `${rule.op} ${number(rule.threshold)}${rule.shadow ? ` (${t("shadow")})` : ""}`)),
          make("th", { scope: "col", class: "w3", text: t("last_hour") })),
      );
    }
    for (const button of this.head?.querySelectorAll("button") ?? []) {
      const cell = button.closest("th");
      if (button.dataset.sort !== this.view.sort) cell?.removeAttribute("aria-sort");
      else cell?.setAttribute("aria-sort", this.view.up ? "ascending" : "descending");
    }
  }

  /** @param {string} sort */
  sort(sort) {
    const isText = sort === "node" || sort === "pool";
    this.view.up = this.view.sort === sort ? !this.view.up : isText;
    this.view.sort = sort;
    this.on.changed();
  }

  /** @param {Node} node @param {Model} model */
  add(node, model) {
    const row = new Row(node, model);
    this.rows.push(row);
    this.body.append(row.element);
    return row;
  }

  /** @param {MouseEvent} event */
  click(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    const line = target.closest("tr");
    const node = this.rows.find((row) => row.element === line)?.node;
    const button = /** @type {HTMLElement | null} */ (target.closest("[data-filter]"));
    if (!node || event.metaKey || event.ctrlKey || event.shiftKey) return;
    if (button?.dataset.filter === "pool") this.on.filter("pool", node.pool);
    else if (button) this.on.filter("state", node.state);
    else if (target.closest("a")) {
      event.preventDefault();
      this.on.open(node.name);
    }
  }

  /** Arrow keys move from node to node. @param {KeyboardEvent} event */
  move(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const row = /** @type {HTMLElement} */ (event.target).closest("tr");
    if (step === undefined || row === null) return;
    const next = step > 0 ? row.nextElementSibling : row.previousElementSibling;
    const link = next?.querySelector("a");
    if (link) {
      event.preventDefault();
      link.focus();
    }
  }
}

/** What is drawn on the bars. @param {Model} model */
function barLegend(model) {
  const box = get("bar-legend");
  const items = ["threshold", "clear"];
  if (model.data.columns.some(({ expected }) => expected[0].length > 0)) items.push("expected");
  if (model.data.columns.some((column) => column.requested)) items.push("requested");
  items.push("marked");
  const shows = items.join(" ");
  if (box.dataset.shows === shows) return;
  box.dataset.shows = shows;
  /** @type {Record<string, () => SVGElement>} */
  const shapes = {
    threshold: () => svg("line", { class: "line-threshold", x1: 7, x2: 7, y1: 0, y2: 16 }),
    clear: () => svg("line", { class: "line-clear", x1: 7, x2: 7, y1: 0, y2: 16 }),
    expected: () => svg("rect", { class: "bar-expected", x: 1, y: 2, width: 12, height: 12 }),
    requested: () => svg("path", { class: "tick", d: TICK, transform: "translate(7 0)" }),
    marked: () => svg("rect", { class: "shade", y: 11, width: 14, height: 5 }),
  };
  box.replaceChildren(...items.map((name) =>
    make("li", {}, svg("svg", { width: 14, height: 16, "aria-hidden": "true" }, shapes[name]()), t(`lb_${name}`))));
}
