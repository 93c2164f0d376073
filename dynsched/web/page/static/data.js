// What is asked of the server. All addresses are relative, so that the page works below any path.

/** `states`: a letter for each time, of `STATE_OF`. @typedef {{times: number[], values: Record<string, (number | null)[]>, states: string}} Past */
/** @typedef {{at: number, node: string, kind: string, rule: string, value: number | null, why: import("./i18n.js").Reason}} Change */

/** How long an answer may take. */
const PATIENCE = 10_000;
/** How much of a URL the names of nodes may fill: servers refuse longer ones. */
const LONGEST = 5000;
const MOST_NODES = 60;

/** @param {string} path @param {Record<string, string>} [headers] */
function ask(path, headers = {}) {
  return fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
}

let etag = "";

/**
 * The last tick. `data`: null where it is the same as before. `age`: of the tick, in
 * seconds. Null before the first tick. Raises where there is no answer.
 * @returns {Promise<{data: import("./model.js").Payload | null, age: number} | null>}
 */
export async function lastTick() {
  const answer = await ask("page/data", etag ? { "If-None-Match": etag } : {});
  const age = Number(answer.headers.get("Age") ?? 0);
  if (answer.status === 304) return { data: null, age };
  // With a Retry-After it is not about ticks: nobody can be let in now.
  if (answer.status === 503 && !answer.headers.has("Retry-After")) return null;
  if (!answer.ok) throw new Error(`${answer.status}`);
  const data = await answer.json();
  etag = answer.headers.get("ETag") ?? "";
  return { data, age };
}

/** Before the first tick: why no rules are in force; null while there are rules. @returns {Promise<string | null>} */
export async function rulesError() {
  const answer = await ask("status", { Accept: "application/json" });
  return (await answer.json()).rules_error ?? null;
}

/** @param {string[]} names @returns {Promise<{step: number, nodes: Map<string, Past>}>} */
export async function pastOf(names) {
  /** @type {string[]} */
  const queries = [];
  let count = 0;
  for (const name of names) {
    const part = `node=${encodeURIComponent(name)}`;
    const last = queries[queries.length - 1];
    if (last === undefined || count === MOST_NODES || last.length + part.length > LONGEST) {
      queries.push(part);
      count = 1;
    } else {
      queries[queries.length - 1] = `${last}&${part}`;
      count += 1;
    }
  }
  /** @type {Map<string, Past>} */
  const nodes = new Map();
  let step = 60;
  for (const query of queries) {
    const answer = await ask(`page/history?${query}`);
    if (!answer.ok) throw new Error(`${answer.status}`);
    const found = await answer.json();
    step = found.step;
    for (const [name, past] of Object.entries(found.nodes)) {
      nodes.set(name, { times: found.times, .../** @type {any} */ (past) });
    }
  }
  return { step, nodes };
}

/** Where a node is in the order: by pool its rank by load, of how many, and the weight of its level; or `why` it is in none.
 * @typedef {{pools: Record<string, {rank: number, of: number, weight: number}>, why: string | null}} Place */

/** Null in place of a list or of the machine: that is not known. `changes`: the latest first; `requested`: by pods, by rule and in its unit.
 * @typedef {{bound: {total: number, pods: {pod: string, cpu: number, memory: number, age: number}[]} | null,
 *   above: {pod: string, resource: "cpu" | "memory", above: number}[] | null, changes: Change[], clears: import("./i18n.js").Reason[],
 *   machine: {zone: string | null, type: string | null, cpu: number | null, memory: number | null, order: Place | null} | null,
 *   requested: Record<string, number>}} About */

/** What is known of a node, without its values of the last hour. @param {string} name @returns {Promise<About>} */
export async function aboutNode(name) {
  const answer = await ask(`page/node?node=${encodeURIComponent(name)}`);
  if (!answer.ok) throw new Error(`${answer.status}`);
  return answer.json();
}

/** As of `/nodes/NAME`; null where there is no such node. @param {string} name @returns {Promise<any>} */
export async function nodeOf(name) {
  const answer = await ask(`nodes/${encodeURIComponent(name)}`);
  if (answer.status === 404) return null;
  if (!answer.ok) throw new Error(`${answer.status}`);
  return answer.json();
}
