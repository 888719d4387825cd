"""Save what attention sees in a real model, for tests: `python tests/data/save_keys.py` writes smollm2.npz.

Two KV heads of SmolLM2-135M, one in an early layer and one in a late one, over the first tokens of examples/emma.txt:
keys, values : (2, 700, 64) f16
queries : (2, 8, 9, 64) f16, of the last 8 tokens, scaled; the KV head's own three come first
"""

from pathlib import Path

import numpy as np

import octavo
from octavo.runtime.models.find_model import default_model

HEADS = [(4, 0), (22, 1)]  # layer and KV head
N_TOKENS, N_QUERIES = 700, 8
HERE = Path(__file__).parent


def main():
    llama = octavo.Llama(default_model(), n_ctx=1024, verbose=False)
    text = (HERE.parent.parent / "examples" / "emma.txt").read_bytes()[:8000]
    tokens = llama.tokenize(text)[:N_TOKENS]
    llama.eval(tokens[:-N_QUERIES])
    with llama.context.captured_queries(N_QUERIES) as captured:
        llama.eval(tokens[-N_QUERIES:])
    keys, values, queries = [], [], []
    for layer, head in HEADS:
        stored = llama.context.cache.rows(layer)
        keys.append(stored[0][head])
        values.append(stored[1][head])
        own_first = np.roll(captured[layer], -head, axis=0)  # (n_kv_head, n_tokens, group, head_dim)
        queries.append(np.concatenate(own_first, axis=1).astype(np.float16))
    np.savez_compressed(HERE / "smollm2.npz", keys=keys, values=values, queries=queries)


if __name__ == "__main__":
    main()
