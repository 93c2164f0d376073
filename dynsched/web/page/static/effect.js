// The effect: where new pods went, and the order that new pods get.

import { get, make, say, svg } from "./draw.js";
import { counted, minute, number, portion, t } from "./i18n.js";

/** @typedef {import("./model.js").Model} Model */

const HOUR = 3600;

/** The pods of the last hour by the state of their nodes, compared with random placement. @param {Model} model */
export function placements(model) {
  const found = model.data.placements;
  const box = get("placements-box");
  const kinds = /** @type {const} */ (["hot", "marked", "clean"]);
  const sum = (/** @type {number[]} */ counts) => counts.reduce((all, count) => all + count, 0);
  const [hot, marked, clean] = kinds.map((kind) => (found ? sum(found[kind]) : 0));
  const all = hot + marked + clean;
  box.hidden = all === 0;
  if (!found || box.hidden) return;
  const chance = found.by_chance;
  // By chance alone, the difference would be less than this in 19 of 20 cases.
  const isSure = Math.abs(hot - chance) > 2 * Math.sqrt(chance);
  const ratio = chance > 0 ? t(!isSure ? "helps_unsure" : hot < chance ? "helps" : "helps_not", (hot / chance).toFixed(2)) : "";
  say(get("help"), t("help", portion(hot / all), counted(hot), counted(all), portion(chance / all)) + ratio);
  const most = Math.max(1, ...found.times.map((_, at) => found.hot[at] + found.marked[at] + found.clean[at]));
  const [width, height] = [600, 80];
  const end = found.times[found.times.length - 1] + found.step;
  const wide = (width * found.step) / HOUR;
  const bars = found.times.flatMap((begins, at) => {
    let y = height;
    return kinds.map((kind) => {
      const high = (found[kind][at] / most) * height;
      y -= high;
      return svg("rect", { class: `stack-${kind}`, x: ((begins - end + HOUR) / HOUR) * width + 1, y, width: wide - 2, height: high });
    });
  });
  const label = t("p_label", hot, marked, clean);
  get("placements").replaceChildren(
    svg("svg", { class: "stack", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, ...bars),
    make("div", { class: "axis legend" }, ...[0, 1, 2].map((third) => make("span", { text: minute(end - HOUR + (third * HOUR) / 3) })), make("span", { text: t("now") })),
    make("ul", { class: "legend" }, ...kinds.map((kind) =>
      make("li", {}, svg("svg", { width: 14, height: 14, "aria-hidden": "true" }, svg("rect", { class: `stack-${kind}`, width: 14, height: 14 })),
        `${counted(sum(found[kind]))} ${t(`p_${kind}`)}`)), make("li", { text: t("p_most", counted(most)) })));
}

const [WIDE, HIGH] = [1000, 60];

/** All nodes by rank, with their loads and the weights of their levels. @param {Model} model */
export function order(model) {
  const found = model.data.order;
  get("order-box").hidden = !found;
  if (!found) return;
  const describe = (/** @type {(keyof typeof found.counts)[]} */ ...kinds) => kinds.flatMap((kind) => (found.counts[kind] ? t(`order_${kind}`, counted(found.counts[kind])) : []));
  const left = describe("hot", "closed", "full", "unnamed").join(t("comma"));
  say(get("order-counts"), [...describe("ranked", "unknown"), left && t("order_left") + left].filter(Boolean).join(t("semicolon")) + t("stop") + (found.lists > 1 ? t("order_lists", counted(found.lists)) : "") + (found.equal_below ? t("order_equal", number(found.equal_below)) : ""));
  const box = get("order");
  const shows = JSON.stringify([found.weights, found.loads]);
  if (box.dataset.shows === shows) return;
  box.dataset.shows = shows;
  const wide = WIDE / found.weights.length;
  const x = (/** @type {number} */ at) => (at * wide).toFixed(1);
  const y = (/** @type {number} */ share) => (HIGH * (1 - Math.min(100, share) / 100)).toFixed(1);
  const area = `M0 ${HIGH}${found.weights.map((weight, at) => `L${x(at)} ${y(weight)}H${x(at + 1)}`).join("")}V${HIGH}z`;
  const loads = found.loads.map((load, at) => (load === null ? "" : `${at ? "L" : "M"}${x(at + 0.5)} ${y(load)}`)).join("").replace(/^L/, "M");
  box.replaceChildren(
    svg("svg", { class: "stack", viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img", "aria-label": t("order") },
      svg("path", { class: "weights", d: area }), svg("path", { class: "loads", d: loads, "vector-effect": "non-scaling-stroke" })),
    make("div", { class: "axis legend" }, ...[0, found.loads.length - 1].map((at) => make("span", { text: t("at_rank", number(found.loads[at]), found.weights[at] ?? "–") }))),
    make("ul", { class: "legend" }, ...["weights", "loads"].map((kind) => make("li", {}, svg("svg", { width: 16, height: 14, "aria-hidden": "true" }, svg("path", { class: kind, d: kind === "loads" ? "M0 7H16" : "M0 2H16V12H0z" })), t(`k_${kind}`)))));
}
