"""Extract PDF with PDFium: text with headings, lists and tables, without headers and footers."""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import accumulate, chain, pairwise
from typing import Any

from ...errors import OctavoError
from ..document import Document
from ..markdown import document_of
from ..ocr.recognition import Recognition, picture_of, remedy
from .pdf_appearances import Appearances
from .pdf_blocks import Block, Line
from .pdf_covered import has_layers
from .pdf_hyphens import count_words, joined
from .pdf_layout import LEADER, blocks, code, list_item, plain
from .pdf_losses import pages_with_losses
from .pdf_packed import Packed
from .pdf_picture import page_labels
from .pdf_pieces import PageText, page_text
from .pdf_repeats import usual_size, without_repeated_marks, without_repeats
from .pdf_symbols import UNKNOWN
from .pdf_xfa import xfa_text

#: Most pages of a document, as models read a few thousand; and the pages that are read before the file is opened again.
_MOST_PAGES, _AT_ONCE = 20_000, 250

#: Largest size of foot notes, in sizes of the text; and what they begin with.
_NOTE_SIZE, _NOTE = 0.92, re.compile(r"[\^\[(]?(\d{1,3}|[*\u2020\u2021\u00a7])")

#: What helps with text that is missing.
_ALL = "`octavo read --all` prints these pages as they are drawn"

#: The beginning of a heading of Markdown.
_HEADING = re.compile(r"^#(?=#{0,5}\s)")

#: What a remark of the page's readers begins with.
_REMARK = "[Remark: "


def extract_pdf(content: bytes, name: str, recognition: Recognition | None = None) -> Document:
    """Extract the text of a PDF, with its pages and headings.

    Parameters
    ----------
    recognition : Recognition, optional
        Has the password, and recognises pages that are only pictures.

    Raises
    ------
    OctavoError
        The file is damaged, or encrypted, or has no text.
    """
    import pypdfium2

    recognition = recognition or Recognition(content, name)
    password = recognition.extraction.password
    try:
        with _without_warnings(), pypdfium2.PdfDocument(content, password=password) as pdf:
            if len(pdf) > _MOST_PAGES:
                raise OctavoError(f"{name} has {len(pdf):,} pages: split it.")
            texts, labels = Packed(_page_texts(content, password, len(pdf))), page_labels(pdf)
            without_text = [number for number, text in enumerate(texts) if text.is_picture or text.unclear]
            for number, page_pdf in recognition.pages(without_text, lambda number: picture_of(pdf[number])).items():
                with pypdfium2.PdfDocument(page_pdf) as recognised:
                    texts[number] = page_text(recognised[0])
            outline, attachments = _outline(pdf), _attachments(pdf)
            form = xfa_text(pdf)
    except pypdfium2.PdfiumError as problem:
        is_encrypted = b"/Encrypt" in content  # an earlier file may have left PDFium its error
        if problem.err_code == pypdfium2.raw.FPDF_ERR_PASSWORD and is_encrypted:
            wrong = "is encrypted, and the password is wrong" if password else "is encrypted: give its `password`"
            raise OctavoError(f"{name} {wrong}.") from problem
        raise OctavoError(f"{name} is damaged, and PDFium cannot open it: download or save it again.") from problem
    if form:  # its pages only ask for another program
        requests = [[line.text for line in text.lines] for text in texts]
        texts = Packed(replace(text, lines=[], over=[], letters=Counter()) for text in texts)
    pages, letters = _with_normal_weight(texts), Packed(text.letters for text in texts)
    texts = Packed(replace(text, lines=[], letters=Counter()) for text in texts)
    notices = list(_notices(name, texts, labels))
    if not any(pages) and not form and not attachments:
        raise OctavoError(notices[0] if notices else f"{name} is blank: there is nothing to read in it.")
    notices += filter(None, [recognition.notice])
    if form:
        shown = _shown(labels, len(texts))
        notices.append(f"{name} is a form in XFA, and only asks for another program {shown}: octavo reads its fields.")
    rest = without_repeats(pages, [text.height for text in texts], labels)
    notes, left_out = [], []
    for each, feet, those, (lines, of_marks) in zip(
        texts, rest.feet, rest.left_out, without_repeated_marks(each.over for each in texts), strict=True
    ):
        marks = "\n".join(line.text for line in lines)
        notes.append([*feet, *([marks] if marks else []), *(f"{_REMARK}{remark}]" for remark in each.remarks)])
        left_out.append([*those, *of_marks, *(f"repeated: {line}" for line in each.repeated), *_line_numbers(each)])
    notes[-1] += filter(None, [form, attachments])
    text, offsets = _written(rest.pages, outline, rest.heads, notes)
    lost = pages_with_losses(letters, text, offsets, left_out)
    if lost:
        notices.append(f"{name} has text that octavo lost {_shown([labels[i] for i in lost], len(texts))}: {_ALL}.")
        drawn_texts = _drawn_texts(content, password, lost)
    for number, each in enumerate(texts):
        left_out[number] += [f"invisible: {line}" for line in each.hidden]
        left_out[number] += [f"without a meaning: {line}" for line in each.unclear]
        left_out[number] += [f"in place of the form: {line}" for line in requests[number]] if form else []
        left_out[number] += [f"all that is drawn: {drawn_texts[number]}"] if number in lost else []
    document = document_of(text, list(zip(offsets, labels, strict=True)), notices)
    return replace(
        document,
        needed_password=password is not None and _needs_password(content),
        left_out=tuple(
            f"page {label}, {each}" for label, those in zip(labels, left_out, strict=True) for each in those
        ),
    )


