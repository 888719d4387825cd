"""Test how octavo says what it leaves out of documents."""

from octavo.documents.html.html import extract_html
from octavo.documents.left_out import LeftOut


def test_what_is_left_out_is_told_in_one_sentence():
    left_out = LeftOut()
    assert left_out.notices("a.docx") == ()
    left_out["picture"] += 1
    assert left_out.notices("a.docx") == ("a.docx has 1 picture: octavo leaves it out.",)
    left_out["hidden row"] += 1200
    left_out["hidden sheet"] += 1
    (sentence,) = left_out.notices("a.docx")
    assert sentence == "a.docx has 1,200 hidden rows, 1 hidden sheet and 1 picture: octavo leaves them out."


def test_a_kind_that_was_only_looked_at_is_not_told():
    assert LeftOut({"picture": 0}).notices("x") == ()


def test_a_page_tells_of_text_that_it_hides():
    page = b"<html><body><p>Seen.</p><p hidden>Not <i>seen</i>.</p><p style='display:none'></p></body></html>"
    assert extract_html(page, "a.html").notices == ("a.html has 1 hidden passage: octavo leaves it out.",)
