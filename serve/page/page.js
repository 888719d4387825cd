// The page of `octavo serve`. What a document or a model wrote enters it as text, never as HTML.

// ---- Elements -----------------------------------------------------------------------------------------------------

const byId = (id) => document.getElementById(id);

/** Make an element. Attributes that start with "on" are listeners; false and null attributes are left out. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `#icon-${name}`);
  svg.append(use);
  return svg;
}

/** Set a text only where it changes: screen readers and selections notice each write. */
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Mark what is selected, for the eye and for screen readers. */
function setCurrent(element, current) {
  if (current) element.setAttribute("aria-current", "true");
  else element.removeAttribute("aria-current");
}

/** Tell screen readers, once they have finished what they say. */
function announce(text) {
  byId("status").textContent = text;
}

const count = (number) => Math.round(number).toLocaleString("en");
const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
const percent = (share) => (share > 0 && share < 0.01 ? "<1%" : `${Math.round(share * 100)}%`);

function megabytes(bytes) {
  if (bytes < 1e6) return `${Math.max(1, Math.round(bytes / 1e3))} kB`;
  return bytes < 1e9 ? `${count(bytes / 1e6)} MB` : `${(bytes / 1e9).toFixed(1)} GB`;
}

function duration(seconds) {
  if (seconds < 1) return `${seconds.toFixed(2)} s`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

// ---- The server ---------------------------------------------------------------------------------------------------

const LOST = "The server does not answer. Is octavo serve still running?";
const CUT = "The connection to the server was lost before the answer ended.";
const KEY = "octavo.key";

/** Return the sentence that a refusal comes with. */
async function sentenceOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `The server answered ${response.status} ${response.statusText}`.trim() + ".";
  }
}

/** Request a path; ask for the key where the server wants one. Throws an Error that has the server's own sentence. */
async function call(path, options = {}) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const headers = key ? { ...options.headers, Authorization: `Bearer ${key}` } : options.headers;
    let response;
    try {
      response = await fetch(path, { ...options, headers });
    } catch (error) {
      throw error.name === "AbortError" ? error : new Error(LOST);
    }
    if (response.ok) return response;
    const sentence = await sentenceOf(response);
    if (response.status === 401 && (sessionStorage.getItem(KEY) !== key || (await askForKey(Boolean(key))))) continue;
    throw new Error(sentence);
  }
}

let keyAsked = null;

/** Ask for the server's key, once for all requests that wait for it. Resolves to whether there is one. */
function askForKey(refused) {
  keyAsked ??= new Promise((resolve) => {
    const dialog = byId("ask-key");
    write(byId("key-error"), refused ? "The server does not know this key." : "");
    byId("key").value = "";
    dialog.returnValue = "";
    dialog.addEventListener("close", () => {
      const key = byId("key").value.trim();
      const given = dialog.returnValue === "use" && key !== "";
      if (given) sessionStorage.setItem(KEY, key);
      keyAsked = null;
      resolve(given);
    }, { once: true });
    dialog.showModal();
  });
  return keyAsked;
}

/** Yield the objects of a stream of server-sent events, up to [DONE]. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      buffer += value;
      const lines = buffer.split(/\r?\n/);
      buffer = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data:")) continue;
        const data = line.slice(5).trim();
        if (data === "[DONE]") return;
        yield JSON.parse(data);
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // after an error the server need not go on
  }
}

// ---- What the page knows ------------------------------------------------------------------------------------------

/** Documents by id, as the server last told them. Those that are on their way to it have ids of our own. */
const files = new Map();
/** What the user chose on their own disk, by id, to send it again where reading failed. */
const chosen = new Map();
/** Conversations by the id of their document; "" is the one without a document. */
const conversations = new Map();
let selected = "";
let model = null;
let listed = false;

const STATE = "octavo.page";
/** Whether the page goes away: what the browser then cuts off was no fault of the server. */
let leaving = false;

/** Keep the conversations for a reload. Where they are too many for the browser, the oldest turns go first. */
function save() {
  if (leaving) return;
  const kept = [...conversations].map(([id, { turns }]) => [id, turns.slice()]);
  const state = { selected, compare: byId("compare").checked, draft: byId("question").value, conversations: kept };
  for (;;) {
    try {
      sessionStorage.setItem(STATE, JSON.stringify(state));
      return;
    } catch {
      const longest = kept.reduce((a, b) => (a[1].length >= b[1].length ? a : b), ["", []]);
      if (!longest[1].shift()) return;
    }
  }
}

function restore() {
  let state = {};
  try {
    state = JSON.parse(sessionStorage.getItem(STATE)) ?? {};
  } catch {
    // An older page wrote it: begin anew.
  }
  selected = state.selected ?? "";
  byId("compare").checked = state.compare ?? false;
  byId("question").value = state.draft ?? "";
  for (const [id, turns] of state.conversations ?? []) {
    for (const answer of turns.flatMap((turn) => turn.answers)) {
      if (!answer.done) Object.assign(answer, { done: true, stopped: true });
      conversationOf(id, turns);
    }
  }
}

// ---- Library ------------------------------------------------------------------------------------------------------

