"""Evaluation, speed benchmarks and the report; built on ``engine`` and on files, never on ``train``.

Importing it sets BLAS to one thread (a value that is already set stays), which only works before NumPy is imported.
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
