// Questions and answers: the text as it comes, what it is given from, its figures and its sources.

import { announce, byId, count, duration, emit, icon, make, on, percent, plural, showProblem, write }
  from "./elements.js";
import { currentId, files, namesOf, nameOf, readSoFar } from "./documents.js";
import { drawer } from "./markdown.js";
import { withMarks } from "./marks.js";
import { makeBar } from "./progress.js";
import { openText, placeOf } from "./text.js";

/** What the two kinds of attention that are compared read. */
const READS = { dense: "reads everything", auto: "reads what matters" };

const HALTED = "Stopped. What was found is kept: asked again, the question goes to the rest.";

/** What shows each answer. */
export const views = new WeakMap();
let scrolledTo = 0;

/** Note where the conversation is scrolled to by the page itself. */
export const noteScroll = () => (scrolledTo = byId("conversations").scrollTop);
on("shown", noteScroll);

/** Scroll along with an answer that grows, but not past its question, and not where the user has scrolled away. */
function follow(answer) {
  const scroller = byId("conversations");
  const turn = answer.closest(".turn");
  if (!turn || turn.nextElementSibling || Math.abs(scroller.scrollTop - scrolledTo) > 2) return;
  scroller.scrollTop = Math.min(scroller.scrollHeight - scroller.clientHeight, turn.offsetTop);
  scrolledTo = scroller.scrollTop;
}

export function newAnswer(attention) {
  const told = { text: "", thought: "", sources: null, findings: null, basis: null, notices: [], cutBy: null };
  return { attention, ...told, done: false, stopped: false, error: null };
}

export function showTurn(conversation, turn) {
  const compared = turn.answers.length > 1;
  const made = turn.answers.map((answer) => makeAnswer(conversation, turn, answer, compared));
  turn.element = make("article", { class: "turn" },
    make("h3", { class: "question" }, turn.question),
    make("div", { class: compared ? "answers compared" : "answers" }, ...made));
  conversation.element.append(turn.element);
}

function makeAnswer(conversation, turn, answer, compared) {
  const openSource = ({ target }) => {
    const number = target.closest?.("[data-source]")?.dataset.source;
    if (number) sources.querySelectorAll(".source")[number - 1]?.click();
  };
  const text = make("div", { class: "text", onclick: openSource });
  const thinking = make("p");
  const thought = make("details", { class: "thought soft", ontoggle: () => follow(element) },
    make("summary", {}, "Thought"), thinking);
  const found = makeFindings(() => follow(element));
  const wait = make("p", { class: "soft wait" });
  const bar = makeBar();
  const problem = make("p", { class: "problem" });
  const notices = make("p", { class: "notices soft" });
  const basis = make("span", { class: "basis" });
  const took = make("span", { class: "took" });
  const figures = make("dl", { class: "figures" });
  const line = make("details", { class: "line soft", open: compared },
    make("summary", {}, basis, took, make("span", { class: "more" }, "Details")), figures);
  const sources = make("div", { class: "sources" });
  const title = compared
    ? make("h4", { class: "attention" }, answer.attention, make("span", {}, READS[answer.attention]))
    : null;
  const again = () => emit("again", { conversation, turn, answer });
  const act = (name, label, onclick) =>
    make("button", { type: "button", class: "icon-button", title: label, "aria-label": label, onclick }, icon(name));
  const actions = make("p", { class: "actions" },
    act("copy", "Copy the answer", () => copy(answer.text)),
    act("again", "Answer again", again),
    act("edit", "Edit the question", () => emit("edit", { conversation, turn })));
  const body = make("div", { class: "body" }, title, thought, text, wait, bar.element, found.element, problem, notices, line, actions);
  const element = make("div", { class: "answer" }, body, sources);
  const draw = drawer(text);
  let frame = 0;
  const showBasis = () => {
    write(basis, basisOf(answer));
    line.hidden = !answer.done || !(basis.textContent || took.textContent);
  };
  const show = () => {
    cancelAnimationFrame(frame);
    frame = 0;
    draw(withMarks(answer.text, answer.sources));
    thought.hidden = !answer.thought;
    write(thinking, answer.thought ?? "");
    text.setAttribute("aria-busy", String(!answer.done));
    write(wait, waitOf(answer));
    wait.hidden = !wait.textContent;
    wait.classList.add("now");
    bar.element.hidden = wait.hidden || !answer.reading;
    if (answer.reading) bar.show(answer.reading.label, answer.reading);
    found.show(answer);
    element.classList.toggle("streaming", !answer.done && answer.text !== "");
    if (answer.done && answer.stopped) showProblem(problem, answer.findings && !answer.text ? HALTED : "Stopped.", again);
    else if (answer.done && answer.finish === "length" && !answer.cutBy) {
      showProblem(problem, "Cut off: the answer has as many tokens as it may.");
    } else showProblem(problem, answer.error ?? "", again);
    problem.classList.toggle("soft", !answer.error);
    write(notices, answer.notices?.join(" ") ?? "");
    notices.hidden = !notices.textContent;
    write(took, answer.done && answer.timings ? duration(answer.seconds) : "");
    showFigures(figures, answer);
    showBasis();
    actions.hidden = !answer.done;
    showSources(sources, answer);
    follow(element);
  };
  views.set(answer, { show, showBasis, drawSoon: () => (frame ||= requestAnimationFrame(show)) });
  show();
  return element;
}

