"""A batch of sequences in one llama.cpp context, and the routing of each step.

llama.cpp shows every tensor of a pass to a callback, which answers whether the pass is to stop there so that it can
read the tensor. Stops cost time, so there is one per layer: at the final weights. The chosen ids are still in memory
then, because the experts have yet to read them.
"""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import EngineError
from radmoe_llamacpp.api import (
    F16,
    F32,
    FLASH_OFF,
    I32,
    MAX_SEQUENCES,
    Batch,
    Eval,
    LlamaModel,
    Tensor,
    error_reason,
    forget_errors,
)

CACHES = {"f16": F16, "f32": F32}
CHUNK = 512  # prompt tokens of one pass
_NAME = Tensor.name.offset
_IDS = b"ffn_moe_topk"
_WEIGHTS = (
    b"ffn_moe_weights_norm",
    b"ffn_moe_weights_softmax",
    b"ffn_moe_weights",
)  # the first of these that exists is final

Routing = tuple[NDArray[np.int16], NDArray[np.float32]]  # ids and weights [rows, L, K]


class TensorRecorder:
    """The evaluation callback. It records from `start` on, and `take` returns what it has recorded since.

    It is called for every operation of a pass, some fifty a layer, so it does little more than look up a name.
    """

    def __init__(self, model: LlamaModel) -> None:
        self._lib = model.lib
        self.callback = Eval(self._on_tensor)  # llama.cpp keeps a bare pointer, so the reference is held here
        self.experts = int(model.meta(f"{model.meta('general.architecture')}.expert_count") or 0)
        self.layers: list[int] = []
        self._error: BaseException | None = None
        self._on = False
        self._names: set[bytes] | None = None  # while probing
        self._topk: dict[bytes, int] = {}  # name -> layer
        self._final: dict[bytes, int] = {}  # the same of the final weights
        self._chosen: dict[int, int] = {}  # layer -> address of its ids
        self._ids: defaultdict[int, list[NDArray[np.int32]]] = defaultdict(list)
        self._weights: defaultdict[int, list[NDArray[np.float32]]] = defaultdict(list)

    def start(self, *, probe: bool = False) -> None:
        """Record from the next pass on; a probe only learns the names of the tensors."""
        self._on = True
        self._names = set() if probe else None
        self._ids.clear()
        self._weights.clear()

    def probed(self) -> bool:
        """Read what the probing pass showed, and return whether the model has routers."""
        names, self._on = self._names or set(), False
        self._topk = _layers(names, _IDS)
        self._final = next(filter(None, (_layers(names, kind) for kind in _WEIGHTS)), {})
        self.layers = sorted(self._final.values())
        return self.experts > 1 and bool(self.layers)

    def take(self, rows: int) -> Routing:
        """The routing of a recorded pass over this many rows; weights sum to 1."""
        self._on = False
        counts = [sum(map(len, self._ids[layer])) for layer in self.layers]
        if set(counts) != {rows}:
            raise EngineError(f"llama.cpp showed the routing of {min(counts)} rows in a pass of {rows}")
        ids, weights = (
            np.stack([np.concatenate(column[layer]) for layer in self.layers], 1)
            for column in (self._ids, self._weights)
        )
        if not 0 <= ids.min() <= ids.max() < self.experts:
            raise EngineError(f"llama.cpp showed expert {ids.max()} of {self.experts}: the ids were overwritten")
        return ids.astype(np.int16), weights / weights.sum(-1, keepdims=True)

    def check(self) -> None:
        """Raise an error of the callback, which could not be raised through C: Ctrl-C above all."""
        if self._error is not None:
            error, self._error, self._on = self._error, None, False
            raise error

    def _on_tensor(self, tensor: int, ask: bool, _: Any) -> bool:
        """With `ask`: whether to stop at this tensor. Without: the pass has stopped at it, and True lets it go on."""
        try:
            if not self._on:
                return False
            name = ctypes.string_at(tensor + _NAME)
            if self._names is not None:
                self._names.add(name)
                return False
            layer = self._final.get(name)
            if layer is None:
                if name in self._topk:
                    self._chosen[self._topk[name]] = tensor
                return False
            if not ask:
                ids = self._read_ids(self._chosen[layer])
                self._ids[layer].append(ids)
                self._weights[layer].append(self._read(tensor, F32).view(np.float32).reshape(ids.shape))
            return True
        except BaseException as error:
            self._error = error
            return False

    def _read(self, tensor: int, kind: int) -> NDArray[np.uint8]:
        if Tensor.from_address(tensor).type != kind:
            raise EngineError("llama.cpp shows routing in a type that is not known here")
        data = np.empty(self._lib.ggml_nbytes(tensor), np.uint8)
        self._lib.ggml_backend_tensor_get(tensor, data.ctypes.data, 0, data.nbytes)
        return data

    def _read_ids(self, tensor: int) -> NDArray[np.int32]:
        """Ids [rows, K], from a view whose rows are E apart."""
        shape = Tensor.from_address(tensor)
        data = self._read(tensor, I32)
        return np.ndarray((shape.ne[1], shape.ne[0]), np.int32, data, strides=(shape.nb[1], shape.nb[0])).copy()


