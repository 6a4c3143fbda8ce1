"""Batch decode attention over a paged KV cache: FlashInfer's BatchDecodeWithPagedKVCacheWrapper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fiprof.workloads.attention import WORKSPACE_BYTES, AttentionWorkload
from fiprof.workloads.base import Cost, dtype_param, param

if TYPE_CHECKING:
    from torch import Tensor

PAGE_INDEX_BYTES = 4


@dataclass(frozen=True)
class DecodeParams:
    batch: int = param(32, "requests, one new token each", low=1)
    kv_len: int = param(2048, "tokens in each request's KV cache", low=1)
    q_heads: int = param(32, "query heads", low=1)
    kv_heads: int = param(8, "key/value heads (fewer than query heads: GQA)", low=1)
    head_dim: int = param(128, "elements of a head", low=1)
    page_size: int = param(16, "tokens in a page of the KV cache", low=1)
    tensor_cores: bool = param(False, "compute on tensor cores instead of CUDA cores")
    cuda_graph: bool = param(False, "replay the launch from a CUDA graph")
    dtype: str = dtype_param()


class Decode(AttentionWorkload[DecodeParams]):
    name = "decode"
    summary = "batch decode attention, paged KV cache (BatchDecodeWithPagedKVCacheWrapper)"
    Params = DecodeParams

    @property
    def request(self) -> tuple[int, int, bool]:
        return 1, self.params.kv_len, False

    def setup(self) -> Callable[[], Sequence[Tensor]]:
        import torch
        from flashinfer import BatchDecodeWithPagedKVCacheWrapper

        p = self.params
        query, kv = self.inputs
        workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=self.device)
        copied = ("indptr", "indices", "last_page_len") if p.cuda_graph else ()
        own_buffers = {f"paged_kv_{name}_buffer": torch.empty_like(getattr(kv, name)) for name in copied}
        wrapper = BatchDecodeWithPagedKVCacheWrapper(
            workspace, "NHD", use_cuda_graph=p.cuda_graph, use_tensor_cores=p.tensor_cores, **own_buffers
        )
        self.planned(wrapper, kv)
        out = torch.empty_like(query)

        def launch() -> Sequence[Tensor]:
            wrapper.run(query, kv.cache, out=out)
            return (out,)

        return captured(launch) if p.cuda_graph else launch

    def cost(self) -> Cost:
        """As of any attention; the page numbers are read too."""
        p, cost = self.params, super().cost()
        return replace(cost, bytes_read=cost.bytes_read + p.batch * -(-p.kv_len // p.page_size) * PAGE_INDEX_BYTES)


def captured(launch: Callable[[], Sequence[Tensor]]) -> Callable[[], Sequence[Tensor]]:
    """The same launch, replayed from a CUDA graph."""
    import torch

    # A capture may neither compile nor allocate: both happen in this first call, on a side stream as torch asks.
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(side):
        written = launch()
        side.synchronize()
        # Not with torch.cuda.graph(): it gives all unused memory back, which the GPU then cleans during the measuring.
        graph.capture_begin()
        try:
            launch()
        finally:
            graph.capture_end()
    torch.cuda.current_stream().wait_stream(side)

    def replay() -> Sequence[Tensor]:
        graph.replay()
        return written

    # The graph holds addresses only: what it reads lives as long as the launch that was captured.
    replay.launch = launch  # type: ignore[attr-defined]
    return replay
