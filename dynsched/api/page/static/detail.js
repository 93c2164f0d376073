// One node: three numbers, what would clear it, its values over time, what changed.

import { chart, spansOf } from "./chart.js";
import { aboutNode, nodeOf, pastOf } from "./data.js";
import { get, make, svg } from "./draw.js";
import { amount, counted, moment, number, span, t, told, valueOf } from "./i18n.js";
import { EARLY, MARKED, fromPoints, sinceOf } from "./model.js";
import { describeMark } from "./row.js";

const MOST_CHANGES = 50;
/** Hours that charts show: up to one from memory, more from Prometheus. */
const RANGES = [0.25, 1, 6, 24];

export class Detail {
  /** @param {(name: string) => void} closed @param {(hours: number) => void} ranged */
  constructor(closed, ranged) {
    this.ranged = ranged;
    this.box = /** @type {HTMLDialogElement} */ (get("detail"));
    this.name = "";
    this.hours = RANGES[1];
    /** What the charts were drawn from, and they. @type {Map<string, {shows: string, picture: Element}>} */
    this.charts = new Map();
    this.box.addEventListener("close", () => {
      const name = this.name;
      this.name = "";
      closed(name);
    });
    // A click beside it.
    this.box.addEventListener("click", (event) => {
      if (event.target === this.box) this.box.close();
    });
  }

  /** @param {string} name @param {import("./model.js").Model} model @param {number} now */
  async open(name, model, now) {
    this.name = name;
    this.hours = RANGES.find((hours) => String(hours) === new URLSearchParams(location.search).get("hours")) ?? RANGES[1];
    this.charts.clear();
    await this.update(model, now);
  }

  /** @param {import("./model.js").Model} model @param {number} now */
  async update(model, now) {
    const name = this.name;
    if (!name) return;
    const hours = this.hours;
    const [answer, past, about] = await Promise.all([nodeOf(name), pastOf([name]), aboutNode(name, hours)]);
    if (this.name !== name || this.hours !== hours) return; // another one was opened meanwhile
    const node = model.nodes.find((each) => each.name === name);
    const scrolled = this.box.scrollTop;
    const wasOpen = this.box.open;
    if (!wasOpen) {
      this.box.replaceChildren(this.title(name));
      this.box.showModal(); // before the charts are made, which are as wide as it is
    }
    const shown = node && answer ? this.about(node, answer, past.nodes.get(name), about, model, now) : [make("p", { text: t("gone", name) })];
    const focused = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset.key;
    this.box.replaceChildren(this.title(name), ...shown);
    if (wasOpen && focused) /** @type {HTMLElement | null} */ (this.box.querySelector(`[data-key="${focused}"]`))?.focus();
    else if (!wasOpen) /** @type {HTMLElement | null} */ (this.box.querySelector("button"))?.focus();
    this.box.scrollTop = scrolled;
    this.redraw = () => this.update(model, now);
  }

  close() {
    if (this.box.open) this.box.close();
  }

  /** @param {string} name */
  title(name) {
    const close = make("button", { type: "button", class: "small", "data-key": "close", text: t("close") });
    close.addEventListener("click", () => this.box.close());
    return make("div", { class: "heading" }, make("h2", { id: "detail-title", text: name }), close);
  }

  /**
   * @param {import("./model.js").Node} node @param {any} answer
   * @param {import("./data.js").Past | undefined} past @param {import("./data.js").About} known
   * @param {import("./model.js").Model} model @param {number} now
   */
  about(node, answer, past, known, model, now) {
    const since = sinceOf(model, node);
    const rule = model.data.rules[node.worst]?.name ?? "";
    const tile = (/** @type {string} */ title, /** @type {string} */ value, /** @type {string} */ note) =>
      make("div", { class: "number" }, title, make("strong", { text: value }), make("small", { text: note }));
    /** @type {Element[]} */
    const parts = [
      make("div", { class: "numbers" },
        tile(rule || t("value"), node.worst < 0 ? "–" : valueOf(model.data.rules[node.worst], node.value), ""),
        tile(t("state"), t(`s_${node.state}`), since === null ? "" : span(now - since)),
        tile(t("mark"), node.flags & MARKED ? describeMark(node, true) : t("no"), [answer.carries.join(", "), node.note ? describeMark(node) : ""].filter(Boolean).join(" · "))),
      make("h3", { text: t("what_clears") }),
    ];
    if (answer.clears.length === 0) parts.push(make("p", { text: t("nothing_fires") }));
    else parts.push(make("ul", {}, ...answer.clears.map((/** @type {string} */ text) => make("li", { text: told(text) }))));
    const expected = answer.rules.filter((/** @type {any} */ each) => each.expected && (each.expected.bound || each.expected.ended));
    if (expected.length > 0) {
      parts.push(make("h3", { text: t("expected") }), make("ul", {}, ...expected.map((/** @type {any} */ each) =>
        make("li", { text: t("expected_line", each.rule, ...["measured", "bound", "ended"].map((key) => each.expected[key].toFixed(1))) }))));
    }
    parts.push(this.ranges(), ...this.overTime(model, node, answer, past, known, now));
    parts.push(...this.bound(known.bound), ...this.above(known.above), make("h3", { text: t("changes") }));
    if (known.changes.length === 0) parts.push(make("p", { text: t("no_changes") }));
    else parts.push(this.changes(known.changes, model.data.rules));
    parts.push(make("p", {}, make("a", { href: `nodes/${encodeURIComponent(node.name)}`, text: t("as_json") })));
    return parts;
  }

