"""The ``headgate`` command; ``python -m gateway`` is the same."""

import sys


def main() -> None:
    """Run the command that the arguments name and exit with its status."""
    if sys.argv[1:2] == ["serve"]:
        # Past typer and rich: a server that runs for months need not have them in memory.
        from gateway.cli.serve import main as serve

        sys.exit(serve(sys.argv[2:]))
    from gateway.cli.app import main as command

    sys.exit(command(sys.argv[1:]))


if __name__ == "__main__":
    main()
