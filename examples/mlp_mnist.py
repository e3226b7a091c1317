"""The task way: a four-layer MLP on MNIST.

python examples/mlp_mnist.py --data DIR --epochs 5
python examples/mlp_mnist.py --data DIR --augment --amp    # the whole recipe, 100 epochs
"""

import argparse

import renaissance as rn
from renaissance.data import Pad, RandomCrop, RandomErasing, RandomRotation, RandomScale

parser = argparse.ArgumentParser(description="Train a four-layer MLP on MNIST.")
parser.add_argument("--data", required=True, help="directory with the four IDX files, gz or not")
parser.add_argument("--epochs", type=int, default=100)
parser.add_argument("--augment", action="store_true", help="five random transforms")
parser.add_argument("--amp", action="store_true", help="mixed precision, for a GPU")
args = parser.parse_args()

settings = rn.Settings().manual_seed(123).amp(args.amp).local_batch_size(200)

preprocessor = rn.Preprocessor().dataset("mnist", args.data)
if args.augment:
    preprocessor.train_transforms(
        Pad(2), RandomCrop(28), RandomRotation(20), RandomScale(0.8, 1.2), RandomErasing(0.5)
    )

model = rn.seq(
    rn.flatten(),
    rn.seq(rn.fc(1024), rn.relu()),
    rn.seq(rn.fc(512), rn.relu()),
    rn.seq(rn.fc(256), rn.relu()),
    rn.fc(10),
)

task = (
    rn.DeepLearningTask("mlp_mnist", settings)
    .data(preprocessor.commit())
    .model(rn.BluePrint(model, "mlp"))
    .loss(rn.CrossEntropy(label_smoothing=0.1))
    .optimizer(rn.AdamW(weight_decay=1e-4))
    .scheduler(rn.CosineAnnealing(base_lr=1e-3, warmup=min(5, args.epochs // 4)))
    .total_epochs(args.epochs)
)
result = task.compile().run()
