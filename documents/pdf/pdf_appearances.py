"""Draw stamps and signatures, which are laid over the pages of a PDF, apart from these pages."""

from __future__ import annotations

from typing import Any

from .pdf_forms import contents, is_drawn, laid_over


class Appearances:
    """Pages that have only the stamps and signatures of a PDF. They belong to a second copy of the file, as it changes.

    Parameters
    ----------
    content : bytes
        Of the file.
    """

    def __init__(self, content: bytes, password: str | None) -> None:
        self._content, self._password = content, password
        self._copy: Any = None

    def page(self, page: Any, number: int) -> Any:
        """Return a page with the stamps and signatures of another; None if it has none."""
        import pypdfium2
        import pypdfium2.raw as pdfium

        if not any(_has_text(page, note) for note in laid_over(page)):
            return None
        if self._copy is None:
            self._copy = pypdfium2.PdfDocument(self._content, password=self._password)
            self._copy.init_forms()
        drawn = self._copy[number]
        stays = [_has_text(drawn, note) for note in laid_over(drawn, hidden=True)]
        for index in range(len(stays) - 1, -1, -1):
            if not stays[index]:
                pdfium.FPDFPage_RemoveAnnot(drawn.raw, index)
        for each in list(drawn.get_objects(max_depth=1)):
            drawn.remove_obj(each)
        drawn.gen_content()
        pdfium.FPDFPage_Flatten(drawn.raw, pdfium.FLAT_NORMALDISPLAY)
        drawn.close()
        return self._copy[number]

    def close(self) -> None:
        """Close the copy of the file."""
        if self._copy is not None:
            self._copy.close()


def _has_text(page: Any, note: Any) -> bool:
    """Return whether something that is laid over a page is a stamp or a signature, or typed text that is only drawn."""
    import pypdfium2.raw as pdfium

    kind = pdfium.FPDFAnnot_GetSubtype(note)
    if kind == pdfium.FPDF_ANNOT_WIDGET:
        form = page.formenv.raw if page.formenv else None
        return bool(form) and pdfium.FPDFAnnot_GetFormFieldType(form, note) == pdfium.FPDF_FORMFIELD_SIGNATURE
    kinds = {pdfium.FPDF_ANNOT_STAMP, pdfium.FPDF_ANNOT_REDACT}
    if kind == pdfium.FPDF_ANNOT_FREETEXT and not contents(note):
        return is_drawn(note)
    return kind in kinds and is_drawn(note)
