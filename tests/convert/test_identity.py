"""What decides numbers is the identity of indexes, conversations and prompts: rows are reused where it is equal."""

import os

import numpy as np
import pytest
from gguf import GGUFWriter
from helpers import tiny_models
from helpers.index_builds import SETTINGS, library_of

import octavo
from octavo.ask.chats.chat_file import Conversation, read_conversation, write_conversation
from octavo.convert.identity import RowSource, identity, numbers_of
from octavo.errors import OctavoError
from octavo.library.open_index import Indexer
from octavo.library.source_text import SourceFile, identify
from octavo.progress import Silent
from octavo.runtime.store.library_snapshot import LibrarySnapshot
from octavo.runtime.store.model_library import Library
from octavo.serve.engine.prompt_cache import PromptCache
from octavo.settings import ReadSettings
from octavo.system.files import read_json, write_json

#: Context beyond which the positions of the model turn by other factors.
ORIGINAL = 256

SIZE = tiny_models.Size(n_layer=2, n_head=4, n_kv_head=2, head_dim=64, n_embd=128, n_ff=256, n_ctx_train=2048, window=0)

TEXT = "The keeper of the lighthouse wrote down each ship that passed the island. " * 2


@pytest.fixture(scope="module")
def long_rope(tmp_path_factory):
    """A model with short and long factors, as Phi-3 has them."""
    recipe = tiny_models.llama(SIZE)
    draws, rng = tiny_models.all_tensors(recipe, SIZE.n_layer), np.random.default_rng(0)
    tensors = {name: draw(rng).astype(np.float32) for name, draw in draws.items()}
    half = SIZE.head_dim // 2
    tensors["rope_factors_short.weight"] = np.ones(half, np.float32)
    tensors["rope_factors_long.weight"] = np.linspace(1, 40, half, dtype=np.float32)
    metadata = tiny_models.common_metadata(SIZE) | recipe.metadata
    metadata |= {"rope.scaling.type": "longrope", "rope.scaling.original_context_length": ORIGINAL}
    path = tmp_path_factory.mktemp("long") / "long.gguf"
    return tiny_models.write_gguf(path, "llama", metadata, tensors, chat_template=tiny_models.CHAT_TEMPLATE)


def load(model, n_ctx=ORIGINAL, **options):
    return octavo.Llama(model, n_ctx=n_ctx, n_batch=128, n_threads=2, **options)


def indexed(llama, folder, file):
    """The folder of the index of a file, which is made if there is none; and whether there was one."""
    indexer = Indexer(llama, LibrarySnapshot(library_of(llama, folder)), ReadSettings(), lambda sentence: None)
    text = identify(SourceFile(file), indexer.snapshot, Silent())
    there = indexer.find(text) is not None
    return indexer.index(text, Silent()), there


def logits_over(llama, folder):
    from octavo.runtime.store.index_files import open_index

    llama.reset()
    llama.attach(open_index(folder, library_of(llama, folder.parents[1]).model_hash)[0])
    llama.eval([72, 105])
    return llama.logits()


def test_an_ordinary_model_has_the_identity_that_it_had(tiny_model):
    llama = load(tiny_model)
    assert numbers_of(llama) == {"rope": [0.0, 0.0]}
    assert identity(llama, SETTINGS).keys() == {"format_version", "head", "clustering", "rope"}


def test_an_index_of_short_factors_does_not_serve_long_ones(long_rope, tmp_path):
    file = tmp_path / "keeper.txt"
    file.write_text(TEXT)
    short, long = load(long_rope), load(long_rope, 2 * ORIGINAL)
    assert (numbers_of(short)["long_factors"], numbers_of(long)["long_factors"]) == (False, True)
    of_short, _ = indexed(short, tmp_path, file)
    of_long, there = indexed(long, tmp_path, file)
    assert not there
    assert of_long != of_short
    assert indexed(load(long_rope, 3 * ORIGINAL), tmp_path, file) == (of_long, True)
    assert indexed(load(long_rope, ORIGINAL - 8), tmp_path, file) == (of_short, True)
    llama = load(long_rope, 2 * ORIGINAL)
    expected = logits_over(llama, of_long)
    tokens = llama.sequence.tokens[: llama.n_tokens].tolist()
    llama.reset()
    llama.eval(tokens)
    spread = float(np.std(expected))
    assert np.abs(llama.logits() - expected).max() < 0.1 * spread
    assert np.abs(logits_over(llama, of_short) - expected).max() > spread


def test_a_longer_text_does_not_reuse_rows_of_other_factors(long_rope, tmp_path, monkeypatch):
    monkeypatch.setattr("octavo.convert.index_builder.PIECE", 64)
    first, second = tmp_path / "first.txt", tmp_path / "second.txt"
    first.write_text(TEXT)
    second.write_text(TEXT + "Then the ship came home.")
    short, long = load(long_rope), load(long_rope, 2 * ORIGINAL)
    indexed(short, tmp_path, first)
    found, expected = indexed(long, tmp_path, second)[0], indexed(long, tmp_path / "apart", second)[0]
    layers = [np.memmap(folder / "layer-000.safetensors", np.uint8, "r")[-4096:] for folder in (found, expected)]
    np.testing.assert_array_equal(*layers)


