// The Markdown of a line of text: code, bold, italics, links.

import { make } from "./elements.js";
import { makeMark, MARK, withoutMarks } from "./marks.js";

const INLINE = new RegExp(
  [
    MARK,
    /(?<ticks>`+)(?!`)(?<code>.+?)(?<!`)\k<ticks>(?!`)/,
    /\*\*(?=\S)(?<bold>.+?)(?<=\S)\*\*/,
    /\[(?<label>[^[\]\n]+)\]\((?<address>[^\s()]+)\)/,
    /(?<![*\w])\*(?=[^\s*])(?<starred>(?:[^*\n]|\*\*)+?)(?<=\S)\*(?![*\w])/,
    /(?<![_\w])_(?=[^\s_])(?<lined>[^_\n]+)(?<=\S)_(?![_\w])/,
  ]
    .map((one) => one.source)
    .join("|"),
  "gs",
);

const LINKED = ["http:", "https:", "mailto:"];

/** Return the nodes of a text: a link only where its address is whole and of the web; it shows where it leads. */
export function inline(source) {
  if (source.length > 8000) return [source]; // hostile texts take the expression long
  const nodes = [];
  let end = 0;
  for (const match of source.matchAll(INLINE)) {
    nodes.push(source.slice(end, match.index), nodeOf(match[0], match.groups));
    end = match.index + match[0].length;
  }
  nodes.push(source.slice(end));
  return nodes.filter((node) => node !== "");
}

function nodeOf(source, { mark, code, bold, label, address, starred, lined }) {
  if (mark) return makeMark(mark);
  if (code) return make("code", {}, withoutMarks(code));
  if (bold) return make("strong", {}, ...inline(bold));
  if (!label) return make("em", {}, ...inline(starred ?? lined));
  const href = webAddress(address);
  return href ? make("a", { href, title: href, target: "_blank", rel: "noopener noreferrer" }, ...inline(label)) : source;
}

function webAddress(address) {
  try {
    const url = new URL(address);
    return LINKED.includes(url.protocol) ? url.href : "";
  } catch {
    return "";
  }
}
