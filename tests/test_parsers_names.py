"""Kernel names, as real tools print them and as no tool should."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiprof.parsers.names import printable, short_name

# From recorded traces of an H200 and from reports of ncu, c++filt and clang.
REAL = [
    (
        "void flashinfer::PrefillWithKVCacheKernel<flashinfer::SparseCollectiveMainloop<PagedParams::AdditionalParams,"
        " flashinfer::AttentionKernelTraits<(bool)0, (int)128, cutlass::bfloat16_t>, (bool)1>>(T1::Params, T2 *)",
        "PrefillWithKVCacheKernel",
    ),
    (
        "void at::native::<unnamed>::distribution_elementwise_grid_stride_kernel<float, (int)4, void at::native"
        "::templates::cuda::normal_kernel<at::CUDAGeneratorImpl *>(const at::TensorBase &, double, T1)::[lambda()"
        " (instance 1)]::operator ()() const::[lambda(float) (instance 1)]>(int, at::PhiloxCudaState, T3)",
        "distribution_elementwise_grid_stride_kernel",
    ),
    ("void <unnamed>::with_index<int, f(int)::[lambda(long) (instance 1)]>(T1, T2)", "with_index"),
    ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<int, (int)2>(char *)", "CatArrayBatchedCopy"),
    ("void ns::foo(int)::{lambda(int)#1}::operator()(float) const", "operator()"),
    ("at::copy(at::Iter &)::[lambda() (instance 3)]::operator ()() const", "operator()"),
    ("ns::foo(int)::{lambda(ns::T<int>, int)#1}", "{lambda(ns::T<int>, int)#1}"),
    ("ncclDevKernel_AllReduce_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)", "ncclDevKernel_AllReduce_LL"),
    ("std::vector<int, std::allocator<int> > *make(int)", "make"),
    ("void less<(a < b), (c->d > 1), &ns::operator<< >(int)", "less"),
    ("bool ns::T::operator<=(ns::T const&) const", "operator<="),
    ("triton_poi_fused_0", "triton_poi_fused_0"),
    ("_ZN10flashinfer13RMSNormKernelEv", "_ZN10flashinfer13RMSNormKernelEv"),
    ("void cut::off<at::native::Functor<float, ns::", "off"),
    ("[CUDA memcpy HtoD]", "[CUDA memcpy HtoD]"),
    ("graph", "graph"),
    ("", ""),
]


@pytest.mark.parametrize(("demangled", "expected"), REAL, ids=[expected or "empty" for _, expected in REAL])
def test_short_name_of_what_tools_print(demangled: str, expected: str) -> None:
    assert short_name(demangled) == expected


def test_short_name_of_hostile_text_is_printable() -> None:
    assert short_name("void\nk\x07<int>(int)\n") == "k"
    assert short_name("<script>alert(1)</script>") == "alert"
    assert short_name("\x00\n\t") == ""
    assert printable("a\udcff\x1bb\u202ec") == "a  b c"


names = st.from_regex(r"[A-Za-z_][A-Za-z_0-9]{0,12}", fullmatch=True).filter(lambda name: name != "operator")
types = st.recursive(
    names | st.just("(int)4") | st.just("<unnamed>::T *") | st.just("(a > b)") | st.just("g()::{lambda(int)#1}"),
    lambda inner: st.tuples(names, st.lists(inner, min_size=1, max_size=3)).map(
        lambda pair: f"{pair[0]}<{', '.join(pair[1])}>"
    ),
    max_leaves=8,
)


@given(
    name=names,
    scopes=st.lists(names | st.sampled_from(["<unnamed>", "(anonymous namespace)", "f(int)", "C<int>"]), max_size=4),
    returned=st.none() | types.filter(lambda text: not text.startswith("(")),
    arguments=st.none() | st.lists(types, min_size=1, max_size=3),
    parameters=st.none() | st.lists(types, max_size=3),
)
def test_short_name_finds_the_name_however_it_is_dressed(
    name: str, scopes: list[str], returned: str | None, arguments: list[str] | None, parameters: list[str] | None
) -> None:
    text = "::".join([*scopes, name])
    if arguments is not None:
        text += f"<{', '.join(arguments)}>"
    if parameters is not None:
        text += f"({', '.join(parameters)})"
    if returned is not None:
        text = f"{returned} {text}"
    assert short_name(text) == name


@given(st.text(alphabet=st.characters(categories=None) | st.sampled_from("<>(){}[]:-& operat\n")))
def test_short_name_never_raises_and_is_printable(text: str) -> None:
    name = short_name(text)
    assert name.isprintable()
    assert bool(name) == bool(printable(text).strip())


@pytest.mark.parametrize("pattern", ["<", "(", "a<", "::", "<)", "- ", "operator<", "x<(", "{", "[a"])
def test_short_name_stays_linear_in_long_names(pattern: str) -> None:
    """Quadratic time would take minutes here; no clock is read."""
    text = pattern * 200_000
    assert short_name(text)
    assert short_name("void ns::k<" + text) == "k"
