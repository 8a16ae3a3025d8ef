#include "sense/card_learners.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace lull {
namespace {

constexpr Duration kKeepEvery = std::chrono::minutes(10);

}  // namespace

CardLearners::CardLearners(LearnedStore store, bool keeps)
    : store_(std::move(store)), keeps_(keeps), owner_(::getpid()) {}

CardLearners::~CardLearners() { (void)keep(); }

std::vector<std::string> CardLearners::meet(const Inventory& inventory) {
  std::vector<std::string> lines;
  places_.clear();
  for (const Device& device : inventory.devices) {
    const auto [found, fresh] = cards_.try_emplace(device.id());
    Card& card = found->second;
    places_.push_back(&card);
    if (!fresh || !device.has_own_uuid()) continue;
    card.uuid = device.uuid;
    auto kept = store_.load(device.uuid);
    if (!kept) {
      lines.push_back(kept.error().message());
      continue;
    }
    if (!*kept) continue;
    card.learner = PowerLearner(**std::move(kept));
    card.kept_seconds = card.learner.learned().seconds;
    card.kept_idle = card.learner.idle_watts();
  }
  return lines;
}

void CardLearners::learn(Snapshot& snapshot) {
  const auto& devices = snapshot.inventory->devices;
  for (std::size_t i = 0; i < std::min({places_.size(), devices.size(), snapshot.readings.size()}); ++i)
    lull::learn(places_[i]->learner, devices[i], snapshot.at, snapshot.readings[i]);
}

std::string CardLearners::keep_now_and_then(Instant now) {
  if (!std::exchange(begun_, true)) kept_at_ = now;
  if (now - kept_at_ < kKeepEvery) return {};
  kept_at_ = now;
  return keep();
}

std::string CardLearners::keep() {
  if (!keeps_ || ::getpid() != owner_) return {};
  std::string why;
  for (auto& [id, card] : cards_) {
    const PowerLearner::Learned& learned = card.learner.learned();
    const bool same_idle = learned.idle_watts == card.kept_idle || std::isnan(learned.idle_watts);
    if (card.uuid.empty() || (learned.seconds == card.kept_seconds && same_idle)) continue;
    card.kept_seconds = learned.seconds;
    card.kept_idle = learned.idle_watts;
    if (const auto saved = store_.save(card.uuid, learned); !saved && !std::exchange(failed_, true))
      why = "what is learned of the GPUs cannot be kept: " + saved.error().message();
  }
  return why;
}

}  // namespace lull
