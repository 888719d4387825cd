// The library: documents in their folders, how far they are read, and which of them are chosen.

import { announce, arrange, byId, emit, icon, make, megabytes, on, opened, plural, setCurrent, showProblem, write }
  from "./elements.js";
import { chosenFiles, everything, files, filesIn, foldersOf, isChosen, isNothing, library, nothing, only, onlyFolder,
  remove, toggled, toggledFolder } from "./documents.js";
import { choose, conversation } from "./conversations.js";
import { makeProgress } from "./progress.js";
import { canSendAgain, sendAgain } from "./uploads.js";

/** Documents from which the list can be searched, and documents of a folder that is closed at first. */
const [MANY, LONG] = [10, 12];

/** Rows by their entry, and folders that the user has opened or closed. */
const rows = new Map();
const folded = new Map();

function showLibrary() {
  const words = byId("filter").value.trim().toLowerCase();
  const all = [...files.values()].sort((a, b) => b.created_at - a.created_at || (a.id < b.id ? 1 : -1));
  const hasWords = (name) => name.toLowerCase().includes(words);
  const found = all.filter(({ filename, folders = [] }) => [filename, ...folders].some(hasWords));
  const shown = found.filter((file) => !file.folders?.length).map((file) => rowOf(`file ${file.id}`, makeRow, file, 0));
  const closed = [];
  for (const folder of foldersOf(found)) {
    const within = closed.some((path) => folder.path.startsWith(`${path}/`));
    if (within) continue;
    const isFolded = !words && (folded.get(folder.path) ?? folder.files.length > LONG);
    if (isFolded) closed.push(folder.path);
    shown.push(rowOf(`folder ${folder.path}`, makeFolder, folder, folder.depth, isFolded));
    if (isFolded) continue;
    const sorted = folder.files.sort((a, b) => a.filename.localeCompare(b.filename, "en", { numeric: true }));
    for (const file of sorted) shown.push(rowOf(`${folder.path} ${file.id}`, makeRow, file, folder.depth + 1));
  }
  arrange(byId("documents"), shown.map(({ element }) => element));
  const kept = new Set(shown);
  for (const [key, row] of rows) if (!kept.has(row)) rows.delete(key);
  const bytes = all.reduce((sum, file) => sum + (file.index_bytes ?? 0), 0);
  write(byId("library-size"), bytes ? `${all.length > 1 ? `${all.length} · ` : ""}${megabytes(bytes)}` : "");
  byId("library-empty").hidden = !library.listed || all.length > 0;
  byId("shelf").classList.toggle("filled", all.length > 0);
  byId("filter").hidden = all.length < MANY;
  byId("filter-empty").hidden = !words || found.length > 0;
  byId("choices").hidden = !library.listed || all.length === 0;
  const { choice } = conversation();
  byId("all").setAttribute("aria-pressed", String(choice.all));
  byId("without").setAttribute("aria-pressed", String(isNothing(choice)));
}

/** Return a row and have it show what it is about. It is made once and then only changed, so that focus stays. */
function rowOf(key, maker, about, depth, ...more) {
  if (!rows.has(key)) rows.set(key, maker(about));
  const row = rows.get(key);
  row.element.style.setProperty("--depth", depth);
  row.show(about, ...more);
  return row;
}

function makeRow({ id }) {
  const name = make("span", { class: "name" });
  const size = make("span", { class: "soft numbers" });
  const box = make("input", { type: "checkbox", onchange: () => choose(toggled(conversation().choice, id)) });
  const open = make("button", { type: "button", class: "open" }, name, size);
  open.addEventListener("click", () => {
    choose(only(id));
    emit("chosen");
  });
  const cancel = make("button", { type: "button", class: "icon-button cancel" }, icon("close"));
  cancel.addEventListener("click", () => removeHeld(id));
  const gone = make("button", { type: "button", class: "icon-button" }, icon("close"));
  gone.addEventListener("click", () => confirmRemoval(id));
  const progress = makeProgress();
  const problem = make("p", { class: "problem" });
  const reading = make("div", { class: "reading" }, progress.element);
  const element = make("li", {}, box, open, gone, cancel, reading, problem);
  const show = (file) => {
    write(name, file.filename);
    const sizes = [file.tokens && plural(file.tokens, "token"), file.index_bytes && megabytes(file.index_bytes)];
    write(size, file.status === "processed" ? sizes.filter(Boolean).join(" · ") : "");
    open.disabled = box.disabled = Boolean(file.local);
    open.title = file.filename;
    const { choice } = conversation();
    box.checked = isChosen(choice, file);
    box.setAttribute("aria-label", `Ask ${file.filename}, too`);
    setCurrent(open, box.checked && !choice.all && chosenFiles(choice).length === 1);
    element.classList.toggle("chosen", box.checked && !choice.all);
    cancel.setAttribute("aria-label", `Cancel reading ${file.filename}`);
    gone.setAttribute("aria-label", `Remove ${file.filename}`);
    reading.hidden = file.status !== "processing";
    gone.hidden = !reading.hidden;
    cancel.hidden = reading.hidden;
    if (!reading.hidden) progress.show(file);
    box.hidden = file.status === "error";
    const failed = file.status === "error" ? (file.status_details ?? "It could not be read.") : "";
    const again = file.status === "error" ? canSendAgain(id) && (() => sendAgain(id)) : () => removeHeld(id);
    const lacks = [file.status_details, ...(file.notices ?? [])].filter(Boolean).join(" ");
    const told = file.problem || file.status !== "processed" ? null : lacks;
    showProblem(problem, failed || file.problem || told || "", told ? null : again);
    problem.classList.toggle("soft", Boolean(told));
  };
  return { element, show };
}

