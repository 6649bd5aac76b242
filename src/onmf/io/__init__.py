"""Files: written whole or not at all, models as files, and safe reading of files from strangers.

Import from the modules themselves. This one imports nothing, so that reading a table does not load the engines.
"""
