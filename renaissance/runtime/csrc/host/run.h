// The host twin of every operation: plain loops that read as its definition.
#pragma once

#include "operations.h"

namespace rn {

void run(const FcForward& op);
void run(const FcBackward& op);
void run(const ActivationForward& op);
void run(const ActivationBackward& op);
void run(const SoftmaxCrossEntropy& op);
void run(const DropoutForward& op);
void run(const DropoutBackward& op);
void run(const Cast& op);
void run(const Clear& op);
void run(const Copy& op);
void run(const LoadBatch& op);
void run(const CheckAndUnscale& op);
void run(const CheckFinite& op);
void run(const ClipByNorm& op);
void run(const EmaUpdate& op);
void run(const Accumulate& op);
void run(const Optimizer& op);
void run(const LarsNorms& op);
void run(const LarsUpdate& op);
void run(const SetStepScalars& op);
void run(const AdvanceCounters& op);
void run(const ReportMetrics& op);
void run(const BeginStep& op);
void run(const EndStep& op);

}  // namespace rn
