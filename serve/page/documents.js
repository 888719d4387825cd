// The documents of the library as the server lists them, their folders, and which of them a conversation is about.

import { announce, byId, count, emit, named, percent, plural, showProblem } from "./elements.js";
import { call, fetched } from "./server.js";
import { modelQuery } from "./settings.js";

/** Documents by id, as the server last told them. Those that are on their way to it have ids of our own. */
export const files = new Map();
/** What this page knows of the library: whether the list came, and how often documents came and went by its doing. */
export const library = { listed: false, changes: 0 };

let polling = null;

export const pathOf = (id, rest = "") => `v1/files/${encodeURIComponent(id)}${rest}${modelQuery()}`;

/** Ask for the list of documents, and again while one is being read. */
export async function refresh() {
  clearTimeout(polling);
  const [asked, query] = [library.changes, modelQuery()];
  try {
    const { data } = await fetched(`v1/files${query}`);
    showProblem(byId("library-error"), "");
    // A list that was asked for before something changed here is out of date.
    if (asked !== library.changes || query !== modelQuery()) return;
    takeFiles(data);
  } catch (error) {
    if (byId("library-error").hidden) announce(error.message);
    showProblem(byId("library-error"), error.message, refresh);
  }
  const reading = [...files.values()].some((file) => file.status === "processing");
  polling = reading ? setTimeout(refresh, 500) : null;
}

/** Ask for the list unless that will be done anyway. */
export const lookAgain = () => polling ?? refresh();

function takeFiles(data) {
  const told = new Set(data.map((file) => file.id));
  for (const [id, file] of files) {
    if (file.local || told.has(id)) continue;
    files.delete(id);
    if (file.status === "processing") follow(id);
  }
  for (const file of data) {
    const before = files.get(file.id);
    files.set(file.id, file);
    if (before?.status !== "processing" || file.status === "processing") continue;
    if (file.status === "error") emit("failed", file.id);
    if (file.status === "processed") announce(`${file.filename} is read: ${plural(file.tokens ?? 0, "token")}.`);
    else announce(`${file.filename} could not be read: ${file.status_details ?? ""}`);
  }
  library.listed = true;
  emit("files");
}

/** Ids of uploads that turned out to be copies of indexed documents, with the ids of these. */
const copies = new Map();
export const currentId = (id) => copies.get(id) ?? id;

/** Find what became of an upload that is in no list any more: the server may have known its text. */
async function follow(id) {
  try {
    const file = await fetched(pathOf(id));
    if (file.id === id) return;
    copies.set(id, file.id);
    emit("copied", { id, original: file.id });
    announce(`${file.filename} was read before.`);
    emit("files");
  } catch {
    // It was removed.
  }
}

/** Forget the library: another model has another one. */
export function forgetFiles() {
  for (const [id, file] of files) if (!file.local) files.delete(id);
  library.listed = false;
  library.changes++;
  emit("files");
  return refresh();
}

/** Take a document out of the library, or stop reading it. Resolves to whether it is gone. */
export async function remove(id) {
  const file = files.get(id);
  if (!file) return true;
  try {
    if (file.local) file.local.abort();
    else await call(pathOf(id), { method: "DELETE" });
  } catch (error) {
    file.problem = error.message;
    emit("files");
    announce(error.message);
    return false;
  }
  library.changes++;
  const cancelled = file.status === "processing";
  announce(cancelled ? `Reading ${file.filename} was cancelled.` : `${file.filename} was removed.`);
  files.delete(id);
  emit("files");
  refresh();
  return true;
}

const isIn = (folder, path) => folder === path || folder.startsWith(path.endsWith("/") ? path : `${path}/`);
// ---- What a conversation is about ---------------------------------------------------------------------------------

/** A choice of documents: all that there are, or those in folders and those with ids. Folders and all may grow. */
export const nothing = () => ({ all: false, ids: [], folders: [] });
export const everything = () => ({ all: true, ids: [], folders: [] });
export const only = (...ids) => ({ all: false, ids, folders: [] });
export const onlyFolder = (...folders) => ({ all: false, ids: [], folders });

const isThere = (file) => !file.local && (file.status === "processed" || file.status === "processing");

export function isChosen(choice, file) {
  if (file.status === "error") return false;
  const inFolder = () => choice.folders.some((path) => file.folders?.some((folder) => isIn(folder, path)));
  return choice.all || choice.ids.some((id) => currentId(id) === file.id) || inFolder();
}

export const isNothing = (choice) => !choice.all && !choice.ids.length && !choice.folders.length;

/** Return the documents of a choice that can be asked. */
export const chosenFiles = (choice) => [...files.values()].filter((file) => isThere(file) && isChosen(choice, file));

/** Return a choice with a document more or less. What is taken out of a folder leaves the others of it chosen. */
export function toggled(choice, id) {
  const file = files.get(id);
  if (!isChosen(choice, file)) return { ...choice, ids: [...choice.ids, id] };
  const ids = [...files.values()].filter((one) => one.id !== id && isChosen(choice, one)).map((one) => one.id);
  return only(...ids);
}

/** The files that were asked or read last come first. */
export const byLastUse = (a, b) => usedAt(b) - usedAt(a) || (a.id < b.id ? 1 : -1);
const usedAt = ({ last_used_at: used, created_at: created }) => Math.max(used ?? 0, created);

/** Note that an answer was given from documents. */
export function noteUse(documents) {
  const now = Date.now() / 1000;
  for (const { file_id: id } of documents) if (files.has(id)) files.get(id).last_used_at = now;
  emit("files");
}

/** Return a choice without a folder. */
export const withoutFolder = (choice, path) => ({ ...choice, folders: choice.folders.filter((one) => one !== path) });

/** Name a choice, as a title. */
export function titleOf(choice) {
  if (isNothing(choice)) return "No document";
  if (choice.all) return "All documents";
  const chosen = [...files.values()].filter((file) => isChosen(choice, file));
  if (choice.folders.length === 1 && !choice.ids.length) return choice.folders[0].split("/").at(-1) || "/";
  if (chosen.length === 1) return chosen[0].filename;
  return chosen.length ? plural(chosen.length, "document") : library.listed ? "Documents that are gone" : "…";
}

/** How far a document is read, as the end of a sentence. */
export function readSoFar({ progress }) {
  if (!progress?.total || progress.unit !== "tokens") return "";
  const [part] = progress.task.match(/part .*/) ?? [];
  return `: ${percent(progress.done / progress.total)}${part ? ` of ${part}` : ""}`;
}

/** Describe the documents of a choice: how many tokens, and how far they are read. */
export function aboutChoice(choice) {
  const chosen = chosenFiles(choice);
  const reading = chosen.filter((file) => file.status === "processing");
  if (chosen.length === 1 && reading.length) return `Being read${readSoFar(reading[0])}`;
  const tokens = chosen.reduce((sum, file) => sum + (file.tokens ?? 0), 0);
  const sizes = [chosen.length > 1 ? plural(chosen.length, "document") : "", tokens ? plural(tokens, "token") : ""];
  const behind = reading.length ? [`${count(reading.length)} being read`] : [];
  return [...sizes, ...behind].filter(Boolean).join(" · ");
}

/** Return a name for each document, once. */
export const namesOf = (documents) =>
  named([...new Map(documents.map((one) => [one.file_id ?? one.id, nameOf(one)])).values()]);

/** Return the name of a document's file; of a part of it, too. */
export function nameOf(document) {
  const known = files.get(currentId(document.file_id ?? document.id));
  return known?.filename ?? document.filename.replace(/, part \d+ of \d+$/, "");
}
