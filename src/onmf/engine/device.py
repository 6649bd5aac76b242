"""Which memory an array lives in. CuPy is imported only where an array of it proves that it is there."""

from __future__ import annotations

from typing import Any

NEEDED = "engine='gpu' needs CuPy: pip install 'onmf[gpu]' (cupy-cuda12x or cupy-cuda13x, whichever fits the driver)."


def on_gpu(array: Any) -> bool:
    """Whether this is an array or a sparse matrix of CuPy."""
    return type(array).__module__.partition(".")[0] in ("cupy", "cupyx")


def to_host(array: Any) -> Any:
    """A CuPy array as a NumPy array, a sparse one as SciPy's; anything else as it is."""
    return array.get() if on_gpu(array) else array


def import_cupy() -> Any:
    """CuPy, or a sentence that says what is missing."""
    try:
        import cupy
    except ImportError as error:
        raise ImportError(NEEDED) from error
    try:
        number = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise RuntimeError(f"engine='gpu' found no GPU ({error}). Use engine='cpu'.") from error
    if number == 0:
        raise RuntimeError("engine='gpu' found no GPU. Use engine='cpu'.")
    capability = cupy.cuda.Device().compute_capability
    if int(capability) < 80:
        raise RuntimeError(
            f"engine='gpu' needs a GPU of compute capability 8.0 or higher, and this one has {capability[:-1]}."
            f"{capability[-1]}. Use engine='cpu'."
        )
    return cupy
