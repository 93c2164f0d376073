// The panel of one node: why it is hot or not, what would clear it, its values, and what changed.

import { changeList } from "./changes.js";
import { aboutNode } from "./data.js";
import { Bar, get, make } from "./draw.js";
import { amount, counted, number, said, span, t, valueOf } from "./i18n.js";
import { MARKED, beyond, sinceOf } from "./model.js";
import { reading } from "./overview.js";
import { describeMark, readingOf, showReading } from "./row.js";

export class Detail {
  /** @param {{closed: (name: string) => void, beside: (name: string, step: number) => string | undefined, open: (name: string) => void}} on */
  constructor(on) {
    this.on = on;
    this.box = /** @type {HTMLDialogElement} */ (get("detail"));
    this.name = "";
    this.box.addEventListener("close", () => {
      const name = this.name;
      this.name = "";
      on.closed(name);
    });
    document.addEventListener("keydown", (event) => {
      const inField = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
      if (!this.box.open || inField || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Escape") this.box.close();
      else if (event.key === "n" || event.key === "p") this.step(event.key === "n" ? 1 : -1);
    });
  }

  /** Open the node after (`step` 1) or before (-1) this one in the table. @param {number} step */
  step(step) {
    const name = this.on.beside(this.name, step);
    if (name) this.on.open(name);
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
    const known = await aboutNode(name);
    if (this.name !== name) return; // another node was opened meanwhile
    const node = model.nodes.find((each) => each.name === name);
    const [scrolled, isSame] = [this.box.scrollTop, this.box.dataset.node === name];
    if (!this.box.open) {
      // Not modal if there is room, so that the table can still be used.
      if (matchMedia("(max-width: 63.9rem)").matches) this.box.showModal();
      else this.box.show();
    }
    this.box.dataset.node = name;
    const focused = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset.key;
    const shown = node && known ? this.about(node, known, model, now) : [make("p", { text: t("gone", name) })];
    this.box.replaceChildren(this.title(name), ...shown);
    const key = isSame && focused ? focused : "title";
    if (!isSame || focused) /** @type {HTMLElement | null} */ (this.box.querySelector(`[data-key="${key}"]`))?.focus({ preventScroll: true });
    this.box.scrollTop = isSame ? scrolled : 0;
  }

  close() {
    if (this.box.open) this.box.close();
  }

  /** @param {string} name */
  title(name) {
    const button = (/** @type {string} */ key, /** @type {() => void} */ act) => {
      const made = make("button", { type: "button", class: "small", "data-key": key, title: t(`${key}_key`), text: t(key) });
      made.addEventListener("click", act);
      return made;
    };
    return make("div", { class: "heading" },
      make("h2", { id: "detail-title", tabindex: -1, "data-key": "title", text: name }),
      make("div", { class: "range" }, button("previous", () => this.step(-1)), button("next", () => this.step(1)), button("close", () => this.box.close())));
  }

  /** @param {import("./model.js").Node} node @param {import("./data.js").About} known @param {import("./model.js").Model} model @param {number} now */
  about(node, known, model, now) {
    return [
      make("p", { class: "why-so", text: whySo(node, known, model, now) }),
      ...(known.clears.length ? [make("p", { text: t("what_clears") }), make("ul", {}, ...known.clears.map((reason) => make("li", { text: said(reason) })))] : []),
      facts(node, known, model),
      this.values(node, model, now),
      make("h3", { text: t("changes") }),
      known.changes.length ? changeList(known.changes, model) : make("p", { text: t("no_changes") }),
      command(node.name), make("p", {}, make("a", { class: "link", href: `nodes/${encodeURIComponent(node.name)}`, text: t("as_json") })),
    ];
  }

  /** The values by rule, with their thresholds. @param {import("./model.js").Node} node @param {import("./model.js").Model} model @param {number} now */
  values(node, model, now) {
    const rows = model.data.rules.flatMap((rule, at) => {
      const found = readingOf(model.data.columns[at], node.index, now);
      if (found.quality === "-") return [];
      const bar = new Bar(rule);
      showReading(bar, rule, found);
      return [[rule.name, make("span", {}, bar.text, bar.picture), `${rule.op} ${number(rule.threshold)}`, number(rule.clear_threshold)]];
    });
    return this.list(t("rules"), ["rule", "value", "threshold", "clear_at"].map((key) => t(key)), rows);
  }

  /** @param {string} label @param {string[]} heads @param {(string | Element)[][]} rows */
  list(label, heads, rows) {
    return make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": label },
      make("table", {},
        make("thead", {}, make("tr", {}, ...heads.map((text) => make("th", { scope: "col", text })))),
        make("tbody", {}, ...rows.map(([name, ...cells]) =>
          make("tr", {}, make("th", { scope: "row" }, name), ...cells.map((cell) => make("td", {}, cell)))))));
  }
}

