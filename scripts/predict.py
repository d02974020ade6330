"""Ask a saved model of any task: the command `keras-transformer predict`."""

import start_up  # noqa: F401

import sys

from keras_transformer import cli as console


def main():
    console.main(["predict", *sys.argv[1:]])


if __name__ == "__main__":
    main()
