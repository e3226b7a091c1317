// The scalars of a step, by one thread.
#include "device.cuh"

using namespace rn;

extern "C" __global__ void set_step_scalars_kernel(const SetStepScalars op) { set_scalars(op); }

extern "C" __global__ void advance_counters_kernel(const AdvanceCounters op) { advance(op); }

extern "C" __global__ void report_metrics_kernel(const ReportMetrics op) { report(op); }
