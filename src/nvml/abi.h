#pragma once
// Our own declaration of the part of NVML's binary interface that lull speaks,
// from the public API reference: the sensor calls it, the simulator answers it.
// NVML's header is not free to ship; abi_test.cc compares every size, offset and
// constant here with the real nvml.h where that is installed.
//
// Names are NVML's without the prefix: nvmlUtilization_t is nvml::Utilization,
// nvmlDeviceGetUUID is nvml::call::DeviceGetUUID (a function type, calls.h) in the list
// LULL_NVML_CALLS. Enumerations are plain `unsigned` with named constants: a
// newer driver may answer with a value that we do not know.

#include <cstdint>

namespace lull::nvml {

// ---- return codes ----------------------------------------------------------
enum class Return : int {
  success = 0,
  uninitialized = 1,
  invalid_argument = 2,
  not_supported = 3,
  no_permission = 4,
  already_initialized = 5,
  not_found = 6,
  insufficient_size = 7,
  insufficient_power = 8,
  driver_not_loaded = 9,
  timeout = 10,
  irq_issue = 11,
  library_not_found = 12,
  function_not_found = 13,
  corrupted_inforom = 14,
  gpu_is_lost = 15,
  reset_required = 16,
  operating_system = 17,
  lib_rm_version_mismatch = 18,
  in_use = 19,
  memory = 20,
  no_data = 21,
  vgpu_ecc_not_supported = 22,
  insufficient_resources = 23,
  freq_not_supported = 24,
  argument_version_mismatch = 25,
  deprecated = 26,
  not_ready = 27,
  gpu_not_found = 28,
  invalid_state = 29,
  unknown = 999,
};

// ---- handles and sizes of text ---------------------------------------------
using Device = struct DeviceObject*;
using EventSet = struct EventSetObject*;

inline constexpr unsigned kUuidSize = 96;     // NVML_DEVICE_UUID_V2_BUFFER_SIZE
inline constexpr unsigned kNameSize = 96;     // NVML_DEVICE_NAME_V2_BUFFER_SIZE
inline constexpr unsigned kVersionSize = 80;  // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE
inline constexpr unsigned kSerialSize = 30;
inline constexpr unsigned kVbiosSize = 32;
inline constexpr unsigned kBusIdSize = 32;
inline constexpr unsigned kBusIdLegacySize = 16;

// A value that the driver does not know: memory of a process in WDDM or a container.
inline constexpr std::uint64_t kValueNotAvailable = ~std::uint64_t{0};
// gpu_instance and compute_instance of a process on a GPU without MIG.
inline constexpr unsigned kNoInstance = 0xFFFFFFFF;

// nvmlInitWithFlags.
inline constexpr unsigned kInitNoGpus = 1;    // do not fail where there are none
inline constexpr unsigned kInitNoAttach = 2;  // do not attach to the GPUs

// ---- enumerations ----------------------------------------------------------
enum : unsigned { kFeatureDisabled = 0, kFeatureEnabled = 1 };
enum : unsigned { kTemperatureGpu = 0 };
enum : unsigned {
  kThresholdShutdown = 0,
  kThresholdSlowdown = 1,
  kThresholdMemoryMax = 2,
  kThresholdGpuMax = 3,
  kThresholdAcousticMin = 4,
  kThresholdAcousticCurrent = 5,
  kThresholdAcousticMax = 6,
};
enum : unsigned { kClockGraphics = 0, kClockSm = 1, kClockMemory = 2, kClockVideo = 3, kClocks = 4 };
enum : unsigned { kClockIdCurrent = 0, kClockIdAppTarget = 1, kClockIdAppDefault = 2, kClockIdCustomerBoostMax = 3 };
enum : unsigned { kPstateMax = 15, kPstateUnknown = 32 };
enum : unsigned { kPcieTx = 0, kPcieRx = 1 };
enum : unsigned { kComputeDefault = 0, kComputeProhibited = 2, kComputeExclusiveProcess = 3 };
enum : unsigned { kMigDisabled = 0, kMigEnabled = 1 };
enum : unsigned { kAffinityNode = 0, kAffinitySocket = 1 };
enum : unsigned { kVirtualizationNone = 0, kVirtualizationPassthrough = 1 };
enum : unsigned { kEccCorrected = 0, kEccUncorrected = 1 };
enum : unsigned { kEccVolatile = 0, kEccAggregate = 1 };
enum : unsigned { kBrandUnknown = 0, kBrandTesla = 2, kBrandGeForce = 5, kBrandNvidia = 14 };
enum : unsigned {
  kArchVolta = 5,
  kArchTuring = 6,
  kArchAmpere = 7,
  kArchAda = 8,
  kArchHopper = 9,
  kArchBlackwell = 10,
};
enum : unsigned { kBusPcie = 2 };
enum : unsigned { kPowerSourceAc = 0 };

// nvmlDeviceGetTopologyCommonAncestor: the smaller, the nearer.
enum : unsigned {
  kTopologyInternal = 0,     // on one board
  kTopologySingle = 10,      // one PCIe switch between them
  kTopologyMultiple = 20,    // several switches, no host bridge
  kTopologyHostBridge = 30,  // one host bridge
  kTopologyNode = 40,        // one NUMA node
  kTopologySystem = 50,      // across sockets
};
enum : unsigned {
  kP2pOk = 0,
  kP2pChipsetNotSupported = 1,
  kP2pGpuNotSupported = 2,
  kP2pTopologyNotSupported = 3,
  kP2pDisabled = 4,
  kP2pNotSupported = 5,
  kP2pUnknown = 6,
};
enum : unsigned { kP2pRead = 0, kP2pWrite = 1, kP2pNvlink = 2, kP2pAtomics = 3, kP2pProprietary = 4 };
inline constexpr unsigned kNvlinkMax = 18;
enum : unsigned { kNvlinkToGpu = 0, kNvlinkToNpu = 1, kNvlinkToSwitch = 2, kNvlinkToUnknown = 0xFF };
enum : unsigned { kNvlinkCapP2p = 0, kNvlinkCapValid = 5, kNvlinkCaps = 6 };

// nvmlDeviceGetSamples.
enum : unsigned {
  kSamplesPower = 0,  // mW
  kSamplesGpuUtil = 1,
  kSamplesMemoryUtil = 2,
  kSamplesEncoderUtil = 3,
  kSamplesDecoderUtil = 4,
  kSamplesSmClock = 5,
  kSamplesMemoryClock = 6,
};
enum : unsigned {
  kValueDouble = 0,
  kValueUint = 1,
  kValueUlong = 2,
  kValueUlonglong = 3,
  kValueSlonglong = 4,
};

// nvmlGpmMetricsGet.
inline constexpr unsigned kGpmVersion = 1;
inline constexpr unsigned kGpmMetrics = 512;  // more than there are: 98 in CUDA 12, 333 in 13
enum : unsigned { kGpmGraphicsUtil = 1, kGpmSmUtil = 2, kGpmTensorUtil = 5, kGpmDramUtil = 10 };

// nvmlDeviceGetCurrentClocksThrottleReasons; 0: runs as fast as it can.
inline constexpr std::uint64_t kReasonGpuIdle = 0x001;
inline constexpr std::uint64_t kReasonApplicationsClocks = 0x002;
inline constexpr std::uint64_t kReasonSwPowerCap = 0x004;
inline constexpr std::uint64_t kReasonHwSlowdown = 0x008;
inline constexpr std::uint64_t kReasonSyncBoost = 0x010;
inline constexpr std::uint64_t kReasonSwThermal = 0x020;
inline constexpr std::uint64_t kReasonHwThermal = 0x040;
inline constexpr std::uint64_t kReasonHwPowerBrake = 0x080;
inline constexpr std::uint64_t kReasonDisplayClocks = 0x100;
inline constexpr std::uint64_t kReasonAll = 0x1FF;

// nvmlDeviceRegisterEvents.
inline constexpr std::uint64_t kEventXid = 0x08;
inline constexpr std::uint64_t kEventAll = 0x19F;

// nvmlDeviceGetFieldValues.
enum : unsigned {
  kFieldEccCurrent = 1,
  kFieldEccPending = 2,
  kFieldMemoryTemperature = 82,
  kFieldTotalEnergy = 83,  // mJ, as nvmlDeviceGetTotalEnergyConsumption
  kFieldNvlinkSpeedMbpsCommon = 90,
  kFieldNvlinkLinkCount = 91,
  kFieldPcieReplay = 94,
  kFieldNvswitchLinkCount = 147,
  kFieldNvlinkGetSpeed = 164,  // scope_id: the link
  kFieldNvlinkGetState = 165,
  kFieldPowerAverage = 185,  // mW; drivers 535 and newer
  kFieldPowerInstant = 186,
};
// scope_id of the power fields.
enum : unsigned { kPowerScopeGpu = 0, kPowerScopeModule = 1, kPowerScopeMemory = 2 };

// ---- structures ------------------------------------------------------------
struct Utilization {
  unsigned gpu;  // percent
  unsigned memory;
};

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;  // what the driver reserves is in here
};