def _page_texts(content: bytes, password: str | None, n_pages: int) -> Iterator[PageText]:
    """Yield the text of each page. PDFium keeps 4 KB of a page until its file is closed, so it is opened again."""
    import pypdfium2

    may_be_off = has_layers(content)
    for first in range(0, n_pages, _AT_ONCE):
        with (
            pypdfium2.PdfDocument(content, password=password) as pdf,
            closing(Appearances(content, password)) as appearances,
        ):
            pdf.init_forms()
            for number in range(first, min(first + _AT_ONCE, n_pages)):
                page = pdf[number]
                yield page_text(page, appearances.page(page, number), may_be_off=may_be_off)
                page.close()


def extract_picture(content: bytes, name: str, recognition: Recognition) -> Document:
    """Extract the text of a picture, which tesseract writes as a PDF.

    Raises
    ------
    OctavoError
        The text of the picture was not recognised, or it has none.
    """
    recognised = recognition.pages([0], lambda _: content)
    if not recognised:
        raise OctavoError(f"{name} has only a picture: {remedy()}.")
    return replace(extract_pdf(recognised[0], name), notices=(recognition.notice,))


def _needs_password(content: bytes) -> bool:
    """Return whether a PDF that opens with a password does not open without."""
    import pypdfium2

    if b"/Encrypt" not in content:
        return False
    try:
        with _without_warnings(), pypdfium2.PdfDocument(content):
            return False
    except pypdfium2.PdfiumError:
        return True


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Leave out pypdfium2's warnings: of circular outlines, and of forms in XFA, whose other half octavo reads."""

    def is_error(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR

    logger = logging.getLogger("pypdfium2._helpers.document")
    logger.addFilter(is_error)
    try:
        yield
    finally:
        logger.removeFilter(is_error)


def _notices(name: str, texts: Packed[PageText], labels: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each way in which text of a file was not read."""
    sentences = {
        "unclear": f"does not tell which letters it has {{}}: {remedy()}",
        "is_picture": f"has only pictures or drawings {{}}: {remedy()}",
        "has_unknown": f"has signs of fonts that do not say what they mean {{}}: octavo writes {UNKNOWN} for each",
        "line_numbers": "numbers its lines {}: octavo leaves the numbers out",
        "hidden": "has invisible text {}: octavo leaves it out",
    }
    labels_of = defaultdict[str, list[str]](list)
    missing, fonts = set[str](), set[str]()
    for label, text in zip(labels, texts, strict=True):
        missing |= text.missing_fonts
        fonts |= text.fonts
        for kind in sentences:
            labels_of[kind] += [label] if getattr(text, kind) else []
    if missing - fonts:
        shown = ", ".join(sorted(missing - fonts)[:5])
        yield f"{name} has text in fonts that are neither in it nor here ({shown}): install them, or fonts-noto-cjk."
    for kind, sentence in sentences.items():
        if labels_of[kind]:
            yield f"{name} {sentence.format(_shown(labels_of[kind], len(texts)))}."


def _line_numbers(text: PageText) -> list[str]:
    return [f"numbers of lines: {' '.join(text.line_numbers)}"] if text.line_numbers else []


def _shown(labels: Sequence[str], n_pages: int) -> str:
    if len(labels) == n_pages:
        return f"on its {n_pages} pages" if n_pages > 1 else "on its page"
    names = ", ".join(labels[:10]) + (" and others" if len(labels) > 10 else "")
    return f"on {len(labels)} of {n_pages} pages ({names})"


def _attachments(pdf: Any) -> str:
    """Return the names of the files in a PDF, as a line; "" without any."""
    names = [pdf.get_attachment(number).get_name() for number in range(pdf.count_attachments())]
    return f"Attachments: {', '.join(names)}" if names else ""


def _drawn_texts(content: bytes, password: str | None, numbers: Sequence[int]) -> dict[int, str]:
    """Return the text of pages as PDFium has it."""
    import pypdfium2

    with pypdfium2.PdfDocument(content, password=password) as pdf:
        return {number: pdf[number].get_textpage().get_text_range() for number in numbers}


def _outline(pdf: Any) -> dict[tuple[int, str], int]:
    """Return the level of each heading in the outline, from 1 on, by its page and its words."""
    levels: dict[tuple[int, str], int] = {}
    for bookmark in pdf.get_toc(max_depth=6):
        target = bookmark.get_dest()
        page = target.get_index() if target else None
        if page is not None:
            levels[page, plain(bookmark.get_title())] = bookmark.level + 1
    return levels


def _with_normal_weight(texts: Packed[PageText]) -> Packed[list[Line]]:
    """Return the lines of pages, of normal weight if most are bold: some files declare all of their text bold."""
    n_letters = Counter[bool]()
    for piece in (piece for text in texts for line in text.lines for piece in line.pieces):
        n_letters[piece.bold] += len(piece.text)
    if n_letters[True] <= n_letters[False]:
        return Packed(text.lines for text in texts)
    return Packed(
        [replace(line, pieces=tuple(replace(piece, bold=False) for piece in line.pieces)) for line in text.lines]
        for text in texts
    )


def _written(
    pages: Packed[list[Line]],
    outline: dict[tuple[int, str], int],
    heads: Sequence[Sequence[str]],
    notes: Sequence[Sequence[str]],
) -> tuple[str, list[int]]:
    """Write pages as Markdown; return the text, and the start of each page.

    Parameters
    ----------
    heads, notes : sequence of sequence of str
        Other paragraphs of each page, before its text and after it. A paragraph of two pages stays whole.
    """
    body_size = usual_size(pages)
    titles: dict[int, set[str]] = defaultdict(set)
    for number, title in outline:
        titles[number].add(title)
    words = count_words("\n".join(line.text for line in page) for page in pages)
    made = Packed(_with_whole_text(blocks(page, body_size, titles[n]), body_size) for n, page in enumerate(pages))
    looks = sorted({_look(block) for page in made for block in page if block.kind == "heading"}, reverse=True)
    written: list[str] = []
    starts: list[tuple[int, int]] = []  # of each page: its first paragraph, and the characters before it there
    last: int | None = None  # the last paragraph of the text so far, before notes, if it has several lines
    for number, (page, following) in enumerate(pairwise(chain(made, [[]]))):
        _move_notes(page, following, body_size)
        levels = (_level(block, outline, number, looks) if block.kind == "heading" else None for block in page)
        texts = [_block(block, words, level) for block, level in zip(page, levels, strict=True)]
        for position, (before, block) in enumerate(pairwise(page)):
            if block.kind in ("item", "entry") and before.kind == block.kind:
                texts[position] = texts[position][:-1]  # keep items of a list together
        continues = page and page[0].kind == "text" and texts[0][:1].islower()
        if continues and last is not None and _is_open(written[last]):
            start = joined([written.pop(last).rstrip("\n")], words)
            starts.append((len(written), len(start)))
            written.append(joined([start, texts.pop(0).rstrip("\n")], words) + "\n\n")
            last = len(written) - 1
        else:
            starts.append((len(written), 0))
        written += [f"{head}\n\n" for head in heads[number]]
        written += texts
        last = len(written) - 1 if texts and len(page[-1].lines) > 1 else None if texts else last
        written += [f"{note}\n\n" for note in notes[number]]
    text = "".join(written).rstrip("\n") + "\n"
    lengths = [0, *accumulate(map(len, written))]
    offsets = [min(lengths[paragraph] + within, max(len(text) - 2, 0)) for paragraph, within in starts]
    return text, [*accumulate(reversed(offsets), min)][::-1]  # empty pages begin where the next one does


def _with_whole_text(page: list[Block], body_size: float) -> list[Block]:
    """Put foot notes before the paragraph that they interrupt, as it continues in the next column."""
    first = len(page) - 1
    while first > 0:
        last = first
        while first > 0 and _is_note(page[first], body_size):
            first -= 1
        notes, after = page[first + 1 : last + 1], page[last + 1] if last + 1 < len(page) else None
        is_higher = after and after.lines[0].y > page[last].lines[-1].y
        if notes and after and is_higher and _continues(page[first], after):
            whole = replace(page[first], lines=page[first].lines + after.lines)
            page[first : last + 2] = [*notes, whole]
        first -= 1
    return page


def _move_notes(page: list[Block], following: Sequence[Block], body_size: float) -> None:
    """Put foot notes before the paragraph that they interrupt, as it continues on the next page."""
    n_notes = 0
    while n_notes < len(page) and _is_note(page[-1 - n_notes], body_size):
        n_notes += 1
    if 0 < n_notes < len(page) and following and _continues(page[-1 - n_notes], following[0]):
        page[-1 - n_notes :] = [*page[-n_notes:], page[-1 - n_notes]]


def _continues(block: Block, after: Block) -> bool:
    """Return whether a paragraph seems to continue in another block."""
    are_text = block.kind == after.kind == "text"
    return are_text and _is_open(block.lines[-1].text) and after.lines[0].text[:1].islower()


def _is_note(block: Block, body_size: float) -> bool:
    """Return whether a block is a foot note: smaller than the text, and it begins with a number or a mark."""
    first = block.lines[0]
    return block.kind != "table" and first.size < _NOTE_SIZE * body_size and bool(_NOTE.match(first.text))


def _is_open(written: str) -> bool:
    """Return whether a paragraph seems unfinished."""
    text = written.rstrip()
    return bool(text) and not text.startswith(("#", "|")) and text[-1] not in ".!?:"


def _look(heading: Block) -> tuple[int, bool]:
    """Return the size and the weight of a heading, which tell its level."""
    return round(heading.lines[0].size), heading.lines[0].bold


def _level(heading: Block, outline: dict[tuple[int, str], int], number: int, looks: Sequence[tuple[int, bool]]) -> int:
    """Return the level of a heading: from the outline, or else by its look, largest first."""
    listed = outline.get((number, plain(" ".join(line.text for line in heading.lines))))
    return min(listed or heading.lines[0].part.level or looks.index(_look(heading)) + 1, 6)


def _block(block: Block, words: Counter[str], level: int | None) -> str:
    if block.kind == "table":
        cells = [[joined(cell or [""], words) for cell in row] for row in block.rows]
        rows = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells]
        return "\n".join([rows[0], "|" + " --- |" * len(cells[0]), *rows[1:]]) + "\n\n"
    if block.kind == "rows":
        return "\n".join(_escaped(line.text) for line in block.lines) + "\n\n"
    if block.kind == "code":
        return code(block.lines) + "\n\n"
    text = _escaped(joined([line.text for line in block.lines], words))
    if block.kind == "entry":
        return LEADER.sub(" ... ", text) + "\n\n"
    if block.kind == "item":
        return list_item(text) + "\n\n"
    return f"{'#' * level} {text}\n\n" if level else text + "\n\n"


def _escaped(text: str) -> str:
    """Return a line so that it is text in Markdown even if it begins as headings do there."""
    return _HEADING.sub(r"\\#", text)
