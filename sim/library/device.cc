// What a card is: name, identity, limits, modes. Nothing here changes with load.
#include <cstdio>

#include "sim/library/client.h"

using namespace lull::sim;
namespace nvml = lull::nvml;

namespace {

void fill_pci(nvml::PciInfo& pci, const Gpu& gpu) {
  pci = {};
  std::snprintf(pci.bus_id_legacy, sizeof pci.bus_id_legacy, "%04X:%02X:%02X.0", gpu.pci_domain & 0xFFFF,
                gpu.pci_bus & 0xFF, gpu.pci_device & 0xFF);
  std::snprintf(pci.bus_id, sizeof pci.bus_id, "%08X:%02X:%02X.0", gpu.pci_domain, gpu.pci_bus & 0xFF,
                gpu.pci_device & 0xFF);
  pci.domain = gpu.pci_domain;
  pci.bus = gpu.pci_bus;
  pci.device = gpu.pci_device;
  pci.pci_device_id = gpu.pci_device_id;
  pci.pci_subsystem_id = gpu.pci_subsystem_id;
}

template <class T>
Return card_number(const char* function, Device device, T* out, std::uint32_t Gpu::* field) {
  return on_gpu(function, device, [&](const Look& look) { return give(out, look.card.*field); });
}

}  // namespace

LULL_EXPORT Return nvmlDeviceGetIndex(Device device, unsigned* index) {
  return on_device(__func__, device,
                   [&](const Look& look) { return give(index, look.target.is_mig() ? look.target.mig : look.gpu); });
}
LULL_EXPORT Return nvmlDeviceGetName(Device device, char* name, unsigned length) {
  return on_device(__func__, device, [&](const Look& look) {
    if (!look.target.is_mig()) return give_text(name, length, look.card.name);
    char text[nvml::kNameSize + 40];
    std::snprintf(text, sizeof text, "%s MIG %s", look.card.name, look.card.mig[look.target.mig].profile);
    return give_text(name, length, text);
  });
}
LULL_EXPORT Return nvmlDeviceGetUUID(Device device, char* uuid, unsigned length) {
  return on_device(__func__, device, [&](const Look& look) {
    return give_text(uuid, length, look.target.is_mig() ? look.card.mig[look.target.mig].uuid : look.card.uuid);
  });
}
LULL_EXPORT Return nvmlDeviceGetSerial(Device device, char* serial, unsigned length) {
  return on_gpu(__func__, device, [&](const Look& look) {
    return look.card.brand == nvml::kBrandGeForce ? Return::not_supported : give_text(serial, length, look.card.serial);
  });
}
LULL_EXPORT Return nvmlDeviceGetVbiosVersion(Device device, char* version, unsigned length) {
  return on_gpu(__func__, device, [&](const Look& look) { return give_text(version, length, look.card.vbios); });
}
LULL_EXPORT Return nvmlDeviceGetBoardPartNumber(Device device, char* number, unsigned length) {
  return on_gpu(__func__, device, [&](const Look& look) { return give_text(number, length, look.card.part_number); });
}
LULL_EXPORT Return nvmlDeviceGetMinorNumber(Device device, unsigned* minor) {
  return on_device(__func__, device, [&](const Look& look) { return give(minor, look.card.minor); });
}
LULL_EXPORT Return nvmlDeviceGetPciInfo_v3(Device device, nvml::PciInfo* pci) {
  return on_device(__func__, device, [&](const Look& look) {
    if (pci == nullptr) return Return::invalid_argument;
    fill_pci(*pci, look.card);
    return Return::success;
  });
}
LULL_EXPORT Return nvmlDeviceGetPciInfo_v2(Device device, void* pci) {
  return on_device(__func__, device, [&](const Look& look) {
    if (pci == nullptr) return Return::invalid_argument;
    nvml::PciInfo now{};
    fill_pci(now, look.card);
    std::memcpy(pci, &now, offsetof(nvml::PciInfo, bus_id));  // the older ones end before the long id
    return Return::success;
  });
}
LULL_EXPORT Return nvmlDeviceGetPciInfo(Device device, void* pci) { return nvmlDeviceGetPciInfo_v2(device, pci); }

