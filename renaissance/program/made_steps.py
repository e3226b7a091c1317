"""Train steps of the fused lowering that make their batches from the rows of a data set.

A step of a chain makes its batch in its own input slot, by one call in the place of the one that
would load it. Where one launch runs all steps, one call before it makes all their batches.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from renaissance.data.device_pipeline import DevicePipeline
from renaissance.lowering.calls.in_place import Banks, thread
from renaissance.lowering.calls.scene import BATCH, TABLE
from renaissance.lowering.fused.passes import empty_table, train_pass
from renaissance.lowering.rewrites.augment import Augmentation, Drafts, make_batches, make_in_slot
from renaissance.program.many_steps import ManySteps, Samples, loop
from renaissance.program.persistent import choose_persistent


def augmentation_of(pipeline: DevicePipeline) -> Augmentation:
    """A pipeline's chain as the custom call takes it."""
    return Augmentation(pipeline.chain.records(), pipeline.image_shape)


class MadeSteps(ManySteps):
    """Traces one step or many; the arguments of :class:`ManySteps`, and what makes the batches."""

    def of(
        self, augmentation: Augmentation, banks: Banks, drafts: Drafts
    ) -> tuple[Banks, jax.Array]:
        """The banks after all steps, and a row of the table for each.

        Args:
            augmentation: What happens to a sample.
            banks: Given up.
            drafts: What the batches are made from.
        """
        compute = self.scene.recipe.precision.compute
        drafts = drafts._replace(values=drafts.values.astype(compute.numpy))
        fused, steps = train_pass(self.graph, self.scene), drafts.ids.shape[0]
        one = choose_persistent(
            self.loop, self.scene, fused.calls, steps, compute.value, self.launches, indexed=False
        )
        if one is not None:
            images, labels = make_batches(augmentation, drafts, self.launches)
            self.workspace = images.size * images.dtype.itemsize + 4 * labels.size
            return self.one_launch(one, banks, Samples(images, labels))
        calls = make_in_slot(fused.calls, augmentation, drafts.images.shape[0])

        def step(i: jax.Array, banks: Banks, table: jax.Array) -> tuple[Banks, jax.Array]:
            given = {**drafts._asdict(), BATCH.name: i, TABLE.name: table}
            banks, after = thread(calls, banks, given, self.launches)
            return banks, after[TABLE.name]

        if steps == 1:
            return step(jnp.zeros((), jnp.int32), banks, empty_table(1))
        return loop(step, banks, steps)
