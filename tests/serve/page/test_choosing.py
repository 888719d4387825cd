"""What a conversation is about: one document, several, a folder, all, or none."""

from __future__ import annotations

import time

import pytest
from helpers.page_server import QUOTE, REPORT, cite

ESCAPE, SPACE = "\ue00c", "\ue00d"


@pytest.fixture
def shelf(window, server):
    """Four documents: two in a folder, one in a folder of it, one in none."""
    names = {"a.pdf": ["papers"], "b.pdf": ["papers"], "old.pdf": ["papers/1999"], "note.txt": []}
    stored = {name: server.store(name, f"{name} {REPORT}", *folders).id for name, folders in names.items()}
    window.open()
    window.find("#documents .open")
    return stored


def row(window, name):
    return next(one for one in window.all("#documents li") if one.find_element("css selector", ".name").text == name)


def click(window, name, css):
    """Click an element of a document's or folder's row."""
    window.do(lambda: row(window, name).find_element("css selector", css).click())


def tick(window, name):
    click(window, name, "[type=checkbox]")


def ticked(window):
    """Return the names of the rows that are ticked."""
    state = "return [...document.querySelectorAll('#documents li:has(:checked) .name')].map((name) => name.textContent)"
    return set(window.js(state))


def ask_folder(window, path):
    window.click(f"#documents .folders [title='Ask all documents in {path}']")


def chips(window):
    return window.shown("#chips li")


def test_several_documents_are_asked_together(window, server, shelf):
    server.sources = lambda text: [cite(text, QUOTE, 0.2, page=text[0])]
    tick(window, "a.pdf")
    assert window.text("#title") == "a.pdf"
    tick(window, "note.txt")
    assert window.text("#title") == "2 documents"
    assert "2 documents · " in window.text("#about")
    assert "octavo finds which of the 2 documents" in window.text(".lead")
    server.basis = {"kind": "excerpts", "passages": 5, "share": 0.021}
    window.ask("What happened?")
    assert set(server.chats[0]["document"]) == {shelf["a.pdf"], shelf["note.txt"]}
    assert window.texts(".source .file") == ["a.pdf", "note.txt"]
    assert window.texts(".source .place") == ["page a", "page n"]
    assert (
        window.text(".basis") == "From 5 passages, 2% of a.pdf and note.txt"
    )  # all are read: there is no more to come
    window.click(".answer li:last-child .source")
    window.sees("#text-title", "note.txt")
    assert window.texts(".part")[0].startswith("note.txt A report.")
    tick(window, "a.pdf")
    server.basis = None
    window.ask("And now?")
    assert server.chats[1]["document"] == [shelf["note.txt"]]
    assert [one["content"] for one in server.chats[1]["messages"]] == ["What happened?", "The answer.", "And now?"]
    assert window.texts(".basis")[1] == "From all of note.txt"


def test_of_several_documents_the_one_that_was_read_is_named(window, server, shelf):
    window.click("#all")
    window.ask("What happened?")
    assert len(server.chats[0]["document"]) == 4
    assert window.text(".basis").endswith(", the likeliest of 4 documents")


def test_a_folder_stands_for_what_is_in_it(window, server, shelf):
    ask_folder(window, "papers")
    assert ticked(window) == {"a.pdf", "b.pdf", "old.pdf"}
    assert window.text("#title") == "papers"
    assert chips(window) == ["papers/"]
    server.store("c.pdf", REPORT, "papers")  # it came later, and is asked, too
    window.js("dispatchEvent(new Event('focus'))")
    window.sees("#documents", "c.pdf")
    window.ask("What happened?")
    assert len(server.chats[0]["document"]) == 4
    tick(window, "b.pdf")
    assert ticked(window) == {"a.pdf", "c.pdf", "old.pdf"}
    ask_folder(window, "papers/1999")
    assert ticked(window) == {"old.pdf"}
    window.click("#chips button")
    assert window.text("#title") == "No document"


