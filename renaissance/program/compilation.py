"""``compile``: from a blueprint to a program, before any data is seen."""

from __future__ import annotations

from collections.abc import Sequence

from renaissance.algo.clip import Clip
from renaissance.algo.initializer import Initializer, KaimingUniform
from renaissance.algo.loss import CrossEntropy
from renaissance.algo.loss_scale import LossScale
from renaissance.algo.optimizer import SGD, Optimizer
from renaissance.algo.scheduler import Constant, Scheduler
from renaissance.core.errors import check_int, fail
from renaissance.core.types import Precision
from renaissance.graph.blueprint import BluePrint, Layer
from renaissance.graph.options import CompileOptions
from renaissance.program.config import ProgramConfig, check_hw, check_hwc
from renaissance.program.program import Program


def compile(
    blueprint: BluePrint | Layer,
    input_shape: Sequence[int],
    batch_size: int,
    *,
    last_batch_size: int | None = None,
    val_batch_size: int | None = None,
    val_last_batch_size: int | None = None,
    end_resolution: Sequence[int] | int | None = None,
    val_resolution: Sequence[int] | int | None = None,
    num_classes: int | None = None,
    loss: CrossEntropy | None = None,
    optimizer: Optimizer | None = None,
    scheduler: Scheduler | None = None,
    epochs: int = 1,
    steps_per_epoch: int = 1,
    initializer: Initializer | None = None,
    zero_gamma: bool = False,
    amp: bool = False,
    precision: Precision | str | None = None,
    loss_scale: LossScale | None = None,
    ema: float | None = None,
    grad_clip: Clip | None = None,
    freeze_first_layer: bool = False,
    lowering: str = "auto",
    loop: str = "auto",
) -> Program:
    """Compile a model into a :class:`Program`: shapes, memory plan, graphs, executables.

    Args:
        blueprint: The model, or the layer that is its tree.
        input_shape: (height, width, channels) of a training image.
        batch_size: Rows of a full training batch.
        last_batch_size: Rows of an epoch's last training batch, if it differs.
        val_batch_size: Rows of a validation batch; default ``batch_size``.
        val_last_batch_size: Rows of the last validation batch, if it differs.
        end_resolution: Resolution that training ends with (progressive resolution).
        val_resolution: Resolution of validation; default the training one.
        num_classes: Checked against the last layer's width; default that width.
        loss: Default cross entropy without smoothing.
        optimizer: Default plain SGD. Optimizers hold no learning rate.
        scheduler: The learning rate; default constant 0.1.
        epochs: Length of the run the schedule is drawn for; later steps keep the last rate.
        steps_per_epoch: Training steps in an epoch.
        initializer: Initial weights; default Kaiming uniform, fan-in.
        zero_gamma: Start the last BN of every residual block at zero.
        amp: fp16 activations and compute weights over fp32 masters, with a dynamic loss scale.
        precision: Instead of ``amp``: ``"fp32"``, ``"amp"`` or ``"fp64"`` (needs jax_enable_x64).
        loss_scale: The dynamic loss scale's constants (only used under AMP).
        ema: Decay of an exponential moving average of the weights, if wanted.
        grad_clip: Clipping of the unscaled gradients, by value or by global norm.
        freeze_first_layer: Leave the first layer's weights as they are.
        lowering: ``"xla"``, ``"fused"`` or ``"auto"`` (fused where it can run, else XLA).
        loop: How :meth:`Program.train_steps` runs in the fused lowering: ``"chain"`` (a loop over
            the launches of a step), ``"persistent"`` (one launch for all steps, weights and moments
            on chip: small MLPs under AMP) or ``"auto"`` (persistent where it can run, on a CUDA
            device of compute capability 9.0). The two agree within the tolerance of fp16.

    Raises:
        TypeError, ValueError: an argument is wrong; the message says what would be right.
        ShapeError: a layer cannot take the shape it gets; the message names the layer.
    """
    if amp and precision is not None and Precision(precision) is not Precision.AMP:
        fail(ValueError, "precision", precision, "'amp' or nothing when amp=True")
    height, width, channels = check_hwc("input_shape", input_shape)
    precision = Precision.AMP if amp else Precision(precision or "fp32")
    optimizer = SGD() if optimizer is None else optimizer
    slots = optimizer.slots
    options = CompileOptions(
        input_channels=channels,
        batch=batch_size,
        train_begin=(height, width),
        train_end=check_hw("end_resolution", end_resolution, (height, width)),
        validation=check_hw("val_resolution", val_resolution, (height, width)),
        last_train_batch=last_batch_size,
        val_batch=val_batch_size,
        last_val_batch=val_last_batch_size,
        amp=precision is Precision.AMP,
        first_moment=slots.first_moment,
        second_moment=slots.second_moment,
        norms=slots.norms,
        ema=ema is not None,
        first_layer_frozen=freeze_first_layer,
        lr_table_length=check_int("epochs", epochs, 1)
        * check_int("steps_per_epoch", steps_per_epoch, 1),
    )
    config = ProgramConfig(
        blueprint=blueprint if isinstance(blueprint, BluePrint) else BluePrint(blueprint),
        options=options,
        num_classes=num_classes,
        loss=CrossEntropy() if loss is None else loss,
        optimizer=optimizer,
        scheduler=Constant(base_lr=0.1) if scheduler is None else scheduler,
        epochs=epochs,
        steps_per_epoch=steps_per_epoch,
        initializer=KaimingUniform() if initializer is None else initializer,
        zero_gamma=zero_gamma,
        precision=precision,
        loss_scale=LossScale() if loss_scale is None else loss_scale,
        ema=ema,
        clip=grad_clip,
        lowering=lowering,
        loop=loop,
    )
    return Program(config)
