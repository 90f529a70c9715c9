"""Run the command line as ``python -m rocketlet``."""

from .cli.main import main

if __name__ == "__main__":
    main()
