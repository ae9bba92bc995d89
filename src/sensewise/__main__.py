"""`python -m sensewise` is the command `sensewise`."""

from sensewise.apps.cli import main

if __name__ == "__main__":
    main()
