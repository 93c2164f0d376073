// The list of changes: of one node, or of all.

import { NameLink, make } from "./draw.js";
import { moment, said, t, valueOf } from "./i18n.js";

const MOST = 30;
/** Maximum nodes that one line names. */
const NAMED = 3;

/** @typedef {import("./data.js").Change} Change */

/** The latest changes first. The same change of many nodes in one tick is one line. @param {Change[]} changes @param {import("./model.js").Model} model @param {(name: string) => void} [open] without it, lines have no names of nodes */
export function changeList(changes, model, open) {
  /** @type {Map<string, Change[]>} */
  const lines = new Map();
  for (const change of changes) {
    const key = `${change.at} ${change.kind} ${change.rule}`;
    lines.set(key, [...(lines.get(key) ?? []), change]);
  }
  return make("ol", { class: "changes" }, ...[...lines.values()].slice(0, MOST).map((same) => line(same, model, open)));
}

/** @param {Change[]} same @param {import("./model.js").Model} model @param {(name: string) => void} [open] */
function line(same, { data, shared }, open) {
  const [{ at, kind, rule, value, why, node }] = same;
  const limits = data.rules.find(({ name }) => name === rule);
  const colour = { mark: "marked", firing: "hot-1", pending: "pending", blind: "unknown", refused: "hot-1" }[kind] ?? "";
  const names = open && node ? same.slice(0, NAMED).map((each) => linkTo(each.node, shared, open)) : [];
  const more = same.length > NAMED ? t("more_pods", same.length - NAMED) : "";
  const text = rule ? `${rule}${limits && value !== null ? ` ${valueOf(limits, value)}` : ""}` : same.length === 1 || !node ? said(why) : "";
  return make("li", {}, make("time", { text: moment(at) }), make("span", { class: `tag ${colour}`, text: t(`c_${kind}`) }), make("span", { class: "what" }, ...names, more, make("span", { class: "dim", text })));
}

/** @param {string} name @param {[string, string]} shared @param {(name: string) => void} open */
function linkTo(name, [begin, end], open) {
  const isShared = name.startsWith(begin) && name.endsWith(end) && name.length > begin.length + end.length;
  const link = new NameLink().show(name, isShared ? name.slice(begin.length, name.length - end.length) : name).element;
  link.addEventListener("click", (event) => {
    event.preventDefault();
    open(name);
  });
  return link;
}
