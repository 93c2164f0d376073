// The page's words, numbers and times. A sentence that the server made is told apart by its form; what
// other programs said (why a query failed, why a write failed) stays as it came.

/** @typedef {Record<string, string>} Words */

/** @type {Words} */
const en = {
  all_nodes: "All nodes", worst_first: "Nodes, worst first", find: "Find nodes by name",
  find_hint: "find nodes ( / )", pool: "Pool", rule: "Rule", state: "State", clear_filters: "clear filters",
  rules: "Rules", placements: "Does it help? Where new pods went in the last hour", order: "Order for new pods",
  order_ranked: "{0} {0|node is|nodes are} ranked by expected load", order_unknown: "{0} of unknown load {0|is|are} in the middle",
  order_left: "left out: ", order_hot: "{0} hot and not expected to have cooled", order_closed: "{0} closed", order_full: "{0} full",
  order_unnamed: "{0} without a host name of {0|its|their} own",
  b_order: "The order for new pods cannot be written, and ends by itself: {0}", more_answers: "The same as JSON",
  keys_hint: "Keys: / finds, arrow keys move between nodes, Enter opens, n and p go to the next and the previous, Esc closes.",
  role: "Role", leads: "leader", follows: "follower; {0} leads", follows_nobody: "follower; nobody leads",
  last_tick: "Last tick", ago: "{0} ago", rules_ok: "{0} of {1} ok",
  b_blind: "dynsched cannot see: {0}", b_dry_run: "Dry run: nothing is written to nodes.",
  b_capped: "More than guard.max_marked ({0}) of the nodes are hot: the others stay unmarked.",
  b_rules_error: "The rules file is refused; what was in force before stays in force: {0}",
  b_following: "This replica follows and writes nothing; {0} leads.",
  b_following_nobody: "This replica does not lead, and no leader is known: nothing is written.",
  b_failures: "{0} {0|node|nodes} could not be written.",
  b_disputes: "Somebody else seems to change the mark of {0} {0|node|nodes}.",
  b_rule_fails: "Rule {0}: its query fails: {1}", b_rule_blind: "Rule {0}: no sample matches a node: {1}",
  node: "Node", mark: "Mark", all_pools: "all pools", no_pool: "no pool", all_rules: "all rules",
  all_states: "all states", s_hot: "hot", s_held: "cooling", s_pending: "pending",
  s_unknown: "unknown", s_cool: "cool", s_ineligible: "not eligible", s_marked: "marked",
  s_unmarked: "hot, not marked", s_conflict: "conflict", n_dry_run: "dry run", n_following: "by the leader",
  n_next_tick: "at the next tick", n_failed: "the write failed", n_withheld: "held back", n_conflict: "foreign label",
  n_ineligible: "not eligible", q_m: "missing", q_s: "too old", q_i: "no number", q_f: "query failed",
  count: "{0} of {1} nodes", count_all: "{0} {0|node|nodes}", more: "show {0} more",
  no_nodes: "No node fits the filters.", sort_by: "sort by {0}",
  grid_label: "{0}: {1}. The table below has each node.", spark_label: "past values of {0}", threshold: "Threshold",
  health: "Health", states: "Pending / firing", ok: "ok", err: "fails", blind: "matches no node", shadow: "shadow",
  shadow_help: "on trial: marks no node", clears: "clears at {0}", graph: "Graph", close: "close",
  language: "Language", theme_dark: "dark", theme_light: "light", theme_auto: "as the system", theme: "Theme",
  what_clears: "It is released when this holds:", nothing_fires: "No rule fires", over_time: "Values over time",
  no_history: "No values yet.", now: "now", changes: "What changed",
  no_changes: "Nothing since this process started.",
  c_mark: "marked", c_release: "released", c_repair: "mark updated", c_inactive: "inactive", c_pending: "pending",
  c_firing: "firing", expected: "Expected, {0}",
  expected_line: "{0} points: {1} measured, {2} more by pods just bound, {3} less by pods that ended",
  gone: "The cluster has no node {0}.", as_json: "this node as JSON", yes: "marked",
  no: "not marked",
  p_label: "pods placed per 5 minutes: {0} on hot, {1} on marked, {2} on other nodes in the last hour",
  pod: "Pod",
  requests: "Requests", bound: "Bound", pods_bound: "Pods just bound", no_pods_bound: "None within the last minutes.",
  more_pods: "and {0} more", pods_above: "Pods furthest above their requests",
  no_pods_above: "None uses more than it requests.", resource: "Resource", above: "Uses",
  more_than_requested: "{0} more than it requests", r_cpu: "CPU", r_memory: "memory", clear_at: "Clears at",
  p_most: "at most {0} in 5 minutes", range: "Time that is shown", not_known: "not known",
  no_longer_past: "Prometheus has no values of dynsched's own metrics for longer, or does not answer.",
  k_curve: "measured", k_threshold: "threshold", k_clear: "clears",
  k_dot: "expected load", rules_refused: "file refused; {0} of {1} ok", n_hot: "{0} of {1} {1|node|nodes} hot",
  n_cooling: ", {0} of them cooling", mark_none: "no marks (mark: none)", n_marked: "{0} marked",
  n_left: ", {0} not: {1}", avoided: ": new pods avoid {0|it|them}", none_hot: "None of {0} {0|node|nodes} is hot",
  worst: "; worst: ", nearest: "; the hottest: ", for: ", for {0}", semicolon: "; ",
  comma: ", ", stop: ".", no_answer: "No answer from dynsched since {0}. The page shows what was known at {1}.",
  no_answer_yet: "No answer from dynsched.", waiting: "dynsched has not finished its first tick yet.",
  no_tick: "No tick since {0}: the page shows what was known then",
  blind_since: "Blind since {0}: no rule has a current value",
  marks_as_they_are: "{0} {0|mark stays as it is|marks stay as they are}",
  marks_until: "{0} {0|mark stays|marks stay} until {1} and {0|is|are} then released",
  marks_going: "{0} {0|mark is|marks are} being released", marks_held: "{0} {0|mark stays|marks stay} (on_stale: hold)",
  order_ended: "the order has ended", none_marked: "no node is marked",
  by_default: ": new pods are placed as by default", b_error: "The last tick failed: {0}",
  b_capped_pools: "More than guard.max_marked ({0}) of the nodes are hot in {1}: the others there stay unmarked.",
  see_status: "Which ones: status", states_of_nodes: "Nodes by state",
  sort_again: "{0} {0|row|rows} moved: sort again", shared: "all are {0}", past: "Past", past_of: "Past {0}",
  strip_label: "was {0}", of_state: "{0} {1}", cores: "{0} cores", hot_above: "{0} {1} (hot above {2})",
  hot_below: "{0} {1} (hot below {2})", marked_since: "Marked {0} ago: ",
  both: "{0} measured, {1} expected", cause: "{0} {1} {2} {3} for {4}",
  zone: "Zone", size: "Size",
  requested: "Requested, {0}", order_in: "Order of {0}", place: "{0} of {1} by load, weight {2} of 100",
  left_hot: "not in it: hot", left_closed: "not in it: it takes no pods", left_full: "not in it: full",
  left_unnamed: "not in it: no host name of its own", copy: "copy", copied: "copied", previous: "previous",
  next: "next", previous_key: "key: p", next_key: "key: n", close_key: "key: Esc", c_rules: "rules loaded",
  c_refused: "rules refused", c_leader: "new leader", c_blind: "blind", c_sees: "sees again",
  k_was_marked: "marked because of this rule", k_unknown: "not known", p_hot: "on hot nodes",
  p_marked: "on marked nodes", p_clean: "on other nodes",
  help: "{0} of new pods went to hot nodes ({1} of {2}); by chance it would have been {3}.",
  helps: " That is {0} times as many: below 1, it helps.", helps_not: " That is {0} times as many: it does not help.",
  helps_unsure: " That is {0} times as many, which may be chance.",
  order_lists: " They are in {0} lists, of which each pod gets one: weights fall within a list.",
  at_rank: "load {0}, weight {1}", k_weights: "weight of a node's level, up to 100",
  k_loads: "expected load, 0 to 100",
  came: "{0} samples, {1} unmatched, took {2}", cause_was: "{0} was {2} {3} and is {1} now",
};

