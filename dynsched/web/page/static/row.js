// One row of the table. If the order changes, the row shows another node: writing a few texts takes a tenth of
// the time of moving or making elements.

import { Attribute, Bar, CutLabel, Label, NameLink, make } from "./draw.js";
import { said, span, t, valueOf } from "./i18n.js";
import { MARKED, beyond, colourOf, fullScale, isHot, sinceOf } from "./model.js";

/** @typedef {import("./model.js").Node} Node */
/** @typedef {import("./model.js").Model} Model */

/** Colours by the state of one rule on a node. @type {Record<string, string>} */
const OF_RULE = { f: "hot", h: "held", p: "pending" };

export class Row {
  /** @param {Node} node @param {Model} model the row is made for its rules */
  constructor(node, model) {
    this.node = node;
    this.name = new NameLink();
    const cell = (/** @type {string} */ kind, /** @type {globalThis.Node[]} */ ...children) => make("td", { class: kind }, ...children);
    const [pool, below] = [make("span"), make("small")];
    const column = cell("w4 pool-column", pool);
    const [state, since, worst] = [make("span"), make("span", { class: "since" }), make("small")];
    const mark = cell("why");
    this.rules = model.data.rules.map((_, at) => ({ at, cell: cell("w2"), bar: /** @type {Bar | null} */ (null), shows: "" }));
    this.element = make("tr", {},
      make("th", { scope: "row" }, this.name.element, make("div", { class: "narrow" }, below)), column,
      cell("state", state, since, make("div", { class: "narrow" }, worst)), mark, ...this.rules.map((rule) => rule.cell));
    this.text = {
      pool: new CutLabel(pool), below: new CutLabel(below), state: new Label(state), since: new Label(since),
      worst: new CutLabel(worst), mark: new Label(mark),
    };
    this.attributes = {
      name: new Attribute(this.element, "data-node"), kind: new Attribute(this.element, "class"),
      state: new Attribute(state, "class"), mark: new Attribute(mark, "title"), pool: new Attribute(column, "title"),
    };
  }

  /** @param {Node} node @param {Model} model @param {number} now */
  show(node, model, now) {
    const { text, attributes } = this;
    this.name.show(node.name, node.short);
    attributes.name.set(node.name);
    this.node = node;
    attributes.kind.set(node.flags & MARKED ? "marked" : "");
    text.pool.show(node.pool || "–");
    text.below.show(node.pool);
    attributes.pool.set(node.pool);
    for (const rule of this.rules) this.showRule(rule, model, now);
    attributes.state.set(`tag ${colourOf(node)}`);
    text.state.show(t(`s_${node.state}`));
    const since = sinceOf(model, node);
    text.since.show(since === null ? "" : span(now - since));
    text.worst.show(node.worst < 0 ? "" : `${valueOf(model.data.rules[node.worst], node.value)} ${model.data.rules[node.worst].name}`);
    text.mark.show(describeMark(node, true));
    attributes.mark.set(describeMark(node));
  }

  /** @param {{at: number, cell: HTMLElement, bar: Bar | null, shows: string}} of @param {Model} model @param {number} now */
  showRule(of, model, now) {
    const rule = model.data.rules[of.at];
    const found = readingOf(model.data.columns[of.at], this.node.index, now);
    const shows = JSON.stringify([found, rule.clear_threshold, rule.full_at]);
    if (of.shows === shows) return;
    of.shows = shows;
    if (found.quality === "-") {
      of.bar = null;
      of.cell.replaceChildren("–");
      return;
    }
    // A changed threshold makes new rows, but other changes of a rule must be shown too.
    if (!of.bar || of.bar.rule.clear_threshold !== rule.clear_threshold || of.bar.full !== fullScale(rule)) {
      of.bar = new Bar(rule);
      of.cell.replaceChildren(of.bar.text, of.bar.picture);
    }
    showReading(of.bar, rule, found);
  }
}

/** The value of a rule on a node; `age`: of a value that is not current. @typedef {{value: number | null, quality: string, state: string, age: string}} Reading */

/** @param {import("./model.js").Column} column @param {number} index of the node @param {number} now @returns {Reading} */
export function readingOf({ value, quality, state, known }, index, now) {
  const at = quality[index] === "o" ? undefined : known[index];
  return { value: value[index], quality: quality[index], state: state[index], age: at === undefined ? "" : span(now - at) };
}

/** @param {Bar} bar @param {import("./model.js").Rule} rule @param {Reading} found */
export function showReading(bar, rule, { value, quality, state, age }) {
  const colour = colourOf({ state: OF_RULE[state] ?? "cool", excess: value === null ? -Infinity : beyond(rule, value) });
  if (quality === "o") bar.show(value, valueOf(rule, value), colour, "");
  else bar.show(value, value === null ? t(`q_${quality}`) : `${valueOf(rule, value)} (${age})`, colour, `${t(`q_${quality}`)}, ${t("ago", age)}`);
}

/** The mark, and why it is not as it should be; with `short` in a few words. @param {Node} node */
export function describeMark(node, short = false) {
  const [kind, why] = node.note ?? ["", ""];
  const reason = kind && ((!short && said(why)) || t(`n_${kind}`));
  if (!(node.flags & MARKED || isHot(node))) return reason || "–";
  const isMarked = t(node.flags & MARKED ? "yes" : "no");
  if (short) return node.flags & MARKED ? isMarked : reason || isMarked;
  return reason ? `${isMarked}${t("colon")}${reason}` : isMarked;
}