LULL_EXPORT Return nvmlDeviceGetBrand(Device device, unsigned* brand) {
  return card_number(__func__, device, brand, &Gpu::brand);
}
LULL_EXPORT Return nvmlDeviceGetArchitecture(Device device, unsigned* architecture) {
  return on_device(__func__, device, [&](const Look& look) { return give(architecture, look.card.architecture); });
}
LULL_EXPORT Return nvmlDeviceGetCudaComputeCapability(Device device, int* major, int* minor) {
  return on_device(__func__, device, [&](const Look& look) {
    const Return first = give(major, look.card.compute_major);
    return first == Return::success ? give(minor, look.card.compute_minor) : first;
  });
}
LULL_EXPORT Return nvmlDeviceGetNumGpuCores(Device device, unsigned* cores) {
  return card_number(__func__, device, cores, &Gpu::cores);
}
LULL_EXPORT Return nvmlDeviceGetMemoryBusWidth(Device device, unsigned* width) {
  return card_number(__func__, device, width, &Gpu::memory_bus_width);
}
LULL_EXPORT Return nvmlDeviceGetBusType(Device device, unsigned* type) {
  return on_gpu(__func__, device, [&](const Look&) { return give(type, nvml::kBusPcie); });
}
LULL_EXPORT Return nvmlDeviceGetBoardId(Device device, unsigned* id) {
  return on_gpu(__func__, device, [&](const Look& look) { return give(id, look.card.pci_bus << 8); });
}
LULL_EXPORT Return nvmlDeviceGetMultiGpuBoard(Device device, unsigned* several) {
  return on_gpu(__func__, device, [&](const Look&) { return give(several, 0); });
}
LULL_EXPORT Return nvmlDeviceOnSameBoard(Device one, Device other, int* same) {
  return on_gpu(__func__, one, [&](const Look&) { return give(same, one == other ? 1 : 0); });
}
LULL_EXPORT Return nvmlDeviceGetIrqNum(Device device, unsigned* number) {
  return on_gpu(__func__, device, [&](const Look& look) { return give(number, 100 + look.gpu); });
}
LULL_EXPORT Return nvmlDeviceGetPowerSource(Device device, unsigned* source) {
  return on_gpu(__func__, device, [&](const Look&) { return give(source, nvml::kPowerSourceAc); });
}

// ---- modes -----------------------------------------------------------------------
LULL_EXPORT Return nvmlDeviceGetPersistenceMode(Device device, unsigned* mode) {
  return on_gpu(__func__, device, [&](const Look& look) { return give_value(mode, look.value(Metric::persistence)); });
}
LULL_EXPORT Return nvmlDeviceGetDisplayMode(Device device, unsigned* mode) {
  return on_gpu(__func__, device, [&](const Look& look) {
    return give(mode, look.has(kDisplayActive) ? nvml::kFeatureEnabled : nvml::kFeatureDisabled);
  });
}
LULL_EXPORT Return nvmlDeviceGetDisplayActive(Device device, unsigned* active) {
  return on_gpu(__func__, device, [&](const Look& look) {
    return give(active, look.has(kDisplayActive) ? nvml::kFeatureEnabled : nvml::kFeatureDisabled);
  });
}
LULL_EXPORT Return nvmlDeviceGetComputeMode(Device device, unsigned* mode) {
  return on_gpu(__func__, device, [&](const Look& look) { return give_value(mode, look.value(Metric::compute_mode)); });
}
LULL_EXPORT Return nvmlDeviceGetVirtualizationMode(Device device, unsigned* mode) {
  return on_gpu(__func__, device, [&](const Look&) { return give(mode, nvml::kVirtualizationNone); });
}
LULL_EXPORT Return nvmlDeviceGetPowerManagementMode(Device device, unsigned* mode) {
  return on_gpu(__func__, device, [&](const Look&) { return give(mode, nvml::kFeatureEnabled); });
}
LULL_EXPORT Return nvmlDeviceGetAccountingMode(Device device, unsigned* mode) {
  return on_gpu(__func__, device, [&](const Look&) { return give(mode, nvml::kFeatureDisabled); });
}
LULL_EXPORT Return nvmlDeviceGetAccountingBufferSize(Device device, unsigned* size) {
  return on_gpu(__func__, device, [&](const Look&) { return give(size, 4000); });
}
LULL_EXPORT Return nvmlDeviceValidateInforom(Device device) {
  return on_gpu(__func__, device, [](const Look&) { return Return::success; });
}

