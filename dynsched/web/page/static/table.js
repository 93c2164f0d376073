// The table of nodes. Rows are reused, and only differences are written.

import { get, make, say } from "./draw.js";
import { counted, number, t } from "./i18n.js";
import { leading } from "./model.js";
import { Row } from "./row.js";
import { asShown } from "./still.js";

/** @typedef {import("./model.js").Node} Node */
/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./model.js").View} View */

/** The number of rows at first. The button adds four times as many. */
const PAGE = 50;

export class Table {
  /**
   * @param {View} view changed by a click on a heading
   * @param {{changed: () => void, open: (name: string) => void}} on
   */
  constructor(view, on) {
    this.view = view;
    this.on = on;
    this.most = PAGE;
    this.head = get("nodes").querySelector("thead");
    this.body = /** @type {HTMLElement} */ (get("nodes").querySelector("tbody"));
    /** In the order of the table. @type {Row[]} */
    this.rows = [];
    this.columns = "";
    /** @type {Node[]} */
    this.visible = [];
    get("more").addEventListener("click", () => {
      this.most += 4 * PAGE;
      on.changed();
    });
    get("sort-again").addEventListener("click", () => on.changed());
    this.body.addEventListener("keydown", (event) => this.move(event));
    // One listener for all rows, because a row can show another node after each update.
    this.body.addEventListener("click", (event) => this.click(event));
  }

  /** @param {Model} model @param {Node[]} found those that match the filters @param {number} now @param {boolean} still whether rows stay where they are */
  update(model, found, now, still) {
    this.headings(model);
    get("nodes").classList.toggle("no-pools", !model.data.pools.some(Boolean));
    const sorted = leading(model, this.view, found, this.most);
    const shown = this.visible.map((node) => node.name);
    // A node that no longer matches the filters keeps its row, so that rows below it do not move.
    this.visible = still && shown.length > 0 ? asShown(sorted, shown, new Map(model.nodes.map((node) => [node.name, node]))) : sorted;
    get("sort-again").hidden = this.visible.every((node, at) => node === sorted[at]);
    const all = model.nodes.length;
    say(get("count"), found.length === all ? t("count_all", counted(all)) : t("count", counted(found.length), counted(all)));
    const more = get("more");
    more.hidden = found.length <= this.most;
    say(more, t("more", Math.min(4 * PAGE, found.length - sorted.length)));
    const empty = this.body.querySelector(".none");
    if (this.visible.length > 0) empty?.remove();
    else if (!empty) {
      this.body.append(make("tr", { class: "none" }, make("td", { colspan: 20, text: t("no_nodes") })));
    }
    for (const row of this.rows.splice(this.visible.length)) row.element.remove();
    this.visible.forEach((node, at) => (this.rows[at] ?? this.add(node, model)).show(node, model, now));
    // Columns are as wide as their longest text, within limits.
    for (const [key, least, most] of /** @type {["short" | "pool", number, number][]} */ ([["short", 8, 45], ["pool", 4, 35]])) {
      const longest = Math.max(least, ...this.visible.map((node) => node[key].length));
      get("nodes").style.setProperty(`--${key}`, `${Math.min(longest, most)}ch`);
    }
  }

  /** @param {Model} model */
  headings(model) {
    const { rules } = model.data;
    const columns = JSON.stringify(rules.map((rule) => [rule.name, rule.threshold, rule.op, rule.shadow]));
    if (columns !== this.columns) {
      this.columns = columns;
      this.body.replaceChildren();
      this.rows = [];
      const heading = (/** @type {string} */ sort, /** @type {string} */ text, /** @type {string} */ kind, note = "") => {
        const button = make("button", { type: "button", "data-sort": sort, title: t("sort_by", text), text });
        button.addEventListener("click", () => this.sort(sort));
        return make("th", { scope: "col", class: kind }, button, make("small", { text: note }));
      };
      this.head?.replaceChildren(
        make("tr", {},
          heading("node", t("node"), ""),
          heading("pool", t("pool"), "w4 pool-column"),
          heading("danger", t("state"), ""),
          heading("mark", t("mark"), "why"),
          ...rules.map((rule) =>
            heading(`rule:${rule.name}`, rule.name, "w2", `${rule.op} ${number(rule.threshold)}${rule.shadow ? ` (${t("shadow")})` : ""}`))),
      );
      get("nodes").classList.toggle("many", rules.length > 3);
    }
    const [begin, end] = model.shared;
    const note = this.head?.querySelector("small");
    if (note) say(note, begin || end ? t("shared", `${begin}…${end}`) : "");
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

  /** A click anywhere in a row opens its node. @param {MouseEvent} event */
  click(event) {
    const line = /** @type {HTMLElement} */ (event.target).closest("tr");
    const node = this.rows.find((row) => row.element === line)?.node;
    const isCopied = getSelection()?.toString() !== "";
    if (!node || isCopied || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    this.on.open(node.name);
  }

  /** The node after (`step` 1) or before (-1) this one in the table. @param {string} name @param {number} step */
  beside(name, step) {
    const at = this.visible.findIndex((node) => node.name === name);
    return at < 0 ? undefined : this.visible[at + step]?.name;
  }

  /** @param {string} name */
  focus(name) {
    this.rows.find((row) => row.node.name === name)?.name.element.focus({ preventScroll: true });
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
