// Documents on their way to the server: chosen, dropped with their folders, or pasted as long texts.

import { announce, byId, emit, named, plural, showProblem } from "./elements.js";
import { files, library, only, onlyFolder, refresh, remove } from "./documents.js";
import { choose, conversation } from "./conversations.js";
import { fetched } from "./server.js";
import { modelQuery } from "./settings.js";

/** What the user chose on their own disk, by id, to send it again where reading failed. */
const chosen = new Map();
/** Documents that are sent at once: the server reads one after another. */
const AT_ONCE = 2;
/** Characters from which a pasted text becomes a document: more than one asks. */
const LONG_PASTE = 10_000;
/** Kinds of files of a folder that are not documents. A picture that is dropped alone may be recognised. */
const NO_DOCUMENT = /^(image|audio|video|font)\//;

export const isSending = () => [...files.values()].some((one) => one.local && one.status === "processing");
export const canSendAgain = (id) => chosen.has(id);

let nSent = 0;
const waiting = [];
let nSending = 0;

/**
 * Send files to be read, and have the conversation be about them: about nothing else, if it has no question yet.
 *
 * Each is a file, and the folder that it comes from or "".
 */
function sendAll(list, folders = []) {
  if (!list.length) return;
  const { choice, turns, running } = conversation();
  const batch = { id: conversation().id, extends: turns.length > 0 || running, sent: [], folders };
  if (folders.length && !choice.all) {
    choose(batch.extends ? { ...choice, folders: [...choice.folders, ...folders] } : onlyFolder(...folders));
  }
  for (const { file, folder } of list) {
    const id = `sending-${++nSent}`;
    const controller = new AbortController();
    const row = { id, local: controller, filename: file.name, created_at: Date.now() / 1000, status: "processing" };
    Object.assign(row, { waits: true, folders: folder ? [folder] : [] });
    files.set(id, row);
    chosen.set(id, { file, folder });
    waiting.push({ row, file, folder, batch });
  }
  announce(list.length === 1 ? `Sending ${list[0].file.name}.` : `Sending ${plural(list.length, "document")}.`);
  emit("files");
  for (let free = AT_ONCE - nSending; free > 0; free--) sendNext();
  emit("chosen");
}

async function sendNext() {
  const next = waiting.shift();
  if (!next) return;
  nSending++;
  await send(next);
  nSending--;
  sendNext();
}

async function send({ row, file, folder, batch }) {
  const { id, local } = row;
  if (local.signal.aborted) return;
  row.waits = false;
  try {
    const body = new FormData();
    body.append("purpose", "user_data");
    if (folder) body.append("folder", folder);
    body.append("file", file, file.name);
    const told = await fetched(`v1/files${modelQuery()}`, { method: "POST", body, signal: local.signal });
    library.changes++;
    files.delete(id);
    files.set(told.id, told);
    chosen.delete(id);
    chosen.set(told.id, { file, folder });
    if (!folder && told.status !== "error") chooseSent(batch, told.id);
    announce(told.status === "processed" ? `${told.filename} was read before.` : `Reading ${told.filename}.`);
  } catch (error) {
    if (error.name === "AbortError") files.delete(id);
    else Object.assign(row, { status: "error", status_details: error.message });
    if (error.name !== "AbortError") announce(`${file.name}: ${error.message}`);
  }
  emit("files");
  refresh();
}

/** Have the conversation be about a document that was sent for it. */
function chooseSent(batch, id) {
  batch.sent.push(id);
  const { choice, running, id: shown } = conversation();
  if (shown !== batch.id || running || choice.all) return;
  choose(batch.extends ? { ...choice, ids: [...new Set([...choice.ids, id])] } : only(...batch.sent));
}

/** Read a document again that could not be read. */
export async function sendAgain(id) {
  const { file, folder } = chosen.get(id);
  if (await remove(id)) sendAll([{ file, folder }]);
}

// ---- Where they come from -----------------------------------------------------------------------------------------

export const chooseFiles = () => byId("file").click();

