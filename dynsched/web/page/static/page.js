// The page: polls the last tick, and draws what changed.

import { lastTick, rulesError } from "./data.js";
import { Detail } from "./detail.js";
import { get, make, say } from "./draw.js";
import { Grid } from "./grid.js";
import { language, rememberLanguage, t } from "./i18n.js";
import { STATES, byName, decode, select } from "./model.js";
import { changeList } from "./changes.js";
import { order, placements } from "./effect.js";
import { banners, chips, facts, rules, sentence } from "./overview.js";
import { holds, inPlace } from "./still.js";
import { Table } from "./table.js";

/** @type {import("./model.js").Model | null} */
let model = null;

/** Age of the tick in seconds when it arrived, and the time of its arrival. */
let age = 0;
let cameAt = performance.now();
let answeredAt = performance.now();
let silent = false;
/** Why there is no tick yet, if the rules are the reason. @type {string | null} */
let refused = null;

const view = readView();
const table = new Table(view, { changed, open });
const grid = new Grid(open);
const detail = new Detail({ closed, beside: (name, step) => table.beside(name, step), open });

/** Seconds since the tick. */
const ageNow = () => age + (performance.now() - cameAt) / 1000;

/** The time by the server's clock, because the browser's may differ. */
const serverNow = () => (model?.data.taken_at ?? 0) + ageNow();

/** @returns {import("./model.js").View} */
function readView() {
  const params = new URLSearchParams(location.search);
  const state = params.get("state");
  return {
    text: params.get("q") ?? "",
    pool: params.get("pool"),
    rule: params.get("rule"),
    state: state !== null && STATES.includes(state) ? state : null,
    sort: params.get("sort") ?? "danger",
    up: params.get("up") === "true",
  };
}

/** Write values into the URL; empty ones are removed. @param {Record<string, string | null | false>} values @param {boolean} [isStep] whether the browser can go back to the URL before */
function write(values, isStep) {
  const params = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(values)) {
    if (value) params.set(key, value);
    else params.delete(key);
  }
  history[isStep ? "pushState" : "replaceState"](null, "", location.pathname + (params.size ? `?${params}` : ""));
}

const openNode = () => new URLSearchParams(location.search).get("node") ?? "";

/** @param {string} name */
function writeNode(name) {
  if (openNode() !== name) write({ node: name }, true);
}

/** @param {string} name */
function open(name) {
  writeNode(name);
  if (model) detail.open(name, model, serverNow()).catch(missed);
}

/** After a node was closed, its row gets the focus. @param {string} name */
function closed(name) {
  writeNode("");
  table.focus(name);
}

/** Set a filter; the same value again removes it. @param {"pool" | "state" | "rule"} key @param {string} value */
function filter(key, value) {
  view[key] = view[key] === value ? null : value;
  changed();
}

function changed() {
  const { text, pool, rule, state, sort, up } = view;
  write({ q: text, pool, rule, state, sort: sort !== "danger" && sort, up: up && "true" });
  drawFilters();
  if (model) drawNodes(model, false);
}

/** Draw what the filters affect. @param {import("./model.js").Model} model @param {boolean} still whether nodes keep their places */
function drawNodes(model, still) {
  chips(model, view.state, (state) => {
    filter("state", state);
    if (get("table-title").getBoundingClientRect().top > innerHeight - 200) get("table-title").scrollIntoView();
  });
  const found = select(model, view);
  grid.update(model, found, still);
  table.update(model, found, serverNow(), still);
}

function drawFilters() {
  const text = /** @type {HTMLInputElement} */ (get("filter-text"));
  if (text.value !== view.text) text.value = view.text;
  const pools = byName((model?.data.pools ?? []).filter(Boolean));
  choices("filter-pool", t("all_pools"), pools.map((name) => [name, name]), view.pool);
  choices("filter-rule", t("all_rules"), (model?.data.rules ?? []).map(({ name }) => [name, name]), view.rule);
  choices("filter-state", t("all_states"), STATES.map((name) => [name, t(`s_${name}`)]), view.state);
  get("filter-pool").hidden = pools.length === 0;
  get("filter-clear").hidden = !(view.text || view.pool || view.rule || view.state);
}

/** @param {string} id @param {string} all @param {string[][]} options @param {string | null} chosen */
function choices(id, all, options, chosen) {
  const select = /** @type {HTMLSelectElement} */ (get(id));
  const shows = JSON.stringify(options);
  if (select.dataset.shows !== shows) {
    select.dataset.shows = shows;
    select.replaceChildren(make("option", { value: "", text: all }), ...options.map(([value, text]) => make("option", { value, text })));
  }
  select.value = chosen ?? "";
}

