"""Tiny GGUF models with random weights, for tests that compare octavo with llama.cpp.

Tensors and metadata are those that llama.cpp's src/models/<architecture>.cpp loads. The scales are chosen so
that wrong attention shows: scores have a standard deviation of one to two, and logits of one to five.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter, TokenType

ATTENTION_GAIN = 1.2  # of q and of k; the scores' standard deviation is about its square
LOGIT_SPREAD = 3.0
HEADS_FILL_EMBEDDING = {"qwen2", "bloom", "bert"}  # llama.cpp takes n_embd to be n_head * head_dim

MERGES = ["Ġ t", "h e", "Ġt he", "i n", "r e", "o n", "a t", "e r", "Ġ a", "n d", "Ġa nd", "Ġ s"]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
N_VOCAB = 256 + len(MERGES) + len(SPECIALS)
END_OF_TEXT, IM_START, IM_END = range(N_VOCAB - len(SPECIALS), N_VOCAB)  # bos, -, eos

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

Draw = Callable[[np.random.Generator], np.ndarray]
Tensors = dict[str, Draw]
Metadata = dict[str, bool | float]


@dataclass(frozen=True)
class Size:
    """The measures of one model; `window` matters only to gemma2, gemma3 and gpt-oss."""

    n_layer: int
    n_head: int
    n_kv_head: int
    head_dim: int
    n_embd: int
    n_ff: int
    n_ctx_train: int
    window: int

    @property
    def query_width(self) -> int:
        return self.n_head * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.n_kv_head * self.head_dim


@dataclass(frozen=True)
class Recipe:
    """The content of a model file.

    layer : for each prefix of tensor names, the tensors of one layer
    outside : the tensors that belong to no layer
    metadata : keys besides the common ones, or in their stead, without the architecture's name
    """

    layer: dict[str, Tensors]
    outside: Tensors
    metadata: Metadata


# How a tensor is drawn. Shapes are numpy's: the reverse of those in llama.cpp.


def matrix(*shape: int, gain: float = 1.0) -> Draw:
    """A matrix (or a stack of them) that gives unit inputs the standard deviation `gain`."""
    return lambda rng: rng.normal(0.0, gain / math.sqrt(shape[-1]), shape)


def matrices(**shapes: tuple[int, ...]) -> Tensors:
    return {f"{name}.weight": matrix(*shape) for name, shape in shapes.items()}


def bias(shape: int | tuple[int, ...]) -> Draw:
    return lambda rng: rng.normal(0.0, 0.3, shape)


def biases(**shapes: int | tuple[int, ...]) -> Tensors:
    return {f"{name}.bias": bias(shape) for name, shape in shapes.items()}


def norms(width: int, *names: str, gain: float = 1.0) -> Tensors:
    return {f"{name}.weight": lambda rng: gain * rng.uniform(0.8, 1.2, width) for name in names}


def norms_with_bias(width: int, *names: str) -> Tensors:
    return norms(width, *names) | biases(**dict.fromkeys(names, width))


# Pieces that architectures share.


def attention(size: Size, name: str = "attn", output: str = "attn_output") -> Tensors:
    return {
        f"{name}_q.weight": matrix(size.query_width, size.n_embd, gain=ATTENTION_GAIN),
        f"{name}_k.weight": matrix(size.kv_width, size.n_embd, gain=ATTENTION_GAIN),
        f"{name}_v.weight": matrix(size.kv_width, size.n_embd, gain=2.0),
        f"{output}.weight": matrix(size.n_embd, size.query_width),
    }


def qkv_biases(size: Size) -> Tensors:
    return biases(attn_q=size.query_width, attn_k=size.kv_width, attn_v=size.kv_width)


def qk_norms(size: Size) -> Tensors:
    return norms(size.head_dim, "attn_q_norm", "attn_k_norm", gain=ATTENTION_GAIN)


def plain_ffn(size: Size) -> Tensors:
    return matrices(ffn_up=(size.n_ff, size.n_embd), ffn_down=(size.n_embd, size.n_ff))


def gated_ffn(size: Size) -> Tensors:
    return plain_ffn(size) | matrices(ffn_gate=(size.n_ff, size.n_embd))


def experts(size: Size, count: int) -> Tensors:
    """A router and `count` experts, with biases everywhere."""
    shapes = {
        "ffn_gate_inp": (count, size.n_embd),
        "ffn_gate_exps": (count, size.n_ff, size.n_embd),
        "ffn_up_exps": (count, size.n_ff, size.n_embd),
        "ffn_down_exps": (count, size.n_embd, size.n_ff),
    }
    return matrices(**shapes) | biases(**{name: shape[:-1] for name, shape in shapes.items()})


def llama_layer(size: Size) -> Tensors:
    return norms(size.n_embd, "attn_norm", "ffn_norm") | attention(size) | gated_ffn(size)


def gemma_layer(size: Size) -> Tensors:
    return llama_layer(size) | norms(size.n_embd, "post_attention_norm", "post_ffw_norm")


def token_tensors(size: Size) -> Tensors:
    return {
        "token_embd.weight": matrix(N_VOCAB, size.n_embd, gain=math.sqrt(size.n_embd)),
        **norms(size.n_embd, "output_norm"),
        "output.weight": matrix(N_VOCAB, size.n_embd, gain=LOGIT_SPREAD),
    }


def tied_token_tensors(size: Size) -> Tensors:
    """The embedding is the output matrix too; gemma's graph scales embeddings by sqrt(n_embd)."""
    return matrices(token_embd=(N_VOCAB, size.n_embd)) | norms(size.n_embd, "output_norm", gain=LOGIT_SPREAD)


