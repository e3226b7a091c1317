// The one table of custom calls, and the two handlers that every operation gets.
#include <iterator>

#include "ffi/decode.h"
#include "ffi/decode_data.h"
#include "ffi/decode_depthwise.h"
#include "ffi/decode_maps.h"
#include "ffi/decode_mlp.h"
#include "ffi/decode_pointwise.h"
#include "ffi/decode_pointwise_backward.h"
#include "ffi/launches.h"
#include "ffi/library_call.h"
#include "host/driver.h"
#include "host/export.h"
#include "host/philox.h"
#include "host/run.h"
#include "host/run_data.h"
#include "host/run_depthwise.h"
#include "host/run_maps.h"
#include "host/run_mlp.h"
#include "host/run_pointwise.h"
#include "host/run_pointwise_backward.h"

namespace rn {

template <class Operation>
ffi::Error host_call(ffi::RemainingArgs args, ffi::RemainingRets rets, ffi::Dictionary attrs) {
  Call call(args, rets, attrs);
  Operation operation = decode<Operation>(call);
  if (call.failed()) return call.error();
  run(operation);
  return ffi::Error::Success();
}

// What must happen on the stream before an operation's kernels.
template <class Operation>
std::string prepare(const Operation&, void*) {
  return "";
}
std::string prepare(const MlpTrainSteps& op, void* stream) {
  return clear_memory(op.kernel.work, 1024, stream);  // counters that blocks wait for each other with
}

// Every kernel takes its operation's record (or the begin of it) as its only parameter.
template <class Operation>
ffi::Error cuda_call(void* stream, ffi::RemainingArgs args, ffi::RemainingRets rets,
                     ffi::Dictionary attrs) {
  Call call(args, rets, attrs);
  Operation operation = decode<Operation>(call);
  Launches launches(call);
  if (call.failed()) return call.error();
  if (!launches.valid())
    return ffi::Error::InvalidArgument("the call was lowered without its CUDA launches");
  if (std::string problem = prepare(operation, stream); !problem.empty())
    return ffi::Error::Internal(problem);
  for (size_t i = 0; i < launches.size(); ++i) {
    std::string problem = launch_kernel(launches[i], &operation, stream);
    if (!problem.empty()) return ffi::Error::Internal(problem);
  }
  return ffi::Error::Success();
}

static ffi::Error philox_uniform_call(ffi::ResultBuffer<ffi::F32> out, int64_t seed,
                                      int64_t sample, int64_t operation, int64_t step) {
  philox_uniform(out->typed_data(), out->element_count(), static_cast<uint64_t>(seed),
                 static_cast<uint32_t>(sample), static_cast<uint32_t>(operation),
                 static_cast<uint32_t>(step));
  return ffi::Error::Success();
}

}  // namespace rn

namespace ffi = xla::ffi;

// Without this trait XLA would not capture the call into a graph, and launch it six times slower.
#define RN_TRAITS {ffi::Traits::kCmdBufferCompatible}
#define RN_HANDLERS(Operation) RN_TWO_HANDLERS(Operation, rn::cuda_call)
#define RN_LIBRARY_HANDLERS(Operation) RN_TWO_HANDLERS(Operation, rn::library_call)
#define RN_TWO_HANDLERS(Operation, on_device)                                                   \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(Operation##Host, rn::host_call<rn::Operation>,                  \
                                ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs(),       \
                                RN_TRAITS);                                                     \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(Operation##Cuda, on_device<rn::Operation>,                      \
                                ffi::Ffi::Bind()                                                \
                                    .Ctx<ffi::PlatformStream<void*>>()                          \
                                    .RemainingArgs()                                            \
                                    .RemainingRets()                                            \
                                    .Attrs(),                                                   \
                                RN_TRAITS)

XLA_FFI_DEFINE_HANDLER_SYMBOL(PhiloxUniformHost, rn::philox_uniform_call,
                              ffi::Ffi::Bind()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Attr<int64_t>("seed")
                                  .Attr<int64_t>("sample")
                                  .Attr<int64_t>("operation")
                                  .Attr<int64_t>("step"),
                              RN_TRAITS);
