"""A second exam for ``fiprof verdict``: 20 kernels of kinds that occur where language models are served. How it was made
stands in docs/verdict.md."""

from tests.exam_kernels import exams

exams(globals(), "serving")
