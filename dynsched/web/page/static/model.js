// Turns the server's columns into nodes, with the fields by which they are sorted, coloured and filtered.

/** @typedef {import("./i18n.js").Reason} Reason */

/** `last_error`: why its query fails; `blind`: why none of its samples matches a node.
 * @typedef {{name: string, source: string, expr: string | null, resource: string | null, op: string, threshold: number,
 *   clear_threshold: number, full_at: number | null, shadow: boolean, last_error: string | null, blind: Reason | null,
 *   query_duration_seconds: number | null, samples: number, unmatched_samples: number, states: {pending: number, firing: number}}} Rule */

/**
 * @typedef {object} Column
 * @property {(number | null)[]} value compared with the threshold
 * @property {string} state one letter per node: i, p, f, h (held), - (the rule does not apply to the node)
 * @property {string} quality one letter per node: o, m, s, i, f, -
 * @property {Record<number, number>} since by the node's index
 * @property {Record<number, number>} known by the node's index: when there last was a value, if it is not current
 */

/** The body of `page/data`; `unseen_since`: when a rule last had a value of any node, if none has one now.
 * @typedef {{version: string, interval: number, overdue_after: number, graphs: string, cluster: string | null,
 *   error: string | null, leader: string | null, taken_at: number, leading: boolean, dry_run: boolean,
 *   rules_error: string | null, capped: string[], failures: number, disputes: number, unseen_since: number | null,
 *   mark: string, max_marked: string, rules: Rule[], has_order: boolean, order: Order | null,
 *   order_error: string | null, nodes: {name: string[], pool: string[], flags: number[], state: string, since: Record<number, number>,
 *   notes: Record<number, [string, Reason]>}, pools: string[], columns: Column[], changes: import("./data.js").Change[],
 *   placements: Placements | null}} Payload */

/** The number of pods placed in each step of `step` seconds; `times` are the beginnings. `by_chance`: the number on hot nodes if pods were placed without regard to load.
 * @typedef {{step: number, times: number[], hot: number[], marked: number[], clean: number[], by_chance: number}} Placements */

/** The order for pods that choose no pool: the load and the weight of each node by rank, and the number of `lists`.
 * @typedef {{counts: {ranked: number, unknown: number, hot: number, closed: number, full: number, unnamed: number},
 *   lists: number, equal_below: number, loads: (number | null)[], weights: number[]}} Order */

/**
 * @typedef {object} Node
 * @property {number} index
 * @property {string} name
 * @property {string} short the name without the common beginning and end of all names
 * @property {number} rank by name, with numbers in names by their value
 * @property {string} pool
 * @property {number} flags
 * @property {number} worst the index of the rule whose value is the furthest beyond its threshold, or the nearest to it; -1: none
 * @property {number | null} value the value of the worst rule
 * @property {number} excess how far that value is beyond the threshold, as a share of the threshold; -Infinity: unknown
 * @property {number | null} known when that value was measured, if it is not current
 * @property {string} state
 * @property {number} danger the key for sorting by the worst
 * @property {[string, Reason] | null} note why its mark is not as it should be: kind, and reason if that says more
 */

/** `nodes`: in the server's order, by name as text; `shared`: the beginning and the end that all
 * names have in common, if they are long.
 * @typedef {{data: Payload, nodes: Node[], shared: [string, string]}} Model */

/** Bits of a node's flags. */
export const [MARKED, INELIGIBLE, CONFLICT] = [1, 2, 4];

/** States of a node, by the letters of the server. @type {Record<string, string>} */
const STATE_OF = { c: "cool", p: "pending", k: "held", h: "hot", u: "unknown" };
/** Whether a node is hot, cooling included. @param {Pick<Node, "state">} node */
export const isHot = ({ state }) => state === "hot" || state === "held";

/** The states that the server decides, the worst first. */
export const DECIDED = ["hot", "held", "pending", "unknown", "cool", "ineligible"];
export const STATES = [...DECIDED, "marked", "unmarked", "conflict"];

