#pragma once
// What a GPU on which nothing runs may have in use, in bytes. An empty one shows 0 to 8 MiB
// once the driver's own reserve is left out (A100: 7.8 MB of 912, nvml-wrapper#57;
// P100: 0 of 103 MiB, gpustat#130), an idle MPS server about 30; a CUDA context
// takes more than this before it has allocated anything.

namespace lull {

inline constexpr double kEmptyCard = 64.0 * (1U << 20);

}  // namespace lull
