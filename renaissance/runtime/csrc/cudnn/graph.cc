#include "cudnn/graph.h"

namespace rn::cudnn {
namespace {

// Kernels may load 16 bytes at once; the memory plan aligns every tensor to more.
constexpr int64_t kAlignment = 16;

Value data_type(int type) { return type ? kHalf : kFloat; }

// cuDNN counts dimensions as N, C, H, W and K, C, R, S, whatever their order in memory; here the
// channels are innermost.
void add_tensor(Graph& graph, int type, std::vector<int64_t> dims) {
  int64_t a = dims[0], c = dims[1], h = dims[2], w = dims[3];
  Descriptor tensor(kTensor);
  int64_t id = static_cast<int64_t>(graph.bytes.size()) + 1;
  tensor.set(kTensorDataType, kDataTypeType, data_type(type));
  tensor.set(kTensorDimensions, kInt64Type, dims);
  tensor.set(kTensorStrides, kInt64Type, std::vector<int64_t>{h * w * c, 1, w * c, c});
  tensor.set(kTensorAlignment, kInt64Type, kAlignment);
  tensor.set(kTensorUniqueId, kInt64Type, id);
  tensor.finalize("a tensor");
  graph.parts.push_back(std::move(tensor));
  graph.bytes.push_back(a * c * h * w * (type ? 2 : 4));
}

Descriptor window(const Convolution& conv) {
  const ConvShape& s = conv.shape;
  Descriptor convolution(kConvolution);
  std::vector<int64_t> pads(2, s.pad), strides(2, s.stride), ones(2, 1);
  convolution.set(kConvolutionComputeType, kDataTypeType, kFloat);
  convolution.set(kConvolutionMode, kConvolutionModeType, kCrossCorrelation);
  convolution.set(kConvolutionSpatialDimensions, kInt64Type, int64_t{2});
  convolution.set(kConvolutionPrePaddings, kInt64Type, pads);
  convolution.set(kConvolutionPostPaddings, kInt64Type, pads);
  convolution.set(kConvolutionDilations, kInt64Type, ones);
  convolution.set(kConvolutionStrides, kInt64Type, strides);
  convolution.finalize("a convolution's window");
  return convolution;
}

// The operation's attributes: scales, window, then its tensors in the order of the record.
struct Names {
  DescriptorType type;
  Attribute alpha, beta, convolution, tensors[3];
};

Names names_of(Kind kind) {
  if (kind == kBackwardData)
    return {kConvolutionBackwardData, kBackwardDataAlpha, kBackwardDataBeta,
            kBackwardDataConvolution, {kBackwardDataDy, kBackwardDataW, kBackwardDataDx}};
  if (kind == kBackwardWeight)
    return {kConvolutionBackwardWeight, kBackwardWeightAlpha, kBackwardWeightBeta,
            kBackwardWeightConvolution, {kBackwardWeightX, kBackwardWeightDy, kBackwardWeightDw}};
  return {kConvolutionForward, kForwardAlpha, kForwardBeta, kForwardConvolution,
          {kForwardX, kForwardW, kForwardY}};
}

Descriptor operation(const Graph& graph, Kind kind, const Descriptor& convolution) {
  Names names = names_of(kind);
  Descriptor operation(names.type);
  operation.set(names.alpha, kFloatType, 1.0f);
  operation.set(names.beta, kFloatType, 0.0f);
  operation.set(names.convolution, convolution);
  for (int i = 0; i < 3; ++i) operation.set(names.tensors[i], graph.parts[i]);
  operation.finalize("a convolution of this shape");
  return operation;
}

Descriptor statistics(const Graph& graph) {
  Descriptor statistics(kGenStats);
  statistics.set(kGenStatsMode, kGenStatsModeType, kSumAndSquares);
  statistics.set(kGenStatsMathPrecision, kDataTypeType, kFloat);
  statistics.set(kGenStatsX, graph.parts[2]);
  statistics.set(kGenStatsSum, graph.parts[3]);
  statistics.set(kGenStatsSquares, graph.parts[4]);
  statistics.finalize("statistics of a convolution");
  return statistics;
}

void add_tensors(Graph& graph, const Convolution& conv) {
  const ConvShape& s = conv.shape;
  std::vector<int64_t> x{s.n, s.c, s.h, s.w}, w{s.k, s.c / s.groups, s.r, s.s};
  std::vector<int64_t> y{s.n, s.k, s.p, s.q}, channels{1, s.k, 1, 1};
  if (conv.kind == kBackwardData) {
    for (auto& dims : {y, w, x}) add_tensor(graph, conv.type, dims);
  } else if (conv.kind == kBackwardWeight) {
    for (auto& dims : {x, y, w}) add_tensor(graph, conv.type, dims);
  } else {
    for (auto& dims : {x, w}) add_tensor(graph, conv.type, dims);
    add_tensor(graph, conv.y_type, y);
  }
  if (conv.kind == kForwardStatistics)
    for (int i = 0; i < 2; ++i) add_tensor(graph, 0, channels);
}

}  // namespace

Convolution Convolution::read(const int64_t* v) {
  auto small = [v](int i) { return static_cast<int>(v[i]); };
  return {static_cast<Kind>(v[0]), small(1), small(2),
          {v[3], v[4], v[5], v[6], v[7], v[8], v[9], small(10), small(11), small(12), small(13),
           small(14)},
          v[15]};
}

Graph make_graph(const Convolution& conv, void* handle) {
  Graph graph;
  add_tensors(graph, conv);
  Descriptor convolution = window(conv);
  std::vector<Descriptor> operations;
  operations.push_back(operation(graph, conv.kind, convolution));
  if (conv.kind == kForwardStatistics) operations.push_back(statistics(graph));
  std::vector<void*> raw;
  for (auto& one : operations) raw.push_back(one.raw());
  Descriptor whole(kOperationGraph);
  whole.set(kOperationGraphOperations, kDescriptorType, raw);
  if (handle) {
    whole.set(kOperationGraphHandle, kHandleType, handle);
    whole.finalize("the graph of a convolution");
  }
  graph.parts.push_back(std::move(convolution));
  for (auto& one : operations) graph.parts.push_back(std::move(one));
  graph.parts.push_back(std::move(whole));
  return graph;
}

}  // namespace rn::cudnn
