// Header, the sentence that says it all, banners, how many nodes of each state, the rules, the order, and what came of marks.

import { Attribute, Label, NameLink, get, make, say, svg } from "./draw.js";
import { counted, minute, moment, number, portion, span, t, told, took, valueOf } from "./i18n.js";
import { DECIDED, EARLY, MARKED, PRESSURED, isIn, rises, sinceOf } from "./model.js";

/** @typedef {import("./model.js").Node} Node */

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./model.js").Rule} Rule */

/** What is known beside the Snapshot: its age, for how long there was no answer, and the server's clock; seconds. @typedef {{age: number, silent: number, at: number}} Now */

/** Why a rule knows no node. A rule may be named as what every object has, such as "constructor".
 * @param {Model["data"]} data @param {string} rule */
function whyBlind(data, rule) {
  return Object.hasOwn(data.blind, rule) ? data.blind[rule] : "";
}

/** @param {Model} model @param {Now} now */
export function facts(model, now) {
  const { data } = model;
  const own = data.rules.filter((rule) => !rule.early_of);
  const failing = own.filter((rule) => rule.health !== "ok" || whyBlind(data, rule.name));
  const role = data.leading ? t("leads") : data.leader ? t("follows", data.leader) : t("follows_nobody");
  const lines = [
    [t("role"), role, ""],
    [t("last_tick"), t("ago", span(now.age)), now.age > data.overdue_after ? "bad" : ""],
    [t("rules"), t(data.rules_error ? "rules_refused" : "rules_ok", own.length - failing.length, own.length), failing.length || data.rules_error ? "bad" : ""],
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
  say(get("cluster"), data.cluster ?? "");
  say(get("version"), data.version);
}

/** A node's value for a sentence: its rule, the value, its limit. @param {Model} model @param {Node} node */
export function reading(model, node) {
  const rule = model.data.rules[node.worst];
  return t(rises(rule) ? "hot_above" : "hot_below", rule.name, valueOf(rule, node.value), number(rule.threshold));
}

/** What the whole page comes to, and how bad that is: the sentence before the name of a node, that node, and what is said of it.
 * @param {Model} model @param {Now} now @returns {{kind: string, text: string, node?: Node, about?: string}} */
function summary(model, now) {
  const { nodes, data } = model;
  const marked = nodes.filter((node) => node.flags & MARKED).length;
  const isOverdue = now.silent === 0 && now.age > data.overdue_after;
  const order = data.has_order ? t("order_ended") + (marked ? "" : t("by_default")) : "";
  const end = (/** @type {string[]} */ ...parts) => parts.filter(Boolean).join(t("semicolon")) + t("stop");
  if (now.silent > 0) return { kind: "bad", text: t("no_answer", moment(now.at - now.silent), moment(data.taken_at)) };
  if (isOverdue) {
    return { kind: "bad", text: end(t("no_tick", moment(data.taken_at)), marked ? t("marks_as_they_are", counted(marked)) : "", order) };
  }
  if (data.unseen_since !== null) {
    const stay = data.marks_until === null ? t("marks_held", counted(marked)) : t("marks_until", counted(marked), moment(data.marks_until));
    return { kind: "bad", text: end(t("blind_since", moment(data.unseen_since)), marked ? stay : "", order) };
  }
  const hot = nodes.filter((node) => node.flags & PRESSURED);
  const early = nodes.filter(({ flags }) => (flags & (EARLY | MARKED | PRESSURED)) === (EARLY | MARKED)).length;
  const worst = nodes.reduce((one, node) => (node.worst >= 0 && node.danger > (one?.danger ?? -Infinity) ? node : one), /** @type {Node | undefined} */ (undefined));
  const parts = [];
  if (hot.length > 0) {
    const cooling = hot.filter((node) => node.state === "held").length;
    const left = hot.filter((node) => isIn(node, "unmarked"));
    parts.push(t("n_hot", counted(hot.length), counted(nodes.length)) + (cooling ? t("n_cooling", counted(cooling)) : ""));
    if (!data.mark) parts.push(t("mark_none"));
    else parts.push(t("n_marked", counted(hot.length - left.length)) + (left.length ? t("n_left", counted(left.length), whyLeft(left)) : t("avoided", hot.length)));
  } else parts.push(t("none_hot", counted(nodes.length)));
  if (early) parts.push(t("n_early", counted(early)));
  if (!worst) return { kind: "", text: end(...parts) };
  const since = hot.length > 0 ? sinceOf(model, worst) : null;
  return {
    kind: hot.some((node) => node.state === "hot") ? "hot" : "",
    text: parts.join(t("semicolon")) + t(hot.length > 0 ? "worst" : "nearest"),
    node: worst,
    about: `${t("comma")}${reading(model, worst)}${since === null ? "" : t("for", span(data.taken_at - since))}${t("stop")}`,
  };
}

/** Why hot nodes have no mark: what holds for most. @param {Node[]} nodes */
function whyLeft(nodes) {
  /** @type {Map<string, number>} */
  const reasons = new Map();
  for (const { note } of nodes) {
    const [kind, text] = note ?? ["next_tick", ""];
    const reason = kind === "withheld" || kind === "failed" ? told(text.replace("not marked: ", "")) : t(`n_${kind}`);
    reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
  }
  return [...reasons].sort((a, b) => b[1] - a[1])[0][0];
}

/** @param {Model | null} model @param {Now} now @param {(name: string) => void} open */
export function sentence(model, now, open) {
  const found = model ? summary(model, now) : { kind: "bad", text: t(now.silent ? "no_answer_yet" : "waiting"), node: undefined, about: "" };
  const box = get("sentence");
  const hot = model?.nodes.filter((node) => node.flags & PRESSURED).length;
  document.title = [found.kind === "bad" ? "(!)" : hot ? `(${counted(hot)})` : "", model?.data.cluster ?? "", "dynsched"].filter(Boolean).join(" ");
  box.className = found.kind;
  // Of what is well, the ages change all the time.
  box.setAttribute("aria-live", found.kind === "bad" ? "polite" : "off");
  if (box.children.length === 0) {
    const link = make("a", { href: "#" });
    link.addEventListener("click", (event) => {
      event.preventDefault();
      open(link.title);
    });
    box.append(make("span"), link, make("span"));
  }
  const [text, link, about] = /** @type {HTMLElement[]} */ ([...box.children]);
  say(text, found.text);
  say(link, found.node?.short ?? "");
  link.title = found.node?.name ?? "";
  link.hidden = !found.node;
  say(about, found.about ?? "");
}

/** How many nodes of each state: colours of the cells, and filters. @param {Model} model @param {string | null} state @param {(state: string) => void} filter */
export function chips(model, state, filter) {
  const box = get("chips");
  const found = [...DECIDED, "marked", "unmarked"].map((key) => [key, model.nodes.filter((node) => isIn(node, key)).length]);
  if (box.children.length === 0) {
    box.append(...found.map(([key]) => {
      const chip = make("button", { type: "button", class: "small tag", "data-state": key });
      chip.addEventListener("click", () => filter(String(key)));
      return chip;
    }));
  }
  found.forEach(([key, count], at) => {
    const chip = /** @type {HTMLElement} */ (box.children[at]);
    chip.hidden = count === 0 && state !== key;
    chip.className = `small tag ${key === "hot" ? "hot-1" : key === "cool" || key === "ineligible" ? "cool-1" : key}`;
    chip.setAttribute("aria-pressed", String(state === key));
    say(chip, `${t(`s_${key}`)} ${counted(Number(count))}`);
  });
}

/** What must not be overlooked, the worst first. @param {Model | null} model */
export function banners(model) {
  /** @type {[string, string, boolean?][]} */
  const found = [];
  const data = model?.data;
  if (data) {
    if (data.error) found.push(["bad", t(data.unseen_since === null ? "b_error" : "b_blind", told(data.error))]);
    // Where none are in force, `error` says so.
    const told_already = data.rules_error?.startsWith("no rules are in force");
    if (data.rules_error && !told_already) found.push(["bad", t("b_rules_error", data.rules_error)]);
    if (data.capped.length > 0) {
      const pools = data.capped.filter(Boolean).join(", ");
      found.push(["warn", pools ? t("b_capped_pools", data.guard.max_marked, pools) : t("b_capped", data.guard.max_marked)]);
    }
    if (data.order_error) found.push(["warn", t("b_order", data.order_error)]);
    if (data.failures) found.push(["warn", t("b_failures", counted(data.failures)), true]);
    if (data.disputes) found.push(["warn", t("b_disputes", counted(data.disputes)), true]);
    if (data.unseen_since === null) {
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
  found.forEach(([kind, text, isInStatus], at) => {
    const line = box.children[at] ?? box.appendChild(make("p", {}, make("span"), make("a", { href: "status", text: t("see_status") })));
    line.className = `banner ${kind}`;
    say(line.children[0], text);
    /** @type {HTMLElement} */ (line.children[1]).hidden = !isInStatus;
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