RN_HANDLERS(FcForward);
RN_HANDLERS(FcBackward);
RN_HANDLERS(ActivationForward);
RN_HANDLERS(ActivationBackward);
RN_HANDLERS(SoftmaxCrossEntropy);
RN_HANDLERS(DropoutForward);
RN_HANDLERS(DropoutBackward);
RN_HANDLERS(Cast);
RN_HANDLERS(Clear);
RN_HANDLERS(Copy);
RN_HANDLERS(LoadBatch);
RN_HANDLERS(AugmentBatch);
RN_HANDLERS(CheckAndUnscale);
RN_HANDLERS(CheckFinite);
RN_HANDLERS(ClipByNorm);
RN_HANDLERS(EmaUpdate);
RN_HANDLERS(Accumulate);
RN_HANDLERS(Optimizer);
RN_HANDLERS(LarsNorms);
RN_HANDLERS(LarsUpdate);
RN_HANDLERS(SetStepScalars);
RN_HANDLERS(AdvanceCounters);
RN_HANDLERS(ReportMetrics);
RN_HANDLERS(BeginStep);
RN_HANDLERS(EndStep);
RN_HANDLERS(MlpTrainSteps);
RN_LIBRARY_HANDLERS(ConvForward);
RN_LIBRARY_HANDLERS(ConvForwardStatistics);
RN_LIBRARY_HANDLERS(ConvBackwardData);
RN_LIBRARY_HANDLERS(ConvBackwardDataNorm);
RN_LIBRARY_HANDLERS(ConvBackwardWeight);
RN_HANDLERS(PointwiseForward);
RN_HANDLERS(DepthwiseConvForward);
RN_HANDLERS(DepthwiseConvBackwardData);
RN_HANDLERS(DepthwiseConvBackwardWeight);
RN_HANDLERS(DepthwiseNormForward);
RN_HANDLERS(DepthwiseConvBackward);
RN_HANDLERS(BatchNormStatistics);
RN_HANDLERS(BatchNormApply);
RN_HANDLERS(BatchNormBackward);
RN_HANDLERS(BatchNormFold);
RN_HANDLERS(PointwiseBackwardData);
RN_HANDLERS(PointwiseBackward);
RN_HANDLERS(AffineForward);
RN_HANDLERS(AddForward);
RN_HANDLERS(MaxPoolForward);
RN_HANDLERS(MaxPoolBackward);
RN_HANDLERS(AveragePoolForward);
RN_HANDLERS(AveragePoolBackward);
RN_HANDLERS(GlobalAveragePoolForward);
RN_HANDLERS(GlobalAveragePoolBackward);
RN_HANDLERS(GapFcBackwardData);
RN_HANDLERS(ChannelPadding);

struct Target {
  const char* name;
  XLA_FFI_Handler* host;
  XLA_FFI_Handler* cuda;
};