struct MemoryV2 {
  unsigned version;  // in: kMemoryV2
  unsigned long long total;
  unsigned long long reserved;
  unsigned long long free;
  unsigned long long used;
};
inline constexpr unsigned kMemoryV2 = sizeof(MemoryV2) | (2U << 24);

struct Bar1Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct PciInfo {  // of nvmlDeviceGetPciInfo_v3
  char bus_id_legacy[kBusIdLegacySize];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  char bus_id[kBusIdSize];
};
struct ProcessV1 {  // of the unversioned process lists: 16 bytes
  unsigned pid;
  unsigned long long used_memory;
};
struct Process {  // of the _v2 and _v3 lists: 24 bytes
  unsigned pid;
  unsigned long long used_memory;  // kValueNotAvailable: unknown
  unsigned gpu_instance;           // kNoInstance: no MIG
  unsigned compute_instance;
};
struct ProcessProtected {  // what _v3 lists held in drivers 535.43 to 535.86: 32 bytes
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance;
  unsigned compute_instance;
  unsigned long long protected_memory;
};

struct ProcessUtilization {
  unsigned pid;
  unsigned long long timestamp;
  unsigned sm;
  unsigned memory;
  unsigned encoder;
  unsigned decoder;
};

union Value {
  double d;
  unsigned ui;
  unsigned long ul;
  unsigned long long ull;
  signed long long sll;
};
struct Sample {
  unsigned long long timestamp;  // µs; of which clock depends on the driver: since boot, or since 1970.
  Value value;                   // Only to be compared with one another, never with a clock of ours.
};

