"""Other engines in `octavo bench`: real processes, with llama.cpp's functions or programs that stand in for others."""

import json
import math
import os
import subprocess
import sys
import types
import zipfile
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import psutil
import pytest
from click.testing import CliRunner
from helpers.waiting import wait_until

from octavo import OctavoError
from octavo.cli.bench import as_csv, as_markdown, bench
from octavo.evaluation import peer_engine, peer_environments
from octavo.evaluation.bench_rows import Rows, mean_loss
from octavo.evaluation.peer_engine import PeerEngine
from octavo.evaluation.peer_table import PEERS, Peer, peer_at
from octavo.evaluation.peers.c_api import CApi
from octavo.evaluation.peers.llama_bench import LlamaBench
from octavo.evaluation.peers.llama_server import Completions
from octavo.evaluation.peers.mistral_rs import MistralRs
from octavo.evaluation.peers.open_vino import OpenVino

SERVER = """
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
import llama_cpp, numpy

options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
llama = llama_cpp.Llama(options["-m"], n_ctx=int(options["-c"]), flash_attn=options["-fa"] == "on", verbose=False)

class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, body):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def do_GET(self):
        self.answer({})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = 0
        for ours, theirs in zip(llama._input_ids, body["prompt"][:-1] if body["cache_prompt"] else []):
            if ours != theirs:
                break
            known += 1
        llama.n_tokens = known
        llama.eval(body["prompt"][known:])
        row = llama._ctx.get_logits_ith(-1)
        logits = numpy.ctypeslib.as_array(row, (llama.n_vocab(),)).astype(float)
        log_probs = logits - numpy.log(numpy.exp(logits - logits.max()).sum()) - logits.max()
        scored = [{"id": i, "logprob": p} for i, p in enumerate(log_probs.tolist())][: body["n_probs"]]
        n_read = len(body["prompt"]) - known
        timings = {"prompt_n": n_read, "prompt_ms": 2.0 * n_read}
        self.answer({"timings": timings, "completion_probabilities": [{"top_logprobs": scored}]})

HTTPServer((options["--host"], int(options["--port"])), Handler).serve_forever()
"""
LLAMA_BENCH = """
import json, sys

options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
n_read, n_decode, depth = (int(options.get(name, 0)) for name in ("-p", "-n", "-d"))
ms = n_read * 2 if n_read else n_decode * (5 + depth / 64 + int(options["-fa"]))
print(json.dumps([{"avg_ns": ms * 1e6, "build_number": 7, "cpu_info": "a CPU"}]))
"""


def measure(model, *arguments):
    """What `octavo bench -o json` prints of dense attention and peers."""
    command = ["-m", str(model), "-t", "2", "-n", "4", "--question", "5", "-o", "json", "--attention", "dense"]
    run = CliRunner().invoke(bench, [*command, *arguments], catch_exceptions=False)
    assert run.exit_code == 0, run.output
    return json.loads(run.stdout)


def program(folder, name, text):
    """Write an executable that Python runs."""
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return path


def test_llama_cpp_in_its_own_process_computes_the_same(tiny_model):
    result = measure(tiny_model, "--depths", "64,600", "--peers", "llama.cpp", "-r", "2")
    rows = result["results"]
    assert [(row["depth"], row["attention"]) for row in rows] == [
        (depth, name) for depth in (64, 600) for name in ("dense", "llama.cpp")
    ]
    for dense, peer in zip(rows[::2], rows[1::2], strict=True):
        assert set(peer) - {"flash_attention"} == set(dense) - {"chosen"}
        assert peer["cannot"] is None
        assert len(peer["decode_ms_all"]) == 8
        assert peer["kl_divergence"] < 1e-3
        assert peer["loss"] == pytest.approx(dense["loss"], abs=0.02)
        assert peer["prefill_tokens_per_s"] > 0
        assert peer["first_token_ms"] > 0
        assert peer["peak_resident_bytes"] > tiny_model.stat().st_size
    assert result["software"]["peers"]["llama.cpp"]["package"] is None
    assert "CPU" in result["software"]["peers"]["llama.cpp"]["build"]