def test_what_is_asked_stands_above_the_question(window, server, shelf):
    assert not window.find("#ask").find_element("id", "chips").is_displayed()
    for name in ("note.txt", "a.pdf"):
        tick(window, name)
    assert chips(window) == ["note.txt", "a.pdf"]
    window.click("#chips [aria-label='Do not ask note.txt']")
    assert (chips(window), ticked(window)) == (["a.pdf"], {"a.pdf"})
    window.click("#all")
    assert chips(window) == ["All documents"]
    window.click("#chips button")
    assert ticked(window) == set()
    for number in range(8):
        server.store(f"{number}.txt", REPORT)
    window.js("dispatchEvent(new Event('focus'))")
    window.sees("#documents", "7.txt")
    for number in range(8):
        tick(window, f"{number}.txt")
    assert len(chips(window)) == 7
    assert chips(window)[-1] == "and 2 more"


def test_the_last_used_come_first_with_their_folders_in_grey(window, server, shelf):
    assert window.shown("#documents .name") == ["note.txt", "old.pdf", "b.pdf", "a.pdf"]
    assert window.shown("#documents .folders") == ["", "papers/1999", "papers", "papers"]
    tick(window, "a.pdf")
    window.ask("What happened?")
    assert window.shown("#documents .name") == ["a.pdf", "note.txt", "old.pdf", "b.pdf"]
    server.documents[shelf["b.pdf"]].used = time.time() + 60  # another program asked it
    window.js("dispatchEvent(new Event('focus'))")
    window.until(lambda: window.shown("#documents .name")[0] == "b.pdf")


def test_all_documents_and_none(window, server, shelf):
    assert window.find("#without").get_attribute("aria-pressed") == "true"
    window.click("#all")
    assert window.find("#all").get_attribute("aria-pressed") == "true"
    assert window.text("#title") == "All documents"
    assert len(ticked(window)) == 4
    server.store("later.txt", REPORT)
    window.js("dispatchEvent(new Event('focus'))")
    window.sees("#documents", "later.txt")
    window.ask("What happened?")
    assert len(server.chats[0]["document"]) == 5
    tick(window, "a.pdf")  # all but this
    assert window.text("#title") == "4 documents"
    window.click("#without")
    assert ticked(window) == set()
    window.ask("And now?")
    assert "document" not in server.chats[1]


def test_documents_of_a_folder_that_are_being_read_are_told(window, server, shelf):
    server.read_s = 60
    slow = server.store("slow.pdf", REPORT, "papers")
    slow.began = time.monotonic() - 20
    window.open(fresh=False)
    ask_folder(window, "papers")
    assert window.text("#about").endswith("1 being read")
    assert "Reading 1 document" in window.text(".lead")
    window.ask("What happened?")
    assert window.text(".basis").startswith(
        "From 9 passages, 3% of a.pdf, b.pdf and 2 others; the rest is being read: 3"
    )
    slow.began -= 60
    window.until(lambda: window.text(".basis").endswith("; now all of it is read: ask again"))


def test_many_documents_are_searched_by_name_and_folder(window, server, shelf):
    for number in range(20):
        server.store(f"report {number}.pdf", REPORT, "~/work/reports")
    window.open()
    window.find("#documents .open")
    window.find("#filter").send_keys("REPORT 1")
    window.until(lambda: len(window.all("#documents li")) == 11)
    window.find("#filter").clear()
    window.find("#filter").send_keys("1999")
    window.until(lambda: window.shown("#documents .name") == ["old.pdf"])
    window.find("#filter").send_keys("x")
    window.sees("#filter-empty", "None has such a name.")
    assert window.find("#filter-empty").is_displayed()


def test_documents_that_are_gone_are_not_passed_over(window, server, shelf):
    tick(window, "a.pdf")
    window.ask("What happened?")
    del server.documents[shelf["a.pdf"]]
    window.js("dispatchEvent(new Event('focus'))")
    window.sees("#hint", "Choose other documents")
    assert window.text("#title") == "Documents that are gone"
    window.ask("And now?", wait=False)
    time.sleep(0.2)
    assert len(server.chats) == 1
    tick(window, "note.txt")
    window.press(SPACE)
    window.click("#documents .open")
    window.until(lambda: window.find("#send").is_enabled())


