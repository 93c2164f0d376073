// The values of one rule on one node over time: with axes, the lines that explain the mark, when this rule caused it,
// what is not known, and the value at the pointer.

import { isMarked, pathOf, svg, topOf } from "./draw.js";
import { minute, number, t, valueOf } from "./i18n.js";
import { rises } from "./model.js";

/** @typedef {import("./data.js").Past} Past */
/** @typedef {{value: number, kind: string, text: string}} Line */

const HIGH = 150;
/** Around the curve: for values and for the values of lines; for times, and for the topmost label. */
export const [LEFT, RIGHT] = [44, 44];
const [BELOW, ABOVE] = [18, 8];
/** Seconds between two times that are named. */
const TIMES = [60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600];

/**
 * @param {import("./model.js").Rule} rule @param {Past} past @param {[boolean, number, number][]} spans when something
 *   was so: true, marked because of this rule; false, not known
 * @param {Line[]} lines the highest first @param {number | undefined} expected @param {[number, number]} range @param {number} width pixels
 */
export function chart(rule, { times, values }, spans, lines, expected, [first, last], width) {
  const own = values[rule.name];
  const highest = topOf(rule, [...lines.map(({ value }) => value), expected ?? null, ...own]);
  const step = nice(highest / 4);
  const top = Math.ceil(highest / step - 1e-9) * step;
  const x = (/** @type {number} */ at) => LEFT + ((Math.min(last, Math.max(first, at)) - first) / (last - first || 1)) * (width - LEFT - RIGHT);
  const y = (/** @type {number} */ value) => HIGH - BELOW - Math.max(0, value / top) * (HIGH - BELOW - ABOVE);
  const parts = spans.map(([marked, from, to]) =>
    svg("rect", { class: marked ? "was-marked" : "at unknown", x: x(from), y: HIGH - BELOW - 4, width: Math.max(1, x(to) - x(from)), height: 4 }));
  for (let value = 0; value <= top + step / 2; value += step) {
    parts.push(svg("line", { class: "grid-line", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
      text({ x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, number(value)));
  }
  const every = TIMES.find((each) => (last - first) / each <= width / 90) ?? 21600;
  const shift = new Date(last * 1000).getTimezoneOffset() * 60;
  for (let at = Math.ceil((first - shift) / every) * every + shift; at <= last; at += every) {
    parts.push(text({ x: Math.max(LEFT + 12, Math.min(width - 16, x(at))), y: HIGH - 4, "text-anchor": "middle" }, minute(at)));
  }
  parts.push(svg("path", { class: "curve", d: pathOf(own.map((value, at) => (times[at] < first ? null : value)), (at) => x(times[at]).toFixed(1), (value) => y(value).toFixed(1)) }));
  if (expected !== undefined) parts.push(svg("circle", { class: "dot", cx: x(last), cy: y(expected), r: 4 }));
  let above = -HIGH;
  /** @type {SVGElement[]} */
  const labels = [];
  lines.forEach(({ value, kind, text: words }) => {
    parts.push(svg("line", { class: kind, x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }));
    // Beside their lines, and below each other.
    above = Math.max(y(value) + 4, above + 12);
    labels.push(text({ x: width - RIGHT + 4, y: above }, words));
  });
  parts.push(...labels);
  const picture = svg("svg", { class: "chart", width, height: HIGH, viewBox: `0 0 ${width} ${HIGH}`, role: "img", "aria-label": t("spark_label", rule.name) }, ...parts);
  readOut(picture, rule, times, own, { x, y, from: first, width });
  return picture;
}

/** @param {Record<string, string | number>} place @param {string} words */
function text(place, words) {
  const element = svg("text", place);
  element.textContent = words;
  return element;
}

/** A step of an axis: 1, 2, 2.5 or 5 times a power of ten. @param {number} least */
function nice(least) {
  const power = 10 ** Math.floor(Math.log10(least || 1));
  return ([1, 2, 2.5, 5, 10].find((each) => each * power >= least) ?? 10) * power;
}

/**
 * The value at the pointer.
 * @param {SVGElement} picture @param {import("./model.js").Rule} rule @param {number[]} times @param {(number | null)[]} values
 * @param {{x: (at: number) => number, y: (value: number) => number, from: number, width: number}} place
 */
function readOut(picture, rule, times, values, { x, y, from, width }) {
  const [line, dot, words] = [svg("line", { class: "line-clear", y1: ABOVE, y2: HIGH - BELOW }), svg("circle", { class: "dot", r: 4 }), text({ class: "read", y: ABOVE + 10 }, "")];
  const group = svg("g", { visibility: "hidden" }, line, dot, words);
  picture.append(group);
  picture.addEventListener("pointerleave", () => group.setAttribute("visibility", "hidden"));
  picture.addEventListener("pointermove", (event) => {
    const pointer = ((event.clientX - picture.getBoundingClientRect().left) / picture.clientWidth) * width;
    let nearest = -1;
    times.forEach((at, index) => {
      if (at >= from && (nearest < 0 || Math.abs(x(at) - pointer) < Math.abs(x(times[nearest]) - pointer))) nearest = index;
    });
    if (nearest < 0) return;
    const [at, value] = [x(times[nearest]), values[nearest]];
    const isLeft = at < width / 2;
    group.setAttribute("visibility", "visible");
    for (const end of ["x1", "x2"]) line.setAttribute(end, String(at));
    dot.setAttribute("cx", String(at));
    dot.setAttribute("cy", String(y(value ?? 0)));
    dot.setAttribute("r", value === null ? "0" : "4");
    words.setAttribute("x", String(at + (isLeft ? 8 : -8)));
    words.setAttribute("text-anchor", isLeft ? "start" : "end");
    words.textContent = `${minute(times[nearest])}  ${value === null ? t("not_known") : valueOf(rule, value)}`;
  });
}

/**
 * When the node was marked because of this rule, and when nothing was known of it.
 * @param {import("./model.js").Rule} rule @param {Past} past @param {(at: number) => boolean | undefined} fired whether
 *   the rule fired then; undefined: that is not known @param {[number, number]} range @returns {[boolean, number, number][]}
 */
export function spansOf(rule, { times, values, states }, fired, [first, last]) {
  const own = values[rule.name];
  const beyond = (/** @type {number | null} */ value) => value !== null && (rises(rule) ? value > rule.threshold : value < rule.threshold);
  const end = (/** @type {number} */ at) => times[at] ?? last;
  /** @type {[boolean, number, number][]} */
  const found = [];
  for (const kind of [false, true]) {
    const is = (/** @type {number} */ at) => (kind ? isMarked(states[at]) && fired(times[at]) !== false : own[at] === null);
    for (let at = 0; at < times.length; at += 1) {
      if (!is(at)) continue;
      const from = at;
      while (at + 1 < times.length && is(at + 1)) at += 1;
      // A value stands until the next one; what is not known begins with the last that was.
      const span = /** @type {[boolean, number, number]} */ ([kind, times[kind ? from : Math.max(0, from - 1)], end(at + 1)]);
      const why = !kind || own.slice(Math.max(0, from - 1), at + 1).some(beyond) || fired(times[at]);
      if (why && span[2] > first) found.push(span);
    }
  }
  return found;
}
