//! What others say that their recorders need. From their manuals and sources, not measured here.

/// A recorder, or a recommendation.
pub struct Other {
    pub who: &'static str,
    /// What it records.
    pub what: &'static str,
    pub streams: u32,
    /// Bytes per second of a stream.
    pub rate: u32,
    /// Bytes for each stream.
    pub ring: u32,
    /// Where that is said.
    pub source: &'static str,
}

/// All of them.
pub const OTHERS: [Other; 6] = [
    Other {
        who: "hdrbench 0.1",
        what: "18 read and 18 written, 1 MB each",
        streams: 36,
        rate: 180_000,
        ring: 1 << 20,
        source: "LWN, 20 April 2000",
    },
    // Samples of four bytes in memory, 5, 10 and 20 seconds of 48 kHz.
    Other {
        who: "Ardour, small",
        what: "5 s at 48 kHz, in 32 bits",
        streams: 1,
        rate: 192_000,
        ring: 960_000,
        source: "disk_io.cc of Ardour",
    },
    Other {
        who: "Ardour, medium",
        what: "10 s at 48 kHz, in 32 bits",
        streams: 1,
        rate: 192_000,
        ring: 1_920_000,
        source: "disk_io.cc of Ardour",
    },
    Other {
        who: "Ardour, large",
        what: "20 s at 48 kHz, in 32 bits",
        streams: 1,
        rate: 192_000,
        ring: 3_840_000,
        source: "disk_io.cc of Ardour",
    },
    Other {
        who: "RME UFX, direct recording",
        what: "34 channels of 96 kHz, 306 ms in all",
        streams: 34,
        rate: 288_000,
        ring: 88_000,
        source: "manual of the UFX; RME forum 11050",
    },
    Other {
        who: "50 tracks of linux-kernel",
        what: "50 tracks, 2 to 4 MB each felt wasteful; 1 MB",
        streams: 50,
        rate: 144_000,
        ring: 1 << 20,
        source: "linux-kernel, April 2000",
    },
];
