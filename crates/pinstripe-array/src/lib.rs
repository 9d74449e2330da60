//! A RAID of levels 0, 1, 4, 5, 6 and 10 in user space.
//!
//! `geometry` computes the place of every byte, `plan` the reads, computation and writes of a row.
//! Neither module handles data: both do arithmetic on numbers and ranges, so that every case can be
//! tested without a disk. `compute` carries plans out on bytes. `cache` and `sums` hold the content
//! and checksums that are not on the members yet; `engine` writes them to the members.
//!
//! Words: a *row* is planned and written as a unit: in levels with parity, it has one chunk on each
//! member, at the same member offset. A *shard* is one chunk of a row: first data in the order of
//! user bytes, then P, then Q; in a mirror, the shards are the copies of one chunk. A *column* is a
//! byte range within the chunks of a row. An *absent* member has failed or is missing; *erased*
//! bytes are bytes of a present member that are bad.
//!
//! Invariants:
//! - ranges are half-open, offsets are bytes;
//! - the same input gives the same plan: planning uses no clock, no randomness, and no state except
//!   reused buffers;
//! - absent members are never read or written.
//!
//! Floors, lowest first; a module imports from lower floors only:
//!
//! | modules | what they hold |
//! |---|---|
//! | `set` `runs` `executor` `ranked` `limits` `format` `probe` | small shared types; bytes on disk |
//! | `geometry` `signature` `sums` `control` | placement; foreign content; checksums; the socket |
//! | `plan` | reads, computation and writes of a row |
//! | `cache` `traffic` | bytes not on the members yet; counters |
//! | `compute` | plans carried out on bytes |
//! | `member` `md` | one member of an array of ours; an array that Linux md made |
//! | `engine` | a running array, without threads |
//! | `volume` | its threads |
//! | `ops` | verbs |
//!
//! Only the modules `control`, `volume` and `ops` of this crate use threads and clocks. Only
//! `member`, `md`, `ops` and, during assembly, `engine` access devices.

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

mod cache;
mod compute;
mod engine;
mod executor;
mod format;
mod geometry;
mod limits;
mod md;
mod member;
mod ops;
mod plan;
mod probe;
mod ranked;
mod runs;
mod set;
mod signature;
mod sums;
mod traffic;
mod volume;

pub use engine::{
    AssembleOptions, CreateOptions, Flusher, SlotState, SlotStatus, Step, WorkKind,
    assemble as assemble_members, check_create, create as create_on_members,
    probe as probe_superblock, shape_of,
};
pub use format::journal::JournalPlace;
pub use format::log::RecordHeader;
pub use format::md::{
    FEATURE_JOURNAL as MD_FEATURE_JOURNAL, FEATURE_RESHAPE as MD_FEATURE_RESHAPE, MdArrayInfo,
    MdDeviceInfo, MdPlace, MdReshape, MdState, MdSuperblock, MdVersion, Role as MdRole,
    SECTOR_BYTES as MD_SECTOR_BYTES, SUPERBLOCK_BYTES as MD_SUPERBLOCK_BYTES,
    SUPERBLOCK_OFFSET as MD_SUPERBLOCK_OFFSET, bad_blocks as md_bad_blocks,
};
pub use format::regions::{
    Version as RegionVersion, decode as decode_regions, encode as encode_regions,
};
pub use format::sector::{CONTENT_BYTES, SECTOR_BYTES, SectorPlace, TableKind};
pub use format::sums::{decode as decode_sums, encode as encode_sums};
pub use format::superblock::{
    Areas, Consistency, MAGIC as SUPERBLOCK_MAGIC, SPARE as SPARE_POSITION, SUPERBLOCK_BYTES, Slot,
    Superblock,
};
pub use format::{BLOCK_BYTES, crc32c};
pub use geometry::{LastSlot, Layout, Level};
pub use md::{MdArray, MdAssembleOptions, MdAssembly, assemble as assemble_md_members};
pub use ops::assemble::assemble;
pub use ops::controller::ControlHandler;
pub use ops::create::{CreateRequest, chunk_bytes_of, consistency_of, create};
pub use ops::detail::{
    Detail, ReportDetail, Served, SlotDetail, SlotStateDetail, WorkDetail,
    consistency as consistency_text, of_devices as detail_of_devices,
};
pub use ops::devices::set_device_timeout;
pub use ops::events::{ArrayEvent, between as events_between};
pub use ops::examine::{Examined, FoundSuperblock, examine};
pub use ops::forget::forget;
pub use ops::knobs::{Knob, check_name as check_knob_name, values as knob_values};
pub use ops::made_files::MadeFiles;
pub use ops::md::{assemble_md, open as open_md};
pub use ops::monitor::{Sight, Watcher, is_grave, sight as sight_of, test_message as test_event};
pub use ops::open::{
    Reached, inspect as look_at_array, next as next_reply, reach as reach_array,
    send as send_request, server as server_of, start as start_volume,
};
pub use ops::probe::{Probed, Verdict as ProbeVerdict, probe as probe_devices};
pub use ops::register::{Metadata as ArrayMetadata, absolute as absolute_path};
pub use ops::request::{Failure as RequestFailure, ManageAction, Reply, Request};
pub use ops::scan::{ScannedArray, registered_devices, scan as scan_devices};
pub use ops::zero::zero_superblock;
pub use ops::{Entry, Register};
pub use probe::ProbeEffort;
pub use signature::{md_superblock, signature};
pub use traffic::{MemberArea, MemberTraffic};
pub use volume::{FlusherInputs, FlusherTask, Volume, VolumeCounters, VolumeSettings, WorkPace};