/** What was chosen in this browser. @param {string} key */
export function remembered(key) {
  try {
    return localStorage.getItem(`dynsched.${key}`);
  } catch {
    return null; // it keeps nothing for this page
  }
}

/** @param {string} key @param {string} value empty: as before any choice */
export function remember(key, value) {
  try {
    if (value) localStorage.setItem(`dynsched.${key}`, value);
    else localStorage.removeItem(`dynsched.${key}`);
  } catch {
    // The choice holds until the page is loaded again.
  }
}

/** What to show by the choice, then by the browser's languages in the order of its wishes; `?lang=` comes first. */
function choose() {
  const asked = new URLSearchParams(location.search).get("lang");
  for (const tag of [asked, remembered("language"), ...navigator.languages]) {
    if (tag && /^zh\b/i.test(tag)) return "zh-CN";
    if (tag && /^en\b/i.test(tag)) return "en";
  }
  return "en";
}

export const language = choose();
/** @type {{words: Words, sentences: [RegExp, string][]}} */
const { words, sentences } = language === "zh-CN" ? await import("./zh.js") : { words: en, sentences: [] };

/**
 * The text of this key, with `{0}`, `{1}` replaced, and `{0|one|more}` by the word for so many.
 * @param {string} key
 * @param {...(string|number)} values
 */