/** One line: why the node is in its state. @param {import("./model.js").Node} node @param {import("./data.js").About} known @param {import("./model.js").Model} model @param {number} now */
function whySo(node, known, model, now) {
  const rules = model.data.rules;
  const causes = known.rules.flatMap((/** @type {any} */ each) => {
    if (each.state !== "firing" || each.shadow) return [];
    const since = span(now - Date.parse(each.active_since ?? each.since) / 1000);
    const rule = rules.find(({ name }) => name === each.rule);
    const compared = each.expected_value ?? each.value;
    const isBeyond = rule && compared !== null && beyond(rule, compared) >= 0;
    const [measured, value] = [each.value, compared].map((one) => valueOf(rule ?? each, one));
    return t(isBeyond ? "cause" : "cause_was", each.rule, measured === value ? value : t("both", measured, value), each.op, number(each.threshold), since);
  });
  const mark = known.changes.find(({ kind }) => kind === "mark");
  const since = mark?.at ?? sinceOf(model, node);
  const why = causes.join(t("semicolon")) + t("stop");
  if (node.flags & MARKED && !node.note && causes.length) return t("marked_since", since ? span(now - since) : "–") + why;
  if (causes.length) return `${t(`s_${node.state}`)}${t("comma")}${describeMark(node)}${t("semicolon")}${why}`;
  const value = node.worst < 0 ? "" : `${t("semicolon")}${reading(model, node)}`;
  return `${node.note ? describeMark(node) : t(node.state === "unknown" ? "s_unknown" : "nothing_fires")}${value}${t("stop")}`;
}

/** Pool, machine, expected loads and place in the order. @param {import("./model.js").Node} node @param {import("./data.js").About} known @param {import("./model.js").Model} model */
function facts(node, known, model) {
  /** @type {[string, string | null | undefined][]} */
  const lines = [[t("pool"), node.pool], [t("zone"), known.zone]];
  const size = [known.type, known.cpu && amount("cpu", known.cpu), known.memory && amount("memory", known.memory)];
  lines.push([t("size"), size.filter(Boolean).join(", ")]);
  model.data.rules.forEach((rule) => {
    const expected = known.rules.find((/** @type {any} */ each) => each.rule === rule.name)?.expected;
    if (expected && (expected.bound || expected.ended)) lines.push([t("expected", rule.name), t("expected_line", ...["load", "measured", "bound", "ended"].map((key) => expected[key].toFixed(1)))]);
  });
  const { pools = {}, why = null } = known.order ?? {};
  for (const [pool, { rank, of, weight }] of Object.entries(pools)) lines.push([pool ? t("order_in", pool) : t("order"), t("place", counted(rank), counted(of), weight)]);
  if (why) lines.push([t("order"), t(`left_${why}`)]);
  return make("dl", { class: "about" }, ...lines.flatMap(([name, text]) => (text ? make("div", {}, make("dt", { text: name }), make("dd", { text })) : [])));
}

/** The command that explains the node in a terminal. @param {string} name */
function command(name) {
  const code = make("code", { text: `kubectl dynsched why ${name}` });
  const button = make("button", { type: "button", class: "small", "data-key": "copy", text: t("copy") });
  button.addEventListener("click", async () => {
    getSelection()?.selectAllChildren(code); // for browsers that let no page write to the clipboard
    await navigator.clipboard?.writeText(code.textContent ?? "");
    button.textContent = t("copied");
  });
  return make("p", {}, code, " ", button);
}
