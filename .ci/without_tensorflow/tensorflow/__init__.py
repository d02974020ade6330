raise ImportError("TensorFlow is hidden: the JAX and PyTorch backends must work without it.")
