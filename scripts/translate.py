"""Translate with a saved model: the command `keras-transformer translate`."""

import start_up  # noqa: F401

import sys

from keras_transformer import cli as console


def main():
    console.main(["translate", *sys.argv[1:]])


if __name__ == "__main__":
    main()
