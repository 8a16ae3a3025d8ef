// A SPANK plug-in of Slurm's: sbatch, salloc and srun take --gpu-idle=TIME[,requeue|cancel|warn]. The value is checked
// when the job is submitted, and the Prolog gets it as SPANK_LULL_GPU_IDLE (`lull slurm prolog` reads that).
//
// In plugstack.conf it is `optional`: with `required`, a node without the file starts no slurmd. Slurm loads a plug-in
// only if it was built for the same release.

extern "C" {
#include <slurm/spank.h>
}

#include <exception>
#include <string>

#include "slurm/user_rule.h"

namespace {

std::string asked;  // by the command line, a #SBATCH line or the environment of a surrounding job

// Only what may be submitted: on the node the value has been checked already.
int take(int, const char* value, int remote) {
  if (remote != 0 || value == nullptr) return 0;
  try {
    if (const auto rule = lull::slurm::parse_user_rule(value); !rule) {
      slurm_error("--gpu-idle: %s", rule.error().message().c_str());
      return -1;
    }
    asked = value;
    return 0;
  } catch (const std::exception& error) {  // none may reach Slurm
    slurm_error("--gpu-idle: %s", error.what());
    return -1;
  }
}

// Slurm's table is of C: nobody writes to these.
char name[] = "gpu-idle";
char argument[] = "TIME[,requeue|cancel|warn]";
char usage[] = "idle time of the job's GPUs after which lull acts (default: as the site says)";
spank_option option = {name, argument, usage, 1, 0, take};

}  // namespace

// What SPANK_PLUGIN() defines: in C++ a constant would stay in this file.
#pragma GCC visibility push(default)
extern "C" {
extern const char plugin_name[] = "lull";
extern const char plugin_type[] = "spank";
extern const unsigned int plugin_version = SLURM_VERSION_NUMBER;
extern const unsigned int spank_plugin_version = 1;

int slurm_spank_init(spank_t spank, int, char**) {
  switch (spank_context()) {
    case S_CTX_LOCAL:
    case S_CTX_ALLOCATOR:
    case S_CTX_REMOTE: return spank_option_register(spank, &option) == ESPANK_SUCCESS ? 0 : -1;
    default: return 0;
  }
}

int slurm_spank_init_post_opt(spank_t spank, int, char**) {
  const spank_context_t context = spank_context();
  if (asked.empty() || (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR)) return 0;
  if (spank_job_control_setenv(spank, "LULL_GPU_IDLE", asked.c_str(), 1) == ESPANK_SUCCESS) return 0;
  slurm_error("--gpu-idle: Slurm does not pass it on");
  return -1;
}
}
#pragma GCC visibility pop
