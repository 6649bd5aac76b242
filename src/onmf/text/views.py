"""Clusters of documents as a table, in a notebook and as figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from onmf.divergence import Array
from onmf.estimator import ONMF
from onmf.naming import numbers
from onmf.notebook import table
from onmf.plot import plot_confusion, plot_top_features

from .kind import DOCUMENTS
from .source import so_many

NOBODY = -1
"""Label of a document that has none of the words."""


class ViewsMixin:
    """Shows clusters of documents as a table, in a notebook and as figures."""

    if TYPE_CHECKING:
        model: ONMF
        words: Array
        ids: Sequence[str]
        clusters: Array
        classes: list[str | None]
        names: list[str]

        @property
        def n_clusters(self) -> int: ...
        @property
        def sizes(self) -> Array: ...
        def distinctive(self, n: int = 10) -> list[dict[str, float]]: ...

    def __repr__(self) -> str:
        return f"<DocumentClusters: {so_many(len(self.ids), 'document')}, {so_many(self.n_clusters, 'cluster')}>"

    def _repr_html_(self) -> str:
        rows = zip(
            numbers(DOCUMENTS, self.n_clusters), self.names, self.sizes.tolist(), self.distinctive(6), strict=True
        )
        described = ((number, name, size, ", ".join(words)) for number, name, size, words in rows)
        return table(repr(self).strip("<>"), ["cluster", "name", "documents", "distinctive words"], described)

    def to_frame(self) -> Any:
        """The documents as a pandas DataFrame: id, cluster, name, scale and margin, and their classes if known.

        Clusters have the numbers of the files and the report, from 1; documents that are set aside have none.

        Returns
        -------
        pandas.DataFrame
        """
        from .write import frame

        return frame(self)  # type: ignore[arg-type]

    def plot_words(self, n: int = 6, *, columns: int = 5) -> Any:
        """Draw the distinctive words of each cluster; see :func:`onmf.plot.plot_top_features`."""
        numbered = zip(numbers(DOCUMENTS, self.n_clusters), self.names, self.sizes, strict=True)
        titles = [f"{number}: {name.split(', ')[0]} ({size:,})" for number, name, size in numbered]
        return plot_top_features(self.model, n, feature_names=self.words, titles=titles, columns=columns)

    def plot_classes(self, ax: Any = None) -> Any:
        """Draw the known classes against the clusters; see :func:`onmf.plot.plot_confusion`."""
        known = enumerate(self.classes)
        both = {i: label for i, label in known if label is not None and self.clusters[i] != NOBODY}
        if not both:
            raise ValueError("The documents have no classes: read them with labels=.")
        numbered = zip(numbers(DOCUMENTS, self.n_clusters), self.names, strict=True)
        names = [f"{number}: {name.split(', ')[0]}" for number, name in numbered]
        return plot_confusion(list(both.values()), self.clusters[list(both)], names=names, ax=ax)