  /** The heading of the charts, with the time that they show. */
  ranges() {
    const buttons = RANGES.map((hours) => {
      const button = make("button", { type: "button", class: "small", "data-key": hours, "aria-pressed": String(hours === this.hours), text: span(hours * 3600) });
      button.addEventListener("click", () => {
        this.hours = hours;
        this.ranged(hours);
        this.redraw?.();
      });
      return button;
    });
    return make("div", { class: "heading" }, make("h3", { text: t("over_time") }), make("div", { class: "range", role: "group", "aria-label": t("range") }, ...buttons));
  }

  /**
   * @param {import("./model.js").Model} model @param {import("./model.js").Node} node @param {any} answer
   * @param {import("./data.js").Past | undefined} recent @param {import("./data.js").About} known @param {number} now
   */
  overTime(model, node, answer, recent, known, now) {
    const past = joined(recent, known.past, model.data.rules);
    if (!past || past.times.length < 2) return [make("p", { text: t("no_history") })];
    const range = /** @type {[number, number]} */ ([Math.max(now - this.hours * 3600, past.times[0]), now]);
    const width = Math.max(280, Math.floor(/** @type {Element} */ (this.box.firstElementChild).clientWidth));
    const kinds = new Set(["curve", "line-threshold"]);
    const charts = model.data.rules.flatMap((rule, at) => {
      const column = model.data.columns[at];
      if (!past.values[rule.name] || rule.early_of || column.state[node.index] === "-") return [];
      const quality = column.quality[node.index];
      const value = quality === "o" ? valueOf(rule, column.value[node.index]) : t(`q_${quality}`);
      const requested = column.requested?.[node.index] ?? null;
      const lines = linesOf(rule, answer);
      const early = answer.rules.find((/** @type {any} */ each) => each.early_of === rule.name);
      const load = node.flags & EARLY && early ? answer.rules.find((/** @type {any} */ each) => each.rule === rule.name).expected?.load : undefined;
      const expected = load === undefined ? undefined : fromPoints(rule, load);
      const names = [rule.name, early?.rule];
      const spans = spansOf(rule, past, (at) => fired(known.changes, names, at), range);
      for (const { kind } of lines) kinds.add(kind);
      for (const [marked] of spans) kinds.add(marked ? "shade" : "gap");
      if (expected !== undefined) kinds.add("dot");
      const shows = JSON.stringify([this.hours, past.times.length, past.times[past.times.length - 1], spans, lines, expected, width]);
      let kept = this.charts.get(rule.name);
      if (kept?.shows !== shows) {
        kept = { shows, picture: chart(rule, past, spans, lines, expected, range, width) };
        this.charts.set(rule.name, kept);
      }
      return [
        make("p", {}, make("b", { text: rule.name }),
          ` ${value} (${rule.op} ${number(rule.threshold)}, ${t("clears", number(rule.clear_threshold))})${requested === null ? "" : t("bar_requested", number(requested))}`),
        kept.picture,
      ];
    });
    const more = this.hours > 1 && known.past && Object.keys(known.past).length === 0 ? [make("p", { class: "dim", text: t("no_longer_past") })] : [];
    return [...more, make("ul", { class: "legend" }, ...[...kinds].map(key)), ...charts];
  }

  /** Nothing where pods are not watched. @param {import("./data.js").About["bound"]} bound */
  bound(bound) {
    if (bound === null) return [];
    const title = make("h3", { text: t("pods_bound") });
    if (bound.total === 0) return [title, make("p", { text: t("no_pods_bound") })];
    const rows = bound.pods.map(({ pod, cpu, memory, age }) =>
      [pod, `${amount("cpu", cpu)}, ${amount("memory", memory)}`, t("ago", span(age))]);
    const more = bound.total - bound.pods.length;
    const found = [title, this.list(t("pods_bound"), [t("pod"), t("requests"), t("bound")], rows)];
    return more > 0 ? [...found, make("p", { text: t("more_pods", counted(more)) })] : found;
  }