def test_conversations_and_prompts_of_other_factors_are_computed_again(long_rope, tmp_path):
    short, long = load(long_rope), load(long_rope, 2 * ORIGINAL)
    library = Library.of(long_rope, tmp_path)
    sources = [RowSource.of(llama, library) for llama in (short, long)]
    short.eval(range(40))
    conversation = Conversation.of(short, 0, [], None)
    path = tmp_path / "kept" / "chat.safetensors"
    write_conversation(path, conversation, sources[0])
    assert [len(read_conversation(path, source).rows) for source in sources] == [SIZE.n_layer, 0]
    caches = [PromptCache(path.parent, source, 1 << 30) for source in sources]
    tokens = np.arange(40, dtype=np.int32)
    assert [cache.longest(conversation.follows, tokens)[0] for cache in caches] == [40, 0]
    assert read_conversation(path, sources[1]).tokens == list(range(40))


def test_a_conversation_of_an_older_octavo_is_of_an_ordinary_model(long_rope, tiny_model, tmp_path):
    for model, n_rows in ((tiny_model, 3), (long_rope, 0)):
        llama, path = load(model), tmp_path / "chat.safetensors"
        llama.eval(range(40))
        source = RowSource.of(llama, Library.of(model, tmp_path))
        write_conversation(path, Conversation.of(llama, 0, [], None), source._replace(numbers={}))
        header = path.read_bytes().replace(b', "numbers": {}', b"               ")  # as if it had not been written
        path.write_bytes(header[:8] + header[8:].replace(b"blake3", b"blake0", 1))
        assert len(read_conversation(path, source).rows) == n_rows


def lora(path, gain):
    writer = GGUFWriter(path, "llama")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 4.0)
    for name, shape in (("lora_a", (4, 128)), ("lora_b", (256, 4))):
        tensor = np.random.default_rng(1).normal(0, gain, shape).astype(np.float32)
        writer.add_tensor(f"blk.0.attn_q.weight.{name}", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


def test_arguments_that_decide_numbers_are_in_the_identity(tiny_model, tmp_path):
    adapter = lora(tmp_path / "lora.gguf", 0.1)
    ways = [
        {},
        {"kv_overrides": {"llama.rope.freq_base": 5000.0}},
        {"kv_overrides": {"llama.rope.freq_base": 5001.0}},
        {"rope_scaling_type": 2, "yarn_orig_ctx": 512},
        {"rope_scaling_type": 2, "yarn_orig_ctx": 1024},
        {"rope_scaling": "yarn", "rope_scale": 2.0},
        {"rope_scaling": "yarn", "rope_scale": 2.0, "yarn_beta_fast": 16.0},
        {"rope_scaling_type": 0},
        {"lora_path": adapter},
        {"lora_path": adapter, "lora_scale": 0.5},
    ]
    found = [numbers_of(load(tiny_model, **way)) for way in ways]
    lora(tmp_path / "lora.gguf", 0.2)
    found.append(numbers_of(load(tiny_model, lora_path=adapter)))
    assert all(one != other for i, one in enumerate(found) for other in found[:i])
    assert found[0] == numbers_of(load(tiny_model, n_ctx=512, type_k=None))
    assert found[5].keys() == {"rope"}  # as before: indexes with stretched positions are found again


def test_a_model_file_that_was_replaced_in_place_is_another_model(tiny_model, tmp_path):
    model = tmp_path / "model.gguf"
    model.write_bytes(tiny_model.read_bytes())
    before = Library.of(model, tmp_path).model_hash
    assert Library.of(model, tmp_path).model_hash == before
    status, content = model.stat(), bytearray(tiny_model.read_bytes())
    content[-1] ^= 1
    model.write_bytes(content)
    os.utime(model, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert Library.of(model, tmp_path).model_hash != before
    remembered = Library.of(model, tmp_path).folder / "model.json"
    entries = read_json(remembered)  # of an older octavo, which did not look at the inode
    write_json(remembered, {**{name: entries[name] for name in ("path", "size", "mtime_ns")}, "sha256": before})
    assert Library.of(model, tmp_path).model_hash != before


def test_a_model_that_was_replaced_while_it_is_loaded_makes_no_index(tiny_model, tmp_path):
    model = tmp_path / "model.gguf"
    model.write_bytes(tiny_model.read_bytes())
    llama = load(model)
    identity(llama, SETTINGS)
    os.chmod(model, 0o600)
    identity(llama, SETTINGS)
    other = tmp_path / "other.gguf"
    other.write_bytes(tiny_model.read_bytes())
    other.replace(model)
    with pytest.raises(OctavoError, match="has changed since the model was loaded: start octavo again"):
        identity(llama, SETTINGS)


def test_later_files_of_a_split_model_are_in_the_identity(tmp_path):
    writer = GGUFWriter(tmp_path / "split.gguf", "llama", split_max_tensors=12)
    recipe, rng = tiny_models.llama(SIZE), np.random.default_rng(0)
    for key, value in (tiny_models.common_metadata(SIZE) | recipe.metadata).items():
        (writer.add_uint32 if isinstance(value, int) else writer.add_float32)(f"llama.{key}", value)
    tiny_models.add_tokenizer(writer)
    for name, draw in tiny_models.all_tensors(recipe, SIZE.n_layer).items():
        writer.add_tensor(name, draw(rng).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    first, last = sorted(tmp_path.glob("*.gguf"))
    library, before = Library.of(first, tmp_path).model_hash, numbers_of(load(first))
    assert len(before["split"]) == 1
    content = bytearray(last.read_bytes())
    content[-1] ^= 1
    last.write_bytes(content)
    after = numbers_of(load(first))
    assert Library.of(first, tmp_path).model_hash == library
    assert after["split"] != before["split"]