def test_programs_of_the_user_are_measured_and_one_that_fails_is_a_row(tiny_model, tmp_path):
    programs = [
        f"mine={program(tmp_path, 'llama-server', SERVER)}",
        f"bench={program(tmp_path, 'llama-bench', LLAMA_BENCH)}",
        f"broken={program(tmp_path, 'llama-server-old', 'raise SystemExit(3)')}",
    ]
    arguments = [argument for each in programs for argument in ("--peer", each)]
    picture = tmp_path / "peers.png"
    result = measure(tiny_model, "--depths", "64,128", *arguments, "--plot", str(picture))
    for depth, (dense, mine, random, broken) in zip((64, 128), np.reshape(result["results"], (2, 4)), strict=True):
        assert mine["kl_divergence"] < 1e-3
        assert mine["loss"] == pytest.approx(dense["loss"], abs=0.02)
        assert (mine["decode_ms"], mine["first_token_ms"]) == (2, 10)
        assert mine["prefill_tokens_per_s"] == 500  # all of the text was read, also after a text that begins so
        assert random["decode_ms"] == 5 + depth / 64  # the faster way: flash attention is off
        assert random["flash_attention"] is False
        assert random["prefill_tokens_per_s"] == 500
        assert random["loss"] is None
        assert broken["cannot"] == "llama-server-old does not start with this model"
        assert broken["decode_ms"] is None
    table = as_markdown(result)
    assert "| mine, flash attention o" in table
    assert "| broken: llama-server-old does not start with this model | 64 | - |" in table
    assert len(as_csv(result).splitlines()) == 9
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_peer_that_takes_too_long_or_dies_is_asked_for_nothing_more(monkeypatch):
    for code, patience_s, cannot in (
        ("import time; time.sleep(600)", 0.3, "given up after 0 seconds in one turn"),
        ("raise SystemExit('no such instruction')", 60, "its process ended with code 1: no such instruction"),
    ):
        monkeypatch.setattr(peer_engine, "_PROGRAM", code)
        engine = PeerEngine("other", Peer("c_api"), {}, 1, patience_s)
        engine.load("model.gguf")
        engine.decode(1, warm=True)
        assert engine.cannot == cannot
        assert engine.decode_s == []
        engine.close()


DIES = """
import json, sys
n = 0
for line in sys.stdin:
    request = json.loads(line)
    n += request["do"] == "decode"
    if n > 11:
        raise SystemExit("no memory")
    print(json.dumps({"result": 0.001 if request["do"] != "back" else 0}), flush=True)
"""


def test_a_peer_that_dies_halfway_says_how_many_tokens_its_figures_are_of(tiny_model, monkeypatch):
    monkeypatch.setattr(peer_engine, "_PROGRAM", DIES)
    result = measure(tiny_model, "--depths", "32", "--peers", "llama.cpp", "-r", "2")
    assert result["results"][1]["decode_ms"] == 1
    assert result["results"][1]["cannot"] == "its process ended with code 1: no memory, after 3 of 8 tokens"
    assert "| llama.cpp: its process ended with code 1: no memory, after 3 of 8 tokens | 32 |" in as_markdown(result)


class Meter:
    """Counts a joule a second, by a clock of the test."""

    works = True
    now = 0.0

    def look(self):
        return [self.now]

    def joules_since(self, before):
        return self.now - before[0]


@pytest.mark.parametrize(("in_turn", "joules"), [(True, 3), (False, None)])
def test_energy_is_of_the_turn_alone_and_of_peers_that_compute_in_it(monkeypatch, in_turn, joules):
    meter = Meter()
    reply = json.dumps({"result": 0.5, "decodes_in_turn": in_turn}) + "\n"

    def answer():
        meter.now += 3
        return reply

    def sleep(seconds):
        meter.now += 100

    engine = PeerEngine("other", Peer("c_api"), {}, 1, meter=meter)
    engine._process = MagicMock()
    engine._process.stdout.readline = answer
    monkeypatch.setattr(peer_engine, "time", types.SimpleNamespace(sleep=sleep))
    for warm in (False, True, True):
        engine.decode(1, warm)
    assert engine.joules_per_token == joules


