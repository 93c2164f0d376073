// The header, the summary in one sentence, banners, the number of nodes in each state, and the rules.

import { Attribute, Label, get, make, say } from "./draw.js";
import { counted, moment, number, said, span, t, took, valueOf } from "./i18n.js";
import { DECIDED, MARKED, isHot, isIn, rises, sinceOf } from "./model.js";

/** @typedef {import("./model.js").Node} Node */

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./model.js").Rule} Rule */

/** State in addition to the tick. In seconds: its age, how long there was no answer, and the server's clock. `refused`: why no rules are in force. @typedef {{age: number, silent: number, at: number, refused: string | null}} Now */

/** @param {Model} model @param {Now} now */
export function facts(model, now) {
  const { data } = model;
  const total = data.rules.length;
  const fine = data.rules.filter((rule) => (rule.last_error ?? rule.blind) === null).length;
  const role = data.leading ? t("leads") : data.leader ? t("follows", data.leader) : t("follows_nobody");
  const lines = [
    [t("role"), role, ""],
    [t("last_tick"), t("ago", span(now.age)), now.age > data.overdue_after ? "bad" : ""],
    [t("rules"), t(data.rules_error ? "rules_refused" : "rules_ok", fine, total), fine < total || data.rules_error ? "bad" : ""],
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

/** A node's worst value for a sentence: the rule, the value, the threshold. @param {Model} model @param {Node} node */
export function reading(model, node) {
  const rule = model.data.rules[node.worst];
  return t(rises(rule) ? "hot_above" : "hot_below", rule.name, valueOf(rule, node.value), number(rule.threshold));
}

/** The summary sentence and how bad it is: the text before a node's name, the node, and the text about it.
 * @param {Model} model @param {Now} now @returns {{kind: string, text: string, node?: Node, about?: string}} */
function summary(model, now) {
  const { nodes, data } = model;
  const marked = nodes.filter((node) => node.flags & MARKED).length;
  const isOverdue = now.silent === 0 && now.age > data.overdue_after;
  const order = data.has_order ? t("order_ended") : marked ? "" : t("none_marked");
  const pods = order + (marked ? "" : t("by_default"));
  const end = (/** @type {string[]} */ ...parts) => parts.filter(Boolean).join(t("semicolon")) + t("stop");
  if (now.silent > 0) return { kind: "bad", text: t("no_answer", moment(now.at - now.silent), moment(data.taken_at)) };
  if (isOverdue) {
    return { kind: "bad", text: end(t("no_tick", moment(data.taken_at)), marked ? t("marks_as_they_are", counted(marked)) : "", pods) };
  }
  if (data.unseen_since !== null) {
    return { kind: "bad", text: end(t("blind_since", moment(data.unseen_since)), marked ? t("marks_stay", counted(marked)) : "", pods) };
  }
  const hot = nodes.filter(isHot);
  const worst = nodes.reduce((one, node) => (node.worst >= 0 && node.danger > (one?.danger ?? -Infinity) ? node : one), /** @type {Node | undefined} */ (undefined));
  const parts = [];
  if (hot.length > 0) {
    const cooling = hot.filter((node) => node.state === "held").length;
    const left = hot.filter((node) => isIn(node, "unmarked"));
    parts.push(t("n_hot", counted(hot.length), counted(nodes.length)) + (cooling ? t("n_cooling", counted(cooling)) : ""));
    if (!data.mark) parts.push(t("mark_none"));
    else parts.push(t("n_marked", counted(hot.length - left.length)) + (left.length ? t("n_left", counted(left.length), whyLeft(left)) : t("avoided", hot.length)));
  } else parts.push(t("none_hot", counted(nodes.length)));
  if (!worst) return { kind: "", text: end(...parts) };
  const since = hot.length > 0 ? sinceOf(model, worst) : null;
  return {
    kind: hot.some((node) => node.state === "hot") ? "hot" : "",
    text: parts.join(t("semicolon")) + t(hot.length > 0 ? "worst" : "nearest"),
    node: worst,
    about: `${t("comma")}${reading(model, worst)}${since === null ? "" : t("for", span(data.taken_at - since))}${t("stop")}`,
  };
}

/** Why hot nodes have no mark: the most frequent reason. @param {Node[]} nodes */
function whyLeft(nodes) {
  /** @type {Map<string, number>} */
  const reasons = new Map();
  for (const { note } of nodes) {
    const [kind, why] = note ?? ["next_tick", ""];
    const reason = kind === "withheld" || kind === "failed" ? said(why) : t(`n_${kind}`);
    reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
  }
  return [...reasons].sort((a, b) => b[1] - a[1])[0][0];
}

/** @param {Model | null} model @param {Now} now @param {(name: string) => void} open */
export function sentence(model, now, open) {
  const found = model ? summary(model, now) : { kind: "bad", text: now.silent ? t("no_answer_yet") : now.refused ? t("no_rules", now.refused) : t("waiting"), node: undefined, about: "" };
  const box = get("sentence");
  const hot = model?.nodes.filter(isHot).length;
  document.title = [found.kind === "bad" ? "(!)" : hot ? `(${counted(hot)})` : "", model?.data.cluster ?? "", "dynsched"].filter(Boolean).join(" ");
  box.className = found.kind;
  // Not live if all is well: screen readers would read the changing ages again and again.
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

/** The number of nodes in each state. This is also the legend of the colours, and the state filter. @param {Model} model @param {string | null} state @param {(state: string) => void} filter */
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

/** Why no rule has a value of any node: the first reason among the rules. @param {Rule[]} rules */
function unseen(rules) {
  const reasons = rules.filter((rule) => !rule.shadow).map(({ last_error, blind }) => last_error ?? blind);
  return said(reasons.find((reason) => reason !== null) ?? t("none_usable"));
}

/** Draw the banners, the worst first. @param {Model | null} model */
export function banners(model) {
  /** @type {[string, string, boolean?][]} */
  const found = [];
  const data = model?.data;
  if (data) {
    if (data.unseen_since !== null) found.push(["bad", t("b_blind", unseen(data.rules))]);
    else if (data.error && !data.failures) found.push(["bad", t("b_error", data.error)]);
    if (data.rules_error) found.push(["bad", t("b_rules_error", data.rules_error)]);
    if (data.capped.length > 0) {
      const pools = data.capped.filter(Boolean).join(", ");
      found.push(["warn", pools ? t("b_capped_pools", data.max_marked, pools) : t("b_capped", data.max_marked)]);
    }
    if (data.order_error) found.push(["warn", t("b_order", data.order_error)]);
    if (data.failures) found.push(["warn", t("b_failures", counted(data.failures)), true]);
    if (data.disputes) found.push(["warn", t("b_disputes", counted(data.disputes)), true]);
    if (data.unseen_since === null) {
      for (const { name, last_error: error, blind } of data.rules) {
        if (error !== null) found.push(["warn", t("b_rule_fails", name, error)]);
        else if (blind !== null) found.push(["warn", t("b_rule_blind", name, said(blind))]);
      }
    }
    if (data.dry_run) found.push(["info", t("b_dry_run")]);
    else if (!data.leading) found.push(["info", data.leader ? t("b_following", data.leader) : t("b_following_nobody")]);
  }
  const box = get("banners");
  // Elements are reused, so that a screen reader does not read the same text again.
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
  const shows = JSON.stringify([data.graphs, data.rules.map(({ name, expr, shadow }) => [name, expr, shadow])]);
  if (table.dataset.shows !== shows) {
    table.dataset.shows = shows;
    ruleRows = data.rules.map((rule) => ruleRow(rule, data.graphs, filter));
    table.replaceChildren(head, ...ruleRows.map(({ element }) => element));
  }
  data.rules.forEach((rule, at) => ruleRows[at].show(rule));
}

/** Names of the columns, and the classes of their cells. */
const RULE_COLUMNS = [["rule", ""], ["threshold", "num"], ["clear_at", "num w2"], ["health", ""], ["states", "num"], ["graph", "w2"]];

/** @type {{element: Element, show: (rule: Rule) => void}[]} */
let ruleRows = [];

/** A line of numbers. If something is wrong, a second line has the problem, the query and the number of samples. @param {Rule} rule @param {string} graphs the URL of Prometheus's web interface @param {(rule: string) => void} filter */
function ruleRow(rule, graphs, filter) {
  const name = make("button", { type: "button", class: "plain", "data-rule": rule.name, title: rule.expr ?? "", text: rule.name });
  name.addEventListener("click", () => filter(rule.name));
  const shadow = rule.shadow ? [" ", make("span", { class: "tag pending", title: t("shadow_help"), text: t("shadow") })] : [];
  const cells = RULE_COLUMNS.slice(1).map(([, kind]) => make("td", { class: kind }));
  const [threshold, clear, health, states] = cells.map((cell) => new Label(cell));
  const healthKind = new Attribute(cells[2], "class");
  const href = `${graphs.replace(/\/+$/, "")}/graph?g0.expr=${encodeURIComponent(rule.expr ?? "")}&g0.tab=0&g0.range_input=1h`;
  if (rule.expr !== null && /^https?:/.test(graphs)) cells[4].append(make("a", { class: "link", href, rel: "noreferrer", target: "_blank", text: "Prometheus ↗" }));
  else cells[4].append([rule.source, rule.resource].filter(Boolean).join(" "));
  const [trouble, came] = [make("p", { class: "bad" }), make("p", { class: "dim" })];
  const below = make("tr", {}, make("td", { colspan: RULE_COLUMNS.length }, trouble, make("code", { text: rule.expr ?? "" }), came));
  return {
    element: make("tbody", {}, make("tr", {}, make("th", { scope: "row" }, name, ...shadow), ...cells), below),
    show(/** @type {Rule} */ now) {
      const wrong = now.last_error ?? now.blind;
      below.hidden = wrong === null;
      say(trouble, said(wrong ?? ""));
      say(came, t("came", counted(now.samples), counted(now.unmatched_samples), took(now.query_duration_seconds)));
      threshold.show(`${now.op} ${number(now.threshold)}`);
      clear.show(number(now.clear_threshold));
      health.show(t(now.last_error !== null ? "err" : wrong !== null ? "blind" : "ok"));
      healthKind.set(wrong === null ? "" : "bad");
      states.show(`${counted(now.states.pending)} / ${counted(now.states.firing)}`);
    },
  };
}