def common_metadata(size: Size) -> Metadata:
    return {
        "context_length": size.n_ctx_train,
        "embedding_length": size.n_embd,
        "block_count": size.n_layer,
        "feed_forward_length": size.n_ff,
        "attention.head_count": size.n_head,
        "attention.head_count_kv": size.n_kv_head,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }


def head_metadata(size: Size) -> Metadata:
    return {
        "attention.key_length": size.head_dim,
        "attention.value_length": size.head_dim,
        "rope.dimension_count": size.head_dim,
    }


def window_metadata(size: Size) -> Metadata:
    return head_metadata(size) | {"attention.sliding_window": size.window}


# Architectures that octavo runs.


def llama(size: Size) -> Recipe:
    return Recipe({"blk": llama_layer(size)}, token_tensors(size), head_metadata(size))


def qwen2(size: Size) -> Recipe:
    return Recipe({"blk": llama_layer(size) | qkv_biases(size)}, token_tensors(size), {})


def qwen3(size: Size) -> Recipe:
    return Recipe({"blk": llama_layer(size) | qk_norms(size)}, token_tensors(size), head_metadata(size))


def gemma2(size: Size) -> Recipe:
    """Layers 0, 2, 4... slide. The soft-caps are low enough to bend ordinary scores and logits."""
    soft_caps = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 6.0}
    return Recipe({"blk": gemma_layer(size)}, tied_token_tensors(size), window_metadata(size) | soft_caps)


def gemma3(size: Size) -> Recipe:
    """All layers slide but 5, 11, 17... A window of 0 turns sliding off."""
    metadata = window_metadata(size) | {"rope.freq_base": 1e6}
    return Recipe({"blk": gemma_layer(size) | qk_norms(size)}, tied_token_tensors(size), metadata)


def gpt_oss(size: Size) -> Recipe:
    """Layers 0, 2, 4... slide. Both experts are used, so rounding cannot send a token to another one."""
    layer = {
        **norms(size.n_embd, "attn_norm", "post_attention_norm"),
        **attention(size),
        **qkv_biases(size),
        **biases(attn_output=size.n_embd),
        "attn_sinks.weight": lambda rng: rng.normal(3.0, 1.0, size.n_head),  # as heavy as several rows
        **experts(size, count=2),
    }
    moe = {"expert_count": 2, "expert_used_count": 2, "expert_feed_forward_length": size.n_ff}
    return Recipe({"blk": layer}, token_tensors(size), window_metadata(size) | moe)


# Architectures that octavo refuses.


def mamba(size: Size) -> Recipe:
    """Recurrent: no attention at all."""
    inner, state, convolution, step_rank = 2 * size.n_embd, 16, 4, 8
    layer = {
        **norms(size.n_embd, "attn_norm"),
        **matrices(
            ssm_in=(2 * inner, size.n_embd),
            ssm_conv1d=(inner, convolution),
            ssm_x=(step_rank + 2 * state, inner),
            ssm_dt=(inner, step_rank),
            ssm_out=(size.n_embd, inner),
        ),
        **biases(ssm_conv1d=inner, ssm_dt=inner),
        "ssm_a": lambda rng: -rng.uniform(0.5, 2.0, (inner, state)),
        "ssm_d": lambda rng: rng.uniform(0.8, 1.2, inner),
    }
    metadata = {
        "attention.head_count": 0,
        "attention.head_count_kv": 0,
        "ssm.conv_kernel": convolution,
        "ssm.inner_size": inner,
        "ssm.state_size": state,
        "ssm.time_step_rank": step_rank,
    }
    return Recipe({"blk": layer}, token_tensors(size), metadata)


