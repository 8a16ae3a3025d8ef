#pragma once
// What the terminal (or pipe, or file) behind a descriptor can show, from the
// terminal itself and from the environment.

#include "view/columns.h"

namespace lull {

Screen screen_of(int fd);

}  // namespace lull
