"""What belongs to each kernel of FlashInfer: the names to look for, from the Python call down to the device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Language = Literal["python", "c++"]


@dataclass(frozen=True)
class Part:
    """Something to look for."""

    part: str
    name: str
    """A function, a class or ``Class.method``."""
    language: Language = "c++"
    optional: bool = False
    """Versions without it are nothing to speak of."""


@dataclass(frozen=True)
class Topic:
    """What belongs to a kernel, from the Python call down to the device."""

    name: str
    kernels: tuple[str, ...]
    parts: tuple[Part, ...] = field(default=())


def _python(*parts: tuple[str, str], optional: bool = False) -> tuple[Part, ...]:
    return tuple(Part(part, name, "python", optional) for part, name in parts)


def _cpp(*parts: tuple[str, str], optional: bool = False) -> tuple[Part, ...]:
    return tuple(Part(part, name, "c++", optional) for part, name in parts)


_PREFILL_PYTHON = _python(
    ("entry", "BatchPrefillWithPagedKVCacheWrapper"),
    ("plan", "BatchPrefillWithPagedKVCacheWrapper.plan"),
    ("run", "BatchPrefillWithPagedKVCacheWrapper.run"),
    ("module", "get_batch_prefill_module"),
    ("generator", "gen_batch_prefill_module"),
    ("generator", "gen_customize_batch_prefill_module"),
)
_FA2 = _cpp(
    ("binding", "BatchPrefillWithKVCachePlan"),
    ("binding", "BatchPrefillWithPagedKVCacheRun"),
    ("dispatch", "BatchPrefillWithPagedKVCacheDispatched"),
    ("device", "BatchPrefillWithPagedKVCacheDevice"),
    ("scheduler", "PrefillPlan"),
    ("scheduler", "PrefillSplitQOKVIndptr"),
    ("scheduler", "PrefillBinarySearchKVChunkSize"),
    ("scheduler", "FA2DetermineCtaTileQ"),
    ("traits", "KernelTraits"),
)

TOPICS = (
    Topic(
        "decode on CUDA cores",
        ("BatchDecodeWithPagedKVCacheKernel",),
        _python(
            ("entry", "BatchDecodeWithPagedKVCacheWrapper"),
            ("plan", "BatchDecodeWithPagedKVCacheWrapper.plan"),
            ("run", "BatchDecodeWithPagedKVCacheWrapper.run"),
            ("module", "get_batch_decode_module"),
            ("generator", "gen_batch_decode_module"),
            ("generator", "gen_customize_batch_decode_module"),
        )
        + _cpp(
            ("binding", "BatchDecodeWithPagedKVCachePlan"),
            ("binding", "BatchDecodeWithPagedKVCacheRun"),
            ("dispatch", "BatchDecodeWithPagedKVCacheDispatched"),
            ("device", "BatchDecodeWithPagedKVCacheDevice"),
            ("scheduler", "DecodePlan"),
            ("scheduler", "BatchDecodeWithPagedKVCacheWorkEstimationDispatched"),
            ("scheduler", "PartitionPagedKVCacheBinarySearchMinNumPagePerBatch"),
            ("scheduler", "DecodeSplitKVIndptr"),
        ),
    ),
    Topic("prefill fa2", ("BatchPrefillWithPagedKVCacheKernel",), _PREFILL_PYTHON + _FA2),
    Topic(
        "decode on tensor cores",
        ("BatchPrefillWithPagedKVCacheKernel",),
        _python(
            ("entry", "BatchDecodeWithPagedKVCacheWrapper"),
            ("plan", "BatchDecodeWithPagedKVCacheWrapper.plan"),
            ("run", "BatchDecodeWithPagedKVCacheWrapper.run"),
            ("module", "get_batch_prefill_module"),
            ("generator", "gen_batch_prefill_module"),
        )
        + _FA2,
    ),
    Topic(
        "prefill fa3",
        ("PrefillWithKVCacheKernel",),
        _PREFILL_PYTHON
        + _cpp(
            ("binding", "BatchPrefillWithKVCacheSM90Plan"),
            ("binding", "BatchPrefillWithPagedKVCacheSM90Run"),
            ("dispatch", "BatchPrefillWithPagedKVCacheDispatched"),
            ("dispatch", "BatchPrefillWithPagedKVCacheKernelTraitsDispatched"),
            ("device", "SparseCollectiveMainloop"),
            ("device", "mma_f16"),
            ("scheduler", "PrefillSM90Plan"),
            ("scheduler", "cost_function"),
            ("scheduler", "BatchPrefillTileScheduler"),
            ("traits", "AttentionKernelTraits"),
        ),
    ),
    Topic(
        "split-K merge",
        ("PersistentVariableLengthMergeStatesKernel",),
        _cpp(("dispatch", "VariableLengthMergeStates"), ("device", "state_t")),
    ),
    Topic(
        "rmsnorm",
        ("RMSNormKernel",),
        _python(("entry", "rmsnorm"), ("module", "get_norm_module"), ("generator", "gen_norm_module"))
        + _cpp(("binding", "rmsnorm"), ("dispatch", "RMSNorm"))
        + _python(("kernel in CuTe DSL", "RMSNormKernel"), ("launch in CuTe DSL", "rmsnorm_cute"), optional=True),
    ),
    Topic(
        "fused_add_rmsnorm",
        ("FusedAddRMSNormKernel",),
        _python(("entry", "fused_add_rmsnorm"), ("module", "get_norm_module"), ("generator", "gen_norm_module"))
        + _cpp(("binding", "fused_add_rmsnorm"), ("dispatch", "FusedAddRMSNorm"))
        + _python(
            ("kernel in CuTe DSL", "FusedAddRMSNormKernel"),
            ("launch in CuTe DSL", "fused_add_rmsnorm_cute"),
            optional=True,
        ),
    ),
    Topic(
        "rope",
        ("BatchQKApplyRotaryKernel",),
        _python(
            ("entry", "apply_rope_inplace"),
            ("entry", "apply_llama31_rope_inplace"),
            ("module", "get_rope_module"),
            ("generator", "gen_rope_module"),
        )
        + _cpp(
            ("binding", "apply_rope"),
            ("binding", "apply_llama31_rope"),
            ("dispatch", "BatchQKApplyRotary"),
            ("dispatch", "BatchQKApplyLlama31Rotary"),
            ("device", "vec_apply_llama_rope"),
        ),
    ),
    Topic(
        "rope with a cos/sin cache",
        ("BatchQKApplyRotaryPosIdsCosSinCacheKernel", "BatchQKApplyRotaryPosIdsCosSinCacheHeadParallelismKernel"),
        _python(
            ("entry", "apply_rope_with_cos_sin_cache_inplace"),
            ("module", "get_rope_module"),
            ("generator", "gen_rope_module"),
        )
        + _cpp(
            ("binding", "apply_rope_pos_ids_cos_sin_cache"),
            ("dispatch", "BatchQKApplyRotaryPosIdsCosSinCache"),
            ("device", "vec_apply_llama_rope_cos_sin"),
        ),
    ),
)
KERNELS = tuple(dict.fromkeys(kernel for topic in TOPICS for kernel in topic.kernels))
"""The kernels that are looked for unless others are named."""

GLOSSARY = {
    "POS_ENCODING_MODE": "positional encoding applied inside the kernel; 0 none",
    "MASK_MODE": "0 no mask, 1 causal, 2 a mask of the caller's",
    "num_stages_smem": "stages of the pipeline that copies keys and values into shared memory",
    "num_smem_stages": "stages of the pipeline that copies partial states into shared memory",
    "tile_size_per_bdx": "keys that a row of bdx threads handles in one step",
    "vec_size": "elements that a thread loads at once",
    "VEC_SIZE": "elements that a thread loads at once",
    "bdx": "threads of a block along a head's elements (blockDim.x)",
    "bdy": "rows of such threads in a block (blockDim.y)",
    "bdz": "layers of them (blockDim.z)",
    "CTA_TILE_Q": "query rows of a block's tile; query heads that share a KV head are rows of it",
    "NUM_MMA_Q": "16-row tensor-core tiles of queries that a warp holds",
    "NUM_MMA_KV": "16-key tensor-core tiles that a warp works on in one step",
    "NUM_MMA_D_QK": "16-element tiles of the query's and key's head",
    "NUM_MMA_D_VO": "16-element tiles of the value's head",
    "NUM_WARPS_Q": "warps of a block along the queries",
    "NUM_WARPS_KV": "warps of a block along the keys",
    "USE_TMA_LOAD_KV": "keys and values are loaded by the tensor memory accelerator; paged ones cannot be",
    "HEAD_DIM": "elements of a head",
    "head_dim": "elements of a head",
    "HEAD_DIM_QK": "elements of a query's and key's head",
    "HEAD_DIM_VO": "elements of a value's head",
    "CTA_Q": "query rows of a block's tile",
    "CTA_KV": "keys of a block's tile",
    "NUM_STAGES": "tiles of keys and values in flight in shared memory",
    "LEFT_SLIDING_WINDOW": "keys further back than a window are left out",
    "CAUSAL": "keys after the query are left out",
    "interleave": "rotated pairs are neighbours; else the head's halves",
    "INTERLEAVE": "rotated pairs are neighbours; else the head's halves",
}
"""In fiprof's words, for parameters that the source names without a word."""
