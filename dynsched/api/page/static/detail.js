// One node: three numbers, what would clear it, its values over time, what changed.

import { changesOf, nodeOf, pastOf, podsOf } from "./data.js";
import { curve, get, make } from "./draw.js";
import { amount, counted, moment, number, percent, span, t } from "./i18n.js";
import { sinceOf } from "./model.js";
import { describeMark } from "./row.js";

const MOST_CHANGES = 50;

export class Detail {
  /** @param {() => void} closed */
  constructor(closed) {
    this.box = /** @type {HTMLDialogElement} */ (get("detail"));
    this.name = "";
    this.box.addEventListener("close", () => {
      this.name = "";
      closed();
    });
    // A click beside it.
    this.box.addEventListener("click", (event) => {
      if (event.target === this.box) this.box.close();
    });
  }

  /** @param {string} name @param {import("./model.js").Model} model @param {number} now */
  async open(name, model, now) {
    this.name = name;
    await this.update(model, now);
  }

  /** @param {import("./model.js").Model} model @param {number} now */
  async update(model, now) {
    const name = this.name;
    if (!name) return;
    const [answer, past, changes, pods] = await Promise.all([nodeOf(name), pastOf([name]), changesOf(name), podsOf(name)]);
    if (this.name !== name) return; // another one was opened meanwhile
    const node = model.nodes.find((each) => each.name === name);
    const scrolled = this.box.scrollTop;
    const wasOpen = this.box.open;
    const body = node && answer ? this.about(node, answer, past.nodes.get(name), changes, pods, model, now) : [make("p", { text: t("gone", name) })];
    const focused = wasOpen && document.activeElement?.className === "close";
    this.box.replaceChildren(this.title(name), ...body);
    if (!wasOpen) this.box.showModal();
    else if (focused) /** @type {HTMLElement} */ (this.box.querySelector(".close")).focus();
    this.box.scrollTop = scrolled;
  }

  close() {
    if (this.box.open) this.box.close();
  }

  /** @param {string} name */
  title(name) {
    const close = make("button", { type: "button", class: "close", text: t("close") });
    close.addEventListener("click", () => this.box.close());
    return make("div", { class: "heading" }, make("h2", { id: "detail-title", text: name }), close);
  }

  /**
   * @param {import("./model.js").Node} node @param {any} answer
   * @param {import("./data.js").Past | undefined} past @param {import("./data.js").Change[]} changes
   * @param {import("./data.js").Pods} pods
   * @param {import("./model.js").Model} model @param {number} now
   */
  about(node, answer, past, changes, pods, model, now) {
    const since = sinceOf(model, node);
    const rule = model.data.rules[node.worst]?.name ?? "";
    const tile = (/** @type {string} */ title, /** @type {string} */ value, /** @type {string} */ note) =>
      make("div", { class: "number" }, title, make("strong", { text: value }), make("small", { text: note }));
    /** @type {Element[]} */
    const parts = [
      make("div", { class: "numbers" },
        tile(t("margin"), node.worst < 0 ? "–" : percent(node.margin), rule),
        tile(t("state"), t(`s_${node.state}`), since === null ? "" : span(now - since)),
        tile(t("mark"), node.flags & 1 ? t("yes") : t("no"), [answer.carries.join(", "), node.note ? describeMark(node) : ""].filter(Boolean).join(" · "))),
      make("h3", { text: t("what_clears") }),
    ];
    if (answer.clears.length === 0) parts.push(make("p", { text: t("nothing_fires") }));
    else parts.push(make("ul", {}, ...answer.clears.map((/** @type {string} */ text) => make("li", { text, lang: "en" }))));
    const expected = answer.rules.filter((/** @type {any} */ each) => each.expected && (each.expected.bound || each.expected.ended));
    if (expected.length > 0) {
      parts.push(make("h3", { text: t("expected") }), make("ul", {}, ...expected.map((/** @type {any} */ each) =>
        make("li", { text: t("expected_line", each.rule, number(each.expected.measured), number(each.expected.bound), number(each.expected.ended)) }))));
    }
    parts.push(make("h3", { text: t("over_time") }), ...this.charts(model, node, past));
    parts.push(...this.bound(pods.bound), ...this.above(pods.above), make("h3", { text: t("changes") }));
    if (changes.length === 0) parts.push(make("p", { text: t("no_changes") }));
    else parts.push(this.changes(changes));
    parts.push(make("p", {}, make("a", { href: `nodes/${encodeURIComponent(node.name)}`, text: t("as_json") })));
    return parts;
  }

  /** @param {import("./model.js").Model} model @param {import("./model.js").Node} node @param {import("./data.js").Past | undefined} past */
  charts(model, node, past) {
    if (!past || past.times.length < 2) return [make("p", { text: t("no_history") })];
    return model.data.rules.flatMap((rule, at) => {
      const values = past.values[rule.name];
      const column = model.data.columns[at];
      if (!values || rule.early_of || column.state[node.index] === "-") return [];
      const quality = column.quality[node.index];
      const value = quality === "o" ? number(column.value[node.index]) : t(`q_${quality}`);
      const requested = column.requested?.[node.index] ?? null;
      return [
        make("p", {}, make("b", { text: rule.name }),
          ` ${value} (${rule.op} ${number(rule.threshold)}, ${t("clears", number(rule.clear_threshold))})${requested === null ? "" : t("bar_requested", number(requested))}`),
        curve(rule, { times: past.times, values, marked: past.marked }, { width: 600, height: 120, chart: true }),
        make("div", { class: "axis" }, make("span", { text: moment(past.times[0]) }), make("span", { text: t("now") })),
      ];
    });
  }

  /** Nothing where pods are not watched. @param {import("./data.js").Pods["bound"]} bound */
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

  /** Nothing where it is not known. @param {import("./data.js").Pods["above"]} above */
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

  /** @param {import("./data.js").Change[]} changes */
  changes(changes) {
    const rows = changes.slice(0, MOST_CHANGES).map((change) =>
      make("tr", {},
        make("td", { text: moment(change.at) }),
        make("td", { text: t(`c_${change.kind}`) }),
        make("td", {}, change.rule || make("span", { text: change.text, lang: "en" })),
        make("td", { text: change.value === null ? "" : number(change.value) })));
    const heads = [t("time"), t("what"), t("rule"), t("value")];
    return make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": t("changes") },
      make("table", {},
        make("thead", {}, make("tr", {}, ...heads.map((text) => make("th", { scope: "col", text })))),
        make("tbody", {}, ...rows)));
  }
}
