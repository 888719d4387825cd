// Ask the model: the request, and the answer as it comes.

import { announce, count, duration, emit, on, plural } from "./elements.js";
import { newAnswer, noteScroll, showTurn, views } from "./answers.js";
import { conversation, save } from "./conversations.js";
import { chosenFiles, noteUse } from "./documents.js";
import { addAnnotations, sourcesOf } from "./marks.js";
import { call, events } from "./server.js";
import { compares, modelId, requestFields, systemPrompt } from "./settings.js";

const CUT = "The connection to the server was lost before the answer ended.";
/** Milliseconds after which an answer that comes is kept again. */
const KEEP_EVERY = 1000;

/** Ask a question, twice to compare, in place of a turn and all after it if one is edited. */
export function ask(question, edited = null) {
  const current = conversation();
  const answers = compares() ? [newAnswer("dense"), newAnswer("auto")] : [newAnswer(null)];
  if (edited) for (const dropped of current.turns.splice(current.turns.indexOf(edited))) dropped.element.remove();
  const turn = { question, answers };
  current.turns.push(turn);
  showTurn(current, turn);
  noteScroll();
  return answerAll(current, turn, answers);
}

async function answerAll(current, turn, answers) {
  if (current.running) return;
  const controller = new AbortController();
  current.running = controller;
  for (const answer of answers) {
    Object.assign(answer, { first: undefined, finish: undefined, usage: undefined, timings: undefined });
    Object.assign(answer, newAnswer(answer.attention));
    views.get(answer).show();
  }
  emit("answers");
  save(current);
  await Promise.all(answers.map(async (answer) => {
    await stream(current, turn, answer, controller.signal);
    views.get(answer).show();
  }));
  current.running = null;
  noteUse(answers.flatMap(({ documents }) => documents ?? []));
  save(current);
  emit("answers");
  announce(answers.map(spoken).join(" "));
}

/** What a screen reader says of an answer once it is there. */
function spoken({ attention, text, sources, notices, error, stopped }) {
  const said = [error, stopped ? "Stopped." : "", ...notices].filter(Boolean).map((one) => ` ${one}`).join("");
  const found = sources ? (sources.length ? ` ${plural(sources.length, "source")}.` : " No source: check this answer.") : "";
  return `${attention ? `Answer, ${attention}` : "Answer"}: ${text}${found}${said}`;
}

/** Return the messages of a conversation up to a turn. */
function messagesOf(current, turn) {
  const messages = systemPrompt() ? [{ role: "system", content: systemPrompt() }] : [];
  for (const { question, answers } of current.turns.slice(0, current.turns.indexOf(turn))) {
    // Of two answers that are compared, the conversation continues with auto's.
    const answer = answers.findLast((one) => one.text && !one.error);
    if (!answer) continue;
    const thought = answer.thought ? { reasoning_content: answer.thought } : {};
    messages.push({ role: "user", content: question }, { role: "assistant", content: answer.text, ...thought });
  }
  return [...messages, { role: "user", content: turn.question }];
}

const byName = (one, other) => one.filename.localeCompare(other.filename, "en", { numeric: true });

/** Return the body of a request for an answer. */
function bodyOf(current, turn, answer, documents) {
  return {
    model: modelId(),
    messages: messagesOf(current, turn),
    ...(documents.length ? { document: documents.toSorted(byName).map(({ id }) => id), sources: true } : {}),
    ...requestFields(),
    // Two answers differ by attention alone, not by luck.
    ...(answer.attention ? { attention: answer.attention, temperature: 0 } : {}),
    stream: true,
    stream_options: { include_usage: true },
    return_progress: true,
  };
}

/** Receive an answer. Whatever goes wrong is a sentence in the answer. */
async function stream(current, turn, answer, signal) {
  const began = performance.now();
  const seconds = () => (performance.now() - began) / 1000;
  const documents = chosenFiles(current.choice);
  answer.asked = documents.map(({ id, status }) => ({ id, reading: status === "processing" }));
  const view = views.get(answer);
  let kept = began;
  view.show();
  try {
    const headers = { "Content-Type": "application/json" };
    const body = JSON.stringify(bodyOf(current, turn, answer, documents));
    const response = await call("v1/chat/completions", { method: "POST", headers, body, signal });
    for await (const event of events(response.body)) {
      if (event.error) throw new Error(event.error.message);
      take(answer, event, seconds);
      view.drawSoon();
      if (performance.now() - kept < KEEP_EVERY) continue;
      kept = performance.now();
      save(current);
    }
    if (!answer.finish) throw new Error(CUT);
  } catch (error) {
    if (error.name === "AbortError" || signal.aborted) answer.stopped = true;
    else answer.error = error instanceof TypeError ? CUT : error.message;
  }
  answer.seconds = seconds();
  answer.done = true;
}

/** Take over what an event of the stream brings. */
function take(answer, event, seconds) {
  const [choice] = event.choices ?? [];
  const { reasoning_content: thought, content, annotations } = choice?.delta ?? {};
  if (thought) answer.thought += thought;
  if (content) {
    answer.first ??= seconds();
    answer.text += content;
  }
  if (event.new_annotations) answer.sources = addAnnotations(answer.sources ?? [], event.new_annotations);
  if (annotations) answer.sources = sourcesOf(annotations);
  if (choice?.finish_reason) answer.finish = choice.finish_reason;
  if (event.document) answer.documents = [event.document].flat();
  if (event.usage) answer.usage = event.usage;
  if (event.timings) answer.timings = event.timings;
  if (event.basis) answer.basis = event.basis;
  if (event.notices) answer.notices = event.notices;
  if (event.cut_by) answer.cutBy = event.cut_by;
  if (event.findings) answer.findings = event.findings;
  if (event.whole_progress) {
    const { processed, total, most_seconds: most, findings } = event.whole_progress;
    answer.findings = [...(answer.findings ?? []), ...findings];
    answer.most = most ?? answer.most;
    const words = [`${count(processed)} of ${count(total)} answered`];
    if (answer.most) words.push(`up to ${duration(answer.most)} in all`);
    answer.reading = { label: "Asking every part", words: words.join(" · "), done: processed, total };
  }
  if (event.prompt_progress) {
    const { processed, total } = event.prompt_progress;
    const words = `${count(processed)} of ${count(total)} tokens`;
    answer.reading = { label: "Reading the prompt", words, done: processed, total };
  }
}

export const stop = () => conversation().running?.abort();

on("again", ({ conversation: current, turn, answer }) => answerAll(current, turn, [answer]));