def test_only_peers_that_compute_in_their_turn_say_so():
    scripts = {LlamaBench: False, MistralRs: False, OpenVino: True, CApi: True, Completions: True}
    assert {script: script.decodes_in_turn for script in scripts} == scripts


def test_the_better_way_counts_for_each_figure():
    ways = [PeerEngine("ik", PEERS["ik"], {"flash_attention": on}, 1) for on in (True, False)]
    for way, prefill_s, ask_s, decode_s in zip(ways, (2, 1), (0.1, 0.3), (0.02, 0.01), strict=True):
        way.prefill_s, way.ask_s, way.decode_s = prefill_s, [ask_s, 9, ask_s / 2], [decode_s]
    [row] = Rows(100, 5, "f16", [], {}).peer_rows(ways)
    assert (row["prefill_tokens_per_s"], row["first_token_ms"], row["decode_ms"]) == (100, 100, 10)
    assert row["flash_attention"] is False


def test_rows_say_how_a_peer_keeps_keys_and_values():
    peers = [PeerEngine(name, PEERS[name], {}, 1) for name in ("ik", "openvino", "openvino-sparse")]
    rows = Rows(100, 5, "q8_0", [], {}).peer_rows(peers)
    assert [row["cache_type"] for row in rows] == ["q8_0", "u8", "u8"]


@pytest.mark.parametrize(("decode_s", "share"), [(0.03, 0.333), (0.02, None), (0.01, None)])
def test_time_in_attention_is_unknown_where_a_step_over_nothing_took_longer(decode_s, share):
    engine = PeerEngine("ik", PEERS["ik"], {}, 1, decode_s=[decode_s], step_s=0.02)
    assert Rows(100, 5, "f16", [], {}).peer_rows([engine])[0]["attention_share"] == share


def test_the_end_of_a_peer_is_the_end_of_all_that_it_started(monkeypatch):
    code = """
import json, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=subprocess.DEVNULL)
sys.stdin.readline()
print(json.dumps({"result": str(child.pid)}), flush=True)
sys.stdin.readline()
print("{", end="", flush=True)
raise SystemExit(7)
"""
    monkeypatch.setattr(peer_engine, "_PROGRAM", code)
    engine = PeerEngine("other", Peer("c_api"), {}, 1)
    engine.load("model.gguf")
    child = int(engine.build)
    engine.decode(1, warm=True)  # the process dies in the middle of its reply
    assert engine.cannot == "its process ended with code 7"
    wait_until(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE)
    engine.close()


def test_an_interrupted_turn_leaves_no_timer(monkeypatch):
    monkeypatch.setattr(peer_engine, "_PROGRAM", "import time; time.sleep(600)")
    engine = PeerEngine("other", Peer("c_api"), {}, 1)
    timers = []
    monkeypatch.setattr(peer_engine, "Timer", lambda *_: timers.append(MagicMock()) or timers[-1])
    monkeypatch.setattr(peer_engine, "json", MagicMock(dumps=MagicMock(side_effect=KeyboardInterrupt)))
    with pytest.raises(KeyboardInterrupt):
        engine.load("model.gguf")
    timers[0].cancel.assert_called_once_with()
    monkeypatch.setattr(peer_engine, "_GRACE", 0)
    engine.close()


def test_what_a_peer_says_when_it_fails_is_its_row(tiny_model, tmp_path):
    engine = PeerEngine("llama.cpp", PEERS["llama.cpp"], PEERS["llama.cpp"].ways_for("q8_0")[0], 1)
    engine.load(str(tmp_path / "no.gguf"), n_ctx=256, n_batch=64, n_threads=1, cache_type="q8_0")
    assert engine.cannot == "it does not load this model"
    engine.close()


def test_quantised_caches_need_flash_attention():
    assert [way["flash_attention"] for way in PEERS["ik"].ways_for("f16")] == [True, False]
    assert [way["flash_attention"] for way in PEERS["ik"].ways_for("q8_0")] == [True]
    assert PEERS["openvino"].ways_for("q8_0") == [{}]


