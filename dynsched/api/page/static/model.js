// The server's columns as nodes, each with what it is sorted, coloured and filtered by.

/** @typedef {{name: string, source: string, expr: string | null, resource: string | null, op: string, threshold: number,
 *   clear_threshold: number, full_at: number | null, early_of: string | null, shadow: boolean, health: string,
 *   last_error: string | null, blind: string | null, for: string, query_duration_seconds: number | null, samples: number,
 *   unmatched_samples: number, states: Record<string, number>}} Rule */

/**
 * @typedef {object} Column
 * @property {(number | null)[]} value
 * @property {string} state one letter a node: i, p, f, h (held), - (the rule is not for the node)
 * @property {string} quality one letter a node: o, m, s, i, f, -
 * @property {[number[], number[]]} since
 * @property {[number[], number[]]} expected
 * @property {(number | null)[] | null} requested by pods, in the rule's unit; null where that is not known
 */

/** What `page/data` answers; `order_written`: when, and until when it is in force; `overload`: of node-time, by day in UTC.
 * @typedef {{version: string, interval: number, overdue_after: number, graphs: string, cluster: string | null,
 *   error: string | null, leader: string | null, taken_at: number, tick: number, duration: number, leading: boolean,
 *   dry_run: boolean, rules_error: string | null, capped: string[], failures: number, disputes: number,
 *   blind: Record<string, string>, mark: string, guard: {max_marked: string}, rules: Rule[], pools: string[],
 *   nodes: {name: string[], pool: number[], flags: number[], since: [number[], number[]], notes: [number, string, string][]},
 *   columns: Column[], placements: Placements | null, order: Order | null, order_error: string | null,
 *   order_written: number[] | null, overload: {days: string[], share: (number | null)[]} | null}} Payload */

/** How many pods were placed within each step of `step` seconds that begins at `times`.
 * @typedef {{step: number, times: number[], hot: number[], marked: number[], clean: number[]}} Placements */

/** By pool the coolest nodes, with their load and the weight of their level.
 * @typedef {{counts: {ranked: number, unknown: number, hot: number, closed: number, full: number, unnamed: number},
 *   pools: {name: string, nodes: number, coolest: [string, number | null, number][]}[], more_pools: number}} Order */

/**
 * @typedef {object} Node
 * @property {number} index
 * @property {string} name
 * @property {string} pool
 * @property {number} flags
 * @property {number} margin of the worst rule, as a share of its threshold; -Infinity: unknown
 * @property {number} worst the index of that rule; -1: none
 * @property {string} state
 * @property {[string, string] | null} note kind and text: why a hot node has no mark, or a cool one has
 */

/** `nodes`: in the order of their names; `shown`: indices of the rules that have a column of their own.
 * @typedef {{data: Payload, nodes: Node[], shown: number[]}} Model */

export const MARKED = 1;
export const PRESSURED = 2;
export const EARLY = 4;
export const INELIGIBLE = 8;
export const CONFLICT = 16;
export const UNKNOWN = 32;

export const STATES = [
  "marked", "unmarked", "hot", "held", "pending", "early", "unknown", "cool", "ineligible", "conflict",
];
const RANK = ["hot", "held", "pending", "early", "unknown", "cool", "ineligible"];

/** Whether a rule's values rise with load. @param {Rule} rule */
export const rises = (rule) => rule.op.startsWith(">");

/**
 * How far a value is beyond the threshold, as a share of it; below 0 where it is not.
 * @param {Rule} rule
 * @param {number} value
 */
export function excess(rule, value) {
  const distance = value - rule.threshold;
  return (rises(rule) ? distance : -distance) / (Math.abs(rule.threshold) || 1);
}

/** The value at the end of a bar. @param {Rule} rule */
export function fullScale(rule) {
  if (!rises(rule)) return (Math.abs(rule.threshold) || 1) * 4;
  return Math.max(rule.full_at ?? 0, rule.threshold * 1.1) || 1;
}

/** The value that is so many points of load. @param {Rule} rule @param {number} points */
export function fromPoints(rule, points) {
  if (rises(rule)) return (points * (rule.full_at ?? 100)) / 100;
  const zero = Math.min(0, rule.threshold);
  return zero + (100 / Math.max(points, 1) - 1) * ((rule.threshold - zero) * 4 || 1);
}

/** @param {Payload} data @returns {Model} */
export function decode(data) {
  const { name, pool, flags, notes } = data.nodes;
  let next = 0; // notes are in the order of nodes
  /** Those that a node is judged by. */
  const counts = data.rules.flatMap((rule, at) => (rule.early_of || rule.shadow ? [] : [at]));
  const nodes = name.map((text, index) => {
    let margin = -Infinity;
    let worst = -1;
    let firing = false;
    let pending = false;
    for (const at of counts) {
      const column = data.columns[at];
      const state = column.state[index];
      firing ||= state === "f";
      pending ||= state === "p";
      const value = column.value[index];
      if (value === null || column.quality[index] !== "o") continue;
      const found = excess(data.rules[at], value);
      if (found > margin) {
        margin = found;
        worst = at;
      }
    }
    /** @type {Node["note"]} */
    let note = null;
    if (notes[next]?.[0] === index) {
      note = [notes[next][1], notes[next][2]];
      next += 1;
    }
    return {
      index,
      name: text,
      pool: data.pools[pool[index]],
      flags: flags[index],
      margin,
      worst,
      state: stateOf(flags[index], firing, pending),
      note,
    };
  });
  return {
    data,
    nodes,
    shown: data.rules.flatMap((rule, at) => (rule.early_of ? [] : [at])),
  };
}

