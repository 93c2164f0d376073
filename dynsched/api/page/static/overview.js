// Header, banners, the three numbers, the rules, the placements.

import { Attribute, Label, get, make, say, svg } from "./draw.js";
import { counted, moment, number, portion, span, t } from "./i18n.js";
import { EARLY, MARKED, UNKNOWN, isUnmarked } from "./model.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./model.js").Rule} Rule */

/** What is known beside the Snapshot. @typedef {{age: number, silent: number}} Now */

/** Why a rule knows no node. A rule may be named as what every object has, such as "constructor".
 * @param {Model["data"]} data @param {string} rule */
function whyBlind(data, rule) {
  return Object.hasOwn(data.blind, rule) ? data.blind[rule] : "";
}

/** @param {Model | null} model @param {Now} now */
export function facts(model, now) {
  if (model === null) return;
  const { data } = model;
  const failing = data.rules.filter((rule) => rule.health !== "ok" || whyBlind(data, rule.name));
  const asked = data.rules.filter((rule) => rule.expr !== null);
  const answers = asked.length === 0 || asked.some((rule) => rule.health === "ok");
  const role = data.leading ? t("leads") : data.leader ? t("follows", data.leader) : t("follows_nobody");
  const lines = [
    [t("role"), role, ""],
    [t("last_tick"), `${t("ago", span(now.age))}, ${t("took", `${number(data.duration)} s`)}`, now.age > data.overdue_after ? "bad" : ""],
    [t("rules"), t("rules_ok", data.rules.length - failing.length, data.rules.length), failing.length ? "bad" : ""],
    [t("prometheus"), answers ? t("answers") : t("fails"), answers ? "" : "bad"],
    [t("nodes"), counted(model.nodes.length), ""],
  ];
  const box = get("facts");
  if (box.children.length !== lines.length) {
    box.replaceChildren(...lines.map(() => make("div", {}, make("dt"), make("dd"))));
  }
  lines.forEach(([name, text, kind], at) => {
    const [term, value] = box.children[at].children;
    say(term, name);
    say(value, text);
    value.className = kind;
  });
  say(get("version"), data.version);
}

/** What must not be overlooked, the worst first. @param {Model | null} model @param {Now} now */
export function banners(model, now) {
  /** @type {[string, string][]} */
  const found = [];
  const data = model?.data;
  if (now.silent > 0) found.push(["bad", t("b_unreachable", span(now.silent))]);
  if (!data) {
    if (now.silent === 0) found.push(["warn", t("b_waiting")]);
  } else {
    if (now.silent === 0 && now.age > data.overdue_after) found.push(["bad", t("b_overdue", span(now.age))]);
    if (data.error) found.push(["bad", t("b_blind", data.error)]);
    if (data.rules_error) found.push(["bad", t("b_rules_error", data.rules_error)]);
    if (data.capped.length > 0) {
      const pools = data.capped.filter(Boolean).join(", ");
      found.push(["warn", t("b_capped", data.guard.max_marked, pools ? t("b_in_pools", pools) : "")]);
    }
    if (data.order_error) found.push(["warn", t("b_order", data.order_error)]);
    if (data.failures) found.push(["warn", t("b_failures", counted(data.failures))]);
    if (data.disputes) found.push(["warn", t("b_disputes", counted(data.disputes))]);
    if (!data.error) {
      for (const rule of data.rules) {
        if (rule.early_of) continue;
        if (rule.health !== "ok") found.push(["warn", t("b_rule_fails", rule.name, rule.last_error ?? "")]);
        else if (whyBlind(data, rule.name)) found.push(["warn", t("b_rule_blind", rule.name, whyBlind(data, rule.name))]);
      }
    }
    if (data.dry_run) found.push(["info", t("b_dry_run")]);
    else if (!data.leading) found.push(["info", data.leader ? t("b_following", data.leader) : t("b_following_nobody")]);
  }
  const box = get("banners");
  // Elements that stay: what a screen reader has read is not read again.
  while (box.children.length > found.length) box.lastElementChild?.remove();
  found.forEach(([kind, text], at) => {
    const line = box.children[at] ?? box.appendChild(make("p"));
    line.className = `banner ${kind}`;
    say(line, text);
  });
}

