// What is asked of the server. All addresses are relative, so that the page works below any path.

/** @typedef {{at: number, node: string, kind: string, rule: string, value: number | null, why: import("./i18n.js").Reason}} Change */

/** How long an answer may take. */
const PATIENCE = 10_000;

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

/** Where a node is in the order: by pool its rank by load, of how many, and the weight of its level; or `why` it is in none.
 * @typedef {{pools: Record<string, {rank: number, of: number, weight: number}>, why: string | null}} Place */

/** As of `/nodes/NAME`, and more: null is what is not known; `changes`: the latest first.
 * @typedef {{rules: any[], clears: import("./i18n.js").Reason[], changes: Change[],
 *   zone: string | null, type: string | null, cpu: number | null, memory: number | null, order: Place | null}} About */

/** What is known of a node; null where there is no such node. @param {string} name @returns {Promise<About | null>} */
export async function aboutNode(name) {
  const answer = await ask(`page/nodes/${encodeURIComponent(name)}`);
  if (answer.status === 404) return null;
  if (!answer.ok) throw new Error(`${answer.status}`);
  return answer.json();
}
