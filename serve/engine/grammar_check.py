"""Read each grammar in a process of its own first: one that ends this process is refused, and does not end the server.

llguidance is safe code, but a few schemas make it recurse until its stack is full.
"""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
import threading

from ..request_error import RequestError

#: Seconds after which a grammar is given up.
_LONGEST = 20.0


class GrammarCheck:
    """Checks grammars, one after another. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def check(self, lark: str, param: str) -> None:
        """Check a grammar.

        Raises
        ------
        RequestError
            Reading it takes too long, or ends the process that reads it. Other faults are found by the server itself.
        """
        with self._lock:
            if not self._is_read(lark):
                self.close()
                raise RequestError("This form of an answer is too complex: ask for a simpler one.", param=param)

    def _is_read(self, lark: str) -> bool:
        """Return whether the process reads a grammar, well or not."""
        if self._process is None:
            command = [sys.executable, "-P", "-m", __name__]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(lark) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return False
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._process.stdout, selectors.EVENT_READ)
            return bool(waiting.select(_LONGEST)) and self._process.stdout.readline() != ""

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def main() -> None:
    """Read grammars from standard input, each a line of JSON, and answer each with a line."""
    from llguidance import LLMatcher

    for line in sys.stdin:
        LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(json.loads(line)))
        print(flush=True)


if __name__ == "__main__":
    main()
