"""
A pipeline from texts to clusters
=================================

``ONMF`` is a scikit-learn estimator. Behind a ``CountVectorizer`` in a pipeline, it takes texts, and assigns new texts
to the clusters that it has found. The texts here are SciPy's docstrings.
"""

import matplotlib.pyplot as plt
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline

from onmf import ONMF
from onmf.datasets import docstring_texts

texts = [text for name, text, subpackage in docstring_texts()]
words = CountVectorizer(stop_words="english", token_pattern=r"[a-z]{3,}", min_df=5, max_df=0.2)
model = ONMF(13, init="random-partition", n_init=5, refine="local-search", random_state=0)
pipeline = make_pipeline(words, model).fit(texts)

# %%
# Three new texts. ``predict_proba`` says how sure their clusters are; ``predict`` would return the first of each chart.

new = [
    "Design a low-pass filter for a noisy signal",
    "Solve a linear system with a symmetric matrix",
    "Is the mean of two samples the same? A test with its p-value",
]
probabilities = pipeline.predict_proba(new)
names = [", ".join(top) for top in model.top_features(3, words.get_feature_names_out())]

figure, axes = plt.subplots(3, 1, figsize=(6.5, 5.5), layout="constrained", sharex=True)
for ax, text, row in zip(axes, new, probabilities, strict=True):
    best = row.argsort()[-3:]  # the three most likely clusters, the best last
    ax.barh([names[k] for k in best], row[best], color="#0072b2")
    ax.set_title(text, fontsize=10, loc="left")
    ax.spines[["top", "right"]].set_visible(False)
axes[-1].set(xlim=(0, 1), xlabel="probability of the cluster")
