"""What torch's caching allocator had allocated and reserved, and which Python functions asked for it."""

from collections import Counter
from functools import cached_property

import numpy as np

from fiprof.model.arrays import Ints, coded, numbers
from fiprof.model.finding import Finding, finding
from fiprof.model.run import Run

FRAMES = 2  # of a stack, the innermost, that memory is told apart by
MOST_OWNERS, NOTICED = 5, 0.01  # functions that are named, and the share of the memory that each has at least


class TorchMemory:
    """The history of a GPU, in the process that allocates most on it; no events where it was not recorded."""

    def __init__(self, run: Run, device: int) -> None:
        names = ("time_ns", "device", "pid", "bytes", "address", "action", "stack")
        table = run.table("torch_memory", names) if run.row_count("torch_memory") else None
        times, devices, pids, sizes, addresses = map(numbers, table.columns[:5]) if table else [np.empty(0, int)] * 5
        actions, action = coded(table["action"]) if table else ([], np.empty(0, int))
        self._stacks, stack = coded(table["stack"]) if table else ([], np.empty(0, int))
        on_device = np.flatnonzero((devices == max(device, 0)) & (times >= 0))
        if len(on_device):
            of = np.unique(pids[on_device], return_inverse=True)[1]
            on_device = on_device[of == np.argmax(np.bincount(of, sizes[on_device]))]
        self.times, self._sizes, self._addresses, self._stack = (
            of[on_device] for of in (times, sizes, addresses, stack)
        )
        self._action = np.array(actions, object)[action[on_device]]

    def _sum(self, more: str, less: str) -> Ints:
        signs = (self._action == more).astype(np.int64) - (self._action == less)
        return np.cumsum(self._sizes * signs)

    @cached_property
    def allocated(self) -> Ints:
        """Bytes of tensors after each event."""
        return self._sum("allocate", "free")

    def at(self, moments: Ints) -> Ints:
        """Bytes of tensors at some moments, ns since the trace began."""
        return np.append(0, self.allocated)[np.searchsorted(self.times, moments, side="right")]

    def owners(self, since: float, until: float) -> tuple[Finding, ...]:
        """Whose what was allocated in some time is and is not given back in it, those with most."""
        row_of: dict[int, int] = {}
        first, last = np.searchsorted(self.times, (since, until), side="right").tolist()
        for row in range(first, last):
            if self._action[row] == "allocate":
                row_of[int(self._addresses[row])] = row
            elif self._action[row] == "free":
                row_of.pop(int(self._addresses[row]), None)
        sums = Counter[str]()
        for row in row_of.values():
            stack = self._stacks[self._stack[row]]
            sums[" < ".join(stack.split(" < ")[:FRAMES]) if stack else "no Python function"] += int(self._sizes[row])
        return tuple(
            finding("owner", "{gb:,.3f} GB in {function}", gb=size / 1e9, function=name)
            for name, size in sums.most_common(MOST_OWNERS)
            if size >= NOTICED * sums.total()
        )

    def peak(self) -> tuple[Finding, ...]:
        """When it had allocated most, and what of it was reserved; none without a history."""
        if not len(self.times):
            return ()
        reserved, at = self._sum("reserve", "release"), int(np.argmax(self.allocated))
        pools = int(self._sizes[self._action == "graph_pools"].sum())
        words = "torch has allocated at most {allocated_gb:,.3f} GB, at {at_ms:,.1f} ms, of {reserved_gb:,.3f} that it "
        words += "has reserved (at most {most_gb:,.3f}"
        words += ", {pools_gb:,.3f} for CUDA graphs in the end" if pools else ""
        sizes = {"allocated_gb": self.allocated[at], "reserved_gb": reserved[at], "most_gb": reserved.max()}
        values = {name: int(size) / 1e9 for name, size in (sizes | {"pools_gb": pools}).items()}
        at_ms, owners = int(self.times[at]) / 1e6, self.owners(-np.inf, self.times[at])
        return (finding("torch_peak", words + "): {owners}.", **values, at_ms=at_ms, owners=owners),)