// ---- ECC: on where the card has it, without errors ----------------------------------
LULL_EXPORT Return nvmlDeviceGetEccMode(Device device, unsigned* current, unsigned* pending) {
  return on_gpu(__func__, device, [&](const Look& look) {
    if (look.card.ecc == 0) return Return::not_supported;
    const Return first = give(current, look.card.ecc - 1);
    return first == Return::success ? give(pending, look.card.ecc - 1) : first;
  });
}
LULL_EXPORT Return nvmlDeviceGetDefaultEccMode(Device device, unsigned* mode) {
  return on_gpu(__func__, device, [&](const Look& look) {
    return look.card.ecc == 0 ? Return::not_supported : give(mode, nvml::kFeatureEnabled);
  });
}
LULL_EXPORT Return nvmlDeviceGetTotalEccErrors(Device device, unsigned, unsigned, unsigned long long* count) {
  return on_gpu(__func__, device,
                [&](const Look& look) { return look.card.ecc != 2 ? Return::not_supported : give(count, 0); });
}
LULL_EXPORT Return nvmlDeviceGetMemoryErrorCounter(Device device, unsigned, unsigned, unsigned,
                                                   unsigned long long* count) {
  return on_gpu(__func__, device,
                [&](const Look& look) { return look.card.ecc != 2 ? Return::not_supported : give(count, 0); });
}
LULL_EXPORT Return nvmlDeviceGetDetailedEccErrors(Device device, unsigned, unsigned, nvml::EccErrorCounts* counts) {
  return on_device(__func__, device, [&](const Look& look) {
    if (look.card.ecc != 2) return Return::not_supported;
    return give(counts, nvml::EccErrorCounts{});
  });
}

// ---- limits ----------------------------------------------------------------------
LULL_EXPORT Return nvmlDeviceGetPowerManagementDefaultLimit(Device device, unsigned* milliwatts) {
  return on_gpu(__func__, device, [&](const Look& look) {
    if (look.has(kNoPowerLimit)) return Return::not_supported;
    return look.garbage ? give_garbage(milliwatts) : give_value(milliwatts, look.card.power_limit * 1e3);
  });
}
LULL_EXPORT Return nvmlDeviceGetPowerManagementLimitConstraints(Device device, unsigned* least, unsigned* most) {
  return on_gpu(__func__, device, [&](const Look& look) {
    if (look.has(kNoPowerLimit)) return Return::not_supported;
    const Return first = give_value(least, look.card.power_limit_min * 1e3);
    return first == Return::success ? give_value(most, look.card.power_limit_max * 1e3) : first;
  });
}
LULL_EXPORT Return nvmlDeviceGetTemperatureThreshold(Device device, unsigned threshold, unsigned* celsius) {
  return on_gpu(__func__, device, [&](const Look& look) {
    switch (threshold) {
      case nvml::kThresholdShutdown: return give(celsius, look.card.temp_shutdown);
      case nvml::kThresholdSlowdown: return give(celsius, look.card.temp_slowdown);
      case nvml::kThresholdMemoryMax:
      case nvml::kThresholdGpuMax: return give(celsius, look.card.temp_slowdown - 2);
      default: return threshold > nvml::kThresholdAcousticMax ? Return::invalid_argument : Return::not_supported;
    }
  });
}
LULL_EXPORT Return nvmlDeviceGetNumFans(Device device, unsigned* fans) {
  return card_number(__func__, device, fans, &Gpu::fans);
}
LULL_EXPORT Return nvmlDeviceGetMaxPcieLinkGeneration(Device device, unsigned* generation) {
  return card_number(__func__, device, generation, &Gpu::pcie_generation);
}
LULL_EXPORT Return nvmlDeviceGetGpuMaxPcieLinkGeneration(Device device, unsigned* generation) {
  return card_number(__func__, device, generation, &Gpu::pcie_generation);
}
LULL_EXPORT Return nvmlDeviceGetMaxPcieLinkWidth(Device device, unsigned* width) {
  return card_number(__func__, device, width, &Gpu::pcie_width);
}
LULL_EXPORT Return nvmlDeviceGetCurrPcieLinkWidth(Device device, unsigned* width) {
  return card_number(__func__, device, width, &Gpu::pcie_width);
}
LULL_EXPORT Return nvmlDeviceGetCurrPcieLinkGeneration(Device device, unsigned* generation) {
  // Idle cards let the link fall back to the first generation.
  return on_gpu(__func__, device, [&](const Look& look) {
    return give(generation, look.value(Metric::pstate) > 5 ? 1U : look.card.pcie_generation);
  });
}
LULL_EXPORT Return nvmlDeviceGetPcieReplayCounter(Device device, unsigned* count) {
  return on_gpu(__func__, device, [&](const Look&) { return give(count, 0); });
}
