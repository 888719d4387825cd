// The conversation in sight, and the list of those that the browser keeps.

import { announce, arrange, byId, emit, icon, make, on, opened, plural, setCurrent, showProblem, write }
  from "./elements.js";
import { nothing } from "./documents.js";
import { showTurn } from "./answers.js";
import { asJson, asMarkdown, download } from "./export.js";
import * as history from "./history.js";

/** Conversations that were opened, by id. */
const known = new Map();
/** What the list shows: id, title, and when a conversation was begun and changed. */
let summaries = new Map();
let current = null;
/** Whether the browser keeps conversations. */
let keeps = true;
/** Whether the page goes away: what the browser then cuts off was no fault of the server. */
let leaving = false;

export const conversation = () => current;

function makeConversation(told, turns = []) {
  const lead = make("div", { class: "lead" });
  const element = make("section", { class: "conversation", "aria-label": "Conversation", hidden: true }, lead);
  const made = { choice: nothing(), ...told, turns, element, lead, running: null };
  known.set(made.id, made);
  byId("conversations").append(element);
  for (const turn of turns) {
    for (const answer of turn.answers) if (!answer.done) Object.assign(answer, { done: true, stopped: true });
    showTurn(made, turn);
  }
  return made;
}

/** Begin a conversation about a choice of documents. It is kept from its first question on. */
export function begin(choice) {
  const before = current && !current.turns.length ? current : null;
  if (before) {
    before.choice = choice;
    show(before);
    return before;
  }
  const now = Date.now();
  return show(makeConversation({ id: crypto.randomUUID?.() ?? `${now}-${Math.random()}`, created: now, choice }));
}

function show(shown) {
  current = shown;
  for (const other of known.values()) other.element.hidden = other !== shown;
  emit("choice");
  showHistory();
  const scroller = byId("conversations");
  scroller.scrollTop = scroller.scrollHeight;
  emit("shown");
  return shown;
}

/** Open a conversation that is kept. Resolves to whether it is there. */
export async function openConversation(id) {
  const told = summaries.get(id);
  if (!known.has(id) && told) {
    const turns = await history.turnsOf(id);
    if (!known.has(id)) makeConversation(told, turns);
  }
  if (!known.has(id)) return false;
  show(known.get(id));
  return true;
}

/** Set what the conversation is about. */
export function choose(choice) {
  current.choice = choice;
  if (current.turns.length) save(current);
  emit("choice");
}

/** Keep a conversation as it is now. */
export async function save(saved) {
  if (leaving || !saved.turns.length || known.get(saved.id) !== saved) return;
  saved.title ??= titleFrom(saved.turns[0].question);
  const { id, title, created, choice } = saved;
  const told = { id, title, created, updated: Date.now(), choice };
  const isNew = !summaries.has(id);
  summaries.set(id, told);
  if (isNew) showHistory();
  try {
    await history.keep(told, saved.turns.map(plain));
    keeps = true;
    if (!saved.running) history.tellTabs(id);
  } catch {
    keeps = false;
  }
  showHistory();
}

/** Return a turn without the parts that show only while an answer comes. */
const plain = ({ question, answers }) => ({ question, answers: answers.map(({ waiting, reading, ...kept }) => kept) });

const titleFrom = (question) => question.replace(/\s+/g, " ").trim().slice(0, 200);

/** Read the list, at the beginning and when another tab has changed it. */
export async function readHistory() {
  try {
    summaries = new Map((await history.listed()).map((told) => [told.id, told]));
  } catch {
    keeps = false;
  }
  showHistory();
}

/** Take over the changes of another tab; answers of this one stay. */
async function takeOver(id) {
  await readHistory();
  const mine = known.get(id);
  if (!mine || mine.running) return;
  if (!summaries.has(id)) return drop(mine);
  const turns = await history.turnsOf(id);
  if (mine.running) return;
  mine.element.remove();
  known.delete(id);
  const again = makeConversation(summaries.get(id), turns);
  if (current === mine) show(again);
}

