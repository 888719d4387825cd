// The page of `octavo serve`: it starts here. What a document or a model wrote enters it as text, never as HTML.

import { byId, on } from "./elements.js";
import { stop } from "./ask.js";
import { fit, leaveEdit, listenToComposer } from "./composer.js";
import { begin, conversation, openConversation, readHistory } from "./conversations.js";
import { forgetFiles, lookAgain, nothing, refresh } from "./documents.js";
import { listenToLibrary } from "./library.js";
import { closeLibrary, cover, isLibraryOpen, narrow, openLibrary } from "./narrow.js";
import { changeSettings, showModel } from "./settings.js";
import { closeText, isTextOpen, listenToText } from "./text.js";
import { listenForFiles } from "./uploads.js";

/** What this tab shows, for a reload. */
const STATE = "octavo.page";

function saveTab() {
  const { id, choice } = conversation();
  const state = { id, choice, draft: byId("question").value };
  sessionStorage.setItem(STATE, JSON.stringify(state));
}

async function restoreTab() {
  let state = {};
  try {
    state = JSON.parse(sessionStorage.getItem(STATE)) ?? {};
  } catch {
    // Another page wrote it: begin anew.
  }
  byId("question").value = state.draft ?? "";
  begin(state.choice ?? nothing());
  await readHistory();
  if (state.id) await openConversation(state.id);
}

listenToComposer();
listenToLibrary();
listenToText();
listenForFiles();
byId("open-settings").addEventListener("click", changeSettings);
byId("open-library").addEventListener("click", openLibrary);
byId("close-library").addEventListener("click", closeLibrary);
// Enter is for the one button of a dialog that submits: the others close it.
for (const button of document.querySelectorAll("dialog [data-close]")) {
  button.addEventListener("click", () => button.closest("dialog").close(button.dataset.close));
}
addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
  if (isLibraryOpen()) closeLibrary();
  else if (isTextOpen()) closeText();
  else if (!leaveEdit()) stop();
});
addEventListener("pagehide", saveTab);
addEventListener("focus", lookAgain);
narrow.addEventListener("change", cover);
on("chosen", () => narrow.matches && closeLibrary());
on("choice", saveTab);
on("model", forgetFiles);
cover();
await restoreTab();
fit();
await showModel();
await refresh();