const rows = new Map();
let polling = null;
/** How many documents came and went by this page's doing: a list that was asked for before is out of date. */
let changes = 0;

/** Ask for the list of documents, and again while one is being read. */
async function refresh() {
  clearTimeout(polling);
  const asked = changes;
  try {
    const { data } = await (await call("/v1/files")).json();
    showProblem(byId("library-error"), "");
    if (asked !== changes) return;
    takeFiles(data);
  } catch (error) {
    if (byId("library-error").hidden) announce(error.message);
    showProblem(byId("library-error"), error.message, refresh);
  }
  const reading = [...files.values()].some((file) => file.status === "processing");
  polling = reading ? setTimeout(refresh, 500) : null;
}

function takeFiles(data) {
  const told = new Set(data.map((file) => file.id));
  for (const [id, file] of files) if (!file.local && !told.has(id)) files.delete(id);
  for (const file of data) {
    const before = files.get(file.id);
    files.set(file.id, file);
    if (before?.status !== "processing" || file.status === "processing") continue;
    if (file.status === "processed") announce(`${file.filename} is read: ${plural(file.tokens ?? 0, "token")}.`);
    else announce(`${file.filename} could not be read: ${file.status_details ?? ""}`);
  }
  listed = true;
  if (selected && !files.has(selected)) select("");
  showLibrary();
}

/** Show a sentence beside what failed, with a button to try again. */
function showProblem(element, sentence, retry) {
  if (element.dataset.sentence === sentence) return;
  element.dataset.sentence = sentence;
  element.hidden = !sentence;
  element.replaceChildren(sentence);
  if (sentence && retry) {
    element.append(" ", make("button", { type: "button", class: "link", onclick: () => retry() }, "Try again"));
  }
}

function showLibrary() {
  const list = byId("documents");
  const sorted = [...files.values()].sort((a, b) => b.created_at - a.created_at || (a.id < b.id ? 1 : -1));
  for (const [id, row] of rows) {
    if (!files.has(id)) {
      row.element.remove();
      rows.delete(id);
    }
  }
  sorted.forEach((file, at) => {
    if (!rows.has(file.id)) rows.set(file.id, makeRow(file.id));
    const row = rows.get(file.id);
    if (list.children[at] !== row.element) list.insertBefore(row.element, list.children[at] ?? null);
    row.show(file);
  });
  const bytes = sorted.reduce((sum, file) => sum + (file.index_bytes ?? 0), 0);
  write(byId("library-size"), bytes ? megabytes(bytes) : "");
  byId("library-empty").hidden = !listed || sorted.length > 0;
  byId("without").hidden = !listed || sorted.length === 0;
  setCurrent(byId("without"), selected === "");
  showConversation();
}

/** How far a document is read, as the end of a sentence. */
function readSoFar({ progress }) {
  if (!progress?.total || progress.unit !== "tokens") return "";
  const [part] = progress.task.match(/part .*/) ?? [];
  return `: ${percent(progress.done / progress.total)}${part ? ` of ${part}` : ""}`;
}

/** How far a document is read: in words, and as the numbers of a progress bar. */
function progressOf(file) {
  const { task = "Preparing", done = 0, total = null, unit = "tokens", seconds_left = null } = file.progress ?? {};
  const words = [file.local ? "Sending" : task];
  if (total) words.push(`${count(done)} of ${count(total)} ${unit}`);
  if (seconds_left != null) words.push(`${duration(Math.max(Math.ceil(seconds_left), 1)).replace(".0", "")} left`);
  return { words: words.join(" · "), done, total };
}

function makeProgress() {
  const bar = make("progress");
  const words = make("p", { class: "soft numbers" });
  const show = (file) => {
    const { words: text, done, total } = progressOf(file);
    bar.setAttribute("aria-label", `Reading ${file.filename}`);
    if (total) Object.assign(bar, { max: total, value: done });
    else bar.removeAttribute("value");
    write(words, text);
  };
  return { element: make("div", { class: "progress" }, bar, words), show };
}

/** Make the row of a document. It is made once and then only changed, so that focus stays where it is. */
function makeRow(id) {
  const name = make("span", { class: "name" });
  const size = make("span", { class: "soft numbers" });
  const open = make("button", { type: "button", class: "open", onclick: () => select(id, true) }, name, size);
  const cancel = make("button", { type: "button", class: "quiet small", onclick: () => remove(id) }, "Cancel");
  const gone = make("button", { type: "button", class: "icon-button" }, icon("close"));
  gone.addEventListener("click", () => confirmRemoval(id));
  const progress = makeProgress();
  const problem = make("p", { class: "problem" });
  const reading = make("div", { class: "reading" }, progress.element, cancel);
  const element = make("li", {}, open, gone, reading, problem);
  const show = (file) => {
    write(name, file.filename);
    const sizes = [file.tokens && plural(file.tokens, "token"), file.index_bytes && megabytes(file.index_bytes)];
    write(size, file.status === "processed" ? sizes.filter(Boolean).join(" · ") : "");
    open.disabled = Boolean(file.local);
    open.title = file.filename;
    setCurrent(open, id === selected);
    cancel.setAttribute("aria-label", `Cancel reading ${file.filename}`);
    gone.setAttribute("aria-label", `Remove ${file.filename}`);
    reading.hidden = file.status !== "processing";
    gone.hidden = file.status === "processing";
    if (!reading.hidden) progress.show(file);
    const sentence = file.status === "error" ? (file.status_details ?? "It could not be read.") : (file.problem ?? "");
    const again = file.status === "error" ? chosen.has(id) && (() => sendAgain(id)) : () => remove(id);
    showProblem(problem, sentence, again);
  };
  return { element, show, focus: () => open.focus() };
}

