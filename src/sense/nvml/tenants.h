#pragma once
// Who is on a GPU, as the driver lists it, and which of them we can be sure of.
//
// In a pid namespace of its own (a container) a driver leaves out the processes of
// others without a word; older ones give the numbers of the host, which may be those
// of quite different processes here. So outside of the first namespace a list is what
// we know at least, and a number names a process only if that one has the GPU's device
// file open.

#include "base/fd.h"
#include "sense/nvml/gpu.h"

namespace lull {

// True in the machine's first pid namespace, where the driver shows everybody. A simulated driver knows the
// processes as we see them, unless its folder says otherwise: Root::driver's /proc has a self/ns/pid then.
bool first_pid_namespace(const Root& root);

// The lists of the driver into one: processes with a compute context, the clients of an MPS server where there is
// one, and with `all` those who only draw. The answer of the first list decides; its reason is kept where it fails.
nvml::Return list_tenants(const NvmlCalls& calls, nvml::Device handle, const Device& device, bool all, NvmlRoom& room,
                          TenantList& list);

// What counts as `procs`: an MPS server serves others, and counts through its clients.
std::size_t working_tenants(const std::vector<Tenant>& tenants);

}  // namespace lull