static const Target kTargets[] = {
    {"rn_philox_uniform", PhiloxUniformHost, nullptr},
    {"rn_fc_forward", FcForwardHost, FcForwardCuda},
    {"rn_fc_backward", FcBackwardHost, FcBackwardCuda},
    {"rn_activation_forward", ActivationForwardHost, ActivationForwardCuda},
    {"rn_activation_backward", ActivationBackwardHost, ActivationBackwardCuda},
    {"rn_softmax_cross_entropy", SoftmaxCrossEntropyHost, SoftmaxCrossEntropyCuda},
    {"rn_dropout_forward", DropoutForwardHost, DropoutForwardCuda},
    {"rn_dropout_backward", DropoutBackwardHost, DropoutBackwardCuda},
    {"rn_cast", CastHost, CastCuda},
    {"rn_clear", ClearHost, ClearCuda},
    {"rn_copy", CopyHost, CopyCuda},
    {"rn_load_batch", LoadBatchHost, LoadBatchCuda},
    {"rn_augment_batch", AugmentBatchHost, AugmentBatchCuda},
    {"rn_check_and_unscale", CheckAndUnscaleHost, CheckAndUnscaleCuda},
    {"rn_check_finite", CheckFiniteHost, CheckFiniteCuda},
    {"rn_clip_by_norm", ClipByNormHost, ClipByNormCuda},
    {"rn_ema_update", EmaUpdateHost, EmaUpdateCuda},
    {"rn_accumulate", AccumulateHost, AccumulateCuda},
    {"rn_optimizer", OptimizerHost, OptimizerCuda},
    {"rn_lars_norms", LarsNormsHost, LarsNormsCuda},
    {"rn_lars_update", LarsUpdateHost, LarsUpdateCuda},
    {"rn_set_step_scalars", SetStepScalarsHost, SetStepScalarsCuda},
    {"rn_advance_counters", AdvanceCountersHost, AdvanceCountersCuda},
    {"rn_report_metrics", ReportMetricsHost, ReportMetricsCuda},
    {"rn_begin_step", BeginStepHost, BeginStepCuda},
    {"rn_end_step", EndStepHost, EndStepCuda},
    {"rn_mlp_train_steps", MlpTrainStepsHost, MlpTrainStepsCuda},
    {"rn_conv_forward", ConvForwardHost, ConvForwardCuda},
    {"rn_conv_forward_statistics", ConvForwardStatisticsHost, ConvForwardStatisticsCuda},
    {"rn_conv_backward_data", ConvBackwardDataHost, ConvBackwardDataCuda},
    {"rn_conv_backward_data_norm", ConvBackwardDataNormHost, ConvBackwardDataNormCuda},
    {"rn_conv_backward_weight", ConvBackwardWeightHost, ConvBackwardWeightCuda},
    {"rn_pointwise_forward", PointwiseForwardHost, PointwiseForwardCuda},
    {"rn_depthwise_conv_forward", DepthwiseConvForwardHost, DepthwiseConvForwardCuda},
    {"rn_depthwise_conv_backward_data", DepthwiseConvBackwardDataHost,
     DepthwiseConvBackwardDataCuda},
    {"rn_depthwise_conv_backward_weight", DepthwiseConvBackwardWeightHost,
     DepthwiseConvBackwardWeightCuda},
    {"rn_depthwise_norm_forward", DepthwiseNormForwardHost, DepthwiseNormForwardCuda},
    {"rn_depthwise_conv_backward", DepthwiseConvBackwardHost, DepthwiseConvBackwardCuda},
    {"rn_batch_norm_statistics", BatchNormStatisticsHost, BatchNormStatisticsCuda},
    {"rn_batch_norm_apply", BatchNormApplyHost, BatchNormApplyCuda},
    {"rn_batch_norm_backward", BatchNormBackwardHost, BatchNormBackwardCuda},
    {"rn_batch_norm_fold", BatchNormFoldHost, BatchNormFoldCuda},
    {"rn_pointwise_backward_data", PointwiseBackwardDataHost, PointwiseBackwardDataCuda},
    {"rn_pointwise_backward", PointwiseBackwardHost, PointwiseBackwardCuda},
    {"rn_affine_forward", AffineForwardHost, AffineForwardCuda},
    {"rn_add_forward", AddForwardHost, AddForwardCuda},
    {"rn_max_pool_forward", MaxPoolForwardHost, MaxPoolForwardCuda},
    {"rn_max_pool_backward", MaxPoolBackwardHost, MaxPoolBackwardCuda},
    {"rn_average_pool_forward", AveragePoolForwardHost, AveragePoolForwardCuda},
    {"rn_average_pool_backward", AveragePoolBackwardHost, AveragePoolBackwardCuda},
    {"rn_global_average_pool_forward", GlobalAveragePoolForwardHost, GlobalAveragePoolForwardCuda},
    {"rn_global_average_pool_backward", GlobalAveragePoolBackwardHost,
     GlobalAveragePoolBackwardCuda},
    {"rn_gap_fc_backward_data", GapFcBackwardDataHost, GapFcBackwardDataCuda},
    {"rn_channel_padding", ChannelPaddingHost, ChannelPaddingCuda},
};

RN_EXPORT int rn_target_count() { return static_cast<int>(std::size(kTargets)); }
RN_EXPORT const char* rn_target_name(int index) { return kTargets[index].name; }
RN_EXPORT void* rn_target_host(int index) { return reinterpret_cast<void*>(kTargets[index].host); }
RN_EXPORT void* rn_target_cuda(int index) { return reinterpret_cast<void*>(kTargets[index].cuda); }

// The FFI version that the library was compiled against: asked before anything is registered.
RN_EXPORT int rn_ffi_api_major() { return XLA_FFI_API_MAJOR; }
RN_EXPORT int rn_ffi_api_minor() { return XLA_FFI_API_MINOR; }
