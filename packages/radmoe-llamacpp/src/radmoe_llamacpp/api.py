"""llama.cpp's C API through ctypes, from the library in the xllamacpp wheel.

Parameters are passed as structs, by value, and the layout of these structs changes with llama.cpp from month to
month. So one version of the wheel is known here and every other is refused, and the default parameters that the library
returns are compared with what they should be under this layout.
"""

from __future__ import annotations

import ctypes
import importlib.util
import weakref
from collections import deque
from ctypes import CFUNCTYPE, POINTER, c_bool, c_char, c_char_p, c_float, c_int, c_int32, c_size_t, c_uint32, c_void_p
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from radmoe.errors import EngineError

XLLAMACPP = "2026.10.11549"  # llama.cpp b11549
MAX_SEQUENCES = 256
F32, F16, I32 = 0, 1, 26  # ggml types
BPE = 2  # byte-level, in llama.cpp's numbering of tokenizers
UNKNOWN, UNUSED, CONTROL, USER_DEFINED = 1, 2, 8, 16  # what a token is
FLASH_OFF = 0

Eval = CFUNCTYPE(c_bool, c_void_p, c_bool, c_void_p)  # (tensor, ask, user data)
_Log = CFUNCTYPE(None, c_int, c_char_p, c_void_p)
_ERROR = 4  # level of a log line


class ModelParams(ctypes.Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("devices", "tensor_buft_overrides")),
        *((name, c_int32) for name in ("n_gpu_layers", "split_mode", "load_mode", "lazy_mode", "main_gpu")),
        *((name, c_void_p) for name in ("tensor_split", "progress", "progress_data", "kv_overrides")),
        *((name, c_bool) for name in ("vocab_only", "check_tensors", "use_extra_bufts", "no_host", "no_alloc", "mtp")),
    )


class ContextParams(ctypes.Structure):
    _fields_ = (
        *((name, c_uint32) for name in ("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_rs_seq")),
        *((name, c_uint32) for name in ("n_outputs_max", "n_outputs_max_per_seq")),
        *((name, c_int32) for name in ("n_threads", "n_threads_batch", "ctx_type", "rope_scaling_type")),
        *((name, c_int32) for name in ("pooling_type", "attention_type", "flash_attn_type")),
        *((name, c_float) for name in ("rope_freq_base", "rope_freq_scale", "yarn_ext_factor", "yarn_attn_factor")),
        *((name, c_float) for name in ("yarn_beta_fast", "yarn_beta_slow")),
        ("yarn_orig_ctx", c_uint32),
        ("defrag_thold", c_float),
        ("cb_eval", Eval),
        ("cb_eval_user_data", c_void_p),
        ("type_k", c_int),
        ("type_v", c_int),
        ("moe_cache_size", c_size_t),
        ("abort_callback", c_void_p),
        ("abort_callback_data", c_void_p),
        *((name, c_bool) for name in ("embeddings", "offload_kqv", "no_perf", "op_offload", "swa_full", "kv_unified")),
        ("samplers", c_void_p),
        ("n_samplers", c_size_t),
        ("ctx_other", c_void_p),
    )


class Batch(ctypes.Structure):
    _fields_ = (
        ("n_tokens", c_int32),
        *((n, c_void_p) for n in ("token", "embd", "pos", "n_seq_id", "seq_id", "logits")),
    )


class Tensor(ctypes.Structure):
    """The head of a ggml_tensor, up to its name; ne and nb are sizes and strides in bytes, innermost first."""

    _fields_ = (
        ("type", c_int),
        ("buffer", c_void_p),
        ("ne", ctypes.c_int64 * 4),
        ("nb", c_size_t * 4),
        ("op", c_int),
        ("op_params", c_int32 * 16),
        ("flags", c_int32),
        ("src", c_void_p * 10),
        ("view_src", c_void_p),
        ("view_offs", c_size_t),
        ("data", c_void_p),
        ("name", c_char * 64),
    )


