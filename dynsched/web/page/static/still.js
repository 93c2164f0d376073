// Keeps nodes in their places while the user may be about to click one.

import { get } from "./draw.js";

/** Seconds without input after which nodes are sorted again automatically. */
const IDLE = 10;

let touchedAt = performance.now();

for (const kind of ["pointermove", "pointerdown", "keydown", "wheel", "scroll"]) {
  addEventListener(kind, () => (touchedAt = performance.now()), { passive: true, capture: true });
}

/** The table or the grid, if the pointer or the focus is in it. */
function pointedAt() {
  const canHover = matchMedia("(hover: hover)").matches; // on touch screens, :hover stays at the last touch
  return ["table-box", "grid"].map(get).find((box) => box.contains(document.activeElement) || (canHover && box.matches(":hover")));
}

/** Whether nodes must stay where they are. */
export const holds = () => performance.now() - touchedAt < IDLE * 1000 || pointedAt() !== undefined || get("detail").hasAttribute("open");

/** Draw, and scroll so that the element under the pointer stays there if something above it changes its height. @param {() => void} draw */
export function inPlace(draw) {
  const box = pointedAt();
  const before = box?.getBoundingClientRect().top ?? 0;
  draw();
  if (box) scrollBy({ top: box.getBoundingClientRect().top - before, behavior: "instant" });
}

/**
 * `sorted`, but those in `shown` keep their places, and the others come after them.
 * @template {{name: string}} T @param {T[]} sorted @param {string[]} shown @param {Map<string, T>} all
 */
export function asShown(sorted, shown, all) {
  const before = shown.flatMap((name) => all.get(name) ?? []);
  const known = new Set(before);
  return [...before, ...sorted.filter((one) => !known.has(one))].slice(0, Math.max(before.length, sorted.length));
}
