"""The same bits on every processor: checksums of fits, also with the instructions of an older one."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from same_bits import FITS, LIST, checksum, machine

EXPECTED = json.loads(LIST.read_text())
BY_NAME = {  # of the variables, what they take away, and with which values
    "no AVX-512": {"OPENBLAS_CORETYPE": "Haswell", "NUMBA_CPU_NAME": "haswell", "hwcaps": "-AVX512F,-AVX512VL"},
    "neither AVX2 nor FMA": {
        "OPENBLAS_CORETYPE": "Prescott",
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": "",
        "hwcaps": "-AVX512F,-AVX512VL,-AVX2,-AVX,-FMA,-FMA4",
    },
}
elsewhere = pytest.mark.xfail(
    platform.machine() not in ("x86_64", "AMD64"),
    reason=f"not claimed for {platform.machine()} yet: report what 'python -m tests.same_bits' prints",
    strict=False,
)


def test_the_list_names_the_fits():
    assert set(FITS) <= set(EXPECTED)


@elsewhere
@pytest.mark.short("a fit of every kind")
@pytest.mark.parametrize("name", FITS)
def test_a_fit_has_the_bits_of_the_list(name):
    assert checksum(name) == EXPECTED[name], machine({name: "other bits"})


@pytest.mark.long("the instructions of older processors")
@elsewhere
@pytest.mark.parametrize("missing", BY_NAME)
def test_with_the_instructions_of_an_older_processor(missing, tmp_path):
    values = dict(BY_NAME[missing])
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    wide = [name for name in found if name.startswith("AVX512") or name in ("X86_V4", "AVX512_SKX")]
    values["NPY_DISABLE_CPU_FEATURES"] = " ".join(wide if missing == "no AVX-512" else found)
    values["GLIBC_TUNABLES"] = f"glibc.cpu.hwcaps={values.pop('hwcaps')}"
    values["NUMBA_CACHE_DIR"] = str(tmp_path)
    run = subprocess.run(
        [sys.executable, "-m", "tests.same_bits", "--json"],
        cwd=Path(__file__).parents[1],
        env=os.environ | values,
        stdout=subprocess.PIPE,
        check=True,
    )
    checksums = json.loads(run.stdout)
    assert checksums == {name: EXPECTED[name] for name in FITS}, machine(checksums)