def test_a_file_name_says_which_program_it_is():
    assert peer_at(Path("build/llama-bench")).script == "llama_bench"
    assert peer_at(Path("build/llama-server")).script == "llama_server"


@pytest.fixture
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path / name))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    return tmp_path / "octavo" / "peers"


def test_a_package_is_installed_from_its_wheel_in_an_environment_of_its_own(cache_folder, tmp_path):
    with zipfile.ZipFile(tmp_path / "another_engine-1.5-py3-none-any.whl", "w") as wheel:
        wheel.writestr("another_engine.py", "answer = 42\n")
        folder = "another_engine-1.5.dist-info"
        wheel.writestr(f"{folder}/METADATA", "Metadata-Version: 2.1\nName: another-engine\nVersion: 1.5\n")
        wheel.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{folder}/RECORD", "")
    peer = Peer("c_api", "another-engine==1.5")
    assert not peer_environments.is_installed(peer)
    peer_environments.install(peer)
    assert peer_environments.is_installed(peer)
    code = "import another_engine, importlib.util; print(another_engine.answer, importlib.util.find_spec('octavo'))"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [peer_environments.python_of(peer), "-P", "-c", code]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert shown == "42 None\n"
    assert peer_environments.environment_of(peer).parent == cache_folder


def test_a_package_without_a_wheel_is_a_sentence_and_a_row(cache_folder, tiny_model, monkeypatch):
    with pytest.raises(OctavoError, match=r"^pip does not install mistralrs==0.9.5: No matching distribution"):
        peer_environments.install(PEERS["mistralrs"])
    assert not any(cache_folder.iterdir())
    rows = measure(tiny_model, "--depths", "16", "--peers", "mistralrs", "--yes")["results"]
    assert rows[1]["cannot"] == "mistralrs==0.9.5 is not installed"


def test_packages_are_installed_after_asking(cache_folder, tiny_model):
    command = ["-m", str(tiny_model), "--peers", "ik,openvino,openvino-sparse", "--depths", "16"]
    run = CliRunner().invoke(bench, command, input="n\n")
    assert run.exit_code == 1
    question = "Install ik-llama-cpp-python==0.1.5, openvino-genai==2026.4.1 from PyPI into"
    assert question in run.output
    assert not cache_folder.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--peers", "vllm"],
            "'vllm' is not one of 'llama.cpp', 'ik', 'xllamacpp', 'openvino', 'openvino-sparse', 'mistralrs'",
        ),
        (["--peers", "ik", "--fill", "copy"], "Peers read the text themselves: leave out --fill copy, or the peers."),
        (["--peer", "nowhere"], "'nowhere' is not a name with a program, such as mine=build/bin/llama-server."),
        (["--peer", f"ik={sys.executable}"], "is not a name with a program"),
        (["--peer", f"auto={sys.executable}"], "is not a name with a program"),
        (["--peer", f"llama.cpp={sys.executable}"], "is not a name with a program"),
        (["--peer", f"quest:tokens={sys.executable}"], "is not a name with a program"),
        (["--peer", f"a={sys.executable}", "--peer", "a=/bin/sh"], "--peer names a twice: name it once."),
    ],
)
def test_wrong_use_exits_with_2(arguments, message):
    run = CliRunner().invoke(bench, arguments)
    assert run.exit_code == 2
    assert message in run.output


class Pipeline:
    """What the script of OpenVINO uses of a pipeline. The log-probability of a token is its place."""

    def __init__(self, model, scheduler, *_):
        self.scheduler, self.requests = scheduler, []

    def add_request(self, number, tokens, config):
        request = types.SimpleNamespace(tokens=tokens, left=config["max_new_tokens"])
        request.cancel = lambda: setattr(request, "left", 0)
        self.requests.append(request)
        scored = types.SimpleNamespace(generated_log_probs=[-float(i) for i in range(tokens.shape[1])])
        request.read_all = lambda: [scored]
        return request

    def step(self):
        self.requests = [each for each in self.requests if each.left > 1]

    def has_non_finished_requests(self):
        return bool(self.requests)