/** @param {Model} model @param {string | null} state @param {(state: string) => void} filter */
export function numbers(model, state, filter) {
  const { nodes, data } = model;
  let [marked, early, unknown, unmarked] = [0, 0, 0, 0];
  /** @type {Map<string, number>} */
  const reasons = new Map();
  for (const node of nodes) {
    if (node.flags & MARKED) marked += 1;
    if (node.flags & MARKED && node.flags & EARLY) early += 1;
    if (node.flags & UNKNOWN) unknown += 1;
    if (!isUnmarked(node)) continue;
    unmarked += 1;
    const [kind, text] = node.note ?? ["next_tick", ""];
    const reason = kind === "withheld" || kind === "failed" ? text : t(`n_${kind}`);
    reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
  }
  const why = [...reasons].sort((a, b) => b[1] - a[1]).slice(0, 3).map(([reason, count]) => `${counted(count)}: ${reason}`);
  /** @type {[string, string, number, string][]} */
  const tiles = [
    ["marked", t("marked"), marked, !data.mark ? "mark: none" : early ? t("marked_early", data.mark, counted(early)) : t("marked_help", data.mark)],
    ["unmarked", t("unmarked"), unmarked, why.length ? why.join("; ") : t("unmarked_help")],
    ["unknown", t("unknown"), unknown, t("unknown_help")],
  ];
  const box = get("numbers");
  if (box.children.length !== tiles.length) {
    box.replaceChildren(...tiles.map(([key, title]) => {
      const tile = make("button", { type: "button", "data-state": key }, make("span", { text: title }), make("strong"), make("small"));
      tile.addEventListener("click", () => filter(key));
      return tile;
    }));
  }
  tiles.forEach(([key, , value, note], at) => {
    const tile = box.children[at];
    tile.className = value > (key === "marked" ? early : 0) ? "number hot" : "number"; // early is no trouble
    tile.setAttribute("aria-pressed", String(state === key));
    say(tile.children[1], counted(value));
    say(tile.children[2], note);
  });
}

/** @param {Model} model @param {(rule: string) => void} filter */
export function rules(model, filter) {
  const { data } = model;
  const table = get("rules");
  const heads = [t("rule"), t("expression"), t("threshold"), t("health"), t("samples"), t("unmatched"), t("duration"), t("states")];
  const head = /** @type {HTMLElement} */ (table.querySelector("thead"));
  if (!head.firstChild) {
    const wide = [0, 1, 0, 0, 1, 1, 1, 0];
    head.append(make("tr", {}, ...heads.map((text, at) => make("th", { scope: "col", class: wide[at] ? "wide" : undefined, text }))));
  }
  const body = /** @type {HTMLElement} */ (table.querySelector("tbody"));
  const shows = JSON.stringify([data.graphs, data.rules.map(({ name, expr, shadow, early_of }) => [name, expr, shadow, early_of])]);
  if (body.dataset.shows !== shows) {
    body.dataset.shows = shows;
    ruleRows = data.rules.map((rule) => ruleRow(rule, data.graphs, filter));
    body.replaceChildren(...ruleRows.map(({ element }) => element));
  }
  data.rules.forEach((rule, at) => ruleRows[at].show(rule, whyBlind(data, rule.name)));
}

/** @type {{element: Element, show: (rule: Rule, blind: string | undefined) => void}[]} */
let ruleRows = [];

/** @param {Rule} rule @param {string} graphs @param {(rule: string) => void} filter */
function ruleRow(rule, graphs, filter) {
  const name = make("button", { type: "button", class: "plain", "data-rule": rule.name, text: rule.name });
  name.addEventListener("click", () => filter(rule.name));
  const shadow = rule.shadow ? [" ", make("span", { class: "tag pending", title: t("shadow_help"), text: t("shadow") })] : [];
  const cells = ["number-cell", "", "wide", "wide", "wide", ""].map((kind) => make("td", { class: kind }));
  const [threshold, health, samples, unmatched, duration, states] = cells.map((cell) => new Label(cell));
  const [, healthKind, , unmatchedKind] = cells.map((cell) => new Attribute(cell, "class"));
  return {
    element: make("tr", {}, make("th", { scope: "row" }, name, ...shadow), make("td", { class: "wide" }, ...expression(rule, graphs)), ...cells),
    show(/** @type {Rule} */ now, /** @type {string | undefined} */ blind) {
      const trouble = now.health !== "ok" ? now.last_error : blind;
      const word = now.health !== "ok" ? t("err") : trouble ? t("blind") : t("ok");
      threshold.show(`${now.op} ${number(now.threshold)} (${t("clears", number(now.clear_threshold))})`);
      health.show(trouble ? `${word}: ${trouble}` : word);
      healthKind.set(trouble ? "bad" : "");
      samples.show(counted(now.samples));
      unmatched.show(counted(now.unmatched_samples));
      unmatchedKind.set(now.unmatched_samples ? "wide bad" : "wide");
      duration.show(`${number(now.query_duration_seconds)} s`);
      states.show(`${counted(now.states.pending ?? 0)} / ${counted(now.states.firing ?? 0)}`);
    },
  };
}

