"""Average the last checkpoints of a run: the command `keras-transformer average`."""

import start_up  # noqa: F401

import sys

from keras_transformer import cli as console


def main():
    console.main(["average", *sys.argv[1:]])


if __name__ == "__main__":
    main()
