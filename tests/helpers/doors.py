"""The doors of octavo: each asks a question as its users do, and returns what it shows them of the answer.

Nothing here knows how octavo is built: a door is a command, the Python API, an HTTP API, a tool, or the page.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from helpers import talking_model, thinking_model
from helpers.browser import Window, chromium, set_size
from helpers.command_line import octavo
from helpers.served import SAMPLING, Served, serving

#: Tokens of a context, which holds a book that is read in part, passages of it, and an answer.
N_CTX = 4096

#: What a door writes beside an answer, as far as a row asks for it.
_SENTENCES = {
    "loop": "repeated itself",
    "length": r"answer was cut after \d|as many tokens as it may",
    "thought_was_cut": r"thought was (?:ended|cut)",
    "is_unfounded": "not in the text",
    "has_changed": "the answer comes from the text before",
    "needs_whole": "about all of (?:it|the text)",
    "warns_of_budget": r"cannot (?:read|attend|keep) as (?:little|few|much) as",
    "is_from_all": r"From the answers of all of",
    "is_from_part": r"part of .* that is read|% of .* that are read|From (?:a part|the part that was read)",
}

_WRITERS: dict[str, Callable[[Path], object]] = {
    "talking": talking_model.write_model,
    "looping": lambda path: talking_model.write_model(path, loops=True),
    "endless thought": lambda path: thinking_model.write_model(path, endless=True),
}


@dataclass(frozen=True)
class How:
    """The model, and how it reads and answers.

    Parameters
    ----------
    model : str
        A key of `_WRITERS`, or the name of a model that octavo knows; "" is the default model.
    limit : int
        Most tokens of an answer.
    think_budget : int
        Most tokens of a thought.
    attention : str
        Words of the attention.
    waits : bool
        Whether answers wait until documents are read.
    sources : bool
        Whether answers come with their sources.
    whole : str
        Whether all documents are asked: "auto", "on" or "off".
    """

    model: str = "talking"
    limit: int = 96
    think_budget: int = 1024
    attention: str = "dense"
    waits: bool = True
    sources: bool = False
    whole: str = "auto"


@dataclass(frozen=True)
class Said:
    """An answer as a door shows it.

    Parameters
    ----------
    text : str
        Its text.
    ended : str
        Why it ended: "stop", "length" or "loop".
    thought_was_cut : bool
        Whether the door says that a thought was ended at its budget.
    is_unfounded : bool
        Whether it says that a name or a number is not in the text.
    is_from_part : bool
        Whether it says that the part of a document that is read counts.
    is_from_all : bool
        Whether it says that all documents have answered.
    has_changed : bool
        Whether it says that the document has changed since it was read.
    needs_whole : bool
        Whether it says that the question seems to be about the whole document, of which the model saw less.
    warns_of_budget : bool
        Whether it says that attention cannot keep the budget.
    sources : str
        Quotes that it shows.
    marked : str
        The text with the marks that it draws.
    """

    text: str
    ended: str = "stop"
    thought_was_cut: bool = False
    is_unfounded: bool = False
    is_from_part: bool = False
    is_from_all: bool = False
    has_changed: bool = False
    needs_whole: bool = False
    warns_of_budget: bool = False
    sources: str = ""
    marked: str = ""

    @classmethod
    def of(cls, text: str, sentences: str, reason: str = "stop", sources: str = "", **more: Any) -> Said:
        """Return an answer of a door that writes sentences."""
        found = {name for name, pattern in _SENTENCES.items() if re.search(pattern, " ".join(sentences.split()))}
        ended = next((each for each in ("loop", "length") if each in found), reason)
        facts = dict.fromkeys(found - {"loop", "length"}, True)
        return cls(text, ended, sources=" ".join(sources.split()), **{**facts, **more})


@dataclass(frozen=True)
class Refused:
    """A question that was refused within a conversation, and the question before it, which was answered again.

    Parameters
    ----------
    sentence : str
        Why it was refused.
    first, again : tuple of (str, int)
        The answer before, and again: its text, and the tokens of the context or of the prompt.
    """

    sentence: str
    first: tuple[str, int]
    again: tuple[str, int]


class House:
    """Models, documents and servers that the doors share, each made when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self.documents, self.indexes, self._folder = folder / "documents", folder / "indexes", folder
        self.documents.mkdir()
        self._stack, self._servers, self.asked = ExitStack(), list[Served](), dict[Path, str]()
        self.left = set[Path]()  # documents that are not indexed again
        self.model, self.served, self.tools = cache(self._model), cache(self._served), cache(self._tools)

    def close(self) -> None:
        """End servers, tools and browser."""
        self._stack.close()

    def write(self, name: str, text: str) -> Path:
        """Write a document under its name, so that no two have the same text: these would share an index."""
        path = self.documents / name
        path.write_text(f"{name}\n\n{text}")
        return path

    def index(self, path: Path, how: How, progress: Any = None) -> None:
        """Index a document, where that was not done yet."""
        import octavo as package

        settings = package.ModelSettings(self.model(how.model), N_CTX, n_threads=2, index_dir=self.indexes)
        package.index_documents([path], settings, attention=how.attention, progress=progress)

    def index_in_part(self, path: Path, how: How) -> None:
        """Index the first piece of a document, as a background reader that was stopped."""
        import octavo as package

        class Stop(package.Progress):  # type: ignore[misc]
            n_left = 1024

            def advance(self, amount: float) -> None:
                self.n_left -= amount
                if self.n_left < -1024:
                    raise KeyboardInterrupt

        try:
            self.index(path, how, Stop())
        except KeyboardInterrupt:
            return
        raise AssertionError("The document was indexed whole.")

    def cancel(self) -> None:
        """Cancel the uploads that servers have not indexed."""
        for served in self._servers:
            for file in served.client.get("/v1/files").json()["data"]:
                if file["status"] == "processing":
                    served.client.delete(f"/v1/files/{file['id']}")

    @cached_property
    def browser(self) -> Any:
        """Return a browser."""
        driver = self._stack.enter_context(chromium())
        set_size(driver, 1280, 800)
        return driver

    @cached_property
    def portal(self) -> Any:
        """Return an event loop in a thread, for clients of tools."""
        from anyio.from_thread import start_blocking_portal

        return self._stack.enter_context(start_blocking_portal())

    def _model(self, name: str) -> Path:
        if name in _WRITERS:
            path = self._folder / f"{name.replace(' ', '-')}.gguf"
            _WRITERS[name](path)
            return path
        from octavo.runtime.models.find_model import default_model

        return default_model()

    def _served(self, how: How) -> Served:
        sampling = replace(SAMPLING, max_tokens=how.limit, think_budget=how.think_budget)
        settings = {"attention": how.attention, "n_ctx": N_CTX, "sampling": sampling}
        served = self._stack.enter_context(serving(self.model(how.model), self.indexes, **settings))
        self._servers.append(served)
        return served

    def _tools(self, how: How) -> Any:
        """Return a client of `octavo mcp` over the documents."""
        from mcp import Client, StdioServerParameters

        program = ["-P", "-c", "from octavo.cli.main import main; main()", "mcp", str(self.documents)]
        arguments = [*program, *options(self, how)]
        server = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))
        return self._stack.enter_context(self.portal.wrap_async_context_manager(Client(server)))


