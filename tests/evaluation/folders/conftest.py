"""What the tests of tasks over folders share."""

import pytest

from octavo.runtime.llama import Llama


@pytest.fixture(scope="module")
def reader(tiny_model):
    llama = Llama(tiny_model, n_ctx=8192, n_threads=2, attention="auto")
    yield llama
    llama.close()
