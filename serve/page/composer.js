// The question's field, the line above the conversation, and the beginning of a conversation.

import { announce, byId, icon, make, on, plural, write } from "./elements.js";
import { views } from "./answers.js";
import { ask, stop } from "./ask.js";
import { begin, choose, conversation } from "./conversations.js";
import { aboutChoice, byLastUse, chosenFiles, currentId, files, isNothing, library, nothing, remove, titleOf, toggled, withoutFolder }
  from "./documents.js";
import { asMarkdown, download } from "./export.js";
import { makeProgress } from "./progress.js";
import { compares } from "./settings.js";
import { openText } from "./text.js";
import { canSendAgain, chooseFiles, isSending } from "./uploads.js";

const HINT = "Enter asks, Shift+Enter breaks the line";
const EDITING = "Enter asks this in its place, Escape leaves it";
const COMPARING = "Compares dense with auto: see Settings";

/** Return why nothing can be asked now; "" where one can. */
function obstacle() {
  const { choice } = conversation();
  if (!library.listed && !isNothing(choice)) return "The library is on its way";
  if (chosenFiles(choice).length) return "";
  // Whoever chose a document asks about it: the question waits until it is here.
  if (isSending()) return "You can ask once it is sent";
  if (choice.all) return "There is no document that can be asked";
  return isNothing(choice) ? "" : "Choose other documents: these are not in the library";
}

/** Show what the conversation is about, and what can be done in it. */
function showComposer() {
  const { choice, turns, running } = conversation();
  const chosen = chosenFiles(choice);
  const title = titleOf(choice);
  write(byId("title"), title);
  byId("title").title = title;
  document.title = isNothing(choice) ? "octavo" : `${title} · octavo`;
  write(byId("about"), aboutChoice(choice));
  const about = chosen.length ? (choice.all ? "all documents" : title) : "";
  write(byId("question-label"), about ? `Your question about ${about}` : "Your question");
  byId("question").placeholder = about ? `Ask about ${about}` : "Ask without a document";
  byId("new").hidden = byId("export").hidden = turns.length === 0;
  byId("show-text").hidden = chosen.length !== 1;
  showChips(choice, chosen);
  showLead(choice, chosen);
  const problem = obstacle();
  const focused = document.activeElement === byId(running ? "send" : "stop");
  byId("send").hidden = Boolean(running);
  byId("stop").hidden = !running;
  byId("send").disabled = problem !== "";
  if (focused) byId(running ? "stop" : problem ? "question" : "send").focus();
  if (edited?.of !== conversation()) edited = null;
  write(byId("hint"), problem || (edited ? EDITING : compares() ? COMPARING : HINT));
  byId("hint").classList.toggle("always", problem !== "");
  for (const { answers } of turns) for (const answer of answers) views.get(answer).showBasis();
}

/** Chips above the question: each takes what it names out of the choice. More than these are counted. */
const MOST_CHIPS = 6;

function showChips(choice, chosen) {
  const single = choice.ids.map((id) => chosen.find((file) => file.id === currentId(id))).filter(Boolean);
  const chips = choice.all ? [["All documents", nothing()]] : [
    ...choice.folders.map((path) => [`${path}/`, withoutFolder(choice, path)]),
    ...single.map((file) => [file.filename, toggled(choice, file.id)]),
  ];
  const shown = chips.slice(0, MOST_CHIPS);
  const told = JSON.stringify([shown, chips.length]);
  const element = byId("chips");
  element.hidden = chips.length === 0;
  if (element.dataset.told === told) return;
  element.dataset.told = told;
  const made = shown.map(([name, without]) => make("li", {}, make("span", { title: name }, name),
    make("button", { type: "button", class: "icon-button", "aria-label": `Do not ask ${name}`,
      onclick: () => choose(without) }, icon("close"))));
  const more = chips.length - shown.length;
  element.replaceChildren(...made, ...(more ? [make("li", { class: "soft" }, `and ${more} more`)] : []));
}

const progress = makeProgress();

