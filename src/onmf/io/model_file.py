"""Fitted models as files that are safe to read: no pickle, no code, and memory bounded by the file's length.

The file is a zip file. ``metadata.json`` names the format and lists every other member with its length and SHA-256.
``arrays/NAME.npy`` and ``parts/NAME.json`` hold the contents. No member is compressed, so reading a file never takes
more memory than a small multiple of its length, whatever sizes it claims. Everything in a file is checked before it is
used, and everything in a model before it is written. The page docs/explanation/model-file.md describes the format for
readers in other languages.
"""

import io
import json
import math
import os
import platform
import re
import stat
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from hashlib import sha256
from inspect import isabstract, signature
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy
import sklearn

from onmf import divergence as divergences
from onmf._version import __version__
from onmf.backend import Backend
from onmf.data import NAMES as ENGINES
from onmf.data import Engine
from onmf.data.groups import names_of_groups
from onmf.divergence import NAMES as DIVERGENCES
from onmf.divergence import Array, Bregman, Convex, Divergence
from onmf.divergence.consistency import check_consistent
from onmf.fit import STARTS, Agreement, Clustering
from onmf.io import rules
from onmf.kinds import get_kind

from .files import write_whole
from .limits import npy_header
from .rules import abbreviate, check, require

FORMAT, VERSION = "an onmf model", 2  # files without edited clusters are of version 1, which older ones read

METADATA = "metadata.json"
is_member = re.compile(r"(arrays/[A-Za-z0-9_.-]{1,80}\.npy|parts/[A-Za-z0-9_.-]{1,80}\.json)").fullmatch
MOST_MEMBERS = 1000
LARGEST_METADATA = 1 << 24
MOST_CLUSTERS = 1 << 16  # numbers of edited clusters, of which some are gone
DEEPEST = 100  # levels of nesting that JSON may have; recursion to this depth is safe

# Attributes of a clustering that are arrays of the file, and those that are values in its metadata
ARRAYS = ("centroids", "masses", "labels", "scales", "margins", "init_rows", "group_effects", "clusters")
NUMBERS = ("objective", "n_iter", "stop_reason", "n_filled", "n_sweeps")

MATRIX = rules.Rule(lambda value: isinstance(value, np.ndarray) and value.ndim == 2, "a matrix")
FLOATS, INTEGERS = ("float32", "float64"), ("int32", "int64")
SETTING = rules.either(
    rules.STRING, rules.FLAG, rules.NULL, rules.number(), rules.of_type(list, "a list")
)  # a field of a user's divergence

PARAMETERS: dict[str, rules.Rule] = {
    "n_clusters": rules.integer(1),
    "beta_loss": rules.either(rules.one_of(*DIVERGENCES), rules.number(), rules.of_type(Divergence, "a divergence")),
    "init": rules.either(rules.one_of("auto", *STARTS), MATRIX),
    "n_init": rules.either(rules.one_of("auto"), rules.integer(1)),
    "max_iter": rules.integer(1),
    "tol": rules.number(0),
    "refine": rules.one_of(None, "local-search"),
    "n_consensus": rules.integer(1),
    "smoothing": rules.either(rules.one_of("auto"), rules.number(0)),
    "engine": rules.one_of(*ENGINES),
    "n_threads": rules.either(rules.NULL, rules.integer(1, 1024)),
    "random_state": rules.either(rules.NULL, rules.integer(0, 2**32 - 1)),
    "forgetting": rules.number(0, 1),
    "adapt": rules.either(rules.one_of("auto"), rules.number(0, 1)),
    "seed_share": rules.number(0),
    "sparse_output": rules.FLAG,
    "verbose": rules.either(rules.integer(), rules.FLAG),
}
"""Parameters of the estimator. Those that a file does not name have their defaults."""


@dataclass(frozen=True)
class SavedModel:
    """The contents of a model file: everything that a fitted estimator needs."""

    parameters: dict[str, Any]
    divergence: Divergence
    clustering: Clustering
    engine: str
    feature_names: list[str] | None
    extra: dict[str, Any]  # the "kind" of data, and further parts by name
    provenance: dict[str, Any]  # the date, and the versions with which the file was written


class Refused(ValueError):
    """A file is damaged or of another format. The message names the file."""


class Unregistered(ValueError):
    """A file names a divergence that is neither of onmf nor registered."""


