// The text of a document, and the page of a PDF, with the passage of a source marked.

import { byId, make, on, setCurrent, showProblem, write } from "./elements.js";
import { files, pathOf } from "./documents.js";
import { unitsOf } from "./marks.js";
import { call } from "./server.js";
import { cover } from "./narrow.js";

/** Texts by document, as promises. */
const texts = new Map();
let shownText = null;
export const isTextOpen = () => shownText !== null;
let opener = null;
/** The passage that was landed on, until the user scrolls away. */
let landed = null;

function textOf(id) {
  if (!texts.has(id)) {
    const text = call(pathOf(id, "/content"))
      .then((response) => response.arrayBuffer())
      // A byte order mark is a character of the text as much as any other: sources count it.
      .then((bytes) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes));
    text.catch(() => texts.delete(id));
    texts.set(id, text);
  }
  return texts.get(id);
}

/** Cut a text into parts of some 8,000 characters, at line ends if it can: the browser lays out those in sight. */
function partsOf(text) {
  const parts = [];
  for (let at = 0, end; at < text.length; at = end) {
    end = at + 8000;
    if (end < text.length) {
      const line = text.indexOf("\n", end);
      const blank = text.indexOf(" ", end);
      const after = line >= 0 && line < end + 8000 ? line : blank >= 0 && blank < end + 8000 ? blank : end;
      end = after + (text.codePointAt(after) > 0xffff ? 2 : 1);
    }
    parts.push([at, Math.min(end, text.length)]);
  }
  return parts;
}

/** Show the text of a document; with a source, at its passage. */
export async function openText(id, name, source = null, button = null) {
  const panel = byId("text");
  const body = byId("text-body");
  opener = button ?? byId("show-text");
  for (const other of document.querySelectorAll(".source")) setCurrent(other, other === button);
  const shown = { id, name, source, wasThere: files.has(id) };
  shownText = shown;
  showPage(shown);
  panel.hidden = false;
  document.body.classList.add("with-text");
  write(byId("text-title"), name);
  write(byId("text-place"), source ? placeOf(source) : "The text as octavo read it");
  cover();
  let text;
  try {
    text = await textOf(id);
  } catch (error) {
    if (shownText !== shown) return;
    const problem = make("p", { class: "problem", role: "alert" });
    showProblem(problem, error.message, () => openText(id, name, source, button));
    body.replaceChildren(problem);
    body.focus();
    return;
  }
  if (shownText !== shown) return;
  const from = source ? unitsOf(text, source.start) : 0;
  const passage = source ? text.slice(from, from + unitsOf(text.slice(from), source.stop - source.start)) : "";
  const to = from + passage.trimEnd().length;
  let mark = null;
  const made = [];
  for (const [start, stop] of partsOf(text)) {
    const part = make("div", { class: "part" });
    const [a, b] = [Math.min(Math.max(from, start), stop), Math.min(Math.max(to, start), stop)];
    if (b > a) {
      const piece = make("mark", mark ? {} : { tabindex: "-1" }, text.slice(a, b));
      mark ??= piece;
      part.append(text.slice(start, a), piece, text.slice(b, stop));
    } else {
      part.append(text.slice(start, stop));
    }
    made.push(part);
  }
  body.replaceChildren(...made);
  landed = mark;
  if (!mark) {
    body.scrollTop = 0;
    body.focus();
    return;
  }
  land(mark);
  mark.focus({ preventScroll: true });
}

/** What most PDFs call their first page. */
const FIRST_PAGE = "1";

/** Show the page of a PDF: of a source, with its passage marked, or the first. Other and removed files have none. */
async function showPage(shown) {
  const { id, name, source } = shown;
  const [figure, picture] = [byId("text-page"), byId("text-picture")];
  figure.hidden = true;
  if (picture.src) URL.revokeObjectURL(picture.src);
  picture.removeAttribute("src");
  if ((source && !source.page) || !name.toLowerCase().endsWith(".pdf")) return;
  const page = source?.page ?? FIRST_PAGE;
  const path = pathOf(id, `/pages/${encodeURIComponent(page)}`);
  try {
    const quote = source ? `${path.includes("?") ? "&" : "?"}quote=${encodeURIComponent(source.quote.slice(0, 2000))}` : "";
    const response = await call(`${path}${quote}`);
    const url = URL.createObjectURL(await response.blob());
    if (shownText !== shown) return URL.revokeObjectURL(url);
    const top = Number(response.headers.get("x-octavo-top") ?? 0);
    picture.onload = () => figure.scrollTo(0, top * picture.clientHeight - figure.clientHeight / 3);
    picture.src = url;
    picture.alt = source ? `Page ${page}, with the passage marked` : `Page ${page}`;
    figure.hidden = false;
    if (landed) land(landed);
  } catch {
    // The text is there.
  }
}

/** Scroll to a passage, and again as the parts around it get their true heights. */
function land(mark, times = 4) {
  mark.scrollIntoView({ block: "center", behavior: "instant" });
  if (times && landed === mark) requestAnimationFrame(() => land(mark, times - 1));
}

export function closeText() {
  if (!shownText) return;
  shownText = null;
  landed = null;
  byId("text").hidden = true;
  byId("text-body").replaceChildren();
  document.body.classList.remove("with-text");
  for (const source of document.querySelectorAll(".source")) setCurrent(source, false);
  cover();
  if (opener?.isConnected) opener.focus();
}


/** Return the place of a source, in words. */
export function placeOf({ heading, page, line }) {
  const where = page != null ? `page ${page}` : line != null ? `line ${line}` : "";
  return [heading?.replaceAll(" > ", " › "), where].filter(Boolean).join(", ");
}

/** Listen for the user's actions on the text. */
export function listenToText() {
  byId("close-text").addEventListener("click", closeText);
  for (const kind of ["wheel", "touchmove", "keydown", "pointerdown"]) {
    byId("text-body").addEventListener(kind, () => (landed = null), { passive: true });
  }
  new ResizeObserver(() => landed && land(landed)).observe(byId("text-body"));
  on("shown", closeText);
  on("files", () => {
    for (const id of texts.keys()) if (!files.has(id)) texts.delete(id);
    if (shownText?.wasThere && !files.has(shownText.id)) closeText();
  });
}
