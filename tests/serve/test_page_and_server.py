"""The page at `/` in a real browser, before the real server and SmolLM2: from an upload to a source, and back."""

from __future__ import annotations

import json
import re

import httpx
import pytest
from helpers.browser import Window, chromium, set_media, set_size
from helpers.page_server import PageServer, cite
from helpers.page_server import serving as stand_in
from helpers.pdf_files import PdfWriter, lines
from helpers.product import ROOT
from helpers.served import serving

QUESTION = "What is the name of the latest epoch?"


@pytest.fixture(scope="module")
def browser():
    with chromium() as driver:
        yield driver


@pytest.fixture
def window(browser, served_real):
    """The page in a window of 1280 by 800, before a server that knows no documents."""
    set_size(browser, 1280, 800)
    set_media(browser)
    window = Window(browser, f"{served_real.url}/")
    window.open()
    yield window
    assert window.leave() == []
    for file in served_real.client.get("/v1/files").json()["data"]:
        served_real.client.delete(f"/v1/files/{file['id']}")


@pytest.fixture
def file(tmp_path):
    """The article about geology, of some 1,600 tokens."""
    lines = (ROOT / "examples" / "encyclopedia.md").read_text().splitlines()
    [start] = [number for number, line in enumerate(lines) if line == "# Geology"]
    path = tmp_path / "géologie (1).md"
    path.write_text("\n".join(lines[start : start + 12]) + "\n🧪 The end.\n")
    return path


def read(window, file):
    window.send_file(file)
    window.until(lambda: "tokens" in window.texts("#about")[0], "it is not read", 120)


def test_a_document_is_read_asked_compared_and_removed(window, served_real, file):
    read(window, file)
    window.sees("#documents .open", file.name)
    [known] = served_real.client.get("/v1/files").json()["data"]
    assert window.text("#documents .open").startswith(f"{file.name}\n{known['tokens']:,} tokens")

    window.js(
        "window.texts = new Set(); new MutationObserver(() => texts.add(document.querySelector('.answer .text')"
        "?.textContent)).observe(document.querySelector('#conversations'), {childList: true, subtree: true,"
        "characterData: true})"
    )
    window.ask(QUESTION, seconds=60)
    assert "Holocene" in window.text(".answer .text")
    assert window.js("return texts.size") > 3  # it came in pieces
    window.click(".line summary")
    figures = window.text(".figures")
    assert f"{known['tokens']:,} of" in figures
    assert "Keys and values read" in figures
    assert "tokens/s" in figures

    sources = window.texts(".source")
    assert any("Holocene" in source for source in sources)
    quote = window.js("return document.querySelector('.source').textContent")
    window.click(".source")
    window.until(lambda: window.focused()["tag"] == "MARK")
    marked = "".join(window.texts("mark"))
    assert quote.startswith(marked[:40])
    assert "".join(window.texts(".part")) == file.read_text()
    window.press("\ue00c")

    window.click("#new")
    window.click("#open-settings")
    window.click("#compare")
    window.click("#settings [value=save]")
    window.ask(QUESTION, seconds=60)
    shares = [text.splitlines()[1] for text in window.shown(".compared .body dl")]
    assert shares[0] == "100%"
    assert len(shares) == 2
    assert all("Holocene" in answer for answer in window.texts(".compared .answer .text"))

    window.click("#documents .icon-button")
    window.click("#remove [value=remove]")
    window.find("#library-empty")
    assert served_real.client.get("/v1/files").json()["data"] == []


@pytest.mark.slow
def test_a_document_is_asked_before_and_after_it_is_read(window, served_real, file):
    served_real.hold()
    window.send_file(file)
    window.sees(".lead", "You can ask already")
    window.ask(QUESTION, seconds=60)
    assert re.fullmatch(rf"From \d passages?, \d+% of {re.escape(file.name)}; the rest is .*", window.text(".basis"))
    assert "Holocene" in window.text(".answer .text")
    window.click(".source")
    window.until(lambda: window.focused()["tag"] == "MARK")
    assert "".join(window.texts(".part")) == file.read_text()
    window.press("\ue00c")
    served_real.let_go()
    window.until(lambda: "tokens" in window.texts("#about")[0], "it is not read", 120)
    assert window.text(".basis").endswith("now all of it is read: ask again")
    window.ask(QUESTION, seconds=60)
    assert window.texts(".basis")[1] == f"From all of {file.name}"


