// Elements of the page, words for numbers, and signals between its modules. Texts enter as text, never as HTML.

export const byId = (id) => document.getElementById(id);

/** Make an element. Attributes that start with "on" are listeners; false and null attributes are left out. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `#icon-${name}`);
  svg.append(use);
  return svg;
}

/** Set a text only where it changes: screen readers and selections notice each write. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Mark the selection, for the eye and for screen readers. */
export function setCurrent(element, current) {
  if (current) element.setAttribute("aria-current", "true");
  else element.removeAttribute("aria-current");
}

/** Announce to screen readers, once they have finished. */
export function announce(text) {
  byId("status").textContent = text;
}

/** Show a sentence beside what failed, with a button to try again. */
export function showProblem(element, sentence, retry, label = "Try again") {
  if (element.dataset.sentence === sentence) return;
  element.dataset.sentence = sentence;
  element.hidden = !sentence;
  element.replaceChildren(sentence);
  if (sentence && retry) {
    element.append(" ", make("button", { type: "button", class: "link", onclick: () => retry() }, label));
  }
}

/** Put elements into a list in order, without moving those that stay where they are: focus stays, too. */
export function arrange(list, elements) {
  const wanted = new Set(elements);
  for (const child of [...list.children]) if (!wanted.has(child)) child.remove();
  elements.forEach((element, at) => {
    if (list.children[at] !== element) list.insertBefore(element, list.children[at] ?? null);
  });
}

/** Open a dialog. Resolves to the value of the button that closed it; "" where it was dismissed. */
export function opened(dialog) {
  return new Promise((resolve) => {
    dialog.returnValue = "";
    dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true });
    dialog.showModal();
  });
}

// ---- Numbers ------------------------------------------------------------------------------------------------------

export const count = (number) => Math.round(number).toLocaleString("en");
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
export const percent = (share) => (share > 0 && share < 0.01 ? "<1%" : `${Math.round(share * 100)}%`);

export function megabytes(bytes) {
  if (bytes < 1e6) return `${Math.max(1, Math.round(bytes / 1e3))} kB`;
  return bytes < 1e9 ? `${count(bytes / 1e6)} MB` : `${(bytes / 1e9).toFixed(1)} GB`;
}

export function duration(seconds) {
  if (seconds < 1) return `${seconds.toFixed(2)} s`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

/** Name things: "a", "a and b", "a, b and 3 others". */
export function named(names) {
  if (names.length < 3) return names.join(" and ");
  return `${names[0]}, ${names[1]} and ${names.length === 3 ? names[2] : `${names.length - 2} others`}`;
}

// ---- Signals ------------------------------------------------------------------------------------------------------

const signals = new EventTarget();

/** Call a function whenever something happens, with its details. */
export const on = (name, listener) => signals.addEventListener(name, ({ detail }) => listener(detail));
export const emit = (name, detail) => signals.dispatchEvent(new CustomEvent(name, { detail }));
