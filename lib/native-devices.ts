/** What the addon says of devices, of its code for GPUs, and of the links between them. */

export interface DeviceDescription {
  kind: 'host' | 'gpu';
  ordinal: number;
  name: string;
  memoryBytes: number;
  limitBytes: number;
  /** Most bytes in use at once since resetPeaks(). */
  peakBytes: number;
  /** Bytes that came to it over its link, and that went home, since resetPeaks(). */
  bytesToDevice: number;
  bytesToHost: number;
  /** Bytes that loaded tables take: calls have the limit less these. */
  residentBytes: number;
  /** Ordinals of the devices that this one copies to directly. */
  peers: number[];
}

export interface GpuDescription extends DeviceDescription {
  /** Its compute capability, '9.0', or 'gfx90a'; '' where it is not known. `peers` are as the driver says, not tried. */
  architecture: string;
  /** Why this process can't use it any more; null: it can. */
  failure: string | null;
}

/** What the addon's code for GPUs was built for, and what its runtime says of the driver: '' for what is not there. */
export interface GpuSupport {
  /** As given to the compiler, separated by commas: '75-real,120', 'gfx90a'. */
  architectures: string;
  /** Version of CUDA or ROCm that the addon was built with: '13.0'. */
  runtimeVersion: string;
  /** The newest one that the driver works with. */
  driverVersion: string;
  /** The error that kept the runtime from listing GPUs, 'cudaErrorNoDevice', and its text. */
  errorName: string;
  error: string;
}

/** Devices that copy at the same time, and what their links carry together: bytes a second, to and from pinned memory. */
export interface LinkSet {
  /** Ordinals. */
  devices: number[];
  h2d: number;
  d2h: number;
  /** Both directions at once: the sum. */
  both: number;
}

/** How fast the links are, measured; both lists are empty on host devices, which have none. */
export interface LinkSpeeds {
  /** Each device alone, then the first 2, 4, 8 and so on, then all. */
  sets: LinkSet[];
  /** Each ordered pair, while no other link is busy: bytes a second. */
  peers: { from: number; to: number; speed: number }[];
}
