// Requests to the server. All URLs are relative, so that the page works below any path.

/** @typedef {{at: number, node: string, kind: string, rule: string, value: number | null, why: import("./i18n.js").Reason}} Change */

/** Timeout of a request in milliseconds. */
const PATIENCE = 10_000;

/** @param {string} path @param {Record<string, string>} [headers] */
function ask(path, headers = {}) {
  return fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
}

let etag = "";

/**
 * The last tick; null before the first one. `data`: null if it is the same tick as before.
 * `age`: of the tick, in seconds. Throws if there is no answer.
 * @returns {Promise<{data: import("./model.js").Payload | null, age: number} | null>}
 */
export async function lastTick() {
  const answer = await ask("page/data", etag ? { "If-None-Match": etag } : {});
  const age = Number(answer.headers.get("Age") ?? 0);
  if (answer.status === 304) return { data: null, age };
  // A 503 with Retry-After is not about ticks: permissions cannot be checked now.
  if (answer.status === 503 && !answer.headers.has("Retry-After")) return null;
  if (!answer.ok) throw new Error(`${answer.status}`);
  const data = await answer.json();
  etag = answer.headers.get("ETag") ?? "";
  return { data, age };
}

/** Why no rules are in force, so that there is no tick; null if rules are in force. @returns {Promise<string | null>} */
export async function rulesError() {
  const answer = await ask("status", { Accept: "application/json" });
  return (await answer.json()).rules_error ?? null;
}

/** A node's place in the order: by pool its rank by load, the number of nodes, and its weight; or `why` it has no place.
 * @typedef {{pools: Record<string, {rank: number, of: number, weight: number}>, why: string | null}} Place */

/** `/nodes/NAME` and more data of the page. Unknown is null; `changes`: the latest first.
 * @typedef {{rules: any[], clears: import("./i18n.js").Reason[], changes: Change[],
 *   zone: string | null, type: string | null, cpu: number | null, memory: number | null, order: Place | null}} About */

/** The data of a node; null if there is no such node. @param {string} name @returns {Promise<About | null>} */
export async function aboutNode(name) {
  const answer = await ask(`page/nodes/${encodeURIComponent(name)}`);
  if (answer.status === 404) return null;
  if (!answer.ok) throw new Error(`${answer.status}`);
  return answer.json();
}