/** Limits between the shades of hot and of cool, as shares beyond the threshold. */
const HOT = [0.05, 0.15];
const COOL = [-0.5, -0.25, -0.1];
/** All colours of nodes, as named in the style sheet. */
export const COLOURS = ["hot-0", "hot-1", "hot-2", "held", "pending", "unknown", "cool-0", "cool-1", "cool-2", "cool-3"];

/** The colour of a node everywhere on the page: its state, shaded by its value. @param {Pick<Node, "state" | "excess">} node */
export function colourOf({ state, excess }) {
  const shade = (/** @type {number[]} */ limits) => limits.filter((limit) => excess > limit).length;
  if (state === "hot") return `hot-${shade(HOT)}`;
  return state === "cool" || state === "ineligible" ? `cool-${shade(COOL)}` : state;
}

/** Whether a rule's values rise with load. @param {Rule} rule */
export const rises = (rule) => rule.op.startsWith(">");

/**
 * How far a value is beyond the threshold, as a share of the threshold; negative if it is not beyond.
 * @param {Rule} rule
 * @param {number} value
 */
export function beyond(rule, value) {
  const distance = value - rule.threshold;
  return (rises(rule) ? distance : -distance) / (Math.abs(rule.threshold) || 1);
}

/** The value at the end of a bar. @param {Rule} rule */
export function fullScale(rule) {
  if (!rises(rule)) return (Math.abs(rule.threshold) || 1) * 4;
  return Math.max(rule.full_at ?? 0, rule.threshold * 1.1) || 1;
}

/** @param {Payload} data @returns {Model} */
export function decode(data) {
  const { name, pool, flags, state: letters, notes } = data.nodes;
  /** The indexes of the rules that count: shadow rules do not. */
  const counts = data.rules.flatMap((rule, at) => (rule.shadow ? [] : [at]));
  const shared = sharedBy(name);
  const rank = new Map(byName(name).map((one, at) => [one, at]));
  const nodes = name.map((text, index) => {
    let [excess, worst, isCurrent] = [-Infinity, -1, false];
    for (const at of counts) {
      const column = data.columns[at];
      const value = column.value[index];
      const isNow = column.quality[index] === "o";
      // A value that is not current counts only if no rule has a current one.
      if (value === null || (isCurrent && !isNow)) continue;
      const found = beyond(data.rules[at], value);
      if (found > excess || (isNow && !isCurrent)) [excess, worst] = [found, at];
      isCurrent ||= isNow;
    }
    const decided = STATE_OF[letters[index]];
    const state = decided === "cool" && flags[index] & INELIGIBLE ? "ineligible" : decided;
    /** @type {Node} */
    return {
      index,
      name: text,
      short: text.slice(shared[0].length, text.length - shared[1].length),
      rank: rank.get(text) ?? 0,
      pool: pool[index],
      flags: flags[index],
      worst,
      value: data.columns[worst]?.value[index] ?? null,
      excess,
      known: isCurrent || worst < 0 ? null : data.columns[worst].known[index] ?? null,
      state,
      danger: (state === "hot" ? 200 : state === "held" ? 100 : 0) + Math.max(-99, Math.min(99, excess)),
      note: notes[index] ?? null,
    };
  });
  return { data, nodes, shared };
}

/** Minimum letters that names must have in common before these are left out. */
const MANY = 10;

/** The sort key of a name: node-9 comes before node-10. Numbers of a fixed width sort as text, also those of 36 digits. @param {string} name */
const sortable = (name) => name.replace(/[0-9]+/g, (digits) => (digits.length > 1 && digits[0] === "0" ? digits : String.fromCharCode(57 + Math.min(39, digits.length)) + digits));

/** Sort names, with numbers by their value. @param {string[]} names */
export function byName(names) {
  const keys = new Map(names.map((name) => [name, sortable(name)]));
  const key = (/** @type {string} */ name) => keys.get(name) ?? "";
  return [...names].sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0));
}

