"""The functional way: pure functions over an explicit state, on the digits that ship with it."""

import jax
import jax.numpy as jnp

import renaissance as rn

train, val = rn.data.load_digits()
batches = rn.data.loader(train, batch_size=32, shuffle=True, normalization=rn.data.DIGITS)
held_out = rn.data.loader(val, batch_size=360, normalization=rn.data.DIGITS)

model = rn.seq(rn.flatten(), rn.fc(256), rn.relu(), rn.fc(128), rn.relu(), rn.fc(10))
program = rn.compile(
    model,
    input_shape=(8, 8, 1),
    batch_size=32,
    last_batch_size=len(train) % 32,
    val_batch_size=360,
    optimizer=rn.AdamW(weight_decay=1e-2),
    scheduler=rn.CosineAnnealing(2e-3, warmup=1),
    epochs=10,
    steps_per_epoch=len(batches),
)

state = program.init(jax.random.key(0))
for epoch in range(10):
    for batch in batches:
        state, metrics = program.train_step(state, batch)
    scores = program.evaluate(state, held_out)
    print(f"epoch {epoch + 1:2d}  loss {metrics['loss']:.4f}  top-1 {100 * scores['top1']:.2f} %")

# The network is also a pure function of its parameters: the gradient of the mean logit of class 3.
images, labels = next(iter(held_out))
gradient = jax.grad(lambda params: jnp.mean(program.apply(params, images)[:, 3]))
for name, value in gradient(program.params(state)).items():
    print(f"{name:10}  {value.shape!s:10}  |gradient| {jnp.linalg.norm(value):.4f}")
print(f"top-1 {100 * scores['top1']:.2f} %  parameters SHA-256 {program.sha256(state)[:16]}")
