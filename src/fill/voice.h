#pragma once
// lull's own voice: what `lull fill` tells people of its session, through a Sayer.

#include <string>

#include "fill/sink.h"
#include "session/say.h"

namespace lull {

class FillVoice final : public FillSink {
 public:
  explicit FillVoice(const Sayer& sayer) : sayer_(sayer) {}

  void began(const FillSettings& settings, OpenWay way, const Inventory& inventory) override;
  void happened(const FillEvent& event) override;
  void note(Level level, std::string_view event, const std::string& text) override;

 private:
  const Sayer& sayer_;
};

}  // namespace lull
