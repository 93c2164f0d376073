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

/** Letters at the end of a name that stay when it is cut. */
const TAIL = 10;

/** What of a name must stay at its end: machines of one kind differ there, domain names at the front. @param {string} name */
export const tailOf = (name) => (name.includes(".") || name.length <= 2 * TAIL ? "" : name.slice(-TAIL));

/** A node's name as a link, cut in the middle where there is no room; whole for the pointer and for screen readers. */
export class NameLink {
  constructor() {
    this.shown = "";
    const [start, end] = [make("span"), make("span")];
    this.element = make("a", { class: "name" }, start, end);
    this.start = new Label(start);
    this.end = new Label(end);
  }

  /** @param {string} name */
  show(name) {
    if (name === this.shown) return this;
    this.shown = name;
    const end = tailOf(name);
    this.start.show(name.slice(0, name.length - end.length));
    this.end.show(end);
    this.element.setAttribute("href", `?node=${encodeURIComponent(name)}`);
    for (const key of ["title", "aria-label"]) this.element.setAttribute(key, name);
    return this;
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
      parts.push(svg("line", { class: kind, x1: this.x(at), x2: this.x(at), y1: 0, y2: HIGH, "vector-effect": "non-scaling-stroke" }));
    }
    this.picture = svg("svg", { class: "bars", height: HIGH, viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img" }, ...parts, tick);
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
    this.known.set(value === null ? "value missing" : "value");
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

/** The path of a curve, with a gap where nothing is known. @param {(number | null)[]} values @param {(at: number) => string} x @param {(value: number) => string} y */
export function pathOf(values, x, y) {
  let [path, open] = ["", false];
  values.forEach((value, at) => {
    if (value !== null) path += `${open ? "L" : "M"}${x(at)} ${y(value)}`;
    open = value !== null;
  });
  return path;
}

/** The end of a scale for these values: that of the rule, if they do not vanish in it. @param {import("./model.js").Rule} rule @param {(number | null)[]} values */
export function topOf(rule, values) {
  const most = Math.max(rule.threshold, ...values.map((value) => value ?? 0)) || 1;
  return fullScale(rule) > 2.5 * most ? 1.25 * most : Math.max(most, fullScale(rule));
}

const [LONG, TALL] = [120, 24];

/**
 * A small curve, for a row of the table: grey where it is not known at the end, and below it when the node was marked.
 * @param {import("./model.js").Rule} rule @param {import("./data.js").Past} past
 */
export function sparkline(rule, { times, values, marked }) {
  const own = values[rule.name];
  const top = topOf(rule, own);
  const [first, length] = [times[0], times[times.length - 1] - times[0] || 1];
  const x = (/** @type {number} */ at) => (((times[at] - first) / length) * LONG).toFixed(1);
  const y = (/** @type {number} */ value) => (TALL - 1 - Math.max(0, value / top) * (TALL - 2)).toFixed(1);
  const last = own.findLastIndex((value) => value !== null);
  const parts = [];
  if (last < own.length - 1) parts.push(svg("rect", { class: "gap", x: x(Math.max(0, last)), y: 0, width: LONG - Number(x(Math.max(0, last))), height: TALL }));
  let shade = "";
  marked.forEach((is, at) => {
    if (is && at + 1 < marked.length) shade += `M${x(at)} ${TALL}v-3H${x(at + 1)}V${TALL}z`;
  });
  if (shade) parts.push(svg("path", { class: "shade", d: shade }));
  const line = y(rule.threshold);
  parts.push(svg("line", { class: "line-threshold", x1: 0, x2: LONG, y1: line, y2: line }), svg("path", { class: "curve", d: pathOf(own, x, y) }));
  return svg("svg", { width: LONG, height: TALL, viewBox: `0 0 ${LONG} ${TALL}`, role: "img", "aria-label": t("spark_label", rule.name) }, ...parts);
}