def _layers(names: set[bytes], kind: bytes) -> dict[bytes, int]:
    """The layer of each tensor of a kind, by the tensor's name.

    A view or a reshape has more behind the number of its layer, and is left out.
    """
    parts = ((name, *name.partition(b"-")) for name in names)
    return {name: int(layer) for name, stem, _, layer in parts if stem == kind and layer.isdigit()}


class Context:
    """`rows` sequences of up to `length` tokens that step together, and one more that holds a prompt.

    Every sequence has a cache of its own, so that a step attends to no more than it must.
    """

    def __init__(
        self, model: LlamaModel, recorder: TensorRecorder, *, rows: int, length: int, threads: int, cache: str
    ) -> None:
        assert rows < MAX_SEQUENCES
        self._model, self._lib, self._recorder = model, model.lib, recorder
        self._prompt: tuple[int, ...] | None = None
        self._home = rows  # the sequence that holds the prompt
        params = self._lib.llama_context_default_params()
        params.n_seq_max = rows + 1
        params.n_ctx = length * params.n_seq_max
        params.n_batch = params.n_ubatch = CHUNK
        params.n_outputs_max = params.n_seq_max
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = CACHES[cache]
        if cache == "f32":
            params.flash_attn_type = FLASH_OFF  # it rounds to half precision
        params.cb_eval = recorder.callback
        forget_errors()
        self._handle = self._lib.llama_init_from_model(model.handle, params)
        if not self._handle:
            raise EngineError(
                f"llama.cpp cannot make room for {rows} rollouts of {length} tokens ({error_reason()}): "
                "lower batch_size or max_tokens"
            )
        self._memory = self._lib.llama_get_memory(self._handle)
        self._token, self._pos, self._seq = np.zeros((3, CHUNK), np.int32)
        self._want = np.zeros(CHUNK, np.int8)
        self._ones = np.ones(CHUNK, np.int32)
        self._seqs = self._seq.ctypes.data + self._seq.itemsize * np.arange(CHUNK, dtype=np.uintp)

    def close(self) -> None:
        self._lib.llama_free(self._handle)

    def begin(self, row: int, prompt: tuple[int, ...]) -> None:
        """Copy the cache of a prompt into a row. Rows that begin with the same prompt one after another share its computation."""
        if self._prompt != prompt:
            self._lib.llama_memory_seq_rm(self._memory, self._home, -1, -1)
            for start in range(0, len(prompt), CHUNK):
                part = prompt[start : start + CHUNK]
                self._decode([self._home] * len(part), part, range(start, start + len(part)), want=False)
            self._prompt = prompt
        self._lib.llama_memory_seq_rm(self._memory, row, -1, -1)
        if prompt:
            self._lib.llama_memory_seq_cp(self._memory, self._home, row, -1, -1)

    def probe(self) -> bool:
        """Run a pass over one token to learn the names of the routers' tensors; False where there are none."""
        self._recorder.start(probe=True)
        self._decode([0], [0], [0], want=True)
        return self._recorder.probed()

    def step(
        self, rows: Sequence[int], tokens: Sequence[int], positions: Sequence[int]
    ) -> tuple[NDArray[np.float32], Routing]:
        """Feed one token to each of these rows (ascending).

        Returns logits [rows, V], which are valid until the next step, and the routing.
        """
        self._recorder.start()
        self._decode(rows, tokens, positions, want=True)
        routing = self._recorder.take(len(rows))
        logits = self._lib.llama_get_logits(self._handle)
        return np.ctypeslib.as_array(logits, (len(rows), self._model.words)), routing

    def _decode(self, rows: Sequence[int], tokens: Sequence[int], positions: Sequence[int], *, want: bool) -> None:
        n = len(rows)
        self._token[:n], self._pos[:n], self._seq[:n], self._want[:n] = tokens, positions, rows, want
        arrays = (self._token, None, self._pos, self._ones, self._seqs, self._want)
        batch = Batch(n, *(None if a is None else a.ctypes.data for a in arrays))
        forget_errors()
        status = self._lib.llama_decode(self._handle, batch)
        self._recorder.check()
        if status != 0:
            raise EngineError(f"llama.cpp stopped with status {status} in a pass of {n} tokens: {error_reason()}")
