"""The command `probmap`, also where only the client was installed."""

import sys


def main() -> int:
    """Runs the command line; says what is missing where the server's packages are not there."""
    try:
        from service import cli
    except ModuleNotFoundError as missing:
        sys.stderr.write(
            f"probmap: this command needs {missing.name}; pip install 'probmap[server]'\n"
        )
        return 2
    return cli.main()