def test_openvino_reads_a_text_at_its_last_batch_and_scores_it_by_reading_it_again(monkeypatch):
    genai = types.SimpleNamespace(
        SchedulerConfig=types.SimpleNamespace,
        GenerationConfig=dict,
        ContinuousBatchingPipeline=Pipeline,
        SparseAttentionMode=types.SimpleNamespace(XATTENTION="XATTENTION"),
        SparseAttentionConfig=lambda *mode: mode,
    )
    monkeypatch.setitem(sys.modules, "openvino_genai", genai)
    monkeypatch.setitem(sys.modules, "openvino", types.SimpleNamespace(Tensor=np.asarray, get_version=lambda: "1"))
    peer = OpenVino("model.gguf", n_ctx=64, n_threads=1, cache_type="f16")
    assert peer.read([1, 2, 3], last=False) == 0
    assert peer.pipeline.requests == []
    assert peer.read([4], last=True) > 0
    assert peer.pipeline.requests[0].tokens.tolist() == [[1, 2, 3, 4]]
    assert peer.decode(9) > 0
    assert peer.scores([1, 2, 3, 4, 5, 6, 7], [4, 5], "nowhere") == [-4, -5]
    assert peer.back(3) == 0
    assert not hasattr(peer.pipeline.scheduler, "use_sparse_attention")
    assert peer.pipeline.scheduler.enable_prefix_caching is False
    sparse = OpenVino("model.gguf", n_ctx=64, n_threads=1, cache_type="f16", **PEERS["openvino-sparse"].arguments)
    assert sparse.pipeline.scheduler.sparse_attention_config == ("XATTENTION",)
    with pytest.raises(Exception, match="8 bits or more"):
        OpenVino("model.gguf", n_ctx=64, n_threads=1, cache_type="q4_0")


class Runner:
    """What the script of mistral.rs uses of a runner. The next token is the number of tokens."""

    def __init__(self, *_, **settings):
        self.settings = settings

    def detokenize_text(self, tokens, skip_special):
        return tokens

    def send_chat_completion_request(self, request):
        if request["max_tokens"] > 1:
            return iter(range(request["max_tokens"]))
        top = [types.SimpleNamespace(token=len(request["messages"]), logprob=-0.5)]
        content = types.SimpleNamespace(content=[types.SimpleNamespace(top_logprobs=top)])
        return types.SimpleNamespace(choices=[types.SimpleNamespace(logprobs=content)])


def test_mistral_rs_decodes_in_the_turn_of_its_reading_and_scores_by_requests(monkeypatch, tmp_path):
    module = types.SimpleNamespace(Runner=Runner, ChatCompletionRequest=dict)
    module.Which = types.SimpleNamespace(GGUF=lambda **settings: settings)
    monkeypatch.setitem(sys.modules, "mistralrs", module)
    peer = MistralRs("model.gguf", n_vocab=8, n_most=2, cache_type="f16", folder=str(tmp_path))
    assert peer.runner.settings["prefix_cache_n"] == 0
    assert peer.read([1, 2], last=False) == 0
    assert peer.read([3], last=True) > 0
    assert [peer.decode(0) > 0 for _ in range(2)] == [True, True]
    with pytest.raises(Exception, match="fewer tokens"):
        peer.decode(0)
    peer.scores([1, 2, 3, 4, 5], [3, 4], str(tmp_path / "scores"))
    rows = np.fromfile(tmp_path / "scores", np.float32).reshape(2, 8)
    assert rows[0, 3] == rows[1, 4] == -0.5
    assert np.isneginf(rows).sum() == 14


def test_the_loss_is_the_mean_of_the_tokens_that_the_text_has():
    logits = [np.log([0.5, 0.25, 0.25]), np.log([0.1, 0.1, 0.8])]
    assert mean_loss(logits, [1, 2]) == pytest.approx(-(math.log(0.25) + math.log(0.8)) / 2)
    assert mean_loss([], []) is None