struct FieldValue {
  unsigned field_id;
  unsigned scope_id;
  long long timestamp;  // µs since 1970
  long long latency_us;
  unsigned value_type;
  Return result;
  Value value;
};

// GPM, the chip's own counters: a value is of the time between two samples, whose buffers are the library's.
using GpmSample = struct GpmSampleBuffer*;
struct GpmSupport {
  unsigned version;  // in: kGpmVersion
  unsigned supported;
};
struct GpmMetric {
  unsigned id;    // in: one of kGpm…
  Return result;  // of this one alone: `value` counts with success only
  double value;   // percent
  const char* short_name;
  const char* long_name;
  const char* unit;
};
// The list grows from driver to driver under the same version: as long as any of them could have it.
struct GpmMetricsGet {
  unsigned version;  // in: kGpmVersion
  unsigned count;    // in: of `metrics`
  GpmSample first;
  GpmSample second;
  GpmMetric metrics[kGpmMetrics];
};

struct EventData {
  Device device;
  unsigned long long type;
  unsigned long long data;
  unsigned gpu_instance;
  unsigned compute_instance;
};

struct DeviceAttributes {
  unsigned multiprocessors;
  unsigned shared_copy_engines;
  unsigned shared_decoders;
  unsigned shared_encoders;
  unsigned shared_jpegs;
  unsigned shared_ofas;
  unsigned gpu_instance_slices;
  unsigned compute_instance_slices;
  unsigned long long memory_mib;
};

struct EccErrorCounts {
  unsigned long long l1;
  unsigned long long l2;
  unsigned long long device;
  unsigned long long registers;
};

}  // namespace lull::nvml
