"""Average the last checkpoints of a run: the command `keras-transformer average`."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's start-up notices

from keras_transformer import console


def main():
    console.main(["average", *sys.argv[1:]])


if __name__ == "__main__":
    main()
