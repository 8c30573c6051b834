"""The ``headgate`` command; ``python -m gateway`` is the same."""

import gc
import sys

from gateway.own_packages import check_own_packages


def main() -> None:
    """Run the command that the arguments name and exit with its status."""
    # What is imported stays: to look through it for garbage, meanwhile and at the end, is a
    # quarter of the processor time of a start.
    gc.disable()
    check_own_packages()
    if sys.argv[1:2] == ["serve"]:
        # Past typer and rich: a server that runs for months need not have them in memory.
        from gateway.cli.serve import main as serve

        sys.exit(serve(sys.argv[2:]))  # it turns the collector on when it has imported all
    from gateway.cli.app import main as command

    gc.freeze()
    gc.enable()
    sys.exit(command(sys.argv[1:]))


if __name__ == "__main__":
    main()
