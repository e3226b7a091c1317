// The part of cuDNN's backend interface that we use, declared here: no cuDNN header is needed to
// build, and cuDNN is opened at run time. The interface is stable within version 9; each number is
// followed by cuDNN's own name for it, and a test compares them with the headers where those lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace rn::cudnn {

constexpr int kOldestVersion = 90000;

enum DescriptorType : int {
  kConvolution = 1,                // CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR
  kEngine = 2,                     // CUDNN_BACKEND_ENGINE_DESCRIPTOR
  kEngineConfig = 3,               // CUDNN_BACKEND_ENGINECFG_DESCRIPTOR
  kHeuristics = 4,                 // CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR
  kExecutionPlan = 5,              // CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR
  kKnobChoice = 7,                 // CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR
  kConvolutionForward = 10,        // CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
  kConvolutionBackwardWeight = 11, // CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR
  kConvolutionBackwardData = 12,   // CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
  kGenStats = 14,                  // CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR
  kOperationGraph = 15,            // CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR
  kVariantPack = 16,               // CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR
  kTensor = 17,                    // CUDNN_BACKEND_TENSOR_DESCRIPTOR
};

enum AttributeType : int {
  kHandleType = 0,           // CUDNN_TYPE_HANDLE
  kDataTypeType = 1,         // CUDNN_TYPE_DATA_TYPE
  kBooleanType = 2,          // CUDNN_TYPE_BOOLEAN
  kInt64Type = 3,            // CUDNN_TYPE_INT64
  kFloatType = 4,            // CUDNN_TYPE_FLOAT
  kPointerType = 6,          // CUDNN_TYPE_VOID_PTR
  kConvolutionModeType = 7,  // CUDNN_TYPE_CONVOLUTION_MODE
  kHeuristicsModeType = 8,   // CUDNN_TYPE_HEUR_MODE
  kKnobTypeType = 9,         // CUDNN_TYPE_KNOB_TYPE
  kNumericalNoteType = 11,   // CUDNN_TYPE_NUMERICAL_NOTE
  kDescriptorType = 15,      // CUDNN_TYPE_BACKEND_DESCRIPTOR
  kGenStatsModeType = 16,    // CUDNN_TYPE_GENSTATS_MODE
};

