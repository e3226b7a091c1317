// The operations of a chain of transforms, by number: written by renaissance/data/chain.py, read by the
// native workers and by the device's kernel.
#pragma once

namespace rn::data {

constexpr int kEntries = 4096;  // of a table of random parameters

enum Kind : int {
  kPad = 1,     // top, left, bottom, right, mode, fill
  kCrop = 2,    // height, width; position drawn
  kWindow = 3,  // top, left, height, width
  kFlip = 4,    // threshold
  kRotate = 5,  // fill; table of (cosine, sine) in 1/65536
  kScale = 6,   // fill; table of inverse factors in 1/65536
  kErase = 7,   // threshold; tables of sides in 1/256, and of roots of ratios and their inverses in
                // 1/1024
};

enum PadMode : int { kConstant = 0, kEdge = 1, kReflect = 2, kSymmetric = 3 };

// A chain as fixed records: height, width, channels and number of operations, then kFields integers
// for each operation. Tables lie in an array of their own.
constexpr int kHead = 4;
enum Field : int {
  kFieldKind = 0,
  kFieldId,           // the operation word of its random numbers
  kFieldLast,         // a flip or erasure at the end of the chain, left to the normalisation
  kFieldArgs,         // how many arguments
  kFieldTable,        // how many entries of its tables
  kFieldTableBegin,   // where they begin
  kFieldInH,
  kFieldInW,
  kFieldOutH,
  kFieldOutW,
  kFieldFirst,        // the first of at most six arguments
  kFields = 16,
};

}  // namespace rn::data