def bloom(size: Size) -> Recipe:
    """ALiBi: positions are a slope added to the scores."""
    qkv_width = size.query_width + 2 * size.kv_width
    layer = {
        **norms_with_bias(size.n_embd, "attn_norm", "ffn_norm"),
        **matrices(attn_qkv=(qkv_width, size.n_embd), attn_output=(size.n_embd, size.query_width)),
        **plain_ffn(size),
        **biases(attn_qkv=qkv_width, attn_output=size.n_embd, ffn_up=size.n_ff, ffn_down=size.n_embd),
    }
    outside = token_tensors(size) | norms_with_bias(size.n_embd, "token_embd_norm", "output_norm")
    return Recipe({"blk": layer}, outside, {"attention.layer_norm_epsilon": 1e-5})


def bert(size: Size) -> Recipe:
    """Encoder only: attention is not causal, and there are no logits."""
    layer_norms = norms_with_bias(size.n_embd, "attn_output_norm", "layer_output_norm")
    rows = {"token_embd": N_VOCAB, "token_types": 2, "position_embd": size.n_ctx_train}
    outside = {f"{name}.weight": matrix(n, size.n_embd) for name, n in rows.items()}
    outside |= norms_with_bias(size.n_embd, "token_embd_norm")
    metadata = {"attention.layer_norm_epsilon": 1e-5, "attention.causal": False, "pooling_type": 1}
    return Recipe({"blk": attention(size) | plain_ffn(size) | layer_norms}, outside, metadata)


def deepseek2(size: Size) -> Recipe:
    """MLA: one key head is cached, of a latent and a rotated part. Every layer is dense: no experts."""
    latent, rotated = 64, 32
    layer = {
        **norms(size.n_embd, "attn_norm", "ffn_norm"),
        **norms(latent, "attn_q_a_norm", "attn_kv_a_norm"),
        **matrices(
            attn_q_a=(latent, size.n_embd),
            attn_q_b=(size.query_width, latent),
            attn_kv_a_mqa=(latent + rotated, size.n_embd),
            attn_k_b=(size.n_head, latent, size.head_dim - rotated),
            attn_v_b=(size.n_head, size.head_dim, latent),
            attn_output=(size.n_embd, size.query_width),
        ),
        **gated_ffn(size),
    }
    metadata = {
        "attention.head_count_kv": 1,
        "attention.key_length": latent + rotated,
        "attention.value_length": latent,
        "attention.key_length_mla": size.head_dim,
        "attention.value_length_mla": size.head_dim,
        "attention.q_lora_rank": latent,
        "attention.kv_lora_rank": latent,
        "rope.dimension_count": rotated,
        "leading_dense_block_count": size.n_layer,
        "expert_feed_forward_length": size.n_ff,
        "expert_shared_count": 0,
    }
    return Recipe({"blk": layer}, token_tensors(size), metadata)


def t5(size: Size) -> Recipe:
    """Encoder and decoder; one key head per query head."""
    size = replace(size, n_kv_head=size.n_head)
    encoder = {
        **norms(size.n_embd, "attn_norm", "ffn_norm"),
        **attention(size, output="attn_o"),
        **matrices(attn_rel_b=(32, size.n_head)),
        **plain_ffn(size),
    }
    cross_attention = attention(size, "cross_attn", output="cross_attn_o")
    decoder = encoder | cross_attention | norms(size.n_embd, "cross_attn_norm")
    outside = norms(size.n_embd, "enc.output_norm", "dec.output_norm")
    outside |= matrices(token_embd=(N_VOCAB, size.n_embd))
    metadata = {
        **head_metadata(size),
        "attention.head_count_kv": size.n_head,
        "attention.relative_buckets_count": 32,
        "decoder_start_token_id": END_OF_TEXT,
    }
    return Recipe({"enc.blk": encoder, "dec.blk": decoder}, outside, metadata)