def damaged(path: Any, what: object) -> ValueError:
    """The error for a damaged file; ``what`` says what is wrong inside it."""
    return Refused(f"{path} is damaged: {_reason(what)}. Write it again, or take another copy.")


def write_model(path: str | os.PathLike[str], saved: SavedModel) -> None:
    """Write a model file, whole or not at all. Parameters that are code, such as a callable ``init``, are refused."""
    clustering, agreement = saved.clustering, saved.clustering.agreement
    arrays = {name: getattr(clustering, name) for name in ARRAYS}
    arrays["agreement"] = None if agreement is None else agreement.rows
    arrays |= {f"history.{name}": values for name, values in clustering.history.items()}
    metadata = {
        "onmf_version": __version__,
        "kind": saved.extra.get("kind", "matrix"),
        "parameters": {name: _encode(name, value, arrays) for name, value in saved.parameters.items()},
        "divergence": _encode_divergence("divergence", saved.divergence),
        "fitted": {
            **{name: getattr(clustering, name) for name in NUMBERS},
            "agreement": None if agreement is None else agreement.overall,
            "engine": saved.engine,
            **({} if clustering.groups is None else {"groups": clustering.groups.tolist()}),
            **({} if clustering.adapt is None else {"adapt": clustering.adapt}),
        },
        "provenance": saved.provenance,
    }
    parts = {}
    for name, part in saved.extra.items():
        if isinstance(part, np.ndarray) and part.dtype.kind in "biuf":
            arrays[f"extra.{name}"] = part
        elif name != "kind":
            parts[name] = part
    if saved.feature_names is not None:
        parts["feature_names_in"] = saved.feature_names
    arrays = {name: array for name, array in arrays.items() if array is not None}
    try:
        same = _model(parse_json(_json_bytes("metadata", metadata)), arrays, parts).divergence == saved.divergence
        require(same, f"a file makes another object of {saved.divergence!r}: make its fields numbers or tuples")
    except ValueError as error:  # do not write a file that could not be read back
        raise ValueError(f"The model cannot be saved: {str(error).rstrip('.')}.") from error
    members = {f"arrays/{name}.npy": _array_bytes(name, array) for name, array in arrays.items()}
    members |= {f"parts/{name}.json": _json_bytes(name, part) for name, part in parts.items()}
    for name in members:
        require(is_member(name), f"{name!r} is not a valid name for a part: use letters, digits, '_', '-' and '.'.")
    listed = {name: {"bytes": len(data), "sha256": sha256(data).hexdigest()} for name, data in members.items()}
    version = 1 if clustering.clusters is None else VERSION
    metadata = {"format": FORMAT, "format_version": version, **metadata, "members": listed}

    def write(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, data in {METADATA: _json_bytes("metadata", metadata), **members}.items():
                archive.writestr(zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0)), data)

    write_whole(Path(path), write)


def read_model(path: str | os.PathLike[str]) -> SavedModel:
    """Read a file that :func:`write_model` wrote. Raises :class:`Refused` if it is another, newer, or damaged."""
    path = Path(path)
    require(not path.is_dir(), f"{path} is a folder, not {FORMAT}: name a file.")
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file.")
    if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would block
        raise ValueError(f"{path} is not {FORMAT}: it is a device or a pipe, not a file.")
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            contents = _contents(archive, path)
        return _model(*contents)
    except Refused:
        raise
    except Unregistered as error:
        raise Refused(f"{path} cannot be loaded: {error}") from error
    except ValueError as error:
        raise damaged(path, error) from error
    except Exception as error:  # zipfile may raise anything
        raise Refused(f"{path} is not {FORMAT}, or is damaged: {_reason(error)}.") from error


