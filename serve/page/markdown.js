// A little Markdown: paragraphs, lists, code, bold.

import { make } from "./elements.js";

/** Return a function that draws a text into an element. It redraws only blocks that changed, so selections stay. */
export function drawer(element) {
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

/** Lists in lists that are drawn; the text of deeper ones stays as it is. */
const DEEPEST = 20;

/** Split a text into blocks; each knows its source and how to make its element. */
function blocksOf(text, depth = 0) {
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
    } else if (ITEM.test(line) && depth < DEEPEST) {
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
      blocks.push({ source: content.join("\n"), make: () => makeList(content, ordered, base, depth) });
    } else {
      const content = take((inside, nth) => inside.trim() && !(nth && (FENCE.test(inside) || (ITEM.test(inside) && depth < DEEPEST))));
      blocks.push({ source: content.join("\n"), make: () => makeParagraph(content.join("\n")) });
    }
  }
  return blocks;
}

function makeParagraph(source) {
  const heading = source.match(/^#{1,6} +(.*)$/);
  return make("p", {}, ...(heading ? [make("strong", {}, ...inline(heading[1]))] : inline(source)));
}

function makeList(lines, ordered, base, depth) {
  const list = make(ordered ? "ol" : "ul", ordered ? { start: parseInt(lines[0].trim(), 10) } : {});
  let item = [];
  const close = () => {
    if (!item.length) return;
    const blocks = blocksOf(item.join("\n"), depth + 1);
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

