// Header, banners, the numbers, the rules, the order, and what came of marks.

import { Attribute, Label, NameLink, get, make, say, svg } from "./draw.js";
import { counted, minute, number, portion, span, t, told, took } from "./i18n.js";
import { MARKED, PRESSURED, UNKNOWN, isIn } from "./model.js";

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
  const own = data.rules.filter((rule) => !rule.early_of);
  const failing = own.filter((rule) => rule.health !== "ok" || whyBlind(data, rule.name));
  const asked = own.filter((rule) => rule.expr !== null);
  const answers = asked.length === 0 || asked.some((rule) => rule.health === "ok");
  const role = data.leading ? t("leads") : data.leader ? t("follows", data.leader) : t("follows_nobody");
  const lines = [
    [t("role"), role, ""],
    [t("last_tick"), `${t("ago", span(now.age))}, ${t("took", took(data.duration))}`, now.age > data.overdue_after ? "bad" : ""],
    [t("rules"), t("rules_ok", own.length - failing.length, own.length), failing.length ? "bad" : ""],
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
    if (data.error) found.push(["bad", t("b_blind", told(data.error))]);
    // Where none are in force, `error` says so.
    const told_already = data.rules_error?.startsWith("no rules are in force");
    if (data.rules_error && !told_already) found.push(["bad", t("b_rules_error", data.rules_error)]);
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
        if (rule.health !== "ok") found.push(["warn", t("b_rule_fails", rule.name, told(rule.last_error ?? ""))]);
        else if (whyBlind(data, rule.name)) found.push(["warn", t("b_rule_blind", rule.name, told(whyBlind(data, rule.name)))]);
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

/** @typedef {[key: string, title: string, value: string, kind: string, note: string]} Card */

/** What a count is told as: zeros are small. @param {number} count @param {string} kind */
const kindOf = (count, kind) => (count ? kind : "zero");

/** @param {Model} model @returns {Card} */
function hotCard({ nodes, data }) {
  let [hot, marked, cooling] = [0, 0, 0];
  /** @type {Map<string, number>} */
  const reasons = new Map();
  for (const node of nodes) {
    if (!(node.flags & PRESSURED)) continue;
    hot += 1;
    if (node.state === "held") cooling += 1;
    if (node.flags & MARKED) marked += 1;
    if (!isIn(node, "unmarked")) continue;
    const [kind, text] = node.note ?? ["next_tick", ""];
    const reason = kind === "withheld" || kind === "failed" ? told(text.replace("not marked: ", "")) : t(`n_${kind}`);
    reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
  }
  const why = [...reasons].sort((a, b) => b[1] - a[1]).slice(0, 3).map(([reason, count]) => t("hot_not", counted(count), reason));
  const notes = [...(data.mark ? [t("hot_marked", counted(marked))] : ["mark: none"]), ...why, ...(cooling ? [t("hot_cooling", counted(cooling))] : [])];
  return ["hot", t("hot"), counted(hot), kindOf(hot, hot > cooling ? "hot" : "warn"), hot ? notes.join(" · ") : t("hot_none")];
}

/** @param {Model["data"]} data @param {number} now @returns {Card} */
function orderCard({ order_written: written, order_error }, now) {
  if (!written?.length) return ["order", t("order_age"), "–", order_error ? "warn" : "zero", order_error ? t("order_over") : t("order_elsewhere")];
  const [at, until] = written;
  return ["order", t("order_age"), span(now - at), until < now || order_error ? "warn" : "", until < now ? t("order_over") : t("order_until", span(until - now))];
}

/** @param {Model} model @param {string | null} state @param {(state: string) => void} filter @param {number} now */
export function numbers(model, state, filter, now) {
  const { nodes, data } = model;
  let [early, marked, unknown] = [0, 0, 0];
  for (const node of nodes) {
    if (isIn(node, "early")) {
      early += 1;
      if (node.flags & MARKED) marked += 1;
    }
    if (node.flags & UNKNOWN) unknown += 1;
  }
  /** @type {Card[]} */
  const cards = [hotCard(model), ["unknown", t("unknown"), counted(unknown), kindOf(unknown, "warn"), t(unknown ? "unknown_some" : "unknown_none")]];
  if (data.order || data.order_error) cards.splice(1, 0, orderCard(data, now));
  if (data.rules.some((rule) => rule.early_of)) cards.splice(1, 0, ["early", t("early"), counted(early), kindOf(early, ""), t(early ? "early_help" : "early_none", counted(marked))]);
  document.title = [cards[0][3] !== "zero" ? `(${cards[0][2]})` : "", data.cluster ?? "", "dynsched"].filter(Boolean).join(" ");
  say(get("cluster"), data.cluster ?? "");
  const box = get("numbers");
  const shows = cards.map(([key]) => key).join(" ");
  if (box.dataset.shows !== shows) {
    box.dataset.shows = shows;
    box.replaceChildren(...cards.map(([key, title]) => {
      const card = make("button", { type: "button", "data-state": key }, make("span", { text: title }), make("strong"), make("small"));
      card.addEventListener("click", () => (key === "order" ? get("order-box").scrollIntoView() : filter(key)));
      return card;
    }));
  }
  cards.forEach(([key, , value, kind, note], at) => {
    const card = box.children[at];
    card.className = `number ${kind}`;
    if (key !== "order") card.setAttribute("aria-pressed", String(state === key));
    say(card.children[1], value);
    say(card.children[2], note);
  });
}

/** @param {Model} model @param {(rule: string) => void} filter */
export function rules(model, filter) {
  const { data } = model;
  const table = get("rules");
  const head = /** @type {HTMLElement} */ (table.querySelector("thead"));
  if (!head.firstChild) head.append(make("tr", {}, ...RULE_COLUMNS.map(([key, kind]) => make("th", { scope: "col", class: kind, text: t(key) }))));
  const shows = JSON.stringify([data.graphs, data.rules.map(({ name, expr, shadow, early_of }) => [name, expr, shadow, early_of])]);
  if (table.dataset.shows !== shows) {
    table.dataset.shows = shows;
    ruleRows = data.rules.map((rule) => ruleRow(rule, data.graphs, filter));
    table.replaceChildren(head, ...ruleRows.map(({ element }) => element));
  }
  data.rules.forEach((rule, at) => ruleRows[at].show(rule, whyBlind(data, rule.name)));
}

/** Their names, and the classes of their cells. */
const RULE_COLUMNS = [["rule", ""], ["threshold", "num"], ["clear_at", "num w2"], ["health", ""], ["samples", "num w2"], ["unmatched", "num w2"], ["duration", "num w2"], ["states", "num"]];

/** @type {{element: Element, show: (rule: Rule, blind: string) => void}[]} */
let ruleRows = [];

/** A line of numbers, and below it what is asked and what is wrong. @param {Rule} rule @param {string} graphs @param {(rule: string) => void} filter */
function ruleRow(rule, graphs, filter) {
  const name = make("button", { type: "button", class: "plain", "data-rule": rule.name, text: rule.name });
  name.addEventListener("click", () => filter(rule.name));
  const shadow = rule.shadow ? [" ", make("span", { class: "tag pending", title: t("shadow_help"), text: t("shadow") })] : [];
  const cells = RULE_COLUMNS.slice(1).map(([, kind]) => make("td", { class: kind }));
  const [threshold, clear, health, samples, unmatched, duration, states] = cells.map((cell) => new Label(cell));
  const [healthKind, unmatchedKind] = [cells[2], cells[4]].map((cell) => new Attribute(cell, "class"));
  const trouble = make("p", { class: "bad" });
  return {
    element: make("tbody", {}, make("tr", {}, make("th", { scope: "row" }, name, ...shadow), ...cells),
      make("tr", {}, make("td", { colspan: RULE_COLUMNS.length }, ...expression(rule, graphs), trouble))),
    show(/** @type {Rule} */ now, /** @type {string} */ blind) {
      const wrong = now.health !== "ok" ? now.last_error : blind;
      say(trouble, told(wrong ?? ""));
      threshold.show(`${now.op} ${number(now.threshold)}`);
      clear.show(number(now.clear_threshold));
      health.show(now.health !== "ok" ? t("err") : t(wrong ? "blind" : "ok"));
      healthKind.set(wrong ? "bad" : "");
      samples.show(counted(now.samples));
      unmatched.show(counted(now.unmatched_samples));
      unmatchedKind.set(now.unmatched_samples ? "num w2 bad" : "num w2");
      duration.show(took(now.query_duration_seconds));
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
  const kinds = /** @type {const} */ (["hot", "marked", "clean"]);
  const total = (/** @type {number[]} */ counts) => counts.reduce((sum, count) => sum + count, 0);
  const [hot, marked, clean] = kinds.map((kind) => (found ? total(found[kind]) : 0));
  box.hidden = hot + marked + clean === 0;
  if (!found || box.hidden) return;
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
    svg("svg", { class: "stack", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, ...bars),
    make("div", { class: "axis legend" }, make("span", { text: minute(found.times[0]) }), make("span", { text: t("p_most", counted(most)) }), make("span", { text: t("now") })),
    make("ul", { class: "legend" }, ...kinds.map((kind) =>
      make("li", {}, svg("svg", { width: 14, height: 14, "aria-hidden": "true" }, svg("rect", { class: `stack-${kind}`, width: 14, height: 14 })),
        `${counted(total(found[kind]))} ${t(`p_${kind}`)}`))));
}

/** The coolest nodes of each pool, as new pods prefer them. @param {Model} model @param {(name: string) => void} open */
export function order(model, open) {
  const found = model.data.order;
  get("order-box").hidden = !found;
  if (!found) return;
  const { ranked, unknown, hot, closed, full, unnamed } = found.counts;
  say(get("order-counts"), t("order_counts", ...[ranked, unknown, hot, closed, full, unnamed].map(counted)));
  const box = get("order");
  const shows = JSON.stringify([found.pools, found.more_pools]);
  if (box.dataset.shows === shows) return;
  box.dataset.shows = shows;
  box.replaceChildren(
    ...found.pools.map(({ name, nodes, coolest }) =>
      make("div", {}, make("h3", { text: `${name || t("all_nodes")} (${counted(nodes)})` }),
        make("ol", {}, ...coolest.map(([node, load, weight]) => {
          const link = new NameLink().show(node).element;
          link.addEventListener("click", (event) => {
            event.preventDefault();
            open(node);
          });
          return make("li", {}, link, make("span", { class: "dim", text: t("weight", weight) }), make("strong", { text: load === null ? "–" : load.toFixed(1) }));
        })))),
    ...(found.more_pools ? [make("p", { text: t("more_pools", counted(found.more_pools)) })] : []),
  );
}

/** Ends of the scale of `overload`. */
const SCALES = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1];

/** How much of the nodes' time was hot, by day. @param {Model} model */
export function overload(model) {
  const found = model.data.overload;
  get("overload-box").hidden = !found;
  const body = /** @type {HTMLElement} */ (get("overload").querySelector("tbody"));
  const shows = JSON.stringify(found);
  if (!found || body.dataset.shows === shows) return;
  body.dataset.shows = shows;
  const [wide, high] = [240, 12];
  const most = SCALES.find((end) => end >= Math.max(...found.share.map((share) => share ?? 0))) ?? 1;
  const scale = make("div", { class: "axis" }, ...[0, most].map((at) => make("span", { text: portion(at) })));
  get("overload").querySelector("thead")?.replaceChildren(
    make("tr", {}, make("th", { scope: "col", text: t("day") }), make("th", { scope: "col", class: "num", text: t("overload_share") }), make("th", { scope: "col" }, scale)));
  body.replaceChildren(...found.days.map((day, at) => {
    const share = found.share[at];
    const name = at === found.days.length - 1 ? t("so_far", day) : day;
    const bar = svg("svg", { viewBox: `0 0 ${wide} ${high}`, preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", { class: "bar-back", width: wide, height: high }), svg("rect", { class: "stack-hot", width: Math.round(((share ?? 0) / most) * wide), height: high }));
    return make("tr", {}, make("th", { scope: "row", text: name }), make("td", { class: "num", text: share === null ? "–" : portion(share) }), make("td", {}, bar));
  }));
}
