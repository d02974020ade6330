"""Score a translation model on a test set: the command `keras-transformer evaluate`."""

import start_up  # noqa: F401

import sys

from keras_transformer import cli as console


def main():
    console.main(["evaluate", *sys.argv[1:]])


if __name__ == "__main__":
    main()
