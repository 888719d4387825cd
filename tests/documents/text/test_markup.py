"""Test that headings of texts in other mark-up than Markdown are places, and that nothing else is."""

import pytest

from octavo.documents.text.plain_text import extract_text

RST = """==========
The Manual
==========

Text. Title below
is of two lines.
----

Setup
~~~~~

::

    Not this
    ========

===  ===
a    b
===  ===

Care of ``boats``
-----------------

End
~~~
"""
ADOC = """= Manual of the boat
:toc:

== Setup [[s]]

[source,sh]
----
== not this
# nor this
----

.A title of a block
====
An example.
====

=== Mast *first*

|===
|a
|===

Care
----

Text.
"""
ORG = """#+TITLE: The Boat
* TODO [#A] Setup :deck:mast:
text
** Mast
#+begin_src sh
* not this
#+end_src
*bold* text
* Care
"""
TEX = r"""\documentclass{book}
\title{The \emph{Boat} \\ and me}
% \section{not this}
\begin{document}
\chapter[Short]{Setup \& {more}\label{s}}
\section*{Mast~one}
\begin{verbatim}
\section{nor this}
\end{verbatim}
50\% \subsection{Care}
# no
"""


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.rst", RST, ["The Manual", "The Manual > Setup", "The Manual > Setup > Care of boats", "The Manual > End"]),
        ("a.rest", "Log\n###\n\n=====\n Sub\n=====\n\nA\n#\n", ["Log", "Log > Sub"]),
        ("a.rst", "日誌\n====\n\nText\n", ["日誌"]),
        (
            "a.adoc",
            ADOC,
            [
                "Manual of the boat",
                "Manual of the boat > Setup [[s]]",
                "Manual of the boat > Setup [[s]] > Mast first",
                "Manual of the boat > Care",
            ],
        ),
        ("A.ASCIIDOC", "Log\n===\n\nSub\n---\n\n----\ncode\n----\n", ["Log", "Log > Sub"]),
        ("a.org", ORG, ["The Boat", "The Boat > Setup", "The Boat > Setup > Mast", "The Boat > Care"]),
        (
            "a.tex",
            TEX,
            [
                "The Boat and me",
                "The Boat and me > Setup & more",
                "The Boat and me > Setup & more > Mast one",
                "The Boat and me > Setup & more > Mast one > Care",
            ],
        ),
        ("a.ltx", "\\begin{frame}\\frametitle{One}\n\\end{frame}\n\\frametitle{Two $x$", ["One", "Two x"]),
    ],
)
def test_headings_are_places(name, text, found):
    document = extract_text(text.encode(), name)
    assert document.text == text
    assert [place.heading for place in document.places] == found
    assert all(place.offset == 0 or text[place.offset - 1] == "\n" for place in document.places)


@pytest.mark.parametrize("name", ["a.rst", "a.adoc", "a.org", "a.tex"])
def test_no_text_takes_long(name):
    """A search that goes back and forth would hang here."""
    for text in ("=" * 50_000, "\\section{" * 5000, "* " * 30_000, "a\n=\n" * 10_000, "=== " + "*" * 50_000):
        extract_text(text.encode(), name)
