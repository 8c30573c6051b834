"""What ``spark-submit`` is given: the job's command line follows."""

import sys

from gateway.cli.app import main

if __name__ == "__main__":
    sys.exit(main(["pipeline", *sys.argv[1:]]))
