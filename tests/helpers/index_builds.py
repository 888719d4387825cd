"""Indexes of a small text with a tiny model: what the tests in index/ share."""

import re

import numpy as np

import octavo
from octavo.convert.clusters import ClusterSettings
from octavo.convert.identity import identity
from octavo.convert.index_builder import IndexBuilder
from octavo.convert.pipeline import document_tokens
from octavo.documents.document import Document, hash_text
from octavo.library.open_index import Indexer
from octavo.library.source_text import SourceFile, identify
from octavo.progress import Silent
from octavo.runtime.store.library_snapshot import LibrarySnapshot
from octavo.runtime.store.model_library import Library
from octavo.settings import ReadSettings
from octavo.system.files import map_arrays

SAME = 0.01  # the same numbers in f16, added up in another order; logits have a standard deviation of about three
NAME = "document.txt"
QUESTION = [72, 105, 33, 10]
ANSWER = [65, 66, 67, 68, 69, 70, 71, 72]
SETTINGS = ClusterSettings()
KEPT = "thresholds-", "extras-"  # files of an index that an attention may have asked for


def text_of(n_characters, seed=0):
    """Words of a small random vocabulary; about a token a character."""
    rng = np.random.default_rng(seed)
    words = ["".join(map(chr, rng.integers(97, 123, rng.integers(2, 9)))) for _ in range(60)]
    return " ".join(rng.choice(words, n_characters // 3))[:n_characters]


TEXT = text_of(1600)


def new_llama(model, **options):
    return octavo.Llama(model, n_ctx=4096, n_threads=2, **options)


def library_of(llama, folder):
    return Library.of(llama.model_path, folder)


def build(llama, folder, text=TEXT, progress=None, settings=SETTINGS):
    """Build the index of a text in a folder; returns its path."""
    library = library_of(llama, folder)
    path = library.index_path(NAME, hash_text(text), identity(llama, settings))
    document, progress = Document(text, name=NAME), progress or Silent()
    tokens = document_tokens(llama, NAME, text)
    IndexBuilder(llama, LibrarySnapshot(library), path, document, tokens, settings, progress, n_jobs=2).build()
    return path


def attach_document(llama, library, path, progress, notice, prefill="sparse"):
    """Attach a document's index, and make it first if there is none; returns what the manifest says of it."""
    indexer = Indexer(llama, LibrarySnapshot(library), ReadSettings(prefill=prefill), notice)
    return indexer.attach(identify(SourceFile(path), indexer.snapshot, progress), progress)


def index_document(llama, library, path, progress, notice, prefill="sparse"):
    """Make a document's index unless it is there; returns its folder."""
    indexer = Indexer(llama, LibrarySnapshot(library), ReadSettings(prefill=prefill), notice)
    return indexer.index(identify(SourceFile(path), indexer.snapshot, progress), progress)


def thresholds_of(curve, budget):
    """Of all heads."""
    n_heads = len(curve.thresholds)
    return curve.at(np.full(n_heads, budget), np.arange(n_heads))


def share_read(llama, document, budget):
    """The share of the document's bytes that a token of an answer reads with `squeezed`, without those of the tail."""
    n_tokens, row_bytes = len(document.tokens), llama.context.cache.row_bytes
    llama.set_attention("squeezed", budget)
    llama.attach(document)
    llama.eval(QUESTION)
    llama.context.bytes_read = 0
    of_tail = 0
    for token in ANSWER:
        llama.eval([token])
        of_tail += llama.context.cache.n_tail * row_bytes
    return (llama.context.bytes_read - of_tail) / (len(ANSWER) * n_tokens * row_bytes)


def evaluate_directly(llama, tokens):
    llama.context.attach(None)
    llama.set_attention("dense")
    llama.reset()
    llama.eval(tokens)


def logits_after(llama):
    """Logits after the question in one batch, and after each token of an answer."""
    rows = []
    llama.eval(QUESTION)
    rows.append(llama.logits())
    for token in ANSWER:
        llama.eval([token])
        rows.append(llama.logits())
    return np.array(rows)


def attached_logits(llama, document, attention, budget=1.0):
    llama.reset()
    llama.set_attention(attention, budget)
    llama.attach(document)
    return logits_after(llama)


def arrays_of(path):
    return {file.name: map_arrays(file) for file in sorted(path.glob("*.safetensors"))}


def assert_same_index(actual, expected):
    """But for thresholds: an attention may have asked one of the two for some."""
    actual, expected = (
        {name: arrays for name, arrays in arrays_of(each).items() if not name.startswith(KEPT)}
        for each in (actual, expected)
    )
    assert actual.keys() == expected.keys()
    for name in expected:
        assert actual[name].keys() == expected[name].keys()
        for kind, array in expected[name].items():
            np.testing.assert_array_equal(actual[name][kind], array, err_msg=f"{kind} of {name}")


class Recorded:
    """Keep what is reported, and interrupt at the report number `at`."""

    def __init__(self, at=None):
        self.at, self.reports, self.notices = at, [], []

    def notice(self, sentence):
        self.notices.append(sentence)

    def start(self, task, total, unit, done=0):
        self._report((task, total, unit, done))

    def advance(self, amount):
        self._report(amount)

    def _report(self, what):
        self.reports.append(what)
        if len(self.reports) - 1 == self.at:
            raise KeyboardInterrupt

    @property
    def done_before(self):
        """For each task, how much was there when it began."""
        return [report[-1] for report in self.reports if isinstance(report, tuple)]


class Entered:
    """A progress as a context."""

    def __init__(self, progress):
        self.progress = progress

    def __enter__(self):
        return self.progress

    def __exit__(self, *problem):
        return False


def said(notices):
    """What was said of documents, without the figures."""
    words = [re.sub(r"(once|again): [\d,]+ tokens.*", r"\1.", notice) for notice in notices]
    return [each for each in words if not re.fullmatch(r"Indexed [\d,]+ tokens in \d+ (s|min): [\d,]+ MiB\.", each)]
