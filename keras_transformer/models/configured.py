"""What all models share: they are functional, and rebuilt from their constructor's arguments."""

import keras

STACK = ("num_layers num_heads d_ff dropout attention_dropout activation norm_first rotary").split()


class ConfiguredModel(keras.Model):
    """A functional keras.Model whose configuration is what its constructor was given.

    Args:
        inputs, outputs: as of a functional model.
        config: dict, the constructor's arguments, see `arguments_of`.
        dtype: keras.DTypePolicy of its layers.
        **kwargs: of keras.Model.
    """

    def __init__(self, inputs, outputs, config, dtype, **kwargs):
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        self._config = config
        self.dtype_policy = dtype  # float16 is trained with a scaled loss only if the model says so

    def get_config(self):
        policy = keras.dtype_policies.serialize(self.dtype_policy)
        return {"name": self.name, "trainable": self.trainable, "dtype": policy, **self._config}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**config)


def arguments_of(local_names):
    """What a constructor was given, from its `locals()` on its first line."""
    kept = {
        name: value
        for name, value in local_names.items()
        if name not in ("self", "dtype", "kwargs", "__class__")
    }
    activation = keras.activations.get(kept["activation"])
    return {**kept, "activation": keras.activations.serialize(activation)}


def of_stack(config):
    """The arguments that an `Encoder` or `Decoder` takes."""
    return {name: config[name] for name in STACK}
