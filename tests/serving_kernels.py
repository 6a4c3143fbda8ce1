"""A second exam for ``fiprof verdict``: kernels of kinds that occur where language models are served; written with what is
right of them (``tests/kernels/exams.csv``) before any of them ran, collected by ``tests/collect_single_purpose.sh``.
"""

from tests.exam_kernels import exams

exams(globals(), "serving")
