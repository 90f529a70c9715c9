"""Run the command line as ``python -m rocketlet``."""

from rocketlet.cli.main import main  # absolute: beside this file type checkers find no cli, only through typings/

if __name__ == "__main__":
    main()
