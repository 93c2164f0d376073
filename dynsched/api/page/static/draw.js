// Elements, bars and curves. No style attributes: the Content-Security-Policy forbids them.

import { number, t } from "./i18n.js";
import { fullScale, rises } from "./model.js";

const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {string} tag
 * @param {Record<string, string | number | boolean | undefined>} [attributes] `text`: its text;
 *   false and undefined: not set
 * @param {...(Node | string)} children
 */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  assign(element, attributes);
  element.append(...children);
  return element;
}

/** @param {string} tag @param {Record<string, string | number>} attributes @param {...Element} children */
export function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  assign(element, attributes);
  element.append(...children);
  return element;
}

/** @param {Element} element @param {Record<string, string | number | boolean | undefined>} attributes */
function assign(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (name === "text") element.textContent = String(value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

/** Change a text only where it differs: an equal one would cost a layout. @param {Element} element @param {string} text */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A text that is written only where it differs, into the same node. */
export class Label {
  /** @param {Element} element that holds it */
  constructor(element) {
    this.node = document.createTextNode("");
    this.shown = "";
    element.append(this.node);
  }

  /** @param {string} text */
  show(text) {
    if (text === this.shown) return;
    this.shown = text;
    this.node.data = text;
  }
}

/** An attribute that is written only where it differs: an equal one would cost as much. */
export class Attribute {
  /** @param {Element} element @param {string} name */
  constructor(element, name) {
    this.element = element;
    this.name = name;
    /** @type {string | number | null} */
    this.value = null;
  }

  /** @param {string | number} value */
  set(value) {
    if (value === this.value) return;
    this.value = value;
    this.element.setAttribute(this.name, String(value));
  }
}

/** By id. @template {HTMLElement} T @param {string} id @returns {T} */
export function get(id) {
  const element = document.getElementById(id);
  if (element === null) throw new Error(`no element ${id}`);
  return /** @type {T} */ (element);
}

const WIDE = 110;
const HIGH = 16;
/** A triangle that points up, at the lower edge of a bar, at its left end. */
export const TICK = `M-4 ${HIGH}L0 ${HIGH - 7}L4 ${HIGH}Z`;

/**
 * A value as text and as a bar, with lines at threshold (solid) and clear_threshold (dashed), the
 * expected value as an outline, and a tick at what is requested. It is made once and changed at each
 * update.
 */
export class Bar {
  /** @param {import("./model.js").Rule} rule */
  constructor(rule) {
    this.rule = rule;
    this.full = fullScale(rule);
    this.text = make("span");
    this.words = new Label(this.text);
    const filled = svg("rect", { y: 3, height: HIGH - 6, width: 0 });
    const outline = svg("rect", { class: "bar-expected", x: 0.75, y: 1.5, height: HIGH - 3, width: 0 });
    const tick = svg("path", { class: "tick", d: TICK });
    const parts = [svg("rect", { class: "bar-back", width: WIDE, height: HIGH, rx: 2 }), filled, outline];
    for (const [kind, at] of /** @type {[string, number][]} */ ([["line-clear", rule.clear_threshold], ["line-threshold", rule.threshold]])) {
      if (kind === "line-clear" && rule.clear_threshold === rule.threshold) continue;
      parts.push(svg("line", { class: kind, x1: this.x(at), x2: this.x(at), y1: 0, y2: HIGH }));
    }
    this.picture = svg("svg", { width: WIDE, height: HIGH, viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img" }, ...parts, tick);
    this.known = new Attribute(this.text, "class");
    this.colour = new Attribute(filled, "class");
    this.width = new Attribute(filled, "width");
    this.expects = new Attribute(outline, "visibility");
    this.expected = new Attribute(outline, "width");
    this.requests = new Attribute(tick, "visibility");
    this.requested = new Attribute(tick, "transform");
    this.label = new Attribute(this.picture, "aria-label");
  }

  /** @param {number} of */
  x(of) {
    return Math.round(Math.max(0, Math.min(1, of / this.full)) * WIDE * 10) / 10;
  }

  /** @param {number | null} value null: not known @param {number | undefined} expected @param {number | null} requested @param {string} text */
  show(value, expected, requested, text) {
    const { rule } = this;
    const beyond = (/** @type {number} */ limit) => value !== null && (rises(rule) ? value > limit : value < limit);
    this.words.show(text);
    this.known.set(value === null ? "value dim" : "value");
    this.colour.set(beyond(rule.threshold) ? "bar over" : beyond(rule.clear_threshold) ? "bar near" : "bar");
    this.width.set(value === null ? 0 : this.x(value));
    this.expects.set(expected === undefined ? "hidden" : "visible");
    if (expected !== undefined) this.expected.set(Math.max(0, this.x(expected) - 1.5));
    this.requests.set(requested === null ? "hidden" : "visible");
    if (requested !== null) this.requested.set(`translate(${this.x(requested)} 0)`);
    // The value itself is the text beside it.
    let label = t("bar_label", number(rule.threshold), number(rule.clear_threshold));
    if (expected !== undefined) label += t("bar_expected", number(expected));
    if (requested !== null) label += t("bar_requested", number(requested));
    this.label.set(label);
  }
}

/**
 * A curve over time.
 * @param {import("./model.js").Rule} rule
 * @param {{times: number[], values: (number | null)[], marked: boolean[]}} past
 * @param {{width: number, height: number, chart?: boolean}} size
 */
export function curve(rule, past, { width, height, chart = false }) {
  const known = past.values.filter((value) => value !== null);
  const top = Math.max(fullScale(rule), ...known);
  const first = past.times[0];
  const length = past.times[past.times.length - 1] - first || 1;
  const x = (/** @type {number} */ at) => (((at - first) / length) * width).toFixed(1);
  const y = (/** @type {number} */ value) => (height - 1 - Math.max(0, value / top) * (height - 2)).toFixed(1);
  const parts = [];
  let shade = "";
  past.marked.forEach((marked, at) => {
    if (!marked) return;
    const until = past.times[at + 1] ?? past.times[at];
    const wide = Math.max(1, ((until - past.times[at]) / length) * width).toFixed(1);
    shade += `M${x(past.times[at])} ${height}v${chart ? -height : -3}h${wide}V${height}z`;
  });
  if (shade) parts.push(svg("path", { class: "shade", d: shade }));
  for (const [kind, at] of /** @type {[string, number][]} */ ([["line-clear", rule.clear_threshold], ["line-threshold", rule.threshold]])) {
    if (kind === "line-clear" && !chart) continue;
    parts.push(svg("line", { class: kind, x1: 0, x2: width, y1: y(at), y2: y(at), "vector-effect": "non-scaling-stroke" }));
  }
  // A gap where nothing was known.
  let path = "";
  let open = false;
  past.values.forEach((value, at) => {
    if (value === null) open = false;
    else {
      path += `${open ? "L" : "M"}${x(past.times[at])} ${y(value)}`;
      open = true;
    }
  });
  if (path) parts.push(svg("path", { class: "curve", d: path, "vector-effect": "non-scaling-stroke" }));
  const label = t("spark_label", rule.name);
  const box = { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, preserveAspectRatio: "none" };
  return svg("svg", chart ? { ...box, class: "chart" } : { ...box, width, height }, ...parts);
}