let sent = 0;

/** Send a document to be read. */
async function send(file) {
  const id = `sending-${++sent}`;
  const controller = new AbortController();
  const row = { id, local: controller, filename: file.name, created_at: Date.now() / 1000, status: "processing" };
  files.set(id, row);
  chosen.set(id, file);
  showLibrary();
  announce(`Sending ${file.name}.`);
  try {
    const body = new FormData();
    body.append("purpose", "user_data");
    body.append("file", file);
    const response = await call("/v1/files", { method: "POST", body, signal: controller.signal });
    const told = await response.json();
    changes++;
    files.delete(id);
    files.set(told.id, told);
    chosen.delete(id);
    chosen.set(told.id, file);
    if (!conversations.get(selected)?.running) select(told.id);
    announce(told.status === "processed" ? `${told.filename} was read before.` : `Reading ${told.filename}.`);
  } catch (error) {
    if (error.name === "AbortError") files.delete(id);
    else Object.assign(row, { status: "error", status_details: error.message });
    if (error.name !== "AbortError") announce(`${file.name}: ${error.message}`);
  }
  showLibrary();
  refresh();
}

async function sendAgain(id) {
  const file = chosen.get(id);
  if (await remove(id)) send(file);
}

/** Take a document out of the library, or stop reading it. Resolves to whether it is gone. */
async function remove(id) {
  const file = files.get(id);
  if (!file) return true;
  const held = rows.get(id)?.element.contains(document.activeElement);
  try {
    if (file.local) file.local.abort();
    else await call(`/v1/files/${encodeURIComponent(id)}`, { method: "DELETE" });
  } catch (error) {
    file.problem = error.message;
    showLibrary();
    announce(error.message);
    return false;
  }
  changes++;
  const cancelled = file.status === "processing";
  announce(cancelled ? `Reading ${file.filename} was cancelled.` : `${file.filename} was removed.`);
  const neighbour = rows.get(id)?.element;
  const next = neighbour?.nextElementSibling ?? neighbour?.previousElementSibling;
  files.delete(id);
  chosen.delete(id);
  texts.delete(id);
  forget(id);
  if (shownText?.id === id) closeText();
  if (selected === id) select("");
  showLibrary();
  if (held) (next?.querySelector("button") ?? byId("add")).focus();
  refresh();
  return true;
}

/** Ask before a document goes, and name what is lost. */
function confirmRemoval(id) {
  const file = files.get(id);
  if (file.status === "error") return remove(id);
  const dialog = byId("remove");
  const turns = conversations.get(id)?.turns.length ?? 0;
  const index = `the index of ${plural(file.tokens ?? 0, "token")}, ${megabytes(file.index_bytes ?? 0)}`;
  const talk = turns ? `, and this conversation of ${plural(turns, "question")}` : "";
  write(byId("remove-title"), `Remove ${file.filename}?`);
  write(
    byId("remove-about"),
    `What octavo read is deleted: ${index}${talk}. Your own file stays where it is. To ask about it again, octavo has `
      + "to read it again.",
  );
  dialog.returnValue = "";
  dialog.addEventListener("close", () => dialog.returnValue === "remove" && remove(id), { once: true });
  dialog.showModal();
  return null;
}

// ---- Conversations ------------------------------------------------------------------------------------------------

/** Return the conversation about a document; make it, with turns that are remembered, where there is none. */
function conversationOf(id, turns = []) {
  if (!conversations.has(id)) {
    const lead = make("div", { class: "lead" });
    const element = make("section", { class: "conversation", "aria-label": "Conversation", hidden: true }, lead);
    const conversation = { id, turns, element, lead, running: null, progress: makeProgress() };
    conversations.set(id, conversation);
    byId("conversations").append(element);
    for (const turn of turns) showTurn(conversation, turn);
  }
  return conversations.get(id);
}

/** Stop and drop a conversation. */
function forget(id) {
  const conversation = conversations.get(id);
  if (!conversation) return;
  conversation.running?.abort();
  conversation.element.remove();
  conversations.delete(id);
  save();
}

function select(id, byUser = false) {
  selected = id;
  if (shownText && shownText.id !== id) closeText();
  if (byUser && narrow.matches) closeLibrary();
  showLibrary();
  const scroller = byId("conversations");
  scroller.scrollTop = scroller.scrollHeight;
  scrolledTo = scroller.scrollTop;
  save();
}

