#include "engine/history.h"

#include <algorithm>
#include <cmath>
#include <variant>

namespace lull {
namespace {

// fmax and fmin leave an unknown out of the choice.
float worse(const Track& track, float a, float b) { return track.high_is_worse ? std::fmax(a, b) : std::fmin(a, b); }

void walk(const Rule& rule, NodeId id, bool inverted, std::vector<Track>& out) {
  const Node& node = rule[id];
  if (const auto* it = std::get_if<Comparison>(&node)) {
    const bool wants_low =
        it->compare == Compare::below || it->compare == Compare::at_most || it->compare == Compare::equal;
    const Duration window = it->window.value_or(Duration::zero());
    const auto same = [&](const Track& t) {
      return t.metric == it->metric && t.share == it->share && t.window == window;
    };
    if (std::none_of(out.begin(), out.end(), same))
      out.push_back(
          {.metric = it->metric, .share = it->share, .window = window, .high_is_worse = wants_low != inverted});
  } else if (const auto* both = std::get_if<And>(&node)) {
    walk(rule, both->left, inverted, out);
    walk(rule, both->right, inverted, out);
  } else if (const auto* either = std::get_if<Or>(&node)) {
    walk(rule, either->left, inverted, out);
    walk(rule, either->right, inverted, out);
  } else if (const auto* opposite = std::get_if<Not>(&node)) {
    walk(rule, opposite->operand, !inverted, out);
  } else if (const auto* held = std::get_if<Held>(&node)) {
    walk(rule, held->operand, inverted, out);
  } else if (const auto* each = std::get_if<Each>(&node)) {
    walk(rule, each->operand, inverted, out);
  }
}

}  // namespace

std::vector<Track> tracks_of(const Rule& rule) {
  std::vector<Track> out;
  if (!rule.nodes.empty()) walk(rule, rule.root(), false, out);
  return out;
}

void History::halve() {
  for (std::size_t t = 0; t < tracks_.size(); ++t) {
    float* cells = cells_.data() + t * kCells;
    for (std::size_t i = 0; i < kCells / 2; ++i) cells[i] = worse(tracks_[t], cells[2 * i], cells[2 * i + 1]);
  }
  used_ = kCells / 2;
  per_cell_ *= 2;
}

void History::add(Instant at, const std::vector<float>& values) {
  const bool first = samples_++ == 0;
  if (first) {
    begin_ = at;
    used_ = 0;
    per_cell_ = 1;
    in_last_ = 1;
  }
  const bool new_cell = first || in_last_ == per_cell_;
  if (new_cell) {
    if (used_ == kCells) halve();
    ++used_;
    in_last_ = 0;
  }
  ++in_last_;
  for (std::size_t t = 0; t < tracks_.size(); ++t) {
    Track& track = tracks_[t];
    const float value = values[t];
    float& cell = cells_[t * kCells + used_ - 1];
    cell = new_cell ? value : worse(track, cell, value);
    track.last = value;
    if (first) {
      track.first = track.worst = value;
      track.worst_at = at;
    } else if (!std::isnan(value) && (std::isnan(track.worst) || worse(track, track.worst, value) != track.worst)) {
      track.worst = value;
      track.worst_at = at;
    }
  }
}

std::vector<float> History::trace(std::size_t track) const {
  if (samples_ == 0) return {};
  const float* cells = cells_.data() + track * kCells;
  return {cells, cells + used_};
}

}  // namespace lull
