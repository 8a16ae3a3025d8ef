#pragma once
// gpu_mon as settings and a sink of the session of `lull fill`.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compat/gpu_mon.h"
#include "fill/session.h"
#include "sense/openers.h"

namespace lull {

// What its file asks for: a filler per [process-…], of which the one on ALL goes first when every GPU is free; a GPU is
// free when nobody but ignored programs has it open; whoever opens it ends the filler at once.
FillSettings mon_fill_settings(const MonSettings& settings);

// Its lines on stderr.
class MonVoice final : public FillSink {
 public:
  MonVoice(const MonSettings& settings, const Clock& clock);

  void began(const FillSettings& settings, OpenWay way, const Inventory& inventory) override;
  void happened(const FillEvent& event) override;
  void sampled(const FillPicture& picture) override;
  void note(Level level, std::string_view event, const std::string& text) override;
  // Ctrl-C, in its words.
  void interrupted();

 private:
  void say(std::string_view level, std::string_view logger, const std::string& text) const;
  void say_start(const FillEvent& event) const;
  void say_why(const FillEvent& event);
  void look_at(const FillPicture& picture);
  const MonProcess* process_of(const FillEvent& event) const;

  const MonSettings& settings_;
  const Clock& clock_;
  OpenerScan scan_;
  std::map<std::string, std::vector<std::string>> running_;  // on which GPUs, by its words for them
  std::optional<Instant> next_look_;
  bool users_said_ = false;
};

}  // namespace lull
