// Nodes keep their places while somebody is about to click one of them.

import { get } from "./draw.js";

/** Seconds without any input after which nodes are sorted again by themselves. */
const IDLE = 10;

let touchedAt = performance.now();

for (const kind of ["pointermove", "pointerdown", "keydown", "wheel", "scroll"]) {
  addEventListener(kind, () => (touchedAt = performance.now()), { passive: true, capture: true });
}

/** What is pointed at, or has the focus, of the list and the cells. */
function held() {
  const canHover = matchMedia("(hover: hover)").matches; // elsewhere it stays where the last touch was
  return ["table-box", "grid"].map(get).find((box) => box.contains(document.activeElement) || (canHover && box.matches(":hover")));
}

/** Whether nodes must stay where they are. */
export const holds = () => performance.now() - touchedAt < IDLE * 1000 || held() !== undefined || get("detail").hasAttribute("open");

/** Draw, and keep what is pointed at below the pointer when something above it grows or shrinks. @param {() => void} draw */
export function inPlace(draw) {
  const box = held();
  const before = box?.getBoundingClientRect().top ?? 0;
  draw();
  if (box) scrollBy({ top: box.getBoundingClientRect().top - before, behavior: "instant" });
}

/**
 * The places of `sorted` while those that were `shown` stay; of those that are shown and that are new: after them.
 * @template {{name: string}} T @param {T[]} sorted @param {string[]} shown @param {Map<string, T>} all
 */
export function asShown(sorted, shown, all) {
  const before = shown.flatMap((name) => all.get(name) ?? []);
  const known = new Set(before);
  return [...before, ...sorted.filter((one) => !known.has(one))].slice(0, Math.max(before.length, sorted.length));
}