/**
 * What a node has, where only some have it. @param {[number[], number[]]} columns indices, which rise,
 * and what those have @param {number} index
 */
export function ofNode([indices, values], index) {
  let [low, high] = [0, indices.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (indices[middle] < index) low = middle + 1;
    else high = middle;
  }
  return indices[low] === index ? values[low] : undefined;
}

/** @param {number} flags @param {boolean} firing @param {boolean} pending */
function stateOf(flags, firing, pending) {
  if (flags & PRESSURED) return firing ? "hot" : "held";
  if (pending) return "pending";
  if (flags & EARLY) return "early";
  if (flags & UNKNOWN) return "unknown";
  return flags & INELIGIBLE ? "ineligible" : "cool";
}

/**
 * @typedef {object} View what the URL holds
 * @property {string} text
 * @property {string | null} pool
 * @property {string | null} rule
 * @property {string | null} state
 * @property {string} sort
 * @property {boolean} up
 */

/** Whether a node is in a state that can be filtered by. @param {Node} node @param {string} state */
export function isIn(node, state) {
  switch (state) {
    case "marked": return (node.flags & MARKED) !== 0;
    case "hot": return (node.flags & PRESSURED) !== 0; // also while it cools
    case "early": return (node.flags & (EARLY | PRESSURED)) === EARLY; // also while it is pending
    case "unmarked": return (node.flags & (MARKED | PRESSURED)) === PRESSURED;
    case "unknown": return (node.flags & UNKNOWN) !== 0;
    case "ineligible": return (node.flags & INELIGIBLE) !== 0;
    case "conflict": return (node.flags & CONFLICT) !== 0;
    default: return node.state === state;
  }
}

/** The nodes that fit, in the order of their names. @param {Model} model @param {View} view */
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

/** Of how many times as many nodes the first ones are picked out instead of sorting all. */
const PICKED = 8;

/** The first ones of `nodes` as they are to be shown. @param {Model} model @param {View} view @param {Node[]} nodes @param {number} most */
export function leading(model, view, nodes, most) {
  const order = ordering(model, view);
  if (nodes.length <= PICKED * most) return [...nodes].sort(order).slice(0, most);
  // Of 5,000 nodes 50 are shown: a node is compared with the last of those, and mostly that is all.
  /** @type {Node[]} */
  const kept = [];
  for (const node of nodes) {
    if (kept.length === most) {
      if (order(node, kept[most - 1]) >= 0) continue;
      kept.pop();
    }
    let [low, high] = [0, kept.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (order(node, kept[middle]) < 0) high = middle;
      else low = middle + 1;
    }
    kept.splice(low, 0, node);
  }
  return kept;
}

/** Which of two nodes comes first; equal ones by name, in the order of which they have their index. @param {Model} model @param {View} view */
function ordering(model, view) {
  const sign = view.up ? 1 : -1;
  const key = sorting(model, view.sort);
  return (/** @type {Node} */ a, /** @type {Node} */ b) => {
    const [left, right] = [key(a), key(b)];
    return left < right ? -sign : left > right ? sign : a.index - b.index;
  };
}

/**
 * What nodes are sorted by; unknown values come after all others where the worst are first.
 * @param {Model} model @param {string} sort @returns {(node: Node) => number | string}
 */
function sorting(model, sort) {
  if (sort === "node") return (node) => node.name;
  if (sort === "pool") return (node) => node.pool;
  if (sort === "state") return (node) => -RANK.indexOf(node.state);
  if (sort === "since") return (node) => sinceOf(model, node) ?? -Infinity;
  if (sort === "mark") return (node) => (node.flags & MARKED ? 2 : 0) + (node.note ? 1 : 0);
  const at = model.data.rules.findIndex((rule) => `rule:${rule.name}` === sort);
  if (at >= 0) {
    const { value } = model.data.columns[at];
    return (node) => value[node.index] ?? -Infinity;
  }
  return (node) => node.margin;
}

/** When the state began: of what fires, or of what is pending. @param {Model} model @param {Node} node */
export function sinceOf(model, node) {
  const { nodes, columns } = model.data;
  const since = ofNode(nodes.since, node.index);
  if (since !== undefined) return since;
  for (const at of model.shown) {
    const found = ofNode(columns[at].since, node.index);
    if (found !== undefined) return found;
  }
  return null;
}
