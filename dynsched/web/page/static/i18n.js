// Words, numbers and times in the language of the page.

import { texts } from "./texts.js";

/** The language that was chosen in this browser. */
function remembered() {
  try {
    return localStorage.getItem("dynsched.language");
  } catch {
    return null; // the browser stores nothing for this page
  }
}

/** @param {string} value */
export function rememberLanguage(value) {
  try {
    localStorage.setItem("dynsched.language", value);
  } catch {
    // The choice holds until the page is loaded again.
  }
}

/** The language: `?lang=`, else the one that was chosen, else the first of the browser's languages that the page has. */
function choose() {
  const fromUrl = new URLSearchParams(location.search).get("lang");
  for (const tag of [fromUrl, remembered(), ...navigator.languages]) {
    if (tag && /^zh\b/i.test(tag)) return "zh-CN";
    if (tag && /^en\b/i.test(tag)) return "en";
  }
  return "en";
}

export const language = choose();
/**
 * The text of this key, with `{0}`, `{1}` replaced by the values, and `{0|one|more}` by singular or plural.
 * @param {string} key
 * @param {...(string|number)} values
 */
export function t(key, ...values) {
  const text = texts[key]?.[language === "zh-CN" ? 1 : 0] ?? key;
  return text.replace(/\{(\d)(?:\|(.*?)\|(.*?))?\}/g, (_, at, one, more) => {
    const value = String(values[Number(at)] ?? "");
    return more === undefined ? value : value === "1" ? one : more;
  });
}

const plain = new Intl.NumberFormat(language, { maximumSignificantDigits: 3 });
const short = new Intl.NumberFormat(language, { maximumFractionDigits: 1 });
/** A large number as Kubernetes and Prometheus write it. @param {number} value */
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

/** A value of a rule. All values of a rule have the same number of decimals. @param {{threshold: number}} rule @param {number | null} value */
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

/** An amount of a resource: cores, or bytes. @param {"cpu" | "memory"} resource @param {number} value */
export function amount(resource, value) {
  if (resource === "cpu") return t("cores", number(value));
  return value >= 2 ** 30 ? `${number(value / 2 ** 30)} GiB` : `${number(value / 2 ** 20)} MiB`;
}

/** A moment of today, in the browser's time zone. @param {number} seconds Unix */
export const moment = (seconds) => clock.format(seconds * 1000);

/** A moment of today without seconds. @param {number} seconds Unix */
export const minute = (seconds) => minutes.format(seconds * 1000);

/** @type {Map<string, Intl.NumberFormat>} */
const units = new Map();

/** @param {string} unit @param {number} value */
function inUnit(unit, value) {
  let format = units.get(unit);
  if (!format) {
    format = new Intl.NumberFormat(language, { style: "unit", unit, unitDisplay: "narrow" });
    units.set(unit, format); // cached: making a format takes longer than a row of the table
  }
  return format.format(value);
}

/** A duration in its largest unit, as in rules.yaml: 4s, 3m, 2h. @param {number} seconds */
export function span(seconds) {
  const rounded = Math.max(0, Math.round(seconds));
  if (rounded < 100) return inUnit("second", rounded);
  if (rounded < 6000 && rounded % 3600) return inUnit("minute", Math.round(rounded / 60));
  if (rounded < 172800) return inUnit("hour", Math.round(rounded / 3600));
  return inUnit("day", Math.round(rounded / 86400));
}

/** A measured duration. @param {number | null} seconds */
export function took(seconds) {
  if (seconds === null) return "–";
  return seconds < 1 ? inUnit("millisecond", Math.round(seconds * 1000)) : inUnit("second", Math.round(seconds * 10) / 10);
}

/** A reason from the server: a code and its values, which may be reasons too; or a text of another program.
 * @typedef {string | Coded} Reason @typedef {Reason[]} Coded */

/** A reason in words. @param {Reason} reason @returns {string} */
export function said(reason) {
  if (typeof reason === "string") return reason;
  return t(`r_${reason[0]}`, ...reason.slice(1).map(said));
}