export function t(key, ...values) {
  const text = words[key] ?? key;
  return text.replace(/\{(\d)(?:\|(.*?)\|(.*?))?\}/g, (_, at, one, more) => {
    const value = String(values[Number(at)] ?? "");
    return more === undefined ? value : value === "1" ? one : more;
  });
}

const plain = new Intl.NumberFormat(language, { maximumSignificantDigits: 3 });
const short = new Intl.NumberFormat(language, { maximumFractionDigits: 1 });
/** As Kubernetes and Prometheus write large numbers. @param {number} value */
function large(value) {
  const power = Math.min(6, Math.floor(Math.log10(Math.abs(value)) / 3));
  return short.format(value / 1000 ** power) + " kMGTPE"[power];
}
const whole = new Intl.NumberFormat(language);
const part = new Intl.NumberFormat(language, { style: "percent", minimumFractionDigits: 1, maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(language, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const minutes = new Intl.DateTimeFormat(language, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

/** @type {Map<number, Intl.NumberFormat>} */
const fixed = new Map();

/** A value of a rule: all of them with the same number of decimals. @param {{threshold: number}} rule @param {number | null} value */
export function valueOf(rule, value) {
  const size = Math.abs(rule.threshold) || 10;
  if (value === null || size >= 1e4) return value === null ? "–" : large(value);
  const digits = Math.max(0, Math.min(6, 3 - Math.ceil(Math.log10(size))));
  let format = fixed.get(digits);
  if (!format) {
    format = new Intl.NumberFormat(language, { minimumFractionDigits: digits, maximumFractionDigits: digits });
    fixed.set(digits, format);
  }
  return format.format(value);
}

/** A limit or another number, short. @param {number | null | undefined} value */
export function number(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e4) return large(value);
  return size >= 1 || size === 0 ? short.format(value) : plain.format(value);
}

/** A count. @param {number} value */
export const counted = (value) => whole.format(value);

/** A share of a whole: 3.2%. @param {number} value */
export const portion = (value) => part.format(value);

/** Of a resource: cores, or bytes. @param {"cpu" | "memory"} resource @param {number} value */
export function amount(resource, value) {
  if (resource === "cpu") return t("cores", number(value));
  return value >= 2 ** 30 ? `${number(value / 2 ** 30)} GiB` : `${number(value / 2 ** 20)} MiB`;
}

/** A moment of today, in the browser's time zone. @param {number} seconds Unix */
export const moment = (seconds) => clock.format(seconds * 1000);

/** The same without seconds. @param {number} seconds Unix */
export const minute = (seconds) => minutes.format(seconds * 1000);

/** @type {Map<string, Intl.NumberFormat>} */
const units = new Map();

/** @param {string} unit @param {number} value */
function inUnit(unit, value) {
  let format = units.get(unit);
  if (!format) {
    format = new Intl.NumberFormat(language, { style: "unit", unit, unitDisplay: "narrow" });
    units.set(unit, format); // making one takes longer than a row of the table
  }
  return format.format(value);
}

/** How long, in its largest unit, as rules are written: 4s, 3m, 2h. @param {number} seconds */
export function span(seconds) {
  const rounded = Math.max(0, Math.round(seconds));
  if (rounded < 100) return inUnit("second", rounded);
  if (rounded < 6000 && rounded % 3600) return inUnit("minute", Math.round(rounded / 60));
  if (rounded < 172800) return inUnit("hour", Math.round(rounded / 3600));
  return inUnit("day", Math.round(rounded / 86400));
}

/** How long something took. @param {number | null} seconds */
export function took(seconds) {
  if (seconds === null) return "–";
  return seconds < 1 ? inUnit("millisecond", Math.round(seconds * 1000)) : inUnit("second", Math.round(seconds * 10) / 10);
}

/** A sentence that the server made; what has no known form stays as it came. @param {string} text @returns {string} */
export function told(text) {
  for (const [form, meaning] of sentences) {
    const found = form.exec(text);
    if (found) return meaning.replace(/\{(\d)\}/g, (_, at) => told(found[Number(at) + 1] ?? ""));
  }
  return text;
}