def test_the_keyboard_chooses(window, shelf):
    window.tab_to(lambda focused: focused["label"] == "Ask note.txt, too")
    window.press(SPACE)
    window.tab_to(lambda focused: focused["label"] == "Ask a.pdf, too")
    window.press(SPACE)
    assert window.text("#title") == "2 documents"
    assert window.focused()["label"] == "Ask a.pdf, too"
    window.tab_to(lambda focused: focused["label"] == "Ask all documents in papers", back=True)
    window.press("\ue007")
    assert window.text("#title") == "papers"


# ---- What is sent -------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """A folder on the user's disk, with what octavo does not read."""
    files = {"a.txt": REPORT, "old/b.txt": f"Old. {REPORT}", ".hidden": "x", "picture.png": "x", "old/.DS_Store": "x"}
    for name, text in files.items():
        path = tmp_path / "papers" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "papers"


def drop(window, *paths):
    drag = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        window.cdp("Input.dispatchDragEvent", type=kind, x=700, y=300, data=drag)


def test_a_dropped_folder_is_read_and_asked(window, server, folder):
    server.store("before.txt", REPORT)
    window.open()
    window.click("#documents .open")
    drop(window, folder)
    window.until(lambda: len(server.documents) == 3)
    window.sees("#library-left-out", "Left out as hidden, or as pictures or sounds: ")
    assert "picture.png" in window.text("#library-left-out")
    assert {one.filename: one.folders for one in server.documents.values() if one.folders} == {
        "a.txt": ["papers"],
        "b.txt": ["papers/old"],
    }
    window.until(lambda: window.texts("#title") == ["papers"])
    window.until(lambda: window.find("#send").is_enabled())
    window.ask("What happened?")
    assert len(server.chats[0]["document"]) == 2


def test_a_folder_is_chosen_and_sent(window, server, folder):
    window.open()
    window.send_folder(folder)
    window.until(lambda: sorted(one.filename for one in server.documents.values()) == ["a.txt", "b.txt"])
    window.sees("#title", "papers")


def test_a_folder_without_documents_is_told(window, server, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").write_text("x")
    window.open()
    drop(window, tmp_path / "photos")
    window.sees("#library-left-out", "There is no document in this folder.")
    assert server.documents == {}
    assert window.text("#title") == "No document"


def test_several_files_that_are_dropped_are_asked_together(window, server, tmp_path):
    server.send_s = 0.2
    paths = [tmp_path / f"{number}.txt" for number in range(5)]
    for number, path in enumerate(paths):
        path.write_text(f"{number} {REPORT}")
    window.open()
    drop(window, *paths)
    window.sees("#documents", "Waits to be sent")  # they come one after another, so that the page can ask meanwhile
    window.until(lambda: len(server.documents) == 5)
    window.sees("#title", "5 documents")
    window.ask("What happened?")
    window.send_file(tmp_path / "0.txt")  # what comes to a conversation that goes on is asked with the others
    window.sees("#title", "6 documents")


def test_a_long_text_that_is_pasted_becomes_a_document(window, server):
    window.open()
    paste = (
        "const data = new DataTransfer(); data.setData('text/plain', arguments[0]);"
        "document.querySelector('#question').dispatchEvent("
        "new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true}))"
    )
    window.js(paste, "short")
    window.js(paste, f"Minutes: <b>of</b> May\n{REPORT}")
    window.sees("#title", "Minutes b of b May.txt")
    assert [one.text for one in server.documents.values()] == [f"Minutes: <b>of</b> May\n{REPORT}"]


def test_an_upload_of_what_is_known_is_that_document(window, server, file):
    known = server.store("known.txt", REPORT, "~/papers")
    server.copy_of = known.id
    window.open()
    window.send_file(file)
    window.sees("#title", "known.txt")
    window.ask("What happened?")
    assert server.chats[0]["document"] == [known.id]
    window.open(fresh=False)
    window.sees("#title", "known.txt")
    window.ask("And now?")
    assert server.chats[1]["document"] == [known.id]
