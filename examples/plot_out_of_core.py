"""
Data larger than memory
=======================

``fit`` also takes files that are read one batch at a time. The clusters are the same, and the memory of the fit hardly
grows with the data.
"""

import tempfile
import tracemalloc

import matplotlib.pyplot as plt
import numpy as np

from onmf import ONMF
from onmf.datasets import make_counts, write_shards

drawn = make_counts(12_000, 1000, 5, overlap=0.3, random_state=0).X
model = ONMF(5, init="random-partition", random_state=0).fit(drawn[:1000])  # compiles


def fit_and_measure(read):
    """Fit what a function returns, and return the labels and the peak of memory meanwhile, in MB."""
    tracemalloc.start()
    labels = model.fit_predict(read())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return labels, peak / 1e6


# %%
# The counts are written once, as files of 1,500 rows. Then they are read at once, or file by file.

sizes, at_once, by_file = [3_000, 6_000, 9_000, 12_000], [], []
for n in sizes:
    with tempfile.TemporaryDirectory() as folder:
        shards = write_shards((drawn[i : i + 1500] for i in range(0, n, 1500)), folder + "/corpus")
        labels, peak = fit_and_measure(lambda n=n: drawn[:n].copy())
        at_once.append(peak)
        same, peak = fit_and_measure(lambda shards=shards: shards)
        by_file.append(peak)
    print(f"{n} rows: the labels are the same: {np.array_equal(labels, same)}")

figure, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
ax.plot(sizes, at_once, "o-", color="#d55e00", label="all rows at once")
ax.plot(sizes, by_file, "o-", color="#0072b2", label="file by file")
ax.set(xlabel="rows", ylabel="peak memory of the fit, MB", ylim=(0, None))
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