function waitOf({ done, text, thought, reading }) {
  if (done || text) return "";
  if (thought) return "Thinking";
  return reading?.label ?? "Waiting for the first word";
}

// ---- What an answer is given from ---------------------------------------------------------------------------------

/** Return the documents of an answer, its sources' first. */
function usedFirst(documents, sources) {
  const used = sources.map((source) => source.file_id);
  return [...documents].sort((one, other) => placeIn(used, one) - placeIn(used, other));
}
const placeIn = (used, { file_id: id }) => (used.includes(id) ? used.indexOf(id) : used.length);

/** Say what an answer is given from; while one of its documents is still being read, also how far that is. */
function basisOf({ basis, documents, sources, asked = [] }) {
  if (!basis || !documents?.length) return "";
  const names = namesOf(usedFirst(documents, sources ?? []));
  const among = asked.length > 1 ? `, the likeliest of ${plural(asked.length, "document")}` : "";
  if (basis.kind === "findings") return `From the answers of all of ${names}`;
  if (basis.kind === "document") return `From all of ${names}${among}`;
  const passages = basis.passages ? plural(basis.passages, "passage") : "";
  const part = passages ? `the part that was read and ${passages}` : "a part";
  const read = `From ${basis.kind === "part" ? part : passages}, ${percent(basis.share)} of ${names}`;
  const those = asked.map(({ id, reading }) => ({ reading, file: files.get(currentId(id)) }));
  const being = those.filter(({ file }) => file?.status === "processing");
  if (being.length) return `${read}; the rest is being read${being.length === 1 ? readSoFar(being[0].file) : ""}`;
  const wasRead = those.some(({ reading }) => reading) && those.every(({ file }) => file);
  return passages && wasRead ? `${read}; now all of it is read: ask again` : read;
}

/** Return how many of a prompt's tokens were not computed again. */
const cachedOf = ({ usage, timings }) => usage?.prompt_tokens_details?.cached_tokens ?? timings?.cache_n ?? 0;

