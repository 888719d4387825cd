"""Ask the system for the rows that a step has selected, before attention reads them.

A step's rows are scattered over the document. If memory does not hold all of it, a thread that touches a missing page
waits for the disk, page after page. So as soon as a head has selected, the step asks for all pages of its rows
together, and the system reads them while other heads select.

Asking costs a system call, and most pages are in memory, such as those of recent selections. So a step asks only for
pages that no recent step has selected.
"""

from __future__ import annotations

import numpy as np
from numba import int64, types, uint16

from ..layout.spans import spans_at
from ..numba_support.compile import kernel, late_stage
from ..numba_support.memory import call_native
from ..numba_support.shape import SHAPE
from ..numba_support.views import array_at, record_at

#: A mapped file, and the step that last selected each of its pages.
PAGES = np.dtype(
    [
        ("first", "i8"),  # address of the file's first page
        ("n_pages", "i8"),
        ("page_bits", "i8"),  # a page has 2 ** page_bits bytes
        ("selected", "i8"),  # address of a u2 for each page: the last step that selected it
        ("step", "i8"),  # number of this step
        ("advise", "i8"),  # address of the system's `madvise`
    ],
    align=True,
)

#: Steps after which memory may have lost a page.
LATELY = 8

#: MADV_WILLNEED, the same number on Linux and macOS.
_WILL_NEED = 3


@late_stage(SHAPE, *[types.int64] * 3)
def ask_for_rows(shape, pages_address, spans_address, n_spans):
    """Ask the system for the pages of the rows in a head's spans, except those selected recently.

    Parameters
    ----------
    pages_address : int64
        Address of the PAGES record of the document's file. Rows elsewhere are skipped.
    """
    pages, spans = record_at(pages_address, PAGES), spans_at(spans_address, n_spans)
    for i in range(n_spans):
        if spans[i].rows == 0:
            _ask(pages, spans[i].keys, spans[i].n_rows * shape.row_bytes)
            if not shape.latent:
                _ask(pages, spans[i].values, spans[i].n_rows * shape.value_bytes)


@kernel
def _ask(pages, start, n_bytes):
    """Ask for the pages of some bytes, in one call for each run of pages that were not selected recently."""
    page, last = (start - pages.first) >> pages.page_bits, (start + n_bytes - 1 - pages.first) >> pages.page_bits
    if page < 0 or last >= pages.n_pages:
        return
    selected, now = array_at(pages.selected, (pages.n_pages,), np.uint16), uint16(pages.step)
    n_missing = int64(0)  # pages before `page` that are still to be asked for
    while page <= last:
        if uint16(now - selected[page]) >= LATELY:
            n_missing += 1
        else:
            _call(pages, page, n_missing)
            n_missing = int64(0)
        selected[page] = now
        page += 1
    _call(pages, page, n_missing)


@kernel
def _call(pages, stop, n_pages):
    """Ask for the n_pages pages before page `stop`."""
    if n_pages > 0:
        start = pages.first + ((stop - n_pages) << pages.page_bits)
        call_native(pages.advise, start, n_pages << pages.page_bits, _WILL_NEED, 0)
