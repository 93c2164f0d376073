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

/** By id. @template {HTMLElement} T @param {string} id @returns {T} */
export function get(id) {
  const element = document.getElementById(id);
  if (element === null) throw new Error(`no element ${id}`);
  return /** @type {T} */ (element);
}

const WIDE = 110;
const HIGH = 16;

/**
 * A value as text and as a bar, with lines at threshold (solid) and clear_threshold (dashed), and the
 * expected value as an outline. It is made once and changed at each update.
 */
export class Bar {
  /** @param {import("./model.js").Rule} rule */
  constructor(rule) {
    this.rule = rule;
    this.full = fullScale(rule);
    this.text = make("span", { class: "value" });
    this.filled = svg("rect", { class: "bar", y: 3, height: HIGH - 6, width: 0 });
    this.outline = svg("rect", { class: "bar-expected", x: 0.75, y: 1.5, height: HIGH - 3, width: 0, visibility: "hidden" });
    const parts = [svg("rect", { class: "bar-back", width: WIDE, height: HIGH, rx: 2 }), this.filled, this.outline];
    for (const [kind, at] of /** @type {[string, number][]} */ ([["line-clear", rule.clear_threshold], ["line-threshold", rule.threshold]])) {
      if (kind === "line-clear" && rule.clear_threshold === rule.threshold) continue;
      parts.push(svg("line", { class: kind, x1: this.x(at), x2: this.x(at), y1: 0, y2: HIGH }));
    }
    this.picture = svg("svg", { width: WIDE, height: HIGH, viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img" }, ...parts);
  }

  /** @param {number} of */
  x(of) {
    return Math.round(Math.max(0, Math.min(1, of / this.full)) * WIDE * 10) / 10;
  }

  /** @param {number | null} value null: not known @param {number | undefined} expected @param {string} text */
  show(value, expected, text) {
    const { rule } = this;
    const beyond = (/** @type {number} */ limit) => value !== null && (rises(rule) ? value > limit : value < limit);
    say(this.text, text);
    this.text.className = value === null ? "value dim" : "value";
    this.filled.setAttribute("class", beyond(rule.threshold) ? "bar over" : beyond(rule.clear_threshold) ? "bar near" : "bar");
    this.filled.setAttribute("width", String(value === null ? 0 : this.x(value)));
    this.outline.setAttribute("visibility", expected === undefined ? "hidden" : "visible");
    if (expected !== undefined) this.outline.setAttribute("width", String(Math.max(0, this.x(expected) - 1.5)));
    const label = t("bar_label", text, number(rule.threshold), number(rule.clear_threshold));
    this.picture.setAttribute("aria-label", expected === undefined ? label : label + t("bar_expected", number(expected)));
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
  past.marked.forEach((marked, at) => {
    if (!marked) return;
    const until = past.times[at + 1] ?? past.times[at];
    const wide = Math.max(1, ((until - past.times[at]) / length) * width);
    parts.push(svg("rect", { class: "shade", x: x(past.times[at]), width: wide.toFixed(1), y: chart ? 0 : height - 3, height: chart ? height : 3 }));
  });
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