def options(house: House, how: How) -> list[str]:
    """Return the options of a command."""
    model, context = ["-m", house.model(how.model), "--index-dir", house.indexes], ["-c", N_CTX, "-t", 2]
    drawn = ["--temp", 0, "-n", how.limit, "--think-budget", how.think_budget, "--attention", how.attention]
    reading = ["--first-answer", "1h"] if how.waits else ["--first-answer", "0s", "--no-background"]
    return list(map(str, [*model, *context, *drawn, *reading, "--whole", how.whole]))


def with_marks(text: str, stops: list[int]) -> str:
    """Return an answer of a door that says where sentences with sources stop, with marks there."""
    for number, stop in reversed([*enumerate(stops, 1)]):
        text = f"{text[:stop]} [{number}]{text[stop:]}"
    return text


def without_marks(text: str) -> str:
    """Return an answer of a door that draws marks, without them."""
    return re.sub(r" \[\d+\]", "", text)


class Door:
    """A way to ask octavo.

    Parameters
    ----------
    house : House
        What doors share.
    """

    #: The name in the table.
    name = ""

    def __init__(self, house: House) -> None:
        self.house = house

    def ask(self, question: str, documents: list[Path], how: How) -> Said:
        """Ask a question about documents, or about none."""
        raise NotImplementedError

    def refuse(self, document: Path, how: How, question: str, refused: str) -> Refused:
        """Ask a question, then one that is refused, and then the first one anew."""
        raise NotImplementedError


