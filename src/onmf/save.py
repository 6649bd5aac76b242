"""The methods that copy a fitted model to host memory, or save it to a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import copy
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Self

from sklearn.utils.validation import check_is_fitted

from onmf.backend import Backend, to_host
from onmf.data import Engine
from onmf.divergence import Divergence
from onmf.fit import Clustering
from onmf.io.model_file import SavedModel, provenance, write_model


class SaveMixin:
    """Copies a fitted model to host memory, and saves it to a file."""

    if TYPE_CHECKING:
        clustering_: Clustering
        engine: str | Engine | Backend
        engine_: str
        _divergence: Divergence

        def get_params(self, deep: bool = True) -> dict[str, Any]: ...

    def to_cpu(self) -> Self:
        """A copy of the fitted model with its arrays in host memory, for machines without a GPU or a Dask cluster.

        Returns
        -------
        model : ONMF
            A copy, with ``engine="auto"`` if it was ``"gpu"``, or an engine or backend object.
        """
        check_is_fitted(self)
        model, own = copy(self), vars(self)
        arrays = {field.name: getattr(self.clustering_, field.name) for field in fields(self.clustering_)}
        values = {id(value): value for value in (*own.values(), *arrays.values())}
        on_host = {key: _in_host_memory(value) for key, value in values.items()}
        for name, value in own.items():
            setattr(model, name, on_host[id(value)])
        model.clustering_ = replace(self.clustering_, **{name: on_host[id(value)] for name, value in arrays.items()})
        if isinstance(self.engine, Engine | Backend) or self.engine == "gpu":
            model.engine = "auto"
        return model

    def save(self, path: str | os.PathLike[str], *, extra: Mapping[str, Any] | None = None) -> None:
        """Write the fitted model to a file, atomically; :func:`onmf.load` reads it.

        The file has no pickle and no code. It is a zip of parameters and metadata as JSON, and arrays as ``.npy``, each
        with a checksum.

        Parameters
        ----------
        path : str or path
            The file; ``.onmf`` is the usual extension.
        extra : mapping, optional
            More entries to save with the model, by name: arrays of numbers, and values that JSON supports. ``"kind"``
            says what the data are (``"matrix"`` by default). A loaded model has them as ``extra_``, and saves them
            again by default.

        Examples
        --------
        >>> import os, tempfile
        >>> import onmf
        >>> model = onmf.ONMF(n_clusters=2).fit([[9, 1, 0], [4, 0, 0], [0, 1, 7], [0, 2, 8]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(os.path.join(folder, "model.onmf"))
        ...     loaded = onmf.load(os.path.join(folder, "model.onmf"))
        >>> loaded.predict([[5, 0, 0], [0, 0, 3]])
        array([0, 1], dtype=int32)
        """
        check_is_fitted(self)
        entries = getattr(self, "extra_", {}) if extra is None else extra
        names = getattr(self, "feature_names_in_", None)
        write_model(
            path,
            SavedModel(
                parameters=self.get_params(deep=False),
                divergence=self._divergence,
                clustering=self.to_cpu().clustering_,
                engine=self.engine_,
                feature_names=None if names is None else [str(name) for name in names],
                extra={"kind": "matrix", **entries},
                provenance=provenance(),
            ),
        )


def _in_host_memory(value: Any) -> Any:
    """An array of a GPU or of Dask as a NumPy array; anything else unchanged."""
    return to_host(value.compute() if hasattr(value, "__dask_graph__") else value)
