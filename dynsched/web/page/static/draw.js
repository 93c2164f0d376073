// Elements and bars. No style attributes: the Content-Security-Policy forbids them.

import { fullScale } from "./model.js";

const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {string} tag
 * @param {Record<string, string | number | boolean | undefined>} [attributes] `text` is the content;
 *   false and undefined are not set
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

/** Set a text only if it differs, because setting it costs a layout. @param {Element} element @param {string} text */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A text node that is written only if the text differs. */
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

/** The number of letters at the end of a name that stay if it is cut. */
const TAIL = 10;

/** The end of a name that stays if it is cut: machines of one kind differ there. Domain names differ at the front. @param {string} name */
export const tailOf = (name) => (name.includes(".") || name.length <= 2 * TAIL ? "" : name.slice(-TAIL));

/** A text that is cut in its middle if there is no room. */
export class CutLabel {
  /** @param {Element} element that holds it */
  constructor(element) {
    const [start, end] = [make("span"), make("span")];
    element.classList.add("cut");
    element.append(start, end);
    this.start = new Label(start);
    this.end = new Label(end);
  }

  /** @param {string} text */
  show(text) {
    const end = tailOf(text);
    this.start.show(text.slice(0, text.length - end.length));
    this.end.show(end);
  }
}

/** A node's name as a link. The tooltip and screen readers get the whole name. */
export class NameLink {
  constructor() {
    this.shown = "";
    this.element = make("a", { class: "name" });
    this.label = new CutLabel(this.element);
  }

  /** @param {string} name @param {string} [short] the part that is shown */
  show(name, short = name) {
    const shows = `${name} ${short}`;
    if (shows === this.shown) return this;
    this.shown = shows;
    this.label.show(short);
    this.element.setAttribute("href", `?node=${encodeURIComponent(name)}`);
    for (const key of ["title", "aria-label"]) this.element.setAttribute(key, name);
    return this;
  }
}

/** An attribute that is written only if it differs, because an equal one would cost as much. */
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
const HIGH = 12;

/** A value as text and as a bar, with lines at threshold (solid) and clear_threshold (dashed). It is made once, and changed at each update. */
export class Bar {
  /** @param {import("./model.js").Rule} rule */
  constructor(rule) {
    this.rule = rule;
    this.full = fullScale(rule);
    this.text = make("span");
    this.words = new Label(this.text);
    const filled = svg("rect", { y: 3, height: HIGH - 6, width: 0 });
    const parts = [svg("rect", { class: "bar-back", width: WIDE, height: HIGH }), filled];
    for (const [kind, at] of /** @type {[string, number][]} */ ([["line-clear", rule.clear_threshold], ["line-threshold", rule.threshold]])) {
      if (kind === "line-clear" && rule.clear_threshold === rule.threshold) continue;
      parts.push(svg("line", { class: kind, x1: this.x(at), x2: this.x(at), y1: 0, y2: HIGH, "vector-effect": "non-scaling-stroke" }));
    }
    // Hidden from screen readers: the text and the column's heading say the same.
    this.picture = svg("svg", { class: "bars", height: HIGH, viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...parts);
    this.known = new Attribute(this.text, "class");
    this.hint = new Attribute(this.text, "title");
    this.colour = new Attribute(filled, "class");
    this.width = new Attribute(filled, "width");
  }

  /** @param {number} of */
  x(of) {
    return Math.round(Math.max(0, Math.min(1, of / this.full)) * WIDE * 10) / 10;
  }

  /** @param {number | null} value null: never known @param {string} text @param {string} colour @param {string} why the value is not current; empty if it is */
  show(value, text, colour, why) {
    this.words.show(text);
    this.known.set(why ? "value missing" : "value");
    this.hint.set(why);
    this.colour.set(`bar ${why ? "unknown" : colour}`);
    this.width.set(value === null ? 0 : this.x(value));
  }
}
