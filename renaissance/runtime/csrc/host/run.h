// The host twin of every operation: plain loops that read as its definition.
#pragma once

#include "operations.h"

namespace rn {

void run(const FcForward& op);
void run(const FcBackward& op);
void run(const ActivationForward& op);
void run(const ActivationBackward& op);
void run(const SoftmaxCrossEntropy& op);
void run(const Dropout& op);
void run(const Cast& op);
void run(const Clear& op);
void run(const Copy& op);
void run(const UnscaleGradients& op);
void run(const ExponentialAverage& op);
void run(const AccumulateMetrics& op);
void run(const Optimizer& op);
void run(const LarsNorms& op);
void run(const LarsUpdate& op);
void run(const StepBegin& op);
void run(const StepEnd& op);

}  // namespace rn
