// The table of nodes: the rows that are shown are kept and changed where they differ.

import { Bar, curve, get, make, say } from "./draw.js";
import { counted, number, percent, span, t } from "./i18n.js";
import { EARLY, MARKED, PRESSURED, fullScale, isUnmarked, leading, select, sinceOf } from "./model.js";

/** @typedef {import("./model.js").Node} Node */
/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./model.js").View} View */
/** @typedef {import("./data.js").Past} Past */

/** Rows that are shown at first, and that the button adds. */
const PAGE = 50;

/** @typedef {{node: Node, link: HTMLElement, row: HTMLElement, cells: Map<string, HTMLElement>, drawn: Map<string, string>, bars: Map<number, Bar>}} Row */

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
    /** @type {Map<string, Row>} */
    this.rows = new Map();
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

  /** @param {Model} model @param {Map<string, Past>} past @param {number} now */
  update(model, past, now) {
    this.headings(model);
    get("nodes").classList.toggle("no-pools", !model.data.pools.some(Boolean));
    const found = select(model, this.view);
    this.visible = leading(model, this.view, found, this.most);
    const all = model.nodes.length;
    say(get("count"), found.length === all ? t("count_all", counted(all)) : t("count", counted(found.length), counted(all)));
    const more = get("more");
    more.hidden = found.length <= this.most;
    say(more, t("more", Math.min(4 * PAGE, found.length - this.visible.length)));
    const wanted = new Set(this.visible.map((node) => node.name));
    /** Rows of nodes that are not shown any more: to make a row takes longer than to change one. @type {Row[]} */
    const spare = [];
    for (const [name, row] of this.rows) {
      if (wanted.has(name)) continue;
      this.rows.delete(name);
      if (row.row.contains(document.activeElement)) row.row.remove(); // the focus must not be on another node
      else spare.push(row);
    }
    const empty = this.body.querySelector(".none");
    if (found.length > 0) empty?.remove();
    else if (!empty) {
      this.body.append(make("tr", { class: "none" }, make("td", { colspan: 20, text: t("no_nodes") })));
    }
    const focused = /** @type {HTMLElement | null} */ (document.activeElement);
    let moved = false;
    this.visible.forEach((node, at) => {
      const row = this.rows.get(node.name) ?? this.reuse(spare.pop(), node) ?? this.add(node, model);
      row.node = node;
      this.fill(row, node, model, past.get(node.name), now);
      if (this.body.children[at] !== row.row) {
        moved ||= row.row.contains(focused);
        this.body.insertBefore(row.row, this.body.children[at] ?? null);
      }
    });
    for (const { row } of spare) row.remove();
    if (moved) focused?.focus({ preventScroll: true }); // a row that moves loses it
  }

  /** @param {Model} model */
  headings(model) {
    const rules = model.shown.map((at) => model.data.rules[at]);
    const columns = JSON.stringify(rules.map((rule) => [rule.name, rule.threshold, rule.op, rule.shadow]));
    if (columns !== this.columns) {
      this.columns = columns;
      this.body.replaceChildren();
      this.rows.clear();
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
          heading("pool", t("pool"), "wide pool-column"),
          heading("margin", t("margin"), ""),
          ...rules.map((rule) =>
            heading(`rule:${rule.name}`, rule.name, "wide", `${rule.op} ${number(rule.threshold)}${rule.shadow ? ` (${t("shadow")})` : ""}`)),
          heading("state", t("state"), ""),
          heading("since", t("since"), "wide"),
          heading("mark", t("mark"), ""),
          make("th", { scope: "col", class: "wide", text: t("last_hour") })),
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

  /** @param {Node} node @param {Model} model @returns {Row} */
  add(node, model) {
    /** @type {Map<string, HTMLElement>} */
    const cells = new Map();
    const row = make("tr");
    const cell = (/** @type {string} */ key, /** @type {string} */ kind) => {
      const made = make("td", { class: kind });
      cells.set(key, made);
      row.append(made);
    };
    const link = make("a");
    row.append(make("th", { scope: "row" }, link));
    cell("pool", "wide pool-column");
    cell("margin", "number-cell");
    for (const at of model.shown) cell(`rule:${at}`, "wide number-cell");
    cell("state", "");
    cell("since", "wide number-cell");
    cell("mark", "why");
    cell("past", "wide");
    /** @type {Row} */
    const made = { node, link, row, cells, drawn: new Map(), bars: new Map() };
    this.name(made, node);
    return made;
  }

  /** @param {Row | undefined} row @param {Node} node */
  reuse(row, node) {
    if (row) this.name(row, node);
    return row;
  }

  /** @param {Row} row @param {Node} node */
  name(row, node) {
    row.node = node;
    row.row.dataset.node = node.name;
    row.link.setAttribute("href", `?node=${encodeURIComponent(node.name)}`);
    say(row.link, node.name);
    row.drawn.delete("past"); // two nodes may have the same times
    this.rows.set(node.name, row);
  }

  /** @param {Row} row @param {Node} node @param {Model} model @param {Past | undefined} past @param {number} now */
  fill(row, node, model, past, now) {
    row.row.classList.toggle("marked", (node.flags & MARKED) !== 0);
    /** Draw a cell anew where what it shows is not what it showed. */
    const put = (/** @type {string} */ key, /** @type {string} */ shows, /** @type {() => (globalThis.Node | string)[]} */ draw) => {
      if (row.drawn.get(key) === shows) return;
      row.drawn.set(key, shows);
      row.cells.get(key)?.replaceChildren(...draw());
    };
    put("pool", node.pool, () => [node.pool ? make("button", { type: "button", class: "plain", "data-filter": "pool", text: node.pool }) : "–"]);
    const margin = node.worst < 0 ? "–" : percent(node.margin);
    put("margin", margin, () => [margin]);
    for (const at of model.shown) {
      const column = model.data.columns[at];
      const value = column.value[node.index];
      const quality = column.quality[node.index];
      const expected = model.expected[at].get(node.index);
      const shows = `${value} ${quality} ${expected}`;
      if (row.drawn.get(`rule:${at}`) === shows) continue;
      row.drawn.set(`rule:${at}`, shows);
      this.fillRule(row, at, model.data.rules[at], value, quality, expected);
    }
    put("state", node.state, () => [make("button", { type: "button", class: `plain tag ${node.state}`, "data-filter": "state", text: t(`s_${node.state}`) })]);
    const since = sinceOf(model, node);
    const age = since === null ? "–" : span(now - since);
    put("since", age, () => [age]);
    const mark = describeMark(node);
    put("mark", mark, () => [mark]);
    const worst = node.worst < 0 ? undefined : model.data.rules[node.worst];
    const values = worst && past?.values[worst.name];
    const shown = values ? `${worst?.name} ${past?.times[past.times.length - 1]}` : "";
    put("past", shown, () =>
      worst && values && past && past.times.length > 1
        ? [curve(worst, { times: past.times, values, marked: past.marked }, { width: 120, height: 24 })]
        : []);
  }

  /**
   * @param {Row} row @param {number} at @param {import("./model.js").Rule} rule
   * @param {number | null} value @param {string} quality @param {number | undefined} expected
   */
  fillRule(row, at, rule, value, quality, expected) {
    const cell = row.cells.get(`rule:${at}`);
    if (quality === "-") {
      row.bars.delete(at);
      cell?.replaceChildren("–");
      return;
    }
    let bar = row.bars.get(at);
    // Rows are made anew when a rule's threshold changes; its other values must be followed too.
    if (!bar || bar.rule.clear_threshold !== rule.clear_threshold || bar.full !== fullScale(rule)) {
      bar = new Bar(rule);
      row.bars.set(at, bar);
      cell?.replaceChildren(bar.text, bar.picture);
    }
    if (quality === "o") bar.show(value, expected, number(value));
    else bar.show(null, undefined, t(`q_${quality}`));
  }

  /** @param {MouseEvent} event */
  click(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    const node = this.rows.get(target.closest("tr")?.dataset.node ?? "")?.node;
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

/** The mark, or why it is not what the rules say. @param {Node} node */
export function describeMark(node) {
  const reason = node.note === null ? "" : node.note[1] || t(`n_${node.note[0]}`);
  if (node.note?.[0] === "withheld") return reason; // it says what is held back, and why
  if (node.flags & MARKED) return reason ? `${t("yes")}: ${reason}` : t("yes");
  if (isUnmarked(node) || node.flags & (EARLY | PRESSURED)) return reason ? `${t("no")}: ${reason}` : t("no");
  return reason || "–";
}