/** The beginning and the end that all names have in common: words up to a dash or a dot, and a domain. @param {string[]} names sorted @returns {[string, string]} */
export function sharedBy(names) {
  if (names.length < 2) return ["", ""];
  const [first, last] = [names[0], names[names.length - 1]];
  let length = 0;
  while (length < first.length && first[length] === last[length]) length += 1;
  const prefix = first.slice(0, first.slice(0, length).search(/[^-.]*$/));
  let suffix = first.includes(".") ? first.slice(first.indexOf(".")) : "";
  while (suffix && !names.every((name) => name.endsWith(suffix) && name.length > prefix.length + suffix.length)) {
    suffix = suffix.slice(1).replace(/^[^.]*/, "");
  }
  return [prefix.length >= MANY ? prefix : "", suffix.length >= MANY ? suffix : ""];
}

/**
 * @typedef {object} View the choices that the URL stores
 * @property {string} text
 * @property {string | null} pool
 * @property {string | null} rule
 * @property {string | null} state
 * @property {string} sort
 * @property {boolean} up
 */

/** Whether a node is in one of the filter's states. @param {Node} node @param {string} state */
export function isIn(node, state) {
  switch (state) {
    case "marked": return (node.flags & MARKED) !== 0;
    case "unmarked": return isHot(node) && !(node.flags & MARKED);
    case "unknown": return node.state === "unknown" || node.known !== null;
    case "ineligible": return (node.flags & INELIGIBLE) !== 0;
    case "conflict": return (node.flags & CONFLICT) !== 0;
    default: return node.state === state;
  }
}

/** The nodes that match the filters, in the server's order. @param {Model} model @param {View} view */
export function select(model, view) {
  const text = view.text.toLowerCase();
  if (text === "" && view.pool === null && view.state === null && view.rule === null) return model.nodes;
  const at = view.rule === null ? -1 : model.data.rules.findIndex((rule) => rule.name === view.rule);
  const column = at < 0 ? null : model.data.columns[at];
  return model.nodes.filter(
    (node) =>
      (text === "" || node.name.toLowerCase().includes(text)) &&
      (view.pool === null || node.pool === view.pool) &&
      (view.state === null || isIn(node, view.state)) &&
      // By a rule: those on which it is pending, fires or is unknown.
      (view.rule === null || (column !== null && (/[pfh]/.test(column.state[node.index]) || /[msf]/.test(column.quality[node.index])))),
  );
}

/** The first ones of `nodes` as they are to be shown. @param {Model} model @param {View} view @param {Node[]} nodes @param {number} most */
export function leading(model, view, nodes, most) {
  return [...nodes].sort(ordering(model, view)).slice(0, most);
}

/** Which of two nodes comes first; equal ones by name. @param {Model} model @param {View} view */
function ordering(model, view) {
  const sign = view.up ? 1 : -1;
  const key = sorting(model, view.sort);
  return (/** @type {Node} */ a, /** @type {Node} */ b) => {
    const [left, right] = [key(a), key(b)];
    return left < right ? -sign : left > right ? sign : a.rank - b.rank;
  };
}

/**
 * The sort key of nodes. Unknown values come last if the worst are first.
 * @param {Model} model @param {string} sort @returns {(node: Node) => number}
 */
function sorting(model, sort) {
  if (sort === "node") return (node) => node.rank;
  if (sort === "pool") {
    const places = new Map(byName(model.data.pools).map((name, at) => [name, at]));
    return (node) => places.get(node.pool) ?? -1;
  }
  if (sort === "mark") return (node) => (node.flags & MARKED ? 2 : 0) + (node.note ? 1 : 0);
  const at = model.data.rules.findIndex((rule) => `rule:${rule.name}` === sort);
  if (at >= 0) {
    const { value } = model.data.columns[at];
    return (node) => value[node.index] ?? -Infinity;
  }
  return (node) => node.danger;
}

/** When the node became hot or pending. @param {Model} model @param {Node} node */
export function sinceOf(model, node) {
  const { nodes, columns } = model.data;
  const since = nodes.since[node.index];
  if (since !== undefined) return since;
  for (const at of model.data.rules.keys()) {
    const found = columns[at].since[node.index];
    if (found !== undefined) return found;
  }
  return null;
}
