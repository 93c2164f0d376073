// The page's words. A sentence that the server made (why a write failed, what would clear a rule)
// is shown as it came, in English.

/** @typedef {Record<string, string>} Words */

/** @type {Words} */
const en = {
  summary: "Summary",
  all_nodes: "All nodes",
  worst_first: "Nodes, worst first",
  find: "Find nodes by name",
  find_hint: "find nodes ( / )",
  pool: "Pool",
  rule: "Rule",
  state: "State",
  clear_filters: "clear filters",
  rules: "Rules",
  placements: "Where pods were placed",
  order: "The order for new pods",
  order_counts: "The coolest nodes of each pool, with their expected load in points. {0} nodes are ranked by it, {1} of unknown load are in the middle; left out are {2} hot, {3} closed, {4} full.",
  more_pools: "and {0} more pools",
  b_order: "The order for new pods cannot be written, and ends by itself: {0}",
  more_answers: "The same as JSON",
  keys_hint: "Keys: / finds, arrow keys move between nodes, Enter opens, Esc closes.",
  role: "Role",
  leads: "leader",
  follows: "follower; {0} leads",
  follows_nobody: "follower; nobody leads",
  last_tick: "Last tick",
  ago: "{0} ago",
  took: "took {0}",
  rules_ok: "{0} of {1} ok",
  prometheus: "Prometheus",
  answers: "answers",
  fails: "does not answer",
  nodes: "Nodes",
  marked: "Marked",
  marked_help: "carry {0}",
  marked_early: "carry {0}; {1} early, not hot",
  unmarked: "Hot, not marked",
  unmarked_help: "none: each hot node is marked",
  unknown: "Unknown",
  unknown_help: "a rule has no current value",
  of_nodes: "of {0} nodes",
  b_waiting: "dynsched has not finished its first tick yet.",
  b_unreachable: "No answer from dynsched for {0}. The page shows what was known before.",
  b_overdue: "The last tick finished {0} ago. The page shows what was known then.",
  b_blind: "dynsched cannot see: {0}",
  b_dry_run: "Dry run: nothing is written to nodes.",
  b_capped: "The cluster is hot: guard.max_marked ({0}) leaves hot nodes unmarked{1}.",
  b_in_pools: " in {0}",
  b_rules_error: "The rules file is refused, and older rules are in force: {0}",
  b_following: "This replica follows and writes nothing; {0} leads.",
  b_following_nobody: "This replica does not lead, and no leader is known: nothing is written.",
  b_failures: "{0} nodes could not be written. See status.",
  b_disputes: "Somebody else seems to change the mark of {0} nodes. See status.",
  b_rule_fails: "Rule {0}: its query fails: {1}",
  b_rule_blind: "Rule {0}: no sample matches a node: {1}",
  node: "Node",
  margin: "Margin",
  margin_help: "how far the worst value is beyond its threshold",
  since: "Since",
  mark: "Mark",
  last_hour: "Past hour",
  all_pools: "all pools",
  no_pool: "no pool",
  all_rules: "all rules",
  all_states: "all states",
  s_hot: "hot",
  s_held: "held",
  s_pending: "pending",
  s_early: "early",
  s_unknown: "unknown",
  s_cool: "cool",
  s_ineligible: "not eligible",
  s_marked: "marked",
  s_unmarked: "hot, not marked",
  s_conflict: "conflict",
  n_dry_run: "dry run",
  n_following: "the leader writes",
  n_next_tick: "the next tick writes it",
  n_failed: "the write failed",
  n_withheld: "held back by guard",
  n_conflict: "somebody else's label",
  n_ineligible: "not eligible",
  q_m: "missing",
  q_s: "too old",
  q_i: "no number",
  q_f: "query failed",
  count: "{0} of {1} nodes",
  count_all: "{0} nodes",
  more: "show {0} more",
  no_nodes: "No node fits the filters.",
  sort_by: "sort by {0}",
  grid_label: "{0}: {1} nodes, {2} marked, {3} hot, {4} unknown. The table below has each of them.",
  bar_label: "threshold {0}, clears at {1}",
  bar_expected: ", expected {0}",
  bar_requested: ", requested {0}",
  lb_threshold: "threshold",
  lb_clear: "clears",
  lb_expected: "expected",
  lb_requested: "requested by pods",
  spark_label: "past values of {0}",
  l_below: "far below the threshold",
  l_near: "near it",
  l_over: "over it",
  l_marked: "framed: marked",
  l_hot: "triangle: hot",
  l_pending: "dot: pending, early",
  l_unknown: "cross: unknown",
  expression: "Expression",
  threshold: "Threshold",
  health: "Health",
  samples: "Samples",
  unmatched: "Unmatched",
  duration: "Duration",
  states: "Pending / firing",
  ok: "ok",
  err: "fails",
  blind: "matches no node",
  shadow: "shadow",
  shadow_help: "on trial: marks no node",
  clears: "clears at {0}",
  graph: "graph in Prometheus",
  close: "close",
  what_clears: "What would clear it",
  nothing_fires: "No rule fires.",
  over_time: "Values over time",
  no_history: "No values yet.",
  now: "now",
  changes: "What changed",
  no_changes: "Nothing since this process started.",
  time: "Time",
  what: "What",
  value: "Value",
  c_mark: "marked",
  c_release: "released",
  c_repair: "mark updated",
  c_inactive: "inactive",
  c_pending: "pending",
  c_firing: "firing",
  expected: "Expected load",
  expected_line: "{0}: {1} measured, {2} more by pods just bound, {3} less by pods that ended",
  gone: "The cluster has no node {0}.",
  as_json: "this node as JSON",
  yes: "marked",
  yes_early: "marked early",
  no: "not marked",
  p_hot: "on hot nodes",
  p_marked: "on marked nodes",
  p_clean: "on other nodes",
  p_label: "pods placed per 5 minutes: {0} on hot, {1} on marked, {2} on other nodes in the last hour",
  overload: "Overload per day",
  overload_share: "Share of the nodes' time that was hot",
  day: "Day (UTC)",
  so_far: "{0}, so far",
  pod: "Pod",
  requests: "Requests",
  bound: "Bound",
  pods_bound: "Pods just bound",
  no_pods_bound: "None within the last minutes.",
  more_pods: "and {0} more",
  pods_above: "Pods furthest above their requests",
  no_pods_above: "None uses more than it requests.",
  resource: "Resource",
  above: "Uses",
  more_than_requested: "{0} more than it requests",
  r_cpu: "CPU",
  r_memory: "memory",
  cores: "{0} cores",
};