/** Show the selected conversation, and what can be done in it. */
function showConversation() {
  const file = files.get(selected);
  const conversation = conversationOf(selected);
  for (const other of conversations.values()) other.element.hidden = other !== conversation;
  const name = file?.filename ?? (selected ? "…" : "No document");
  write(byId("title"), name);
  document.title = file ? `${name} · octavo` : "octavo";
  const reading = file?.status === "processing" && !file.local;
  const about = file?.status === "processed" ? plural(file.tokens ?? 0, "token") : "";
  write(byId("about"), reading ? `Being read${readSoFar(file)}` : about);
  write(byId("question-label"), file ? `Your question about ${name}` : "Your question");
  byId("question").placeholder = file ? `Ask about ${name}` : "Ask without a document";
  byId("new").hidden = conversation.turns.length === 0;
  byId("show-text").hidden = file?.status !== "processed" && !reading;
  showLead(conversation, file);
  const running = Boolean(conversation.running);
  // Whoever chose a document asks about it: the question waits until it is here.
  const sending = [...files.values()].some((one) => one.local && one.status === "processing");
  const ready = selected ? file?.status === "processed" || reading : !sending;
  const focused = document.activeElement === byId(running ? "send" : "stop");
  byId("send").hidden = running;
  byId("stop").hidden = !running;
  byId("send").disabled = !ready;
  if (focused) byId(running ? "stop" : ready ? "send" : "question").focus();
  write(byId("hint"), ready ? "Enter asks, Shift+Enter breaks the line" : "You can ask once it is sent");
  for (const { answers } of conversation.turns) for (const answer of answers) views.get(answer).showBasis();
}

/** Show what a conversation begins with: how its document is being read, or what to do next. */
function showLead(conversation, file) {
  const { lead, progress } = conversation;
  const state = file?.status ?? (files.size ? "some" : listed ? "none" : "unknown");
  lead.hidden = conversation.turns.length > 0;
  if (state === "processing") progress.show(file);
  if (lead.dataset.state === state) return;
  lead.dataset.state = state;
  const heading = (text) => make("h3", {}, text);
  const words = (text) => make("p", {}, text);
  const add = () => make("button", { type: "button", class: "quiet", onclick: chooseFiles }, "Choose a document");
  const content = {
    unknown: () => [],
    none: () => [
      heading("Read once, ask at once"),
      words("Drop a document on this page, and ask. octavo reads it once and keeps what it read. Each answer comes with "
        + "the passages that it is from."),
      add(),
    ],
    some: () => [
      heading("Choose a document, or ask without one"),
      words("Without a document the model answers from memory, and there are no sources."),
    ],
    processing: () => [
      heading(`Reading ${file.filename}`),
      words("This happens once. You can ask already: until it is read, answers come from the passages that share words "
        + "with the question."),
      progress.element,
      make("button", { type: "button", class: "quiet", onclick: () => remove(conversation.id) }, "Cancel"),
    ],
    processed: () => [
      heading(file.filename),
      words("It is read. Ask a question: the answer comes with the passages that the model looked at."),
    ],
    error: () => [
      heading(`${file.filename} could not be read`),
      words(file.status_details ?? ""),
    ],
  };
  lead.replaceChildren(...content[state]());
}

function newAnswer(attention) {
  return { attention, text: "", thought: "", sources: null, basis: null, done: false, stopped: false, error: null };
}

/** Ask a question, twice to compare: the answers come one after another, as each takes the whole machine. */
function ask(question) {
  const conversation = conversationOf(selected);
  const answers = byId("compare").checked ? [newAnswer("dense"), newAnswer("auto")] : [newAnswer(null)];
  const turn = { question, answers };
  conversation.turns.push(turn);
  showTurn(conversation, turn);
  scrolledTo = byId("conversations").scrollTop;
  return answerAll(conversation, turn, answers);
}

async function answerAll(conversation, turn, answers) {
  if (conversation.running) return;
  const controller = new AbortController();
  conversation.running = controller;
  showConversation();
  for (const answer of answers) {
    Object.assign(answer, newAnswer(answer.attention), { waiting: true });
    views.get(answer).show();
  }
  for (const answer of answers) {
    answer.waiting = false;
    if (controller.signal.aborted) Object.assign(answer, { done: true, stopped: true });
    else await stream(conversation, turn, answer, controller.signal);
    views.get(answer).show();
    save();
  }
  conversation.running = null;
  if (conversations.get(conversation.id) !== conversation) return; // a new conversation has begun
  showConversation();
  announce(answers.map(spoken).join(" "));
}

/** What a screen reader says of an answer once it is there. */
function spoken({ attention, text, sources, error, stopped }) {
  const found = sources ? (sources.length ? ` ${plural(sources.length, "source")}.` : " Not from the document.") : "";
  return `${attention ? `Answer, ${attention}` : "Answer"}: ${text}${found}${error ?? ""}${stopped ? " Stopped." : ""}`;
}

/** Return the messages of a conversation up to a turn. The document stands in the first question that is sent. */
function messagesOf(conversation, turn) {
  const messages = [];
  const before = conversation.turns.slice(0, conversation.turns.indexOf(turn));
  for (const { question, answers } of before) {
    // Of two answers that are compared, the conversation goes on with auto's.
    const answer = answers.findLast((answer) => answer.text && !answer.error);
    if (!answer) continue;
    const thought = answer.thought ? { reasoning_content: answer.thought } : {};
    messages.push({ role: "user", content: question }, { role: "assistant", content: answer.text, ...thought });
  }
  messages.push({ role: "user", content: turn.question });
  if (conversation.id) {
    const document = { type: "file", file: { file_id: conversation.id } };
    messages[0].content = [document, { type: "text", text: messages[0].content }];
  }
  return messages;
}