class CommandLine(Door):
    """`octavo ask` and `octavo chat`."""

    name = "command line"

    def ask(self, question: str, documents: list[Path], how: How) -> Said:
        """Run `octavo ask`, or `octavo chat` without a document."""
        sources = ["--sources"] if how.sources else []
        if documents:
            result = octavo("ask", *documents, question, *options(self.house, how), *sources)
        else:
            result = octavo("chat", *options(self.house, how), stdin=f"{question}\n")
        assert result.exit_code == 0, result.stderr
        text, _, sources_text = result.stdout.rpartition("\n\n") if how.sources else (result.stdout, "", "")
        text = text.removesuffix("\n")
        return Said.of(without_marks(text), result.stderr, sources=sources_text, marked=text)

    def refuse(self, document: Path, how: How, question: str, refused: str) -> Refused:
        """Talk at a terminal, where a refused question does not end the chat."""
        import pytest

        lines = [question, "/stats", refused, "/regenerate", "/stats"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("octavo.cli.input_lines.is_terminal", lambda: True)
            patch.setattr("octavo.cli.input_lines.typed_lines", lambda: iter(lines))
            result = octavo("chat", document, *options(self.house, how))
        assert result.exit_code == 0, result.stderr
        n_tokens = [int(number.replace(",", "")) for number in re.findall(r"^context +([\d,]+)", result.stderr, re.M)]
        [sentence] = re.findall(r"^Error: (.*)", result.stderr, re.M)
        texts = result.stdout.split()  # answers without blanks would be one word; these have two
        half = len(texts) // 2
        return Refused(sentence, (" ".join(texts[:half]), n_tokens[0]), (" ".join(texts[half:]), n_tokens[1]))


class Python(Door):
    """`octavo.open_document`, `octavo.open_documents` and `octavo.open_session`."""

    name = "Python"

    @contextmanager
    def _open(self, documents: list[Path], how: How, progress: Any = None) -> Iterator[Any]:
        import octavo as package

        model = package.ModelSettings(self.house.model(how.model), N_CTX, n_threads=2, index_dir=self.house.indexes)
        sampling = package.Sampling(max_tokens=how.limit, temperature=0, think_budget=how.think_budget)
        settings = {"attention": how.attention, "sampling": sampling, "progress": progress}
        if not documents:
            session = package.open_session(model, **settings)
        else:
            seconds = 3600 if how.waits else 0
            reading = package.ReadSettings(first_answer=seconds, background=False, whole=how.whole)
            settings |= {"reading": reading, "sources": how.sources}
            if len(documents) == 1:
                session = package.open_document(documents[0], model, **settings)
            else:
                session = package.open_documents(documents, model, **settings)
        with session:
            yield session

    def ask(self, question: str, documents: list[Path], how: How) -> Said:
        """Open documents and ask."""
        import octavo as package

        notices: list[str] = []

        class Notices(package.Progress):  # type: ignore[misc]
            def notice(self, sentence: str) -> None:
                notices.append(sentence)

        with self._open(documents, how, Notices()) as session:
            answer = session.ask(question)
            found = session.sources() if how.sources else []
            quotes = [source.quote for source in found]
            return Said.of(
                answer.text,
                "\n".join([*notices, *answer.notices.values()]),
                answer.finish_reason,
                "\n".join(quotes),
                thought_was_cut=answer.thought_cut,
                is_unfounded=bool(answer.unfounded),
                is_from_part=bool(answer.read and answer.read.is_begun),
                is_from_all=bool(answer.read and answer.read.kind == "findings"),
                needs_whole=bool(getattr(session, "needs_whole", False)),
                marked=with_marks(answer.text, [stop for source in found for _, stop in source.marks]),
            )

    def refuse(self, document: Path, how: How, question: str, refused: str) -> Refused:
        """Ask in one session."""
        import octavo as package

        with self._open([document], how) as session:
            first = session.ask(question).text, session.n_tokens
            try:
                session.ask(refused)
            except package.OctavoError as problem:
                sentence = str(problem)
            again = "".join(session.regenerate())
            return Refused(sentence, first, (again, session.n_tokens))


class Http(Door):
    """An HTTP API."""

    def ask(self, question: str, documents: list[Path], how: How) -> Said:
        """Send a question that names documents."""
        served = self.house.served(replace(how, waits=True, sources=False, whole="auto"))
        with self.known(served, documents, how):
            names = [path.name for path in documents]
            body = self.body(question, how) | ({"document": names, "whole": how.whole} if names else {})
            return self.said(served.post(self.path, **body))

    @contextmanager
    def known(self, served: Served, documents: list[Path], how: How) -> Iterator[None]:
        """Have a server know documents: indexed ones, or uploads that are not indexed while a block runs."""
        if how.waits:
            for path in set(documents) - self.house.left:
                if self.house.asked.setdefault(path, path.read_text()) != path.read_text():
                    time.sleep(1)  # indexes are dated by the second, and the newest of a name counts
                self.house.index(path, how)
            yield
            return
        served.hold()
        try:
            files = [served.upload(path.name, path.read_bytes())["id"] for path in documents]
            yield
            for file in files:
                assert served.client.get(f"/v1/files/{file}").json()["status"] == "processing"
        finally:
            served.let_go()

    path = ""

    def body(self, question: str, how: How) -> dict[str, Any]:
        """Return the body of a request."""
        raise NotImplementedError

    def said(self, answer: dict[str, Any]) -> Said:
        """Return what an answer says."""
        raise NotImplementedError

    def _said(self, answer: dict[str, Any], text: str, reason: str, quotes: list[str], marked: str) -> Said:
        notices, basis = "\n".join(answer.get("notices", [])), answer.get("basis") or {}
        kinds = {"is_from_part": basis.get("kind") == "part", "is_from_all": basis.get("kind") == "findings"}
        return Said.of(text, notices, reason, "\n".join(quotes), marked=marked, **kinds)


class ChatCompletions(Http):
    """OpenAI's chat completions."""

    name, path = "chat completions", "/v1/chat/completions"

    def body(self, question: str, how: How) -> dict[str, Any]:
        """Return the body of a request."""
        return {"messages": [{"role": "user", "content": question}], "sources": how.sources}

    def said(self, answer: dict[str, Any]) -> Said:
        """Return what an answer says."""
        [choice] = answer["choices"]
        message = choice["message"]
        cited = [each["file_citation"] for each in message.get("annotations") or []]
        quotes, stops = [each["quote"] for each in cited], [each["end_index"] for each in cited if "end_index" in each]
        text = message["content"]
        return self._said(answer, text, choice["finish_reason"], quotes, with_marks(text, stops))


class Responses(Http):
    """OpenAI's responses."""

    name, path = "responses", "/v1/responses"

    def body(self, question: str, how: How) -> dict[str, Any]:
        """Return the body of a request."""
        return {"input": question, "sources": how.sources}

    def said(self, answer: dict[str, Any]) -> Said:
        """Return what an answer says."""
        [message] = [each for each in answer["output"] if each["type"] == "message"]
        [content] = message["content"]
        quotes = [each["quote"] for each in content["annotations"]]
        stops = [each["index"] for each in content["annotations"]]
        why = answer["incomplete_details"]
        reason = {"max_output_tokens": "length"}[why["reason"]] if why else "stop"
        return self._said(answer, content["text"], reason, quotes, with_marks(content["text"], stops))

    def refuse(self, document: Path, how: How, question: str, refused: str) -> Refused:
        """Continue a response that the server keeps."""
        served = self.house.served(how)
        with self.known(served, [document], how):
            begin = served.post(self.path, input="Hello?", document=[document.name])["id"]

            def answered() -> tuple[str, int]:
                told = served.post(self.path, input=question, previous_response_id=begin)
                return self.said(told).text, told["usage"]["input_tokens"]

            first = answered()
            _, error = served.refused(self.path, input=refused, previous_response_id=begin)
            return Refused(error["message"], first, answered())


class Messages(Http):
    """Anthropic's messages."""

    name, path = "messages", "/v1/messages"

    def body(self, question: str, how: How) -> dict[str, Any]:
        """Return the body of a request."""
        return {"messages": [{"role": "user", "content": question}], "max_tokens": how.limit, "sources": how.sources}

    def said(self, answer: dict[str, Any]) -> Said:
        """Return what an answer says."""
        blocks = [block for block in answer["content"] if block["type"] == "text"]
        quotes = [each["cited_text"] for block in blocks for each in block.get("citations") or []]
        reason = {"end_turn": "stop", "max_tokens": "length"}[answer["stop_reason"]]
        marked, n_before = "", 0
        for each in blocks:
            n_cited = len(each["citations"])
            marked += each["text"] + "".join(f" [{n_before + n + 1}]" for n in range(n_cited))
            n_before += n_cited
        return self._said(answer, "".join(block["text"] for block in blocks), reason, quotes, marked)


class Mcp(Door):
    """The tool `ask` of `octavo mcp`."""

    name = "MCP"

    def ask(self, question: str, documents: list[Path], how: How) -> Said:
        """Call the tool."""
        client = self.house.tools(replace(how, sources=False))
        arguments = {"question": question, "documents": [path.name for path in documents]}
        result = self.house.portal.call(client.call_tool, "ask", arguments)
        assert not result.is_error, result.content[0].text
        given = result.structured_content
        return Said.of(
            given["answer"],
            "\n".join(given["notices"]),
            given["finish_reason"],
            "\n".join(source["quote"] for source in given["sources"]),
            marked=with_marks(
                given["answer"], [each["stop"] for source in given["sources"] for each in source["marks"]]
            ),
            is_from_part=given["basis"]["kind"] == "part",
            is_from_all=given["basis"]["kind"] == "findings",
        )


class Page(Http):
    """The page in a browser, before a real server."""

    name = "page"

    def ask(self, question: str, documents: list[Path], how: How) -> Said:
        """Choose documents and ask."""
        served = self.house.served(replace(how, waits=True, sources=False, whole="auto"))
        with self.known(served, documents, how):
            window = self._open(served, documents)
            window.ask(question, seconds=120)
            return self._last(window)

    def refuse(self, document: Path, how: How, question: str, refused: str) -> Refused:
        """Ask on the page: a refused question stays there with the reason, and no later one repeats it."""
        served = self.house.served(how)
        with self.known(served, [document], how):
            window = self._open(served, [document])
            window.ask(question, seconds=120)
            window.ask(question, seconds=120)
            first = self._last(window).text, self._n_prompt(window)
            window.click("#new")
            window.ask(question, seconds=120)
            window.js("document.querySelector('#question').value = arguments[0]", refused)
            window.ask("", seconds=120)
            sentence = window.texts(".answer .problem")[-1]
            window.ask(question, seconds=120)
            return Refused(sentence, first, (self._last(window).text, self._n_prompt(window)))

    def _open(self, served: Served, documents: list[Path]) -> Window:
        window = Window(self.house.browser, f"{served.url}/")
        window.open()
        if documents:
            window.find("#documents li")
        for path in documents:
            named = f"#documents li:has(.open[title='{path.name}']) input"
            window.click(f"{named}:not(:checked)")
        return window

    @staticmethod
    def _last(window: Window) -> Said:
        text = window.texts(".answer .text")[-1]
        everything = window.shown(".answer")[-1]
        sources, text = "\n".join(window.texts(".source")), text.strip()
        return Said.of(without_marks(text), everything.replace(text, ""), sources=sources, marked=text)

    @staticmethod
    def _n_prompt(window: Window) -> int:
        figures = window.texts(".figures")[-1]  # which Details shows
        [number] = re.findall(r"of ([\d,]+) tokens?$", figures)
        return int(number.replace(",", ""))


DOORS = (CommandLine, Python, ChatCompletions, Responses, Messages, Mcp, Page)
