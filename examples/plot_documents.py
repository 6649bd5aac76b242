"""
Cluster documents
=================

From texts to clusters with names in one call. The documents are the docstrings of SciPy's public functions, which
come with SciPy. Their subpackages are known, but the clustering does not see them.
"""

from onmf.datasets import docstring_texts
from onmf.text import Text, cluster

texts = [Text(name, text, subpackage) for name, text, subpackage in docstring_texts()]
found = cluster(texts, 13)

# %%
# Each cluster is described by the words that set it apart from the whole collection.

for size, words in zip(found.sizes, found.distinctive(8), strict=True):
    print(f"{size:4} documents: {', '.join(words)}")

# %%
# Each row of the figure is a subpackage, and each column a cluster. Small subpackages are one cluster each. The two
# largest, ``special`` and ``stats``, fall into several: tests and distributions use different words.

ax = found.plot_classes()
ax.figure.set_size_inches(9, 6)
