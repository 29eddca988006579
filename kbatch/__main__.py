"""`python -m kbatch`: the command `kbatch`, where its script is not on the PATH."""

from kbatch.cli.main import main

if __name__ == "__main__":
    main()
