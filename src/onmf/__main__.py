"""``python -m onmf``: the command line."""

import sys


def main() -> None:
    """Run the command line, or name the packages that it needs."""
    try:
        from onmf.cli import main as run
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit("onmf: the command line needs typer and rich: pip install 'onmf[cli]'")
    run()


if __name__ == "__main__":
    main()
