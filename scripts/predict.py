"""Ask a saved model of any task: the command `keras-transformer predict`."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's start-up notices

from keras_transformer import console


def main():
    console.main(["predict", *sys.argv[1:]])


if __name__ == "__main__":
    main()