/** @type {Words} */
const zh = {
  summary: "概要",
  all_nodes: "所有节点",
  worst_first: "节点（最严重的在前）",
  find: "按名称查找节点",
  find_hint: "查找节点（/）",
  pool: "节点池",
  rule: "规则",
  state: "状态",
  clear_filters: "清除筛选",
  rules: "规则",
  placements: "Pod 的放置",
  order: "新 Pod 的节点顺序",
  order_counts: "各节点池中负载最低的节点及其预期负载（百分点）。{0} 个节点按预期负载排序，{1} 个负载未知的节点排在中间；未列入：过热 {2} 个，不可调度 {3} 个，已满 {4} 个。",
  more_pools: "另有 {0} 个节点池",
  b_order: "新 Pod 的节点顺序无法写入，将自行失效：{0}",
  more_answers: "同样内容的 JSON",
  keys_hint: "按键：/ 查找，方向键在节点间移动，Enter 打开，Esc 关闭。",
  role: "角色",
  leads: "主实例",
  follows: "备用实例；主实例为 {0}",
  follows_nobody: "备用实例；没有主实例",
  last_tick: "最近一轮",
  ago: "{0}前",
  took: "耗时 {0}",
  rules_ok: "{1} 条中 {0} 条正常",
  prometheus: "Prometheus",
  answers: "有应答",
  fails: "无应答",
  nodes: "节点",
  marked: "已标记",
  marked_help: "带有 {0}",
  marked_early: "带有 {0}；其中 {1} 个为提前标记，并未过热",
  unmarked: "过热但未标记",
  unmarked_help: "无：每个过热节点都已标记",
  unknown: "未知",
  unknown_help: "某条规则没有当前值",
  of_nodes: "共 {0} 个节点",
  b_waiting: "dynsched 尚未完成第一轮评估。",
  b_unreachable: "dynsched 已 {0} 没有应答。页面显示的是之前的数据。",
  b_overdue: "最近一轮在 {0} 前完成。页面显示的是当时的数据。",
  b_blind: "dynsched 无法获知负载：{0}",
  b_dry_run: "试运行：不会向节点写入任何内容。",
  b_capped: "集群过热：guard.max_marked（{0}）使部分过热节点未被标记{1}。",
  b_in_pools: "，所在节点池：{0}",
  b_rules_error: "规则文件被拒绝，旧规则仍然有效：{0}",
  b_following: "此实例为备用实例，不写入；主实例为 {0}。",
  b_following_nobody: "此实例不是主实例，也没有已知的主实例：不会写入任何内容。",
  b_failures: "{0} 个节点写入失败。请查看 status。",
  b_disputes: "似乎有其他程序在更改 {0} 个节点的标记。请查看 status。",
  b_rule_fails: "规则 {0}：查询失败：{1}",
  b_rule_blind: "规则 {0}：没有样本与节点匹配：{1}",
  node: "节点",
  margin: "裕度",
  margin_help: "最差的值超出阈值多少",
  since: "持续",
  mark: "标记",
  last_hour: "过去一小时",
  all_pools: "所有节点池",
  no_pool: "无节点池",
  all_rules: "所有规则",
  all_states: "所有状态",
  s_hot: "过热",
  s_held: "保持",
  s_pending: "等待",
  s_early: "提前",
  s_unknown: "未知",
  s_cool: "正常",
  s_ineligible: "不参与",
  s_marked: "已标记",
  s_unmarked: "过热但未标记",
  s_conflict: "冲突",
  n_dry_run: "试运行",
  n_following: "由主实例写入",
  n_next_tick: "下一轮写入",
  n_failed: "写入失败",
  n_withheld: "受 guard 限制",
  n_conflict: "他人设置的标签",
  n_ineligible: "不参与",
  q_m: "缺失",
  q_s: "过旧",
  q_i: "不是数值",
  q_f: "查询失败",
  count: "{1} 个节点中的 {0} 个",
  count_all: "{0} 个节点",
  more: "再显示 {0} 个",
  no_nodes: "没有符合筛选条件的节点。",
  sort_by: "按{0}排序",
  grid_label: "{0}：{1} 个节点，{2} 个已标记，{3} 个过热，{4} 个未知。下表列出每个节点。",
  bar_label: "阈值 {0}，解除值 {1}",
  bar_expected: "，预期 {0}",
  bar_requested: "，请求 {0}",
  lb_threshold: "阈值",
  lb_clear: "解除值",
  lb_expected: "预期值",
  lb_requested: "Pod 的请求量",
  spark_label: "{0} 的历史值",
  l_below: "远低于阈值",
  l_near: "接近阈值",
  l_over: "超过阈值",
  l_marked: "边框：已标记",
  l_hot: "三角：过热",
  l_pending: "圆点：等待、提前",
  l_unknown: "叉号：未知",
  expression: "表达式",
  threshold: "阈值",
  health: "健康",
  samples: "样本",
  unmatched: "未匹配",
  duration: "耗时",
  states: "等待 / 触发",
  ok: "正常",
  err: "失败",
  blind: "没有匹配的节点",
  shadow: "影子规则",
  shadow_help: "试用中：不标记节点",
  clears: "解除值 {0}",
  graph: "Prometheus 图表",
  close: "关闭",
  what_clears: "解除条件",
  nothing_fires: "没有规则触发。",
  over_time: "随时间变化的值",
  no_history: "暂无数据。",
  now: "现在",
  changes: "变化记录",
  no_changes: "自进程启动以来没有变化。",
  time: "时间",
  what: "变化",
  value: "值",
  c_mark: "已标记",
  c_release: "已解除",
  c_repair: "标记已更新",
  c_inactive: "未触发",
  c_pending: "等待",
  c_firing: "触发",
  expected: "预期负载",
  expected_line: "{0}：测得 {1}，刚绑定的 Pod 增加 {2}，已结束的 Pod 减少 {3}",
  gone: "集群中没有节点 {0}。",
  as_json: "此节点的 JSON",
  yes: "已标记",
  yes_early: "提前标记",
  no: "未标记",
  p_hot: "在过热节点上",
  p_marked: "在已标记节点上",
  p_clean: "在其他节点上",
  p_label: "每 5 分钟放置的 Pod：过去一小时内，过热节点 {0} 个，已标记节点 {1} 个，其他节点 {2} 个",
  overload: "每日过载",
  overload_share: "节点时间中过热的比例",
  day: "日期（UTC）",
  so_far: "{0}（截至目前）",
  pod: "Pod",
  requests: "请求量",
  bound: "绑定",
  pods_bound: "刚绑定的 Pod",
  no_pods_bound: "最近几分钟内没有。",
  more_pods: "另有 {0} 个",
  pods_above: "用量超出请求最多的 Pod",
  no_pods_above: "没有 Pod 的用量超出其请求。",
  resource: "资源",
  above: "用量",
  more_than_requested: "比请求多 {0}",
  r_cpu: "CPU",
  r_memory: "内存",
  cores: "{0} 核",
};