enum Attribute : int {
  kConvolutionComputeType = 100,          // CUDNN_ATTR_CONVOLUTION_COMP_TYPE
  kConvolutionMode = 101,                 // CUDNN_ATTR_CONVOLUTION_CONV_MODE
  kConvolutionDilations = 102,            // CUDNN_ATTR_CONVOLUTION_DILATIONS
  kConvolutionStrides = 103,              // CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES
  kConvolutionPostPaddings = 104,         // CUDNN_ATTR_CONVOLUTION_POST_PADDINGS
  kConvolutionPrePaddings = 105,          // CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS
  kConvolutionSpatialDimensions = 106,    // CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS
  kHeuristicsMode = 200,                  // CUDNN_ATTR_ENGINEHEUR_MODE
  kHeuristicsOperationGraph = 201,        // CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH
  kHeuristicsResults = 202,               // CUDNN_ATTR_ENGINEHEUR_RESULTS
  kEngineConfigEngine = 300,              // CUDNN_ATTR_ENGINECFG_ENGINE
  kEngineConfigKnobChoices = 302,         // CUDNN_ATTR_ENGINECFG_KNOB_CHOICES
  kExecutionPlanHandle = 400,             // CUDNN_ATTR_EXECUTION_PLAN_HANDLE
  kExecutionPlanEngineConfig = 401,       // CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG
  kExecutionPlanWorkspaceSize = 402,      // CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE
  kKnobChoiceType = 600,                  // CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE
  kKnobChoiceValue = 601,                 // CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE
  kForwardAlpha = 700,                    // CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA
  kForwardBeta = 701,                     // CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA
  kForwardConvolution = 702,              // CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC
  kForwardW = 703,                        // CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W
  kForwardX = 704,                        // CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X
  kForwardY = 705,                        // CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y
  kBackwardDataAlpha = 706,               // CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA
  kBackwardDataBeta = 707,                // CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA
  kBackwardDataConvolution = 708,         // CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC
  kBackwardDataW = 709,                   // CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W
  kBackwardDataDx = 710,                  // CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX
  kBackwardDataDy = 711,                  // CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY
  kBackwardWeightAlpha = 712,             // CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA
  kBackwardWeightBeta = 713,              // CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA
  kBackwardWeightConvolution = 714,       // CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC
  kBackwardWeightDw = 715,                // CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW
  kBackwardWeightX = 716,                 // CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X
  kBackwardWeightDy = 717,                // CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY
  kGenStatsMode = 770,                    // CUDNN_ATTR_OPERATION_GENSTATS_MODE
  kGenStatsMathPrecision = 771,           // CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC
  kGenStatsX = 772,                       // CUDNN_ATTR_OPERATION_GENSTATS_XDESC
  kGenStatsSum = 773,                     // CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC
  kGenStatsSquares = 774,                 // CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC
  kOperationGraphHandle = 800,            // CUDNN_ATTR_OPERATIONGRAPH_HANDLE
  kOperationGraphOperations = 801,        // CUDNN_ATTR_OPERATIONGRAPH_OPS
  kTensorAlignment = 900,                 // CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT
  kTensorDataType = 901,                  // CUDNN_ATTR_TENSOR_DATA_TYPE
  kTensorDimensions = 902,                // CUDNN_ATTR_TENSOR_DIMENSIONS
  kTensorStrides = 903,                   // CUDNN_ATTR_TENSOR_STRIDES
  kTensorUniqueId = 906,                  // CUDNN_ATTR_TENSOR_UNIQUE_ID
  kVariantPackUniqueIds = 1000,           // CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS
  kVariantPackPointers = 1001,            // CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS
  kVariantPackWorkspace = 1003,           // CUDNN_ATTR_VARIANT_PACK_WORKSPACE
  kEngineOperationGraph = 1300,           // CUDNN_ATTR_ENGINE_OPERATION_GRAPH
  kEngineGlobalIndex = 1301,              // CUDNN_ATTR_ENGINE_GLOBAL_INDEX
  kEngineNumericalNote = 1303,            // CUDNN_ATTR_ENGINE_NUMERICAL_NOTE
};

enum Value : int {
  kFloat = 0,                    // CUDNN_DATA_FLOAT
  kHalf = 2,                     // CUDNN_DATA_HALF
  kCrossCorrelation = 1,         // CUDNN_CROSS_CORRELATION
  kSumAndSquares = 0,            // CUDNN_GENSTATS_SUM_SQSUM
  kModeA = 3,                    // CUDNN_HEUR_MODE_A
  kModeFallback = 2,             // CUDNN_HEUR_MODE_FALLBACK
  kTensorCore = 0,               // CUDNN_NUMERICAL_NOTE_TENSOR_CORE
  kDownConvertInputs = 1,        // CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS
  kReducedPrecisionSums = 2,     // CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION
  kFft = 3,                      // CUDNN_NUMERICAL_NOTE_FFT
  kNondeterministic = 4,         // CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
  kWinograd = 5,                 // CUDNN_NUMERICAL_NOTE_WINOGRAD
};

// cuDNN's functions; `problem` says why there are none.
struct Library {
  size_t (*version)();
  const char* (*error_string)(int);
  void (*last_error)(char*, size_t);
  int (*create)(void**);
  int (*set_stream)(void*, void*);
  int (*create_descriptor)(int, void**);
  int (*destroy_descriptor)(void*);
  int (*finalize)(void*);
  int (*set_attribute)(void*, int, int, int64_t, const void*);
  int (*get_attribute)(void*, int, int, int64_t, int64_t*, void*);
  int (*execute)(void*, void*, void*);
  std::string problem;
};

// The one that was opened, or a Library with a problem.
const Library& library();

}  // namespace rn::cudnn