/** Say how the documents are being read, or what to do next. */
function showLead(choice, chosen) {
  const { lead, turns } = conversation();
  lead.hidden = turns.length > 0;
  const reading = chosen.filter((file) => file.status === "processing");
  const sent = isNothing(choice) ? [...files.values()].sort(byLastUse).filter(({ id }) => canSendAgain(id)) : [];
  const failed = sent.find((file) => file.status === "error");
  const [state, content] = leadOf(choice, chosen, reading, failed);
  if (reading.length) progress.show(reading.at(-1));
  const told = JSON.stringify([state, ...content.filter((one) => typeof one === "string")]);
  if (lead.dataset.told === told) return;
  lead.dataset.told = told;
  const [title, ...rest] = content;
  if (!title) return lead.replaceChildren();
  const shown = rest.map((one) => (typeof one === "string" ? make("p", {}, one) : one));
  lead.replaceChildren(make("h3", {}, title), ...shown);
}

const ALREADY = "You can ask already: until all is read, answers are from passages that share words with the question.";

/** Return the state of a conversation without a question, and what it shows: a title, sentences and elements. */
function leadOf(choice, chosen, reading, failed) {
  const button = (label, onclick) => make("button", { type: "button", class: "quiet", onclick }, label);
  if (failed) return ["failed", [`${failed.filename} could not be read`, failed.status_details ?? ""]];
  if (reading.length && chosen.length === 1) {
    const [{ id, filename }] = reading;
    const cancel = button("Cancel", () => remove(id));
    return [`reading ${id}`, [`Reading ${filename}`, `This happens once. ${ALREADY}`, progress.element, cancel]];
  }
  if (reading.length) {
    const title = `Reading ${plural(reading.length, "document")}`;
    return ["reading", [title, `One after another, once. ${ALREADY}`, progress.element]];
  }
  if (chosen.length === 1) {
    const words = "It is read. Ask a question: the answer comes with the passages that the model looked at.";
    return ["read", [chosen[0].filename, words]];
  }
  if (chosen.length) {
    const number = plural(chosen.length, "document");
    const words = `Ask a question: octavo finds which of the ${number} it is about, and each source names its own.`;
    return ["several", [titleOf(choice), words]];
  }
  if (!library.listed || (isSending() && !isNothing(choice))) return ["unknown", []];
  if (!files.size) {
    const words = "Drop documents or a folder on this page, and ask. octavo reads them once and keeps what it read. "
      + "Each answer comes with the passages that it is from.";
    return ["none", ["Read once, ask at once", words, button("Choose documents", chooseFiles)]];
  }
  if (!isNothing(choice)) {
    const words = "They were removed, or another model has read them: choose other documents, or add these again.";
    return ["gone", ["These documents are not in the library", words]];
  }
  const words = "Without a document the model answers from memory, and there are no sources.";
  return ["some", ["Choose documents, or ask without one", words]];
}

/** Let the question's field grow with its text. */
export function fit() {
  const field = byId("question");
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight}px`;
}

function submit() {
  const field = byId("question");
  const question = field.value.trim();
  if (byId("send").disabled || byId("send").hidden) return announce(byId("hint").textContent);
  if (!question) return field.focus();
  field.value = "";
  const { turn } = edited ?? {};
  edited = null;
  fit();
  return ask(question, turn);
}

/** The question that is edited, with its conversation: it takes the place of itself, and of all after it. */
let edited = null;

/** Put a question into the field again. */
function edit({ conversation: of, turn }) {
  if (of.running) return announce("You can edit once the answer is there.");
  edited = { of, turn };
  byId("question").value = turn.question;
  fit();
  showComposer();
  byId("question").focus();
}

/** Leave a question as it is. Return whether one was edited. */
export function leaveEdit() {
  if (!edited) return false;
  edited = null;
  byId("question").value = "";
  fit();
  showComposer();
  return true;
}

export function listenToComposer() {
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  byId("question").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      submit();
    }
  });
  byId("question").addEventListener("input", fit);
  byId("stop").addEventListener("click", stop);
  byId("new").addEventListener("click", () => {
    begin(conversation().choice);
    byId("question").focus();
    announce("A new conversation.");
  });
  byId("show-text").addEventListener("click", () => {
    const [file] = chosenFiles(conversation().choice);
    openText(file.id, file.filename);
  });
  byId("export").addEventListener("click", () => {
    const { title, turns } = conversation();
    download(title, "md", "text/markdown", asMarkdown(title, turns));
  });
  on("edit", edit);
  for (const name of ["files", "choice", "answers", "settings"]) on(name, showComposer);
}
