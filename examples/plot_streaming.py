"""
Learn from a stream
===================

``partial_fit`` learns from one batch at a time and does not keep it. After a few batches, the clusters of a stream
predict other rows almost as well as those of a fit of all rows.
"""

import matplotlib.pyplot as plt

from onmf import ONMF
from onmf.datasets import make_counts

X = make_counts(6000, 1000, 8, overlap=0.6, random_state=0).X
past, future = X[:5000], X[5000:]

stream, scores = ONMF(8), []
for start in range(0, 5000, 250):
    stream.partial_fit(past[start : start + 250])
    scores.append(stream.score(future))

# %%
# The score is minus the mean loss of rows that neither model has seen. Higher is better.

whole = ONMF(8).fit(past).score(future)
figure, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
ax.plot(range(250, 5001, 250), scores, "o-", color="#0072b2", label="stream, batches of 250 rows")
ax.axhline(whole, color="#d55e00", linestyle="--", label="fit of all 5,000 rows")
ax.set(xlabel="rows seen", ylabel="score on 1,000 other rows")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
