// A little Markdown: paragraphs, headings, lists, tables, code.

import { make } from "./elements.js";
import { inline } from "./inline.js";
import { withoutMarks } from "./marks.js";

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
const HEADING = /^ {0,3}(#{1,6}) +(.*?)(?: +#+)? *$/;
const RULE = /^ *\|?(?: *:?-+:? *\|)+(?: *:?-+:? *)?$/;
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
      blocks.push({ source, make: () => make("pre", { tabindex: "0" }, make("code", {}, withoutMarks(code.join("\n")))) });
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
    } else if (HEADING.test(line)) {
      at++;
      const [, marks, head] = line.match(HEADING);
      // the page's own headings are the first three levels
      blocks.push({ source: line, make: () => make(`h${Math.min(marks.length + 3, 6)}`, {}, ...inline(head)) });
    } else if (isTable(lines, at)) {
      const rows = take((inside) => inside.includes("|") && inside.trim());
      blocks.push({ source: rows.join("\n"), make: () => makeTable(rows) });
    } else {
      const ends = (inside) => FENCE.test(inside) || (ITEM.test(inside) && depth < DEEPEST) || HEADING.test(inside);
      const content = take((inside, nth) => inside.trim() && !(nth && (ends(inside) || isTable(lines, at))));
      blocks.push({ source: content.join("\n"), make: () => make("p", {}, ...inline(content.join("\n"))) });
    }
  }
  return blocks;
}

/** Return whether a table begins at a line: a row, and below it a rule with the same number of columns. */
function isTable(lines, at) {
  const below = lines[at + 1] ?? "";
  return lines[at].includes("|") && RULE.test(below) && cellsOf(lines[at]).length === cellsOf(below).length;
}

/** Return the cells of a row; a bar after a backslash does not end one. */
function cellsOf(row) {
  const cells = row.trim().replace(/^\|/, "").split(/(?<!\\)\|/);
  if (cells.length > 1 && !cells.at(-1).trim()) cells.pop();
  return cells.map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function makeTable([head, , ...rows]) {
  const n = cellsOf(head).length;
  const row = (tag, cells) => make("tr", {}, ...cells.slice(0, n).map((cell) => make(tag, {}, ...inline(cell))));
  const body = make("tbody", {}, ...rows.map((each) => row("td", cellsOf(each))));
  return make("table", {}, make("thead", {}, row("th", cellsOf(head))), body);
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