/** What to show by the browser's languages, in the order of its wishes; `?lang=` comes first. */
function choose() {
  const asked = new URLSearchParams(location.search).get("lang");
  for (const tag of [asked, ...navigator.languages]) {
    if (tag && /^zh\b/i.test(tag)) return "zh-CN";
    if (tag && /^en\b/i.test(tag)) return "en";
  }
  return "en";
}

export const language = choose();
const words = language === "zh-CN" ? zh : en;
export const languages = { en, zh };

/**
 * The text of this key, with `{0}`, `{1}` replaced.
 * @param {string} key
 * @param {...(string|number)} values
 */
export function t(key, ...values) {
  const text = words[key] ?? key;
  return text.replace(/\{(\d)\}/g, (_, at) => String(values[Number(at)] ?? ""));
}

const plain = new Intl.NumberFormat(language, { maximumSignificantDigits: 3 });
const short = new Intl.NumberFormat(language, { maximumFractionDigits: 1 });
const large = new Intl.NumberFormat(language, { notation: "compact", maximumFractionDigits: 1 });
const whole = new Intl.NumberFormat(language);
const share = new Intl.NumberFormat(language, {
  style: "percent",
  maximumFractionDigits: 0,
  signDisplay: "exceptZero",
});
const part = new Intl.NumberFormat(language, { style: "percent", maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(language, { timeStyle: "medium" });

/** A rule's value, short. @param {number | null | undefined} value */
export function number(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e4) return large.format(value);
  return size >= 1 || size === 0 ? short.format(value) : plain.format(value);
}

/** A count. @param {number} value */
export const counted = (value) => whole.format(value);

/** A share with its sign: +14%. @param {number} value */
export const percent = (value) => share.format(Math.max(-9.99, Math.min(9.99, value)));

/** A share of a whole: 3.2%. @param {number} value */
export const portion = (value) => part.format(value);

/** Of a resource: cores, or bytes. @param {"cpu" | "memory"} resource @param {number} value */
export function amount(resource, value) {
  if (resource === "cpu") return t("cores", number(value));
  return value >= 2 ** 30 ? `${number(value / 2 ** 30)} GiB` : `${number(value / 2 ** 20)} MiB`;
}

/** A moment of today, in the browser's time zone. @param {number} seconds Unix */
export const moment = (seconds) => clock.format(seconds * 1000);

/** @type {Map<string, Intl.NumberFormat>} */
const units = new Map();

/** @param {string} unit @param {number} value */
function inUnit(unit, value) {
  let format = units.get(unit);
  if (!format) {
    format = new Intl.NumberFormat(language, { style: "unit", unit, unitDisplay: "short" });
    units.set(unit, format); // making one takes longer than a row of the table
  }
  return format.format(value);
}

/** How long, in its largest unit or two: 4 s, 3 min, 2 h. @param {number} seconds */
export function span(seconds) {
  const rounded = Math.max(0, Math.round(seconds));
  if (rounded < 120) return inUnit("second", rounded);
  if (rounded < 7200) return inUnit("minute", Math.floor(rounded / 60));
  if (rounded < 172800) return inUnit("hour", Math.floor(rounded / 3600));
  return inUnit("day", Math.floor(rounded / 86400));
}