/** Receive an answer. Whatever goes wrong is a sentence in the answer. */
async function stream(conversation, turn, answer, signal) {
  const began = performance.now();
  const seconds = () => (performance.now() - began) / 1000;
  const body = {
    model: model?.id,
    messages: messagesOf(conversation, turn),
    stream: true,
    stream_options: { include_usage: true },
    sources: Boolean(conversation.id),
  };
  // Two answers differ by attention alone, not by luck.
  if (answer.attention) Object.assign(body, { attention: answer.attention, temperature: 0 });
  const view = views.get(answer);
  view.show();
  try {
    const headers = { "Content-Type": "application/json" };
    const options = { method: "POST", headers, body: JSON.stringify(body), signal };
    const response = await call("/v1/chat/completions", options);
    for await (const event of events(response.body)) {
      if (event.error) throw new Error(event.error.message);
      const [choice] = event.choices ?? [];
      if (choice?.delta?.reasoning_content) answer.thought += choice.delta.reasoning_content;
      if (choice?.delta?.content) {
        answer.first ??= seconds();
        answer.text += choice.delta.content;
      }
      if (choice?.delta?.annotations) {
        answer.sources = choice.delta.annotations.flatMap((one) => one.file_citation ?? []);
      }
      if (choice?.finish_reason) answer.finish = choice.finish_reason;
      if (event.usage) answer.usage = event.usage;
      if (event.timings) answer.timings = event.timings;
      if (event.basis) answer.basis = event.basis;
      view.drawSoon();
    }
    if (!answer.finish) throw new Error(CUT);
  } catch (error) {
    if (error.name === "AbortError" || signal.aborted) answer.stopped = true;
    else answer.error = error instanceof TypeError ? CUT : error.message;
  }
  answer.seconds = seconds();
  answer.done = true;
}

function stop() {
  conversationOf(selected).running?.abort();
}

// ---- Answers ------------------------------------------------------------------------------------------------------

/** What the two kinds of attention that are compared read. */
const READS = { dense: "reads everything", auto: "reads what matters" };
const FAIR = "It found the question computed by dense: compare the writing, not the first token.";

/** What shows each answer. */
const views = new WeakMap();
let scrolledTo = 0;

/** Scroll along with an answer that grows, but not past its question, and not where the user has scrolled away. */
function follow(answer) {
  const scroller = byId("conversations");
  const turn = answer.closest(".turn");
  if (!turn || turn.nextElementSibling || Math.abs(scroller.scrollTop - scrolledTo) > 2) return;
  scroller.scrollTop = Math.min(scroller.scrollHeight - scroller.clientHeight, turn.offsetTop);
  scrolledTo = scroller.scrollTop;
}

function showTurn(conversation, turn) {
  const compared = turn.answers.length > 1;
  const made = turn.answers.map((answer) => makeAnswer(conversation, turn, answer, compared));
  conversation.element.append(
    make("article", { class: "turn" },
      make("h3", { class: "question" }, turn.question),
      make("div", { class: compared ? "answers compared" : "answers" }, ...made)),
  );
}

function makeAnswer(conversation, turn, answer, compared) {
  const text = make("div", { class: "text" });
  const thinking = make("p");
  const thought = make("details", { class: "thought soft", ontoggle: () => follow(element) },
    make("summary", {}, "Thought"), thinking);
  const wait = make("p", { class: "soft wait" });
  const problem = make("p", { class: "problem" });
  const basis = make("p", { class: "basis soft" });
  const figures = make(compared ? "dl" : "p", { class: "figures soft" });
  const sources = make("div", { class: "sources" });
  const title = compared
    ? make("h4", { class: "attention" }, answer.attention, make("span", {}, READS[answer.attention]))
    : null;
  const note = compared && answer !== turn.answers[0] ? make("p", { class: "soft note" }, FAIR) : null;
  const body = make("div", { class: "body" }, title, thought, text, wait, problem, basis, figures, note);
  const element = make("div", { class: "answer" }, body, sources);
  const again = () => answerAll(conversation, turn, [answer]);
  const draw = drawer(text);
  let frame = 0;
  const showBasis = () => {
    write(basis, basisOf(answer, files.get(conversation.id)));
    basis.hidden = !basis.textContent;
  };
  const show = () => {
    cancelAnimationFrame(frame);
    frame = 0;
    draw(answer.text);
    thought.hidden = !answer.thought;
    write(thinking, answer.thought ?? "");
    text.setAttribute("aria-busy", String(!answer.done));
    write(wait, waitOf(answer));
    wait.hidden = !wait.textContent;
    wait.classList.toggle("now", !answer.waiting);
    element.classList.toggle("streaming", !answer.done && answer.text !== "");
    if (answer.done && answer.stopped) showProblem(problem, "Stopped.", again);
    else if (answer.finish === "length") showProblem(problem, "Cut off: the answer has as many tokens as it may.");
    else showProblem(problem, answer.error ?? "", again);
    problem.classList.toggle("soft", !answer.error);
    showBasis();
    showFigures(figures, answer, compared);
    if (note) note.hidden = !(answer.done && cachedOf(answer) > cachedOf(turn.answers[0]));
    showSources(sources, conversation, answer);
    follow(element);
  };
  views.set(answer, { show, showBasis, drawSoon: () => (frame ||= requestAnimationFrame(show)) });
  show();
  return element;
}

