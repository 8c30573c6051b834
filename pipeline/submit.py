"""Script for ``spark-submit``, followed by the job's command line."""

import sys

from gateway.cli.app import main

if __name__ == "__main__":
    sys.exit(main(["pipeline", *sys.argv[1:]]))