def _contents(archive: zipfile.ZipFile, path: Path) -> tuple[dict[str, Any], dict[str, Array], dict[str, Any]]:
    """Metadata, arrays and parts of a file. Lengths and checksums are verified before contents are used."""
    entries = archive.infolist()
    lengths = {info.filename: info.file_size for info in entries}
    foreign = Refused(f"{path} is not {FORMAT}: it is a zip file without a {METADATA} that says so.")
    if METADATA not in lengths:
        raise foreign
    require(len(lengths) == len(entries) <= MOST_MEMBERS, "it has too many members, or the same one twice")
    for info in entries:
        name, encrypted = info.filename, info.flag_bits & 0x1
        require(name == METADATA or is_member(name), f"it holds {name[:80]!r}, which does not belong there")
        stored = info.compress_type == zipfile.ZIP_STORED and info.file_size == info.compress_size
        require(stored and not encrypted, f"{name} is compressed or encrypted, which is not allowed")
    require(sum(lengths.values()) <= path.stat().st_size, "its members claim to be longer than the file")
    require(lengths[METADATA] <= LARGEST_METADATA, f"its {METADATA} is too large")
    metadata = _parse(METADATA, archive.read(METADATA))
    if metadata.get("format") != FORMAT:
        raise foreign
    written = metadata.get("format_version")
    require(rules.integer(1).fits(written), "it does not state its format version")
    if written > VERSION:
        raise Refused(
            f"{path} was written by a newer onmf ({str(metadata.get('onmf_version', 'unknown'))[:20]}, format "
            f"{written}); this one reads up to format {VERSION}: upgrade onmf."
        )
    listed = metadata.pop("members", None)
    complete = isinstance(listed, dict) and set(listed) == set(lengths) - {METADATA}
    require(complete, f"its members differ from those that its {METADATA} lists")
    found: dict[str, dict[str, Any]] = {"arrays": {}, "parts": {}}
    for name, expected in listed.items():
        as_listed = isinstance(expected, dict) and expected.get("bytes") == lengths[name]
        require(as_listed, f"the length of {name} differs from the one in its {METADATA}")
        data = archive.read(name)
        require(sha256(data).hexdigest() == expected.get("sha256"), f"the checksum of {name} is wrong")
        folder, short = name.rsplit(".", 1)[0].split("/")
        found[folder][short] = _parse(name, data)
    return metadata, found["arrays"], found["parts"]