/** @param {unknown} error */
function missed(error) {
  // The next poll shows a banner if it fails too. A late answer is not an error of the page.
  console.debug("no answer", error);
}

/** Draw everything that depends on the tick. @param {import("./model.js").Payload} data */
function draw(data) {
  performance.mark("draw");
  const found = (model = decode(data));
  inPlace(() => {
    drawFilters();
    drawNodes(found, holds());
    drawTimes();
  });
  rules(model, (rule) => filter("rule", rule));
  get("changes").replaceChildren(data.changes.length ? changeList(data.changes, model, open) : make("p", { class: "dim", text: t("no_changes") }));
  order(model);
  placements(model);
  performance.measure("update", "draw");
  document.documentElement.dataset.at = String(data.taken_at);
}

/** Draw what changes with time alone. */
function drawTimes() {
  const now = { age: ageNow(), silent: silent ? (performance.now() - answeredAt) / 1000 : 0, at: serverNow(), refused };
  sentence(model, now, open);
  banners(model);
  if (model) facts(model, now);
  if (model && !get("sort-again").hidden && !holds()) drawNodes(model, false);
}

async function poll() {
  try {
    const answer = await lastTick();
    answeredAt = performance.now();
    silent = false;
    refused = answer === null ? await rulesError() : null;
    if (answer !== null) {
      age = answer.age;
      cameAt = performance.now();
      if (answer.data !== null) draw(answer.data);
      const opened = openNode();
      if (model && answer.data !== null) {
        if (detail.name) detail.update(model, serverNow()).catch(missed);
        else if (opened) detail.open(opened, model, serverNow()).catch(missed);
      }
    }
  } catch (error) {
    silent = true;
    missed(error);
  }
  drawTimes();
}

/** Half an interval, so that the page is never much older than the last tick. */
const pause = () => Math.max(1, Math.min(5, (model?.data.interval ?? 2) / 2)) * 1000;

/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

async function follow() {
  clearTimeout(timer);
  if (!document.hidden) await poll();
  clearTimeout(timer);
  timer = setTimeout(follow, pause());
}

function translate() {
  document.documentElement.lang = language;
  for (const element of document.querySelectorAll("[data-text]")) say(element, t(/** @type {HTMLElement} */ (element).dataset.text ?? ""));
  for (const element of document.querySelectorAll("[data-label]")) element.setAttribute("aria-label", t(/** @type {HTMLElement} */ (element).dataset.label ?? ""));
  for (const element of document.querySelectorAll("[data-placeholder]")) element.setAttribute("placeholder", t(/** @type {HTMLElement} */ (element).dataset.placeholder ?? ""));
}

function offerLanguages() {
  const tongue = /** @type {HTMLSelectElement} */ (get("language"));
  tongue.append(...[["en", "English"], ["zh-CN", "简体中文"]].map(([value, text]) => make("option", { value, text, lang: value })));
  tongue.value = language;
  tongue.addEventListener("change", () => {
    rememberLanguage(tongue.value);
    write({ lang: null }); // it would override the choice
    location.reload();
  });
}

function listen() {
  const text = /** @type {HTMLInputElement} */ (get("filter-text"));
  text.addEventListener("input", () => {
    view.text = text.value;
    changed();
  });
  for (const key of /** @type {const} */ (["pool", "rule", "state"])) {
    const select = /** @type {HTMLSelectElement} */ (get(`filter-${key}`));
    select.addEventListener("change", () => {
      view[key] = select.value || null;
      changed();
    });
  }
  get("filters").addEventListener("submit", (event) => event.preventDefault());
  get("filter-clear").addEventListener("click", () => {
    Object.assign(view, { text: "", pool: null, rule: null, state: null });
    changed();
    text.focus();
  });
  text.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") /** @type {HTMLElement | null} */ (document.querySelector("#nodes tbody a"))?.focus();
  });
  document.addEventListener("keydown", (event) => {
    const inField = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
    if (event.key !== "/" || inField || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    text.focus();
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) follow();
  });
  addEventListener("popstate", () => {
    Object.assign(view, readView());
    changed();
    const name = openNode();
    if (!name) detail.close();
    else if (model) detail.open(name, model, serverNow()).catch(missed);
  });
  setInterval(drawTimes, 1000);
}

translate();
offerLanguages();
listen();
drawFilters();
follow();
