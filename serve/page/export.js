// Conversations as files: Markdown to read, JSON for programs.

import { make } from "./elements.js";
import { annotationsOf, marked } from "./marks.js";
import { placeOf } from "./text.js";

export function asMarkdown(title, turns) {
  const parts = [`# ${title}`];
  let notes = 0;
  for (const { question, answers } of turns) {
    parts.push(`## ${question.replace(/\s*\n\s*/g, " ")}`);
    for (const { attention, text, error, stopped, notices, sources } of answers) {
      if (attention) parts.push(`*${attention}*`);
      const before = notes;
      const written = marked(text, sources, (number) => `[^${before + number}]`).trim();
      parts.push(written || error || "");
      if (stopped) parts.push("*Stopped.*");
      parts.push(...(notices ?? []).map((notice) => `*${notice}*`));
      const cited = (sources ?? []).map((source, at) => {
        const quote = source.quote.replace(/\s+/g, " ").trim();
        const number = source.marks?.length ? `[^${before + at + 1}]:` : `${at + 1}.`;
        return `${number} ${[source.filename, placeOf(source)].filter(Boolean).join(", ")}: “${quote}”`;
      });
      if (cited.length) parts.push(cited.join("\n"));
      notes += cited.length;
    }
  }
  return `${parts.filter(Boolean).join("\n\n")}\n`;
}

/** Return the turns with OpenAI's names. */
export function asJson({ title, created, updated }, turns) {
  const messages = turns.flatMap(({ question, answers }) => [
    { role: "user", content: question },
    ...answers.map(({ text, thought, attention, documents, sources, basis, notices, error, stopped }) => ({
      role: "assistant",
      content: text,
      ...(thought ? { reasoning_content: thought } : {}),
      ...(attention ? { attention } : {}),
      ...(documents ? { document: documents } : {}),
      ...(basis ? { basis } : {}),
      ...(notices?.length ? { notices } : {}),
      ...(sources ? { annotations: annotationsOf(sources) } : {}),
      ...(error ? { error } : {}),
      ...(stopped ? { stopped } : {}),
    })),
  ]);
  const times = { created: new Date(created).toISOString(), updated: new Date(updated).toISOString() };
  return `${JSON.stringify({ title, ...times, messages }, null, 2)}\n`;
}

/** Have the browser save a text as a file. */
export function download(title, ending, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const name = title.replace(/[^\p{L}\p{N} ._-]+/gu, "").trim().slice(0, 60) || "conversation";
  make("a", { href: url, download: `${name}.${ending}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
