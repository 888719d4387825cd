// The library: documents, the last used first, how far they are read, and which of them are chosen.

import { arrange, byId, emit, icon, make, megabytes, on, opened, plural, setCurrent, showProblem, write }
  from "./elements.js";
import { byLastUse, chosenFiles, everything, files, isChosen, isNothing, library, nothing, only, onlyFolder, remove,
  toggled } from "./documents.js";
import { choose, conversation } from "./conversations.js";
import { makeProgress } from "./progress.js";
import { canSendAgain, sendAgain } from "./uploads.js";

/** Documents from which the list can be searched. */
const MANY = 10;

/** Rows by the id of their document. Each is made once and then only changed, so that focus stays. */
const rows = new Map();

function showLibrary() {
  const words = byId("filter").value.trim().toLowerCase();
  const all = [...files.values()].sort(byLastUse);
  const hasWords = (name) => name.toLowerCase().includes(words);
  const found = all.filter(({ filename, folders = [] }) => [filename, ...folders].some(hasWords));
  for (const id of rows.keys()) if (!files.has(id)) rows.delete(id);
  for (const { id } of found) if (!rows.has(id)) rows.set(id, makeRow(id));
  arrange(byId("documents"), found.map(({ id }) => rows.get(id).element));
  for (const file of found) rows.get(file.id).show(file);
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

function makeRow(id) {
  const name = make("span", { class: "name" });
  const size = make("span", { class: "soft numbers" });
  const box = make("input", { type: "checkbox", onchange: () => choose(toggled(conversation().choice, id)) });
  const open = make("button", { type: "button", class: "open", onclick: () => choose(only(id)) }, name, size);
  const folders = make("p", { class: "folders soft" });
  const cancel = make("button", { type: "button", class: "icon-button cancel" }, icon("close"));
  cancel.addEventListener("click", () => removeHeld(id));
  const gone = make("button", { type: "button", class: "icon-button" }, icon("close"));
  gone.addEventListener("click", () => confirmRemoval(id));
  const progress = makeProgress();
  const problem = make("p", { class: "problem" });
  const reading = make("div", { class: "reading" }, progress.element);
  const element = make("li", {}, box, open, gone, cancel, folders, reading, problem);
  const show = (file) => {
    write(name, file.filename);
    const sizes = [file.tokens && plural(file.tokens, "token"), file.index_bytes && megabytes(file.index_bytes)];
    write(size, file.status === "processed" ? sizes.filter(Boolean).join(" · ") : "");
    showFolders(folders, file.folders ?? []);
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

/** Name the folders of a document: each chooses all documents in it. */
function showFolders(element, folders) {
  const told = folders.join("\n");
  element.hidden = !told;
  if (element.dataset.told === told) return;
  element.dataset.told = told;
  const made = folders.map((path) => {
    const label = `Ask all documents in ${path}`;
    return make("button", { type: "button", title: label, "aria-label": label, onclick: () => choose(onlyFolder(path)) },
      path);
  });
  element.replaceChildren(...made);
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

/** Ask before a document goes, and name the loss. */
async function confirmRemoval(id) {
  const file = files.get(id);
  if (file.status === "error") return removeHeld(id);
  const index = `the index of ${plural(file.tokens ?? 0, "token")}, ${megabytes(file.index_bytes ?? 0)}`;
  write(byId("remove-title"), `Remove ${file.filename}?`);
  write(byId("remove-about"), `What octavo read is deleted: ${index}. Your own file stays where it is. To ask about it `
    + "again, octavo has to read it again.");
  return (await opened(byId("remove"))) === "remove" && removeHeld(id);
}

export function listenToLibrary() {
  byId("filter").addEventListener("input", showLibrary);
  byId("done").addEventListener("click", () => emit("chosen"));
  for (const [id, made] of [["all", everything], ["without", nothing]]) {
    byId(id).addEventListener("click", () => choose(made()));
  }
  on("files", showLibrary);
  on("choice", showLibrary);
}
