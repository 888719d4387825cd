// How far something is read: in words, and as a bar.

import { count, duration, make, write } from "./elements.js";

/** Describe how far a document is read. */
function progressOf(file) {
  const { task = "Preparing", done = 0, total = null, unit = "tokens", seconds_left = null, waits_for = null } = file.progress ?? {};
  const reading = waits_for ? `Waits for ${waits_for}` : task;
  const words = [file.local ? (file.waits ? "Waits to be sent" : "Sending") : reading];
  if (total) words.push(`${count(done)} of ${count(total)} ${unit}`);
  if (seconds_left != null) words.push(`${duration(Math.max(Math.ceil(seconds_left), 1)).replace(".0", "")} left`);
  return { words: words.join(" · "), done, total };
}

/** Make a bar with words below it. */
export function makeBar() {
  const bar = make("progress");
  const words = make("p", { class: "soft numbers" });
  const show = (label, { words: text, done, total }) => {
    bar.setAttribute("aria-label", label);
    if (total) Object.assign(bar, { max: total, value: done });
    else bar.removeAttribute("value");
    write(words, text);
  };
  return { element: make("div", { class: "progress" }, bar, words), show };
}

/** Make a bar for documents: one, or several that are read one after another. */
export function makeProgress() {
  const { element, show } = makeBar();
  return { element, show: (file) => show(`Reading ${file.filename}`, progressOf(file)) };
}
