"""What every kind of data shares: tables of counts, the pipeline from a table to clusters, and the clusters."""

from .clusters import Clusters, Progress, Table
from .kind import Kind, Option
from .run import check_request, cluster_table, predict_table
from .update import update_table

__all__ = [
    "Clusters",
    "Kind",
    "Option",
    "Progress",
    "Table",
    "check_request",
    "cluster_table",
    "predict_table",
    "update_table",
]
