// Batches made on the device from samples that lie there, as one operation.
#pragma once

#include "operations.h"

namespace rn {

// Takes the samples `ids` of a data set through a chain of transforms and the normalisation, into an
// input slot or a stack of batches, channels padded with zeros. An id out of range takes the nearest
// sample.
//
// images (samples, h, w, channels), labels (samples), ids (batches, rows), of which batch number `batch`
// is taken (null: the first); seed: low and high half; values (channels, 256) of `type`, what a byte
// stands for; data (rows, h', w', padded_channels), label (rows). chain: see data/kinds.h.
struct AugmentBatch {
  const unsigned char* images;
  const int* labels;
  const int* ids;
  const int* batch;
  const unsigned* seed;
  const unsigned* epoch;
  const int* tables;
  const void* values;
  void* data;
  int* label;
  const Index* chain;
  Index chain_length, samples, rows;
  int padded_channels, type;
};

}  // namespace rn
