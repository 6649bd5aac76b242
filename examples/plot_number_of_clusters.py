"""
Choose the number of clusters
=============================

How many clusters are in the data? The rows are halved at random, and each half is clustered by itself. Clusters that
both halves find are real. There may be several levels of them: few large clusters, and smaller ones within each.
"""

import numpy as np

from onmf import select_n_clusters

rng = np.random.default_rng(0)
subjects = rng.dirichlet(np.full(150, 0.2), size=2)  # shares of 150 words in each of two subjects,
topics = rng.dirichlet(np.full(150, 0.2), size=6)  # in three topics of each,
parts = rng.dirichlet(np.full(150, 0.2), size=18)  # and in three parts of each topic, which differ little
part = np.repeat(np.arange(18), 20)  # of each of 360 documents
shares = 0.5 * subjects[part // 9] + 0.35 * topics[part // 3] + 0.15 * parts[part]
X = np.array([rng.multinomial(200, share) for share in shares])

selection = select_n_clusters(X, random_state=0)
print(*selection.notes())

# %%
# At each level halves share much, and little else. The subjects are the coarse level and the topics the medium one,
# which is ``n_clusters``; the fine one has some of the parts. The dashed line is how halves of counts agree that have
# the same row and column sums, but no structure. Data that agree no better have no clusters: ``n_clusters`` is then 1.

ax = selection.plot()

# %%
# Each cluster of a level has a parent in the next coarser one. Here each subject has three topics.

for level in selection.levels:
    print(f"{level.name}: {level.n_clusters} clusters, agreement {level.agreement:.2f}, parents {level.parents}")
