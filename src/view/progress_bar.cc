#include "view/progress_bar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"

namespace lull {

std::string ProgressBar::draw(double part, Instant now) {
  if (now - start_ < std::chrono::seconds(1)) return "";
  if (shown_ && now - drawn_ < std::chrono::milliseconds(100)) return "";
  drawn_ = now;
  shown_ = true;
  constexpr int kWidth = 40;
  const int full = static_cast<int>(std::clamp(part, 0.0, 1.0) * kWidth);
  const double passed = std::chrono::duration<double>(now - start_).count();
  const std::string left =
      part > 0.02 ? ", " + format_duration(std::chrono::seconds(std::lround(passed / part - passed))) + " left" : "";
  return fmt::format("\r\033[K[{}{}] {:3.0f} %{}", std::string(static_cast<std::size_t>(full), '#'),
                     std::string(static_cast<std::size_t>(kWidth - full), '.'), 100 * part, left);
}

}  // namespace lull