/** Send the documents of folders, and list the other files: hidden ones, pictures and sounds. */
function sendFolders(list) {
  const isDocument = ({ file, path }) => !/(^|\/)[.~]/.test(path) && !NO_DOCUMENT.test(file.type);
  const taken = list.filter(isDocument);
  const left = list.filter((one) => !isDocument(one)).map(({ file }) => file.name);
  const folderOf = ({ path }) => path.slice(0, path.lastIndexOf("/"));
  const roots = [...new Set(taken.map(({ path }) => path.split("/")[0]))];
  const empty = list.length === 0 || taken.length === 0;
  const sentence = left.length ? `Left out as hidden, or as pictures or sounds: ${named(left)}.` : "";
  showProblem(byId("library-left-out"), empty ? `There is no document in this folder. ${sentence}`.trim() : sentence);
  sendAll(taken.map((one) => ({ file: one.file, folder: folderOf(one) })), roots);
}

/** Return the files of a dropped folder, with their paths. */
async function filesOf(entry) {
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    const entries = await new Promise((...done) => reader.readEntries(...done));
    if (!entries.length) return found;
    for (const one of entries.sort((a, b) => a.name.localeCompare(b.name))) {
      if (one.isDirectory) found.push(...(await filesOf(one)));
      else found.push({ path: one.fullPath.slice(1), file: await new Promise((...done) => one.file(...done)) });
    }
  }
}

/** Let files and folders be dropped anywhere. */
export function listenForFiles() {
  byId("add").addEventListener("click", chooseFiles);
  byId("add-folder").addEventListener("click", () => byId("folder").click());
  byId("file").addEventListener("change", ({ target }) => {
    sendAll([...target.files].map((file) => ({ file, folder: "" })));
    target.value = "";
  });
  byId("folder").addEventListener("change", ({ target }) => {
    sendFolders([...target.files].map((file) => ({ file, path: file.webkitRelativePath })));
    target.value = "";
  });
  const carriesFiles = ({ dataTransfer }) =>
    dataTransfer?.types.includes("Files") && !document.querySelector("dialog[open]");
  let depth = 0;
  const hover = (by) => {
    depth = Math.max(0, by ? depth + by : 0);
    document.body.classList.toggle("dropping", depth > 0);
  };
  addEventListener("dragenter", (event) => carriesFiles(event) && hover(1));
  addEventListener("dragleave", (event) => carriesFiles(event) && hover(-1));
  addEventListener("dragover", (event) => carriesFiles(event) && event.preventDefault());
  addEventListener("drop", async (event) => {
    hover(0);
    if (!carriesFiles(event)) return;
    event.preventDefault();
    const items = [...event.dataTransfer.items].filter((item) => item.kind === "file");
    const dropped = items.map((item) => ({ entry: item.webkitGetAsEntry?.(), file: item.getAsFile() }));
    const folders = dropped.filter(({ entry }) => entry?.isDirectory);
    sendAll(dropped.filter((one) => one.file && !folders.includes(one)).map(({ file }) => ({ file, folder: "" })));
    if (!folders.length) return;
    try {
      sendFolders((await Promise.all(folders.map(({ entry }) => filesOf(entry)))).flat());
    } catch (error) {
      showProblem(byId("library-left-out"), `The folder cannot be read: ${error.message}`);
    }
  });
  byId("question").addEventListener("paste", pasteLong);
}

/** Make a document of a long text that is pasted as a question: it may be longer than the context. */
function pasteLong(event) {
  const text = event.clipboardData.getData("text/plain");
  if (text.length < LONG_PASTE) return;
  event.preventDefault();
  const title = text.trim().split("\n")[0].replace(/[^\p{L}\p{N} _-]+/gu, " ").replace(/\s+/g, " ").trim().slice(0, 40);
  sendAll([{ file: new File([text], `${title || "Pasted text"}.txt`, { type: "text/plain" }), folder: "" }]);
  announce("The text is long, so it became a document.");
}