function makeFolder({ path }) {
  const name = make("span", { class: "name" });
  const size = make("span", { class: "soft numbers" });
  const box = make("input", { type: "checkbox", onchange: () => choose(toggledFolder(conversation().choice, path)) });
  const fold = make("button", { type: "button", class: "icon-button fold" }, icon("fold"));
  fold.addEventListener("click", () => {
    folded.set(path, fold.getAttribute("aria-expanded") === "true");
    showLibrary();
  });
  const open = make("button", { type: "button", class: "open" }, name, size);
  open.addEventListener("click", () => {
    choose(onlyFolder(path));
    emit("chosen");
  });
  const gone = make("button", { type: "button", class: "icon-button" }, icon("close"));
  gone.addEventListener("click", () => confirmFolder(path));
  const element = make("li", { class: "folder" }, fold, box, open, gone);
  const show = (folder, isFolded) => {
    const inside = filesIn(path);
    const { choice } = conversation();
    const n = inside.filter((file) => isChosen(choice, file)).length;
    const reading = inside.filter((file) => file.status === "processing").length;
    write(name, folder.name);
    write(size, plural(inside.length, "document") + (reading ? ` · ${reading} being read` : ""));
    open.title = path;
    box.checked = n === inside.length;
    box.indeterminate = n > 0 && n < inside.length;
    box.setAttribute("aria-label", `Ask the documents in ${path}, too`);
    setCurrent(open, choice.folders.length === 1 && choice.folders[0] === path && !choice.ids.length);
    element.classList.toggle("chosen", n > 0 && !choice.all);
    fold.setAttribute("aria-expanded", String(!isFolded));
    fold.setAttribute("aria-label", `Documents in ${path}`);
    gone.setAttribute("aria-label", `Remove the documents in ${path}`);
  };
  return { element, show };
}

// ---- Removal ------------------------------------------------------------------------------------------------------

/** Remove a document, and keep the focus in the list where it was there. */
async function removeHeld(id) {
  const [at, focused] = [[...byId("documents").children], document.activeElement.closest("#documents li")];
  const isGone = await remove(id);
  if (!isGone || !focused || focused.isConnected) return isGone;
  const next = [...at.slice(at.indexOf(focused)), ...at.slice(0, at.indexOf(focused)).reverse()];
  const neighbour = next.find((row) => row.isConnected);
  (neighbour?.querySelector(".open:enabled") ?? byId("add")).focus();
  return isGone;
}

/** Ask before what octavo has read goes. Resolves to whether it shall. */
async function isConfirmed(name, what, bytes, plain) {
  write(byId("remove-title"), `Remove ${name}?`);
  write(byId("remove-about"), `What octavo read is deleted: ${what}, ${megabytes(bytes)}. ${plain}`);
  return (await opened(byId("remove"))) === "remove";
}

/** Ask before a document goes, and name the loss. */
async function confirmRemoval(id) {
  const file = files.get(id);
  if (file.status === "error") return removeHeld(id);
  const index = `the index of ${plural(file.tokens ?? 0, "token")}`;
  const plain = "Your own file stays where it is. To ask about it again, octavo has to read it again.";
  return (await isConfirmed(file.filename, index, file.index_bytes ?? 0, plain)) && removeHeld(id);
}

/** Ask before the documents of a folder go. */
async function confirmFolder(path) {
  const inside = filesIn(path);
  const bytes = inside.reduce((sum, file) => sum + (file.index_bytes ?? 0), 0);
  const indexes = `the indexes of ${plural(inside.length, "document")}`;
  const plain = "Your own files stay where they are. To ask about them again, octavo has to read them again.";
  if (!(await isConfirmed(path, indexes, bytes, plain))) return;
  for (const { id } of inside) await remove(id);
  announce(`${path} was removed.`);
  byId("add").focus();
}

export function listenToLibrary() {
  byId("filter").addEventListener("input", showLibrary);
  for (const [id, made] of [["all", everything], ["without", nothing]]) {
    byId(id).addEventListener("click", () => {
      choose(made());
      emit("chosen");
    });
  }
  on("files", showLibrary);
  on("choice", showLibrary);
}