RUN = {"llama": llama, "qwen2": qwen2, "qwen3": qwen3, "gemma2": gemma2, "gemma3": gemma3, "gpt-oss": gpt_oss}
REFUSED = {"mamba": mamba, "bloom": bloom, "bert": bert, "t5": t5}
LATENT = {"deepseek2": deepseek2}


def write_model(
    path: str | Path,
    architecture: str,
    *,
    n_layer: int = 3,
    n_head: int = 4,
    n_kv_head: int = 2,
    head_dim: int = 64,
    n_embd: int | None = None,
    n_ff: int = 256,
    n_ctx_train: int = 4096,
    window: int = 32,
    seed: int = 0,
    chat_template: str | None = None,
    add_bos: bool = False,
    add_eos: bool = False,
    pooling: int | None = None,
) -> Path:
    """Write a model of random f32 weights; the same arguments give the same file.

    `n_embd` is 128 unless given, or n_head * head_dim where llama.cpp takes it to be that. `pooling` is that of
    llama.cpp's enum which a model for embeddings names.
    """
    if n_embd is None:
        n_embd = n_head * head_dim if architecture in HEADS_FILL_EMBEDDING else 128
    size = Size(n_layer, n_head, n_kv_head, head_dim, n_embd, n_ff, n_ctx_train, window)
    recipe = (RUN | REFUSED | LATENT)[architecture](size)
    rng = np.random.default_rng(seed)
    tensors = {name: draw(rng).astype(np.float32) for name, draw in all_tensors(recipe, n_layer).items()}
    metadata = common_metadata(size) | recipe.metadata | ({} if pooling is None else {"pooling_type": pooling})
    tokenizer = {"chat_template": chat_template, "add_bos": add_bos, "add_eos": add_eos}
    return write_gguf(path, architecture, metadata, tensors, **tokenizer)


def write_gguf(
    path: str | Path, architecture: str, metadata: dict[str, Any], tensors: dict[str, np.ndarray], **tokenizer: Any
) -> Path:
    """Write a model of this metadata, without the architecture's name, and tensors."""
    writer = GGUFWriter(path, architecture)
    for key, value in metadata.items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, list: writer.add_array}
        add[str] = writer.add_string
        add[type(value)](f"{architecture}.{key}", value)
    add_tokenizer(writer, **tokenizer)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Path(path)


def quantised(plain: Path, kind: str) -> Path:
    """Have llama.cpp quantise a model: Q8_0, Q4_K_M and so on."""
    import llama_cpp  # the emulated CPU has no llama.cpp

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.nthread = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}"), 1
    written = plain.with_name(f"{kind}.gguf")
    if not written.exists():
        assert llama_cpp.llama_model_quantize(str(plain).encode(), str(written).encode(), params) == 0
    return written


def all_tensors(recipe: Recipe, n_layer: int) -> Tensors:
    tensors = dict(recipe.outside)
    for prefix, layer in recipe.layer.items():
        for index in range(n_layer):
            tensors |= {f"{prefix}.{index}.{name}": draw for name, draw in layer.items()}
    return tensors


def add_tokenizer(
    writer: GGUFWriter,
    chat_template: str | None = None,
    add_bos: bool = False,
    add_eos: bool = False,
    merges: list[str] = MERGES,
    control: Sequence[str] = (),
    user: Sequence[str] = (),
) -> None:
    """Byte-level BPE: any text has tokens. Further control tokens, and tokens that users may write, come last."""
    ordinary, kinds = ordinary_tokens(merges), [TokenType.CONTROL] * (len(SPECIALS) + len(control))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([*ordinary, *SPECIALS, *control, *user])
    writer.add_token_types([TokenType.NORMAL] * len(ordinary) + kinds + [TokenType.USER_DEFINED] * len(user))
    writer.add_token_merges(merges)
    writer.add_token_type_count(2)  # bert has a table of token types
    writer.add_bos_token_id(len(ordinary))
    writer.add_eos_token_id(len(ordinary) + 2)
    writer.add_add_bos_token(add_bos)
    writer.add_add_eos_token(add_eos)
    if chat_template is not None:
        writer.add_chat_template(chat_template)


def ordinary_tokens(merges: list[str]) -> list[str]:
    """All tokens but the special ones, which come after them."""
    return _byte_tokens() + [merge.replace(" ", "") for merge in merges]


def _byte_tokens() -> list[str]:
    """GPT-2's visible character for each byte: itself if printable, else one from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    stand_ins = iter(range(256, 512))
    return [chr(byte if byte in printable else next(stand_ins)) for byte in range(256)]