/** Return the figures of an answer, as [name, value]. */
function figuresOf(answer) {
  const { done, first, seconds, usage, timings } = answer;
  if (!done || !timings) return [];
  const prompt = usage?.prompt_tokens ?? 0;
  const figures = [];
  if (timings.kv_share) figures.push(["Keys and values read", percent(timings.kv_share)]);
  if (timings.predicted_per_second) {
    figures.push(["Speed", `${Math.round(timings.predicted_per_second)} tokens/s`]);
    figures.push(["Writing took", duration(timings.predicted_ms / 1000)]);
  }
  if (first != null) figures.push(["First token after", duration(first)]);
  figures.push(["In all", duration(seconds)]);
  if (prompt) figures.push(["Not computed again", `${count(cachedOf(answer))} of ${count(prompt)} tokens`]);
  return figures;
}

function showFigures(element, answer) {
  const made = figuresOf(answer).map(([name, value]) => {
    const fill = name.startsWith("Keys") ? share(answer.timings.kv_share) : null;
    return make("div", {}, make("dt", {}, name), make("dd", {}, fill, value));
  });
  element.replaceChildren(...made);
}

/** Copy a text, and say so. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    announce("The answer was copied.");
  } catch {
    announce("This browser allows no copying here: select the text.");
  }
}

/** A bar beside a figure that says the same. */
function share(part) {
  const fill = make("span");
  fill.style.width = `${Math.min(Math.max(part, 0), 1) * 100}%`;
  return make("span", { class: "share", "aria-hidden": "true" }, fill);
}

/** Make a list of the parts and their answers: in sight until the answer itself comes. */
function makeFindings(ontoggle) {
  const title = make("summary", {});
  const list = make("ul", { "aria-label": "What each part found" });
  const element = make("details", { class: "findings soft", ontoggle }, title, list);
  let shown = null;
  const show = ({ findings, text, done }) => {
    element.hidden = !findings?.length;
    if (element.hidden || findings === shown) return;
    if (shown === null) element.open = !done && !text;
    shown = findings;
    write(title, `What ${plural(findings.length, "part")} found`);
    list.replaceChildren(...findings.map(makeFinding));
  };
  return { element, show };
}

function makeFinding({ document: name, answer, read, sources }) {
  const openIt = (source) => ({ currentTarget: button }) => openText(currentId(source.file_id), nameOf(source), source, button);
  const places = sources.slice(0, 1).map((source) =>
    make("button", { type: "button", class: "link", onclick: openIt(source) }, placeOf(source)));
  const unread = read ? null : make("span", {}, " (not read yet: from passages)");
  return make("li", {}, make("strong", {}, name), unread, `: ${answer} `, ...places);
}

/** How a source was found: by the attention to it, or by its words. */
const weightOf = ({ by, share: part }) =>
  by === "words" ? ["by its words"] : [share(part), `${percent(part)} of the attention`];

function showSources(element, answer) {
  const told = JSON.stringify(answer.sources);
  element.hidden = !answer.sources;
  if (element.dataset.told === told) return;
  element.dataset.told = told;
  if (!answer.sources) return element.replaceChildren();
  const before = [...element.querySelectorAll("li")];
  if (answer.sources.length === 0) {
    return element.replaceChildren(
      make("h4", {}, "No passage stands out"),
      make("p", { class: "soft" }, "Check this answer."),
    );
  }
  const items = answer.sources.map((source, at) => {
    const { marks, ...shown } = source;
    const own = JSON.stringify([shown, marks?.length > 0]);
    // While sources come one after another, those that are there stay: one of them may have the focus, or be open.
    if (before[at]?.dataset.told === own) return before[at];
    const number = source.marks?.length ? make("span", { class: "number" }, `[${at + 1}] `) : null;
    const open = () => openText(currentId(source.file_id), nameOf(source), source, button);
    const button = make("button", { type: "button", class: "source", onclick: open },
      make("span", { class: "quote" }, source.quote),
      make("span", { class: "file" }, number, nameOf(source)),
      make("span", { class: "place" }, placeOf(source)),
      make("span", { class: "weight" }, ...weightOf(source)));
    return make("li", { "data-told": own }, button);
  });
  return element.replaceChildren(make("h4", {}, "Sources"), make("ol", { "aria-label": "Sources" }, ...items));
}
