#pragma once
// The cards that can be simulated: what each is, as its data sheet and its driver
// say. A scenario starts from one of these and changes what it likes.

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/state.h"

namespace lull::sim {

// Into a text of fixed size, cut off where it is too long.
template <std::size_t Size>
void copy_text(char (&to)[Size], std::string_view from) {
  const std::size_t used = from.copy(to, Size - 1);
  std::fill(to + used, to + Size, '\0');
}

// "H100", "RTX 4090" (also "4090", "RTX4090"), "MI300X", "RX 7900 XTX", "A770"; case does not matter.
std::optional<Gpu> model(std::string_view name);
std::vector<std::string_view> model_names();

// Gives the card its place in the machine: UUID (always the same for the same host and index), PCI address, minor
// number, serial, NUMA node. Eight cards a NUMA pair, as in common servers.
void place(Gpu& gpu, unsigned index, unsigned of, std::string_view host = {});

// Cuts the card in MIG devices by profile ("1g.10gb", …), as much as fits; false: it cannot be cut so.
bool cut(Gpu& gpu, unsigned index, const std::vector<std::string>& profiles, std::string_view host = {});

// NVLinks between the cards of one machine as their model has them: A100 and H100 all through switches,
// RTX 3090 in pairs, none on the others.
void wire(std::vector<Gpu*> gpus);

// Gives the cards that have files their numbers: cardN, and the node of AMD's KFD, whose order is not that of the bus.
void number_cards(const std::vector<Gpu*>& gpus);

}  // namespace lull::sim