_INT32S = POINTER(c_int32)
_FUNCTIONS: dict[str, tuple[Any, ...]] = {  # result, arguments
    "llama_backend_init": (None,),
    "llama_log_set": (None, _Log, c_void_p),
    "llama_model_default_params": (ModelParams,),
    "llama_context_default_params": (ContextParams,),
    "llama_model_load_from_file": (c_void_p, c_char_p, ModelParams),
    "llama_model_free": (None, c_void_p),
    "llama_model_get_vocab": (c_void_p, c_void_p),
    "llama_model_n_ctx_train": (c_int32, c_void_p),
    "llama_model_meta_val_str": (c_int32, c_void_p, c_char_p, c_char_p, c_size_t),
    "llama_model_chat_template": (c_char_p, c_void_p, c_char_p),
    "llama_model_ftype": (c_int, c_void_p),
    "llama_ftype_name": (c_char_p, c_int),
    "llama_vocab_type": (c_int, c_void_p),
    "llama_vocab_n_tokens": (c_int32, c_void_p),
    "llama_vocab_get_text": (c_char_p, c_void_p, c_int32),
    "llama_vocab_get_attr": (c_int, c_void_p, c_int32),
    "llama_vocab_is_eog": (c_bool, c_void_p, c_int32),
    "llama_vocab_bos": (c_int32, c_void_p),
    "llama_vocab_eos": (c_int32, c_void_p),
    "llama_tokenize": (c_int32, c_void_p, c_char_p, c_int32, _INT32S, c_int32, c_bool, c_bool),
    "llama_init_from_model": (c_void_p, c_void_p, ContextParams),
    "llama_free": (None, c_void_p),
    "llama_get_memory": (c_void_p, c_void_p),
    "llama_memory_seq_rm": (c_bool, c_void_p, c_int32, c_int32, c_int32),
    "llama_memory_seq_cp": (None, c_void_p, c_int32, c_int32, c_int32, c_int32),
    "llama_decode": (c_int32, c_void_p, Batch),
    "llama_get_logits": (POINTER(c_float), c_void_p),
    "ggml_nbytes": (c_size_t, c_void_p),
    "ggml_backend_tensor_get": (None, c_void_p, c_void_p, c_size_t, c_size_t),
}
_DEFAULTS = {  # of ContextParams, from its first field to its last that has one
    "n_ctx": 512, "n_batch": 2048, "n_ubatch": 512, "n_seq_max": 1, "n_outputs_max_per_seq": 1, "flash_attn_type": -1,
    "defrag_thold": -1.0, "type_k": F16, "type_v": F16, "moe_cache_size": 0, "embeddings": False, "offload_kqv": True,
    "no_perf": True, "op_offload": True, "swa_full": True, "kv_unified": False, "samplers": None, "ctx_other": None,
}  # fmt: skip

_error_lines: deque[str] = deque(maxlen=8)  # since `forget_errors`


def _on_log(level: int, text: bytes, _: Any) -> None:
    if level == _ERROR:
        _error_lines.append(text.decode("utf-8", "replace").strip())


_log = _Log(_on_log)  # llama.cpp keeps a bare pointer, so the reference is held here


@cache
def library() -> Any:
    """The loaded library, its functions declared; EngineError where it is missing or of another version."""
    spec = importlib.util.find_spec("xllamacpp")
    if spec is None:
        raise EngineError("the llama.cpp engine needs xllamacpp: pip install 'radmoe[llamacpp]'")
    installed = version("xllamacpp")
    if installed != XLLAMACPP:
        raise EngineError(
            f"xllamacpp {installed} is installed, and only the structs of {XLLAMACPP} are known: "
            "pip install 'radmoe[llamacpp]'"
        )
    try:
        (file,) = (f for place in spec.submodule_search_locations or () for f in Path(place).glob("xllamacpp*.so"))
        lib = ctypes.CDLL(str(file))
        for name, (result, *arguments) in _FUNCTIONS.items():
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments
    except (ValueError, OSError, AttributeError) as error:
        raise EngineError(
            f"xllamacpp's library cannot be used ({error}): its wheels for Linux and macOS carry the C API"
        ) from None
    defaults = lib.llama_context_default_params()
    if wrong := [name for name, value in _DEFAULTS.items() if getattr(defaults, name) != value]:
        raise EngineError(f"this build of xllamacpp {installed} lays out {wrong[0]} otherwise: install the stock wheel")
    lib.llama_log_set(_log, None)
    lib.llama_backend_init()
    return lib


def forget_errors() -> None:
    """Forget the error lines so far; called before something that may fail."""
    _error_lines.clear()


def error_reason() -> str:
    """The first error line that llama.cpp has logged since `forget_errors`, without the function's name."""
    if not _error_lines:
        return "it gave no reason"
    return (_error_lines[0].partition(": ")[2] or _error_lines[0]).removeprefix("error loading model: ")


class LlamaModel:
    """A loaded GGUF file; it is freed when nothing refers to it any more."""

    def __init__(self, path: Path, gpu_layers: int) -> None:
        self.lib = library()
        try:
            with path.open("rb") as file:
                magic = file.read(4)
        except OSError as error:
            raise EngineError(f"cannot read {path} ({error.strerror}): pass a GGUF file") from None
        if magic != b"GGUF":
            raise EngineError(f"{path} is no GGUF file: it begins with {magic!r}")
        forget_errors()
        params = self.lib.llama_model_default_params()
        params.n_gpu_layers = gpu_layers
        self.handle = self.lib.llama_model_load_from_file(str(path).encode(), params)
        if not self.handle:
            raise EngineError(f"llama.cpp cannot load {path}: {error_reason()}")
        weakref.finalize(self, self.lib.llama_model_free, self.handle)
        self.vocab = self.lib.llama_model_get_vocab(self.handle)
        self.words: int = self.lib.llama_vocab_n_tokens(self.vocab)

    def meta(self, key: str) -> str | None:
        """A scalar of the file's metadata, as text; None where the file does not have it."""
        text = ctypes.create_string_buffer(256)
        length = self.lib.llama_model_meta_val_str(self.handle, key.encode(), text, len(text))
        return None if length < 0 else text.value.decode()