function waitOf({ done, text, thought, waiting }) {
  if (done || text) return "";
  if (thought) return "Thinking";
  return waiting ? "Waits for the other answer" : "Waiting for the first word";
}

/** Say what an answer is given from; of a document that is still being read, also how far that is. */
function basisOf({ basis }, file) {
  if (!basis || !file) return "";
  if (basis.kind === "document") return `From all of ${file.filename}`;
  const from = basis.kind === "part" ? "From a part" : `From ${plural(basis.passages, "passage")}`;
  const read = `${from}, ${percent(basis.share)} of ${file.filename}`;
  if (file.status === "processing") return `${read}; the rest is being read${readSoFar(file)}`;
  return basis.kind === "excerpts" ? `${read}; now all of it is read: ask again` : read;
}

/** Return how many of a prompt's tokens were not computed again. */
const cachedOf = ({ usage, timings }) => usage?.prompt_tokens_details?.cached_tokens ?? timings?.cache_n ?? 0;

/** Return the figures of an answer, as [name, value, words for a line of figures]. */
function figuresOf(answer) {
  const { done, first, seconds, usage, timings } = answer;
  if (!done || !timings) return [];
  const prompt = usage?.prompt_tokens ?? 0;
  const figures = [];
  if (timings.kv_share) {
    const share = percent(timings.kv_share);
    figures.push(["Keys and values read", share, `${share} of keys and values read`]);
  }
  if (timings.predicted_per_second) {
    const speed = `${Math.round(timings.predicted_per_second)} tokens/s`;
    figures.push(["Speed", speed, speed]);
    figures.push(["Writing took", duration(timings.predicted_ms / 1000), null]);
  }
  if (first != null) figures.push(["First token after", duration(first), `first token after ${duration(first)}`]);
  figures.push(["In all", duration(seconds), `${duration(seconds)} in all`]);
  if (prompt) {
    const kept = `${count(cachedOf(answer))} of ${count(prompt)} tokens`;
    figures.push(["Not computed again", kept, `${kept} not computed again`]);
  }
  return figures;
}

function showFigures(element, answer, compared) {
  const figures = figuresOf(answer);
  element.hidden = figures.length === 0;
  if (element.hidden || element.childElementCount) return;
  if (!compared) {
    element.append(...figures.filter(([, , words]) => words).map(([, , words]) => make("span", {}, words)));
    return;
  }
  for (const [name, value] of figures) {
    const fill = name.startsWith("Keys") ? bar(answer.timings.kv_share) : null;
    element.append(make("div", {}, make("dt", {}, name), make("dd", {}, fill, value)));
  }
}

/** A bar beside a figure that says the same. */
function bar(share) {
  const fill = make("span");
  fill.style.width = `${Math.min(Math.max(share, 0), 1) * 100}%`;
  return make("span", { class: "share", "aria-hidden": "true" }, fill);
}

function placeOf({ heading, page, line }) {
  const where = page != null ? `page ${page}` : line != null ? `line ${line}` : "";
  return [heading?.replaceAll(" > ", " › "), where].filter(Boolean).join(", ");
}

function showSources(element, conversation, answer) {
  const told = JSON.stringify(answer.sources);
  element.hidden = !answer.sources;
  if (element.dataset.told === told) return;
  element.dataset.told = told;
  if (!answer.sources) return element.replaceChildren();
  if (answer.sources.length === 0) {
    return element.replaceChildren(
      make("h4", {}, "Not from the document"),
      make("p", { class: "soft" }, "The model looked at nothing in particular: it answered from memory, or guessed."),
    );
  }
  const items = answer.sources.map((source) => {
    const open = () => openText(conversation.id, source, button);
    const button = make("button", { type: "button", class: "source", onclick: open },
      make("span", { class: "quote" }, source.quote),
      make("span", { class: "place" }, placeOf(source)),
      make("span", { class: "weight" }, bar(source.share), `${percent(source.share)} of the attention`));
    return make("li", {}, button);
  });
  return element.replaceChildren(make("h4", {}, "Sources"), make("ol", {}, ...items));
}

// ---- A little Markdown: paragraphs, lists, code, bold -------------------------------------------------------------

/** Return a function that draws a text into an element. It redraws only blocks that changed, so selections stay. */
function drawer(element) {
  let drawn = [];
  return (text) => {
    const wanted = blocksOf(text);
    wanted.forEach((block, at) => {
      if (drawn[at] === block.source) return;
      if (element.children[at]) element.children[at].replaceWith(block.make());
      else element.append(block.make());
    });
    while (element.children.length > wanted.length) element.lastElementChild.remove();
    drawn = wanted.map((block) => block.source);
  };
}

