// Marks in an answer: behind each sentence the numbers of its sources.

import { make } from "./elements.js";

/** A mark within Markdown: a number between two characters that no text has. */
const [OPEN, CLOSE] = ["\ue000", "\ue001"];
export const MARK = new RegExp(`${OPEN}(?<mark>\\d+)${CLOSE}`);
const MARKS = new RegExp(` ?${MARK.source}`, "g");

/** Return where a number of code points ends in a string, whose units are UTF-16's. */
export function unitsOf(text, points) {
  let units = 0;
  for (; points > 0 && units < text.length; points--) units += text.codePointAt(units) > 0xffff ? 2 : 1;
  return units;
}

/** Return the sources of annotations, each once, with the places of its sentences in the answer. */
export const sourcesOf = (annotations) => addAnnotations([], annotations);

/** Return sources, and what more annotations add: the same sources keep their numbers. */
export function addAnnotations(before, annotations) {
  const sources = before.map((source) => ({ ...source, marks: [...source.marks] }));
  for (const { file_citation: citation } of annotations) {
    if (!citation) continue;
    const { start_index: first, end_index: end, ...source } = citation;
    const same = ({ file_id, start, stop }) => file_id === source.file_id && start === source.start && stop === source.stop;
    let known = sources.find(same);
    if (!known) sources.push((known = { ...source, marks: [] }));
    if (end != null) known.marks.push([first, end]);
  }
  return sources;
}

/** Return annotations in the API's flat form: one for each sentence that comes from a source. */
export const annotationsOf = (sources) =>
  sources.flatMap(({ marks, ...source }) =>
    marks?.length ? marks.map(([first, end]) => ({ ...source, start_index: first, end_index: end })) : [source]);

/** Return an answer's text with a mark behind each sentence that has sources; `written` makes it of a number. */
export function marked(text, sources, written) {
  const marks = (sources ?? []).flatMap(({ marks: places }, at) => (places ?? []).map(([, end]) => [end, at + 1]));
  marks.sort(([a, one], [b, other]) => a - b || one - other);
  let [made, from, points] = ["", 0, 0];
  for (const [end, number] of marks) {
    const to = from + unitsOf(text.slice(from), end - points);
    made += text.slice(from, to) + written(number);
    [from, points] = [to, end];
  }
  return made + text.slice(from);
}

/** Return an answer's text as Markdown in which `makeMark` makes buttons of the marks. */
export const withMarks = (text, sources) =>
  marked(text.replace(/[\ue000\ue001]/g, "\ufffd"), sources, (number) => ` ${OPEN}${number}${CLOSE}`);

/** Return a text without its marks, for code. */
export const withoutMarks = (text) => text.replace(MARKS, "");

export const makeMark = (number) =>
  make("button", { type: "button", class: "mark", "data-source": number, "aria-label": `Source ${number}` },
    `[${number}]`);
