"""Where something was measured, in words: for a run's report and a study's documents."""

from typing import Any

from fiprof.model.manifest import fact


def environment_words(environment: dict[str, Any]) -> dict[str, str]:
    """What is known of the GPU, its state before and after, tools, packages and host: each by its name.

    environment: as ``run.json`` and a study's ``environment_info.json`` have it.
    """

    def of(words: str, *path: str, scale: float = 0) -> str:
        """A value of the environment in words; empty where it is not known."""
        value = fact(environment, *path)
        if scale:
            value = value / scale if isinstance(value, int | float) else None
        return "" if value is None else words.format(value)

    facts = {
        "GPU": [of("{}", "gpu", "name")],
        "board": [of("{}", "gpu", "uuid") or of("{}", "gpu_state", "before", "uuid")],
        "compute capability": [
            of("{}", "gpu", "compute_capability"), of("{} multiprocessors", "gpu", "multiprocessors"),
        ],
        "memory": [
            of("{:,.1f} GB", "gpu", "memory_bytes", scale=1e9), of("{:,.1f} MB L2", "gpu", "l2_bytes", scale=1e6),
        ],
        "driver, CUDA": [of("{}", "gpu_state", "before", "driver"), of("{}", "gpu", "cuda")],
    }  # fmt: skip
    for when in ("before", "after"):
        path = ("gpu_state", when)
        others, most = fact(environment, *path, "other_processes"), of("{}", *path, "max_sm_clock_mhz") or "?"
        facts[f"GPU {when} the run"] = [
            of(f"SM {{}} of {most} MHz", *path, "sm_clock_mhz"), of("memory {} MHz", *path, "memory_clock_mhz"),
            of("{} °C", *path, "temperature_c"),
            "" if others is None else f"{len(others)} other processes" if others else "no other process",
        ]  # fmt: skip
    facts["Nsight Systems, Compute"] = [of("{}", "tools", "nsys"), of("{}", "tools", "ncu")]
    packages = (fact(environment, "packages") or {}).items()
    known = {name: version for name, version in packages if version and not name.endswith("_executable")}
    facts["packages"] = [f"{name} {version}" for name, version in known.items()]
    for name in ("host", "git"):
        if isinstance(found := fact(environment, name), dict):
            facts[name] = [f"{value} {key}" if key == "cpus" else str(value) for key, value in found.items() if value]
    return {name: ", ".join(filter(None, said)) for name, said in facts.items() if any(said)}