def _parse(name: str, data: bytes) -> Any:
    """The array or the JSON value in a member of the file."""
    form, parse = ("JSON", parse_json) if name.endswith(".json") else ("an array", _parse_array)
    try:
        return parse(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is not {form}: {_reason(error)[:200]}") from error


def _array_bytes(name: str, array: Array) -> bytes:
    array = np.asarray(array)
    require(array.dtype.kind in "biuf", f"{name} holds {array.dtype} values: only arrays of numbers can be stored.")
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()


def _parse_array(data: bytes) -> Array:
    """The array in a .npy file. Its shape is checked against the number of bytes before memory is allocated."""
    buffer = io.BytesIO(data)
    shape, fortran_order, dtype = npy_header(buffer, len(data))
    require(dtype.kind in "biuf" and not fortran_order, "it holds something other than plain numbers")
    exact = math.prod(shape) * dtype.itemsize == len(data) - buffer.tell()
    require(exact, f"it claims the shape {str(shape)[:80]}, which its length contradicts")
    return np.frombuffer(data, dtype, offset=buffer.tell()).reshape(shape).astype(dtype.newbyteorder("="))


def _json_bytes(name: str, value: Any) -> bytes:
    def plain(value: Any) -> Any:
        if isinstance(value, np.generic | np.ndarray):
            return value.tolist()
        raise TypeError(f"{type(value).__name__} is not a number, string, list or dict")

    try:
        data = json.dumps(value, ensure_ascii=False, indent=1, default=plain).encode()
        parse_json(data)  # do not write what could not be read back
        return data
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{name} cannot be stored as JSON: {_reason(error)}.") from error


def parse_json(data: bytes) -> Any:
    """Parse JSON; refuse duplicate names, lone surrogates and deep nesting."""

    def as_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        require(len(members) == len(pairs), "an object has the same name twice")
        return members

    value = json.loads(data.decode(), object_pairs_hook=as_dict)
    level = [value]
    for _ in range(DEEPEST):
        lists = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [child for each in lists for child in each]
        if not level:
            json.dumps(value, ensure_ascii=False).encode()  # raises for a lone surrogate
            return value
    raise ValueError(f"it is nested more than {DEEPEST} levels deep")


def _reason(error: object) -> str:
    """The message of an error on one line, without its full stop."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def _model(metadata: dict[str, Any], arrays: dict[str, Array], parts: dict[str, Any]) -> SavedModel:
    """The model in a file. Every value is checked first."""
    check({"centroids": MATRIX}, arrays)
    k, p = arrays["centroids"].shape
    n = arrays["labels"].size if "labels" in arrays else 0
    require(k > 0 and p > 0, "it has no centroids")
    check(
        {
            "centroids": rules.array(FLOATS, k, p),
            "masses": rules.array(FLOATS, k),
            "labels": rules.array(INTEGERS, n, low=0, high=k - 1),
            "scales": rules.array(FLOATS, n),
            "margins": rules.optional(rules.array(FLOATS, n, low=-np.inf, high=np.inf)),
            "agreement": rules.optional(rules.array(FLOATS, n)),
            "init_rows": rules.optional(rules.array(INTEGERS, k, low=0, high=2**53)),
            "group_effects": rules.optional(rules.array(FLOATS, None, p, low=0)),
            "clusters": rules.optional(rules.array(INTEGERS, k, low=-1, high=MOST_CLUSTERS - 1)),
            "history.moved": rules.optional(rules.array(FLOATS + INTEGERS, None, low=0, high=2**53)),
        },
        arrays,
    )
    for name, values in arrays.items():
        require(values.ndim == 1 or not name.startswith("history."), f"its {name} is not a list of numbers")
    check(
        dict.fromkeys(("parameters", "divergence", "fitted", "provenance"), rules.of_type(dict, "a JSON object")),
        metadata,
    )
    check({"kind": rules.STRING}, metadata)
    divergence = _decode_divergence(metadata["divergence"])
    check_consistent(divergence, p)
    _check_centroids(divergence, arrays["centroids"], arrays["masses"])
    parameters = {name: _decode(name, value, arrays) for name, value in metadata["parameters"].items()}
    check({name: rules.optional(rule) for name, rule in PARAMETERS.items()}, parameters, "parameter ", closed=True)
    fitted = metadata["fitted"]
    check(
        {
            "objective": rules.number(infinite=True),
            "n_iter": rules.integer(),
            "stop_reason": rules.STRING,
            "n_filled": rules.integer(0, k),
            "n_sweeps": rules.integer(),
            "agreement": rules.either(rules.NULL, rules.number()),
            "engine": rules.STRING,
            "groups": rules.optional(rules.of_type(list, "a list")),
            "adapt": rules.optional(rules.number(0, 1)),
        },
        fitted,
    )
    groups, effects = fitted.get("groups"), arrays.get("group_effects")
    group_names = None if groups is None else names_of_groups(groups)
    different = groups is None or len(set(groups)) == len(groups)
    require(different and len(groups or ()) == (0 if effects is None else len(effects)), "its groups do not match")
    require(effects is None or bool((effects > 0).all()), "its multipliers of groups are not positive")
    require(fitted["agreement"] is None or "agreement" in arrays, "'agreement' is missing")
    check(dict.fromkeys(metadata["provenance"], rules.STRING), metadata["provenance"], "provenance ")
    extra = {**parts, **_named(arrays, "extra.")}
    require("kind" not in extra, "it has a part named 'kind'")
    names = extra.pop("feature_names_in", None)
    require(names is None or rules.strings(p).fits(names), "its feature names do not match its centroids")
    check_parts(metadata["kind"], extra, k, p)
    most = k if "clusters" not in arrays else MOST_CLUSTERS
    least = k if "clusters" not in arrays else int(arrays["clusters"].max()) + 1
    listed = extra.get("names", range(least))
    require(least <= len(listed) <= most, f"its part names is {abbreviate(listed)}, not a name for each cluster")
    clustering = Clustering(
        **{name: arrays.get(name) for name in ARRAYS},  # type: ignore[arg-type]
        **{name: fitted[name] for name in NUMBERS} | {"objective": float(fitted["objective"])},
        history=_named(arrays, "history."),
        parameters=parameters,
        groups=group_names,
        adapt=fitted.get("adapt"),
        agreement=None if fitted["agreement"] is None else Agreement(float(fitted["agreement"]), arrays["agreement"]),
    )
    extra = {"kind": metadata["kind"], **extra}
    return SavedModel(parameters, divergence, clustering, fitted["engine"], names, extra, metadata["provenance"])


def check_parts(kind: str, parts: Mapping[str, Any], k: int, p: int) -> None:
    """Refuse a model of a known kind, with k clusters and p features, whose parts are missing or wrong."""
    known = get_kind(kind)
    check(known.rules(k, p), parts, "part ")
    known.check(parts)


def _check_centroids(divergence: Divergence, C: Array, masses: Array) -> None:
    """Refuse centroids with which no row can be compared, or whose sum overflows."""
    allowed = divergence.domain == "real" or (C >= 0).all()
    require(allowed, f"its centroids have negative entries, which {divergence.name} does not allow")
    with np.errstate(all="ignore"):
        finite = np.isfinite(divergence.normalise(C)).all() and np.isfinite(masses @ C).all()
        comparable = (divergence.templates(C) < np.inf).all()  # -inf is fine: a zero entry may cost infinity
    require(finite and comparable, "its centroids are too large or too small to compute with")


def _named(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """The arrays whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}