/** @param {import("./model.js").Rule} rule @param {string} graphs where Prometheus's own pages are */
function expression(rule, graphs) {
  if (rule.expr === null) return [rule.early_of ? `early: ${rule.early_of}` : [rule.source, rule.resource].filter(Boolean).join(" ")];
  const code = make("code", { text: rule.expr });
  if (!/^https?:/.test(graphs)) return [code];
  const href = `${graphs.replace(/\/+$/, "")}/graph?g0.expr=${encodeURIComponent(rule.expr)}&g0.tab=0&g0.range_input=1h`;
  return [code, " ", make("a", { href, rel: "noreferrer", target: "_blank", text: t("graph") })];
}

/** @param {Model} model */
export function placements(model) {
  const found = model.data.placements;
  const box = get("placements-box");
  box.hidden = !found || found.times.length === 0;
  if (!found || box.hidden) return;
  const kinds = /** @type {const} */ (["hot", "marked", "clean"]);
  const total = (/** @type {number[]} */ counts) => counts.reduce((sum, count) => sum + count, 0);
  const [hot, marked, clean] = kinds.map((kind) => total(found[kind]));
  const most = Math.max(1, ...found.times.map((_, at) => found.hot[at] + found.marked[at] + found.clean[at]));
  const [width, height, count] = [600, 80, found.times.length];
  const wide = width / Math.max(12, count);
  const bars = found.times.flatMap((_, at) => {
    let y = height;
    return kinds.map((kind) => {
      const high = (found[kind][at] / most) * height;
      y -= high;
      return svg("rect", { class: `stack-${kind}`, x: at * wide + 1, y, width: wide - 2, height: high });
    });
  });
  const label = t("p_label", hot, marked, clean);
  get("placements").replaceChildren(
    svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, ...bars),
    make("div", { class: "axis" }, make("span", { text: moment(found.times[0]) }), make("span", { text: t("now") })),
    make("ul", { class: "legend" }, ...kinds.map((kind) =>
      make("li", {}, svg("svg", { width: 14, height: 14, "aria-hidden": "true" }, svg("rect", { class: `stack-${kind}`, width: 14, height: 14 })),
        `${counted(total(found[kind]))} ${t(`p_${kind}`)}`))));
}

/** The coolest nodes of each pool, as new pods prefer them. @param {Model} model */
export function order(model) {
  const found = model.data.order;
  get("order-box").hidden = !found;
  if (!found) return;
  const { ranked, unknown, hot, closed, full } = found.counts;
  say(get("order-counts"), t("order_counts", ...[ranked, unknown, hot, closed, full].map(counted)));
  get("order").replaceChildren(
    ...found.pools.flatMap(({ name, nodes, coolest }) => [
      make("h3", { text: `${name || t("all_nodes")} (${counted(nodes)})` }),
      make("ul", {}, ...coolest.map(([node, load]) => make("li", {}, make("strong", { text: number(load) }), ` ${node}`))),
    ]),
    ...(found.more_pools ? [make("p", { text: t("more_pools", counted(found.more_pools)) })] : []),
  );
}

/** How much of the nodes' time was hot, by day. @param {Model} model */
export function overload(model) {
  const found = model.data.overload;
  get("overload-box").hidden = !found;
  const body = /** @type {HTMLElement} */ (get("overload").querySelector("tbody"));
  const shows = JSON.stringify(found);
  if (!found || body.dataset.shows === shows) return;
  body.dataset.shows = shows;
  const head = /** @type {HTMLElement} */ (get("overload").querySelector("thead"));
  if (!head.firstChild) head.append(make("tr", {}, ...["day", "overload_share"].map((key) => make("th", { scope: "col", text: t(key) }))));
  const [wide, high] = [240, 12];
  const most = Math.max(0.01, ...found.share.map((share) => share ?? 0));
  body.replaceChildren(...found.days.map((day, at) => {
    const share = found.share[at];
    const name = at === found.days.length - 1 ? t("so_far", day) : day;
    if (share === null) return make("tr", {}, make("th", { scope: "row", text: name }), make("td", { text: "–" }));
    const bar = svg("svg", { viewBox: `0 0 ${wide} ${high}`, preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", { class: "stack-hot", width: Math.round((share / most) * wide), height: high }));
    return make("tr", {}, make("th", { scope: "row", text: name }), make("td", {}, make("span", { class: "value", text: portion(share) }), bar));
  }));
}
