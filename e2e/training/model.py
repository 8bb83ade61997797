"""What is trained: a network of dense layers, and the data that it learns from. Pure functions of their arguments."""

import numpy as np

FEATURES = 10


def random(seed, *key):
    """A generator of random numbers that depends on the seed and the key alone, not on what was drawn before."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


def examples(generator, count):
    """Inputs and targets of Friedman's regression problem, with noise, scaled to a variance of about 1."""
    inputs = generator.random((count, FEATURES))
    signal = (
        10 * np.sin(np.pi * inputs[:, 0] * inputs[:, 1])
        + 20 * (inputs[:, 2] - 0.5) ** 2
        + 10 * inputs[:, 3]
        + 5 * inputs[:, 4]
    )
    return inputs, (signal + generator.standard_normal(count) - 14.4) / 5


class Network:
    """Layers of tanh units, and a linear one at the end. All parameters lie in one vector."""

    def __init__(self, hidden):
        sizes = [FEATURES, *hidden, 1]
        self.shapes = list(zip(sizes[:-1], sizes[1:]))
        self.size = sum((rows + 1) * columns for rows, columns in self.shapes)

    def layers(self, vector):
        """Weights and biases of each layer, as views of the vector."""
        layers, at = [], 0
        for rows, columns in self.shapes:
            end = at + rows * columns
            layers.append((vector[at:end].reshape(rows, columns), vector[end : end + columns]))
            at = end + columns
        return layers

    def initial(self, generator):
        """Parameters before the first step."""
        parameters = np.zeros(self.size)
        for weights, _ in self.layers(parameters):
            weights[:] = generator.standard_normal(weights.shape) / np.sqrt(weights.shape[0])
        return parameters

    def activations(self, parameters, inputs):
        """The inputs, and the output of each layer."""
        values, layers = [inputs], self.layers(parameters)
        for weights, biases in layers[:-1]:
            values.append(np.tanh(values[-1] @ weights + biases))
        weights, biases = layers[-1]
        return [*values, values[-1] @ weights + biases]

    def loss(self, parameters, inputs, targets):
        """Mean squared error."""
        return float(np.mean((self.activations(parameters, inputs)[-1][:, 0] - targets) ** 2))

    def loss_and_gradient(self, parameters, inputs, targets):
        """Mean squared error, and its derivative by each parameter."""
        values = self.activations(parameters, inputs)
        error = values.pop()[:, 0] - targets
        gradient = np.empty(self.size)
        delta = (2 / len(targets)) * error[:, np.newaxis]
        layers = zip(self.layers(parameters), self.layers(gradient), values)
        for (weights, _), (by_weights, by_biases), before in reversed(list(layers)):
            by_weights[:] = before.T @ delta
            by_biases[:] = delta.sum(axis=0)
            delta = (delta @ weights.T) * (1 - before**2)
        return float(np.mean(error**2)), gradient
