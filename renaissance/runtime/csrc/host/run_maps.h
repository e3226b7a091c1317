// The host twins of the operations on maps.
#pragma once

#include "map_operations.h"

namespace rn {

void run(const ConvForward& op);
void run(const ConvForwardStatistics& op);
void run(const ConvBackwardData& op);
void run(const ConvBackwardDataNorm& op);
void run(const ConvBackwardWeight& op);
void run(const DepthwiseConvForward& op);
void run(const DepthwiseConvBackwardData& op);
void run(const DepthwiseConvBackwardWeight& op);
void run(const DepthwiseConvBackward& op);
void run(const BatchNormStatistics& op);
void run(const BatchNormApply& op);
void run(const BatchNormBackward& op);
void run(const BatchNormFold& op);
void run(const AffineForward& op);
void run(const AddForward& op);
void run(const MaxPoolForward& op);
void run(const MaxPoolBackward& op);
void run(const AveragePoolForward& op);
void run(const AveragePoolBackward& op);
void run(const GlobalAveragePoolForward& op);
void run(const GlobalAveragePoolBackward& op);
void run(const GapFcBackwardData& op);
void run(const ChannelPadding& op);

}  // namespace rn