/** Stop and drop a conversation. */
function drop(dropped) {
  dropped.running?.abort();
  dropped.element.remove();
  known.delete(dropped.id);
  if (current !== dropped) return;
  current = null;
  begin(dropped.choice);
}

async function remove(id) {
  const { title } = summaries.get(id);
  summaries.delete(id);
  if (known.has(id)) drop(known.get(id));
  showHistory();
  announce(`${title} was deleted.`);
  byId("question").focus();
  await history.erase(id).catch(() => (keeps = false));
  history.tellTabs(id);
}

// ---- The list -----------------------------------------------------------------------------------------------------

const rows = new Map();

function makeRow(id) {
  const name = make("span", { class: "name" });
  const when = make("span", { class: "soft numbers" });
  const open = make("button", { type: "button", class: "open", onclick: () => chooseRow(id) }, name, when);
  const more = make("button", { type: "button", class: "icon-button", onclick: () => change(id) }, icon("more"));
  const show = ({ title, updated }) => {
    write(name, title);
    write(when, known.get(id)?.running ? "Answering" : dateOf(updated));
    open.title = title;
    more.setAttribute("aria-label", `Rename, export or delete ${title}`);
    setCurrent(open, id === current?.id);
  };
  return { element: make("li", {}, open, more), show };
}

async function chooseRow(id) {
  await openConversation(id);
  emit("chosen");
}

function dateOf(time) {
  const date = new Date(time);
  const isToday = date.toDateString() === new Date().toDateString();
  if (isToday) return date.toLocaleTimeString("en", { hour: "2-digit", minute: "2-digit", hour12: false });
  return date.toLocaleDateString("en", { day: "numeric", month: "short", year: "numeric" });
}

function showHistory() {
  const sorted = [...summaries.values()].sort((a, b) => b.updated - a.updated);
  for (const id of rows.keys()) if (!summaries.has(id)) rows.delete(id);
  for (const { id } of sorted) if (!rows.has(id)) rows.set(id, makeRow(id));
  arrange(byId("history"), sorted.map(({ id }) => rows.get(id).element));
  for (const told of sorted) rows.get(told.id).show(told);
  byId("history-empty").hidden = sorted.length > 0;
  write(byId("history-size"), sorted.length > 1 ? String(sorted.length) : "");
  showProblem(byId("history-error"), keeps ? "" : "This browser keeps no more conversations: export this one, or "
    + "delete others.");
}

/** Rename, export or delete a conversation. */
async function change(id) {
  const told = summaries.get(id);
  const turns = known.get(id)?.turns ?? (await history.turnsOf(id));
  const name = byId("talk-name");
  name.value = told.title;
  write(byId("talk-about"), `${plural(turns.length, "question")}, begun ${dateOf(told.created)}`);
  const how = await opened(byId("talk"));
  if (how === "delete") return remove(id);
  if (how === "markdown") return download(told.title, "md", "text/markdown", asMarkdown(told.title, turns));
  if (how === "json") return download(told.title, "json", "application/json", asJson(told, turns));
  const title = titleFrom(name.value);
  if (how !== "save" || !title || title === told.title) return null;
  summaries.set(id, { ...told, title });
  if (known.has(id)) known.get(id).title = title;
  showHistory();
  await history.keep(summaries.get(id), turns.map(plain));
  return history.tellTabs(id);
}

/** Name a document by the id that lasts, once an upload has turned out to be a copy of it. */
on("copied", ({ id, original }) => {
  for (const each of known.values()) {
    if (!each.choice.ids.includes(id)) continue;
    each.choice = { ...each.choice, ids: each.choice.ids.map((one) => (one === id ? original : one)) };
    save(each);
  }
  emit("choice");
});
/** Take a document out of the choices that could not be read. */
on("failed", (id) => {
  for (const each of known.values()) {
    if (each.choice.ids.includes(id)) each.choice = { ...each.choice, ids: each.choice.ids.filter((one) => one !== id) };
  }
  emit("choice");
});
history.onTabs(takeOver);
on("answers", () => showHistory());
addEventListener("pagehide", () => {
  for (const each of known.values()) if (each.running) save(each);
  leaving = true;
});
addEventListener("pageshow", () => (leaving = false));