  /** Nothing where it is not known. @param {import("./data.js").About["above"]} above */
  above(above) {
    if (above === null) return [];
    const title = make("h3", { text: t("pods_above") });
    if (above.length === 0) return [title, make("p", { text: t("no_pods_above") })];
    const rows = above.map(({ pod, resource, above: more }) => [pod, t(`r_${resource}`), t("more_than_requested", amount(resource, more))]);
    return [title, this.list(t("pods_above"), [t("pod"), t("resource"), t("above")], rows)];
  }

  /** @param {string} label @param {string[]} heads @param {string[][]} rows */
  list(label, heads, rows) {
    return make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": label },
      make("table", {},
        make("thead", {}, make("tr", {}, ...heads.map((text) => make("th", { scope: "col", text })))),
        make("tbody", {}, ...rows.map(([name, ...cells]) =>
          make("tr", {}, make("th", { scope: "row", text: name }), ...cells.map((text) => make("td", { text })))))));
  }

  /** @param {import("./data.js").Change[]} changes @param {import("./model.js").Rule[]} rules */
  changes(changes, rules) {
    const rows = changes.slice(0, MOST_CHANGES).map((change) => {
      const rule = rules.find(({ name }) => name === change.rule);
      return make("tr", {},
        make("td", { text: moment(change.at) }),
        make("td", { text: t(`c_${change.kind}`) }),
        make("td", {}, change.rule || told(change.text)),
        make("td", { class: "num", text: rule && change.value !== null ? valueOf(rule, change.value) : "" }));
    });
    const heads = [t("time"), t("what"), t("why"), t("value")];
    return make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": t("changes") },
      make("table", {},
        make("thead", {}, make("tr", {}, ...heads.map((text, at) => make("th", { scope: "col", class: at === 3 ? "num" : undefined, text })))),
        make("tbody", {}, ...rows)));
  }
}

/** Whether one of the rules fired then; undefined before the first change that is known. @param {import("./data.js").Change[]} changes @param {string[]} rules @param {number} at */
function fired(changes, rules, at) {
  const before = changes.filter((change) => change.at < at + 1); // the times of points are rounded
  return before.length ? rules.some((rule) => before.find((change) => change.rule === rule)?.kind === "firing") : undefined;
}

/**
 * What is in memory, after what Prometheus has of the time before.
 * @param {import("./data.js").Past | undefined} recent @param {import("./data.js").About["past"]} series @param {import("./model.js").Rule[]} rules
 */
function joined(recent, series, rules) {
  if (!recent || !series) return recent;
  const begin = recent.times[0] ?? Infinity;
  const before = [...new Set(Object.values(series).flatMap((points) => points.map(([at]) => at)))].filter((at) => at < begin).sort((a, b) => a - b);
  const marks = new Map(series[""]);
  const values = Object.entries(recent.values).map(([name, later]) => {
    const rule = rules.find((each) => each.name === name);
    const points = new Map(series[name]);
    return [name, [...before.map((at) => (rule && points.has(at) ? fromPoints(rule, points.get(at) ?? 0) : null)), ...later]];
  });
  return { times: [...before, ...recent.times], values: Object.fromEntries(values), states: before.map((at) => (marks.get(at) === 1 ? "H" : "c")).join("") + recent.states };
}

/** The lines that explain a mark: where the rule fires and clears, and for an early one the early line. @param {import("./model.js").Rule} rule @param {any} answer */
function linesOf(rule, answer) {
  const lines = [{ value: rule.threshold, kind: "line-threshold", text: `${t("lb_threshold")} ${number(rule.threshold)}` }];
  if (rule.clear_threshold !== rule.threshold) lines.push({ value: rule.clear_threshold, kind: "line-clear", text: `${t("lb_clear")} ${number(rule.clear_threshold)}` });
  const load = answer.rules.find((/** @type {any} */ each) => each.rule === rule.name)?.expected?.load;
  const early = answer.rules.find((/** @type {any} */ each) => each.early_of === rule.name);
  if (early?.state === "firing" && load !== undefined && early.value !== null) {
    const line = fromPoints(rule, load - early.value);
    lines.push({ value: line, kind: "line-early", text: t("lb_early", valueOf(rule, line)) });
  }
  return lines.sort((a, b) => b.value - a.value);
}

/** An entry of the charts' legend. @param {string} kind */
function key(kind) {
  const isArea = kind === "shade" || kind === "gap";
  const shape = isArea ? svg("rect", { class: kind, width: 16, height: 14 })
    : kind === "dot" ? svg("circle", { class: kind, cx: 8, cy: 7, r: 4 })
      : svg("line", { class: kind, x1: 0, x2: 16, y1: 7, y2: 7 });
  return make("li", {}, svg("svg", { width: 16, height: 14, "aria-hidden": "true" }, shape), t(`k_${kind.replace("line-", "")}`));
}
