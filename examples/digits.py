"""Train a classifier on scikit-learn's handwritten digits: 1,797 images of 8 x 8 pixels, a fifth of them held out.

    python examples/digits.py [--epochs N] [--seed N] [--plot FILE] [--json FILE]

Prints the accuracy on the held-out images, saves the learning curve and the misread digits as a PNG.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from tqdm import tqdm

import pullback as pb
from pullback import nn, optim
from pullback.data import batches

BATCH = 64
LEARNING_RATE = 2e-3


def load(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images and labels, held-out images and labels. Images are rows of 64 floats in [0, 1]."""
    digits = load_digits()
    images = (digits.data / 16.0).astype(np.float32)
    labels = digits.target.astype(np.int64)
    order = np.random.default_rng(seed).permutation(len(images))
    held_out = len(images) // 5
    test, train = order[:held_out], order[held_out:]
    return images[train], labels[train], images[test], labels[test]


def with_shifts(images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The images and four copies of each, moved by one pixel up, down, left and right."""
    padded = np.pad(images.reshape(-1, 8, 8), ((0, 0), (1, 1), (1, 1)))
    moves = [(1, 1), (0, 1), (2, 1), (1, 0), (1, 2)]
    copies = [padded[:, down : down + 8, right : right + 8].reshape(-1, 64) for down, right in moves]
    return np.concatenate(copies), np.tile(labels, len(moves))


def make_model() -> nn.Sequential:
    """A perceptron with one hidden layer of 512 units."""
    return nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Dropout(0.2), nn.Linear(512, 10))


def plot(path: Path, losses: list[float], images: np.ndarray, labels: np.ndarray, guesses: np.ndarray) -> None:
    """Save the learning curve, and the first dozen digits whose guess is wrong."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    wrong = np.flatnonzero(guesses != labels)[:12]
    figure = plt.figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subfigures(1, 2)
    axes = left.subplots()
    axes.plot(losses)
    axes.set(xlabel="step", ylabel="cross entropy", yscale="log", title="learning curve")
    right.suptitle("misread digits (true -> guess)")
    for place, index in zip(right.subplots(3, 4).flat, [*wrong, *[-1] * (12 - len(wrong))]):
        place.axis("off")
        if index >= 0:
            place.imshow(images[index].reshape(8, 8), cmap="gray_r")
            place.set_title(f"{labels[index]} -> {guesses[index]}", fontsize=9)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=Path, default=Path("digits.png"), metavar="FILE")
    parser.add_argument("--json", type=Path, default=None, metavar="FILE")
    options = parser.parse_args()

    start = time.perf_counter()
    pb.random.seed(options.seed)
    train_images, train_labels, test_images, test_labels = load(options.seed)
    train_images, train_labels = with_shifts(train_images, train_labels)
    model = make_model()
    optimizer = optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)

    @pb.jit
    def train_step(images: pb.Tensor, labels: pb.Tensor) -> pb.Tensor:
        optimizer.zero_grad()
        loss = nn.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    @pb.jit
    def classify(images: pb.Tensor | np.ndarray) -> pb.Tensor:
        return pb.argmax(model(images), axis=1)

    def accuracy() -> tuple[float, np.ndarray]:
        model.eval()
        guesses = np.asarray(classify(test_images))
        model.train()
        return float(np.mean(guesses == test_labels)), guesses

    data = batches(train_images, train_labels, batch_size=BATCH, seed=options.seed)
    losses: list[pb.Tensor] = []
    times: list[float] = []
    bar = tqdm(range(options.epochs), unit="epoch")
    for epoch in bar:
        # The learning rate falls to 0 along half a cosine.
        optimizer.lr = LEARNING_RATE * 0.5 * (1.0 + np.cos(np.pi * epoch / options.epochs))
        for images, labels in data:
            before = time.perf_counter()
            losses.append(train_step(images, labels))
            times.append(time.perf_counter() - before)
        bar.set_postfix(loss=f"{float(losses[-1]):.4f}", accuracy=f"{100 * accuracy()[0]:.1f}%")
    score, guesses = accuracy()
    seconds = time.perf_counter() - start
    step_ms = 1e3 * float(np.median(times)) if times else 0.0

    plot(options.plot, [float(loss) for loss in losses], test_images, test_labels, guesses)
    print(f"accuracy on {len(test_labels)} held-out digits: {100 * score:.2f}%")
    print(f"{seconds:.1f} s in all, {step_ms:.3f} ms a step; learning curve and misread digits: {options.plot}")
    if options.json:
        result = {"accuracy": score, "seconds": seconds, "ms_per_step": step_ms}
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