def provenance() -> dict[str, Any]:
    """The date, and the versions of this package and its dependencies."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "onmf": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }


def _encode(name: str, value: Any, arrays: dict[str, Any]) -> Any:
    """A parameter as a JSON value; an array is added to ``arrays``."""
    if value is None or isinstance(value, str | bool | int | float | np.generic):
        return value
    if isinstance(value, Divergence):
        return _encode_divergence(name, value)
    if isinstance(value, Engine | Backend):
        return "auto"  # the engine depends on the machine that loads the model
    if not callable(value) and np.ndim(value) > 0:
        arrays[f"parameter.{name}"] = np.asarray(value)
        return {"array": f"parameter.{name}"}
    raise ValueError(
        f"{name}={value!r} cannot be saved: a model file holds no code. Replace it, for example with "
        f"model.set_params({name}=None), and save again."
    )


def _decode(name: str, value: Any, arrays: Mapping[str, Array]) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" not in value:
        return _decode_divergence(value)
    key = f"parameter.{name}"
    require(value["array"] == key and key in arrays, f"the array of its parameter {name} is missing")
    return arrays[key]


def _encode_divergence(name: str, value: Divergence) -> dict[str, Any]:
    kind = type(value)
    require(
        not isinstance(value, Bregman),
        f"{name}={value!r} cannot be saved: a model file holds no code, so no functions. Write a subclass of "
        "onmf.divergence.Divergence and register it.",
    )
    require(
        _known(kind.__name__) is kind,
        f"{name}={value!r} cannot be saved: a model file holds no code, and its class is not registered. Call "
        f"onmf.divergence.register({kind.__name__}) here, and where the model is loaded.",
    )
    of_onmf = kind.__name__ not in divergences.REGISTERED
    settings = asdict(value) if of_onmf and not isinstance(value, Convex) else value.settings()
    return {"divergence": kind.__name__, **settings}


def _decode_divergence(value: dict[str, Any]) -> Divergence:
    name = value.get("divergence")
    kind = _known(name) if isinstance(name, str) else None
    if kind is None and isinstance(name, str) and name.isidentifier() and not hasattr(divergences, name):
        raise Unregistered(
            f"its divergence {name!r} is not part of onmf. Import the module that defines it, and call "
            f"onmf.divergence.register({name}) before you load the model."
        )
    if kind is None:
        raise ValueError(f"its divergence {abbreviate(name)} is unknown")
    values = {key: each for key, each in value.items() if key != "divergence"}
    taken = signature(kind).parameters
    if kind.__name__ in divergences.REGISTERED:
        check(dict.fromkeys(taken, SETTING), values, f"{name} ", closed=True)
    else:
        fixed = [field.name for field in fields(kind) if not field.init]
        check(
            dict.fromkeys([*taken, *fixed], rules.either(rules.number(), rules.STRING)), values, f"{name} ", closed=True
        )
        values = {key: float(each) if isinstance(each, int) else each for key, each in values.items()}
    try:
        return kind(**{key: _tupled(values[key]) for key in taken})
    except Exception as error:  # which one depends on the class
        raise ValueError(f"{name} does not take these values: {error}") from error


def _known(name: str) -> type[Divergence] | None:
    """The class of divergence that a file may name so, of onmf or registered."""
    kind = divergences.REGISTERED.get(name, getattr(divergences, name, None))
    concrete = isinstance(kind, type) and issubclass(kind, Divergence) and kind is not Bregman and not isabstract(kind)
    return kind if concrete else None


def _tupled(value: Any) -> Any:
    """A value of a divergence from JSON: tuples in place of lists."""
    require(not isinstance(value, dict), "it holds an object where a number or a text belongs")
    return tuple(map(_tupled, value)) if isinstance(value, list) else value