const FENCE = /^ {0,3}(```+|~~~+)/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])( +)(?=\S)/;
const indentOf = (line) => line.length - line.trimStart().length;
const isOrdered = (item) => /\d/.test(item.trimStart()[0]);

/** Split a text into blocks; each knows its source and how to make its element. */
function blocksOf(text) {
  const lines = text.split("\n");
  const blocks = [];
  let at = 0;
  /** Take lines while a condition holds, and return them. */
  const take = (condition) => {
    const from = at;
    while (at < lines.length && condition(lines[at], at - from)) at++;
    return lines.slice(from, at);
  };
  while (at < lines.length) {
    const line = lines[at];
    const fence = line.match(FENCE)?.[1];
    if (!line.trim()) {
      at++;
    } else if (fence) {
      at++;
      const code = take((inside) => !inside.trim().startsWith(fence));
      at++;
      const source = [line, ...code].join("\n");
      blocks.push({ source, make: () => make("pre", { tabindex: "0" }, make("code", {}, code.join("\n"))) });
    } else if (ITEM.test(line)) {
      const base = indentOf(line);
      const ordered = isOrdered(line);
      const isNext = (other) => ITEM.test(other) && indentOf(other) === base && isOrdered(other) === ordered;
      const content = take((inside) => {
        if (isNext(inside)) return true;
        if (inside.trim() && indentOf(inside) > base) return true;
        if (inside.trim()) return !ITEM.test(inside) && !FENCE.test(inside) && lines[at - 1].trim() !== "";
        const next = lines.slice(at).find((other) => other.trim());
        return next !== undefined && (isNext(next) || indentOf(next) > base + 1);
      });
      blocks.push({ source: content.join("\n"), make: () => makeList(content, ordered, base) });
    } else {
      const content = take((inside, nth) => inside.trim() && !(nth && (FENCE.test(inside) || ITEM.test(inside))));
      blocks.push({ source: content.join("\n"), make: () => makeParagraph(content.join("\n")) });
    }
  }
  return blocks;
}

function makeParagraph(source) {
  const heading = source.match(/^#{1,6} +(.*)$/);
  return make("p", {}, ...(heading ? [make("strong", {}, ...inline(heading[1]))] : inline(source)));
}

function makeList(lines, ordered, base) {
  const list = make(ordered ? "ol" : "ul", ordered ? { start: parseInt(lines[0].trim(), 10) } : {});
  let item = [];
  const close = () => {
    if (!item.length) return;
    const blocks = blocksOf(item.join("\n"));
    const [first, ...rest] = blocks.map((block) => block.make());
    const head = first?.tagName === "P" ? [...first.childNodes] : first ? [first] : [];
    list.append(make("li", {}, ...head, ...rest));
  };
  for (const line of lines) {
    const start = line.match(ITEM);
    if (start && indentOf(line) === base) {
      close();
      item = [line.slice(start[0].length)];
    } else {
      item.push(line.replace(/^ {1,4}/, ""));
    }
  }
  close();
  return list;
}

const INLINE = /(`+)(?!`)(.+?)(?<!`)\1(?!`)|\*\*(?=\S)(.+?)(?<=\S)\*\*/gs;

/** Return the text nodes, code and bold elements of a line of text. */
function inline(source) {
  if (source.length > 8000) return [source]; // hostile texts take the expression long
  const nodes = [];
  let end = 0;
  for (const match of source.matchAll(INLINE)) {
    nodes.push(source.slice(end, match.index));
    nodes.push(match[1] ? make("code", {}, match[2]) : make("strong", {}, ...inline(match[3])));
    end = match.index + match[0].length;
  }
  nodes.push(source.slice(end));
  return nodes.filter((node) => node !== "");
}

// ---- A document's text --------------------------------------------------------------------------------------------

/** Texts by document, as promises. */
const texts = new Map();
let shownText = null;
let opener = null;
/** The passage that was landed on, until the user scrolls away. */
let landed = null;

function textOf(id) {
  if (!texts.has(id)) {
    const text = call(`/v1/files/${encodeURIComponent(id)}/content`)
      .then((response) => response.arrayBuffer())
      // A byte order mark is a character of the text as much as any other: sources count it.
      .then((bytes) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes));
    text.catch(() => texts.delete(id));
    texts.set(id, text);
  }
  return texts.get(id);
}

/** Return where a number of code points ends in a string, whose units are UTF-16's. */
function unitsOf(text, points) {
  let units = 0;
  for (; points > 0 && units < text.length; points--) units += text.codePointAt(units) > 0xffff ? 2 : 1;
  return units;
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
async function openText(id, source = null, button = null) {
  const file = files.get(id);
  const panel = byId("text");
  const body = byId("text-body");
  opener = button ?? byId("show-text");
  for (const other of document.querySelectorAll(".source")) setCurrent(other, other === button);
  const shown = { id, source };
  shownText = shown;
  showPage(shown);
  panel.hidden = false;
  document.body.classList.add("with-text");
  write(byId("text-title"), file?.filename ?? "");
  write(byId("text-place"), source ? placeOf(source) : "The text as octavo read it");
  cover();
  let text;
  try {
    text = await textOf(id);
  } catch (error) {
    if (shownText !== shown) return;
    const problem = make("p", { class: "problem", role: "alert" });
    showProblem(problem, error.message, () => openText(id, source, button));
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

/** Show the page of a PDF that a source is on, with its passage marked. What is no PDF, or gone, has no page. */
async function showPage(shown) {
  const { id, source } = shown;
  const [figure, picture] = [byId("text-page"), byId("text-picture")];
  figure.hidden = true;
  if (picture.src) URL.revokeObjectURL(picture.src);
  picture.removeAttribute("src");
  if (!source?.page || !files.get(id)?.filename.toLowerCase().endsWith(".pdf")) return;
  const path = `/v1/files/${encodeURIComponent(id)}/pages/${encodeURIComponent(source.page)}`;
  try {
    const response = await call(`${path}?quote=${encodeURIComponent(source.quote.slice(0, 2000))}`);
    const url = URL.createObjectURL(await response.blob());
    if (shownText !== shown) return URL.revokeObjectURL(url);
    const top = Number(response.headers.get("x-octavo-top") ?? 0);
    picture.onload = () => figure.scrollTo(0, top * picture.clientHeight - figure.clientHeight / 3);
    picture.src = url;
    picture.alt = `Page ${source.page}, with the passage marked`;
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

function closeText() {
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

// ---- Narrow windows: the library is a drawer, the text covers the page --------------------------------------------

const narrow = matchMedia("(max-width: 760px)");

/** Keep the keyboard out of what is covered. */
function cover() {
  const drawer = document.body.classList.contains("with-library");
  const [library, main, text] = [byId("library"), document.querySelector("main"), byId("text")];
  library.inert = narrow.matches && !drawer;
  main.inert = narrow.matches && (drawer || !text.hidden);
  text.inert = narrow.matches && drawer;
  byId("open-library").setAttribute("aria-expanded", String(drawer));
}

function openLibrary() {
  document.body.classList.add("with-library");
  cover();
  byId("close-library").focus();
}

function closeLibrary() {
  if (!document.body.classList.contains("with-library")) return;
  document.body.classList.remove("with-library");
  cover();
  byId("open-library").focus();
}

// ---- What the user does -------------------------------------------------------------------------------------------

function chooseFiles() {
  byId("file").click();
}

function sendAll(list) {
  for (const file of list) send(file);
  if (narrow.matches) closeLibrary();
}

/** Let files be dropped anywhere. A folder is no document, and the browser cannot send it. */
function listenForDrops() {
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
  addEventListener("drop", (event) => {
    hover(0);
    if (!carriesFiles(event)) return;
    event.preventDefault();
    const items = [...event.dataTransfer.items].filter((item) => item.webkitGetAsEntry?.()?.isDirectory);
    const folders = items.map((item) => item.getAsFile()?.name);
    sendAll([...event.dataTransfer.files].filter((file) => !folders.includes(file.name)));
    if (folders.length) showProblem(byId("library-error"), `${folders[0]} is a folder: drop the documents in it.`);
  });
}

/** Let the question's field grow with its text. */
function fit() {
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
  fit();
  return ask(question);
}

function listen() {
  byId("add").addEventListener("click", chooseFiles);
  byId("without").addEventListener("click", () => select("", true));
  byId("file").addEventListener("change", (event) => {
    sendAll([...event.target.files]);
    event.target.value = "";
  });
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
  byId("compare").addEventListener("change", save);
  byId("new").addEventListener("click", () => {
    forget(selected);
    closeText();
    showConversation();
    byId("question").focus();
    announce("A new conversation.");
  });
  byId("show-text").addEventListener("click", () => openText(selected));
  byId("close-text").addEventListener("click", closeText);
  for (const kind of ["wheel", "touchmove", "keydown", "pointerdown"]) {
    byId("text-body").addEventListener(kind, () => (landed = null), { passive: true });
  }
  new ResizeObserver(() => landed && land(landed)).observe(byId("text-body"));
  byId("open-library").addEventListener("click", openLibrary);
  byId("close-library").addEventListener("click", closeLibrary);
  byId("key-cancel").addEventListener("click", () => byId("ask-key").close(""));
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
    if (document.body.classList.contains("with-library")) closeLibrary();
    else if (shownText) closeText();
    else stop();
  });
  addEventListener("pagehide", () => {
    save();
    leaving = true;
  });
  addEventListener("pageshow", () => (leaving = false));
  addEventListener("focus", () => polling ?? refresh());
  narrow.addEventListener("change", cover);
  listenForDrops();
}

async function showModel() {
  const element = byId("model");
  try {
    [model] = (await (await call("/v1/models")).json()).data;
    const context = model.meta?.n_ctx ? `Reads up to ${plural(model.meta.n_ctx, "token")}` : "";
    element.replaceChildren(make("p", { class: "name" }, model.id), make("p", {}, context));
  } catch (error) {
    const problem = make("p", { class: "problem" });
    showProblem(problem, error.message, showModel);
    element.replaceChildren(problem);
  }
}

restore();
listen();
cover();
fit();
showConversation();
showModel();
refresh();
