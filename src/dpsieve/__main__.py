"""The command line, as a program: an interrupt while it loads ends it quietly."""

import sys


def main() -> None:
    """Load and run the command line."""
    try:
        from dpsieve.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