@pytest.mark.slow
def test_documents_of_a_folder_are_asked_together_in_parts_and_whole(window, served_real, file, tmp_path):
    """One of them exceeds the context, and is one file for the page."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    file.rename(folder / "geology.md")
    emma = (ROOT / "examples" / "emma.txt").read_text()
    (folder / "emma.txt").write_text(emma[:11_000])
    window.send_folder(folder)
    window.until(lambda: window.texts("#about")[0].endswith(" tokens"), "they are not read", 240)
    known = {each["filename"]: each for each in served_real.client.get("/v1/files").json()["data"]}
    assert {name: each["folders"] for name, each in known.items()} == {"emma.txt": ["shelf"], "geology.md": ["shelf"]}
    assert known["emma.txt"]["tokens"] > served_real.server.engine.llama.n_ctx()
    window.click("#open-settings")
    window.click("#reads option[value=document]")
    window.click("#settings [value=save]")
    window.ask(QUESTION, seconds=120)
    assert window.text(".basis") == "From all of geology.md, the likeliest of 2 documents"
    assert set(window.texts(".source .file")) <= {"geology.md"}
    window.click("#new")
    window.click("#documents [title='emma.txt']")
    window.ask("Who is the governess of Emma?", seconds=120)
    [basis] = [one for one in window.texts(".basis") if "emma.txt" in one]
    assert re.fullmatch(r"From a part, \d\d% of emma.txt", basis)


@pytest.mark.slow
def test_a_reload_finds_the_document_and_the_conversation(window, file):
    read(window, file)
    window.ask(QUESTION, seconds=60)
    answer = window.text(".answer .text")
    window.open(fresh=False)
    window.click("#documents .open")
    assert window.text(".answer .text") == answer
    window.send_file(file)
    window.sees("#status", "was read before.")


@pytest.mark.slow
def test_stop_ends_the_work_of_the_server(window, served_real, file):
    read(window, file)
    n_before = served_real.server.engine.totals.cancelled
    window.ask("Write a long poem about rocks, of many verses.", wait=False)
    window.until(lambda: any(window.texts(".answer .text")), seconds=30)
    with served_real.paused():  # a fast engine would end the answer before a slow browser has clicked
        window.click("#stop")
        window.sees(".body .problem", "Stopped.")
    served_real.wait_until_idle()
    assert served_real.server.engine.totals.cancelled == n_before + 1


def test_what_the_server_refuses_is_said_in_its_words(window, tmp_path):
    window.refused = True
    noise = tmp_path / "noise.txt"
    noise.write_bytes(bytes(range(256)) * 40)
    window.send_file(noise)
    window.until(lambda: "noise.txt is not text" in window.text("#documents .problem"), seconds=60)
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    window.send_file(empty)
    window.sees("#documents .problem", "empty.txt is empty.")


def test_a_server_with_a_key_asks_for_it(browser, tiny_model, tmp_path):
    with serving(tiny_model, tmp_path / "library", key="secret") as server:
        window = Window(browser, f"{server.url}/")
        window.open(ready=False)
        window.find("#key").send_keys("wrong\n")
        window.sees("#key-error", "The server does not know this key.")
        window.find("#key").send_keys("secret\n")
        window.sees("#model", "tiny")
        window.find("#library-empty")


def keys(told):
    """Return the names in a JSON value, and in what it holds."""
    if isinstance(told, list):
        return set().union(*map(keys, told))
    if not isinstance(told, dict):
        return set()
    return set(told).union(*map(keys, told.values()))


def test_the_stand_in_of_other_tests_tells_nothing_that_the_server_does_not_tell(served_real, file):
    with stand_in(PageServer(sources=lambda text: [cite(text, "the latest epoch")], progress=[500])) as other:
        known = served_real.read(file.name, file.read_bytes())
        told = []
        with httpx.Client(base_url=other.url) as client:
            for server, name in (
                (client, other.store(file.name, file.read_text()).id),
                (served_real.client, known["id"]),
            ):
                asked = {"model": "any", "messages": [{"role": "user", "content": QUESTION}], "document": [name]}
                asked |= {"sources": True, "stream": True, "stream_options": {"include_usage": True}}
                asked |= {"return_progress": True}
                answer = server.post("/v1/chat/completions", json=asked).text.split("\n\n")
                chunks = [json.loads(each[6:]) for each in answer if each.startswith("data: {")]
                paths = ("/props", "/v1/models", "/v1/files", f"/v1/files/{name}", "/v1/files/nothing")
                told.append([*(keys(server.get(path).json()) for path in paths), keys(chunks)])
                removed = server.delete(f"/v1/files/{name}")
                told[-1].append(keys(removed.json()))
    for of_stand_in, of_server in zip(*told, strict=True):
        assert of_stand_in - of_server == set()


def test_a_source_in_a_pdf_opens_its_page_with_the_passage_marked(window, file, tmp_path):
    words = file.read_text().replace("🧪", "").encode("latin-1", "ignore").decode("latin-1").split()
    rows = [" ".join(words[start : start + 14]) for start in range(0, len(words), 14)]
    writer = PdfWriter()
    for start in range(0, len(rows), 50):
        writer.page(*lines(rows[start : start + 50], y=780))
    path = tmp_path / "geology.pdf"
    path.write_bytes(writer.content())
    read(window, path)
    window.ask(QUESTION, seconds=120)
    window.click(".source")
    window.until(lambda: window.js("return document.querySelector('#text-picture').naturalWidth") > 500, "no page", 60)
    assert window.js("return document.querySelector('#text-picture').alt").startswith("Page ")
    window.click("#close-text")
    window.click("#show-text")
    window.until(lambda: window.js("return document.querySelector('#text-picture').alt") == "Page 1")
    window.until(lambda: window.js("return document.querySelector('#text-picture').naturalWidth") > 500, "no page", 60)
