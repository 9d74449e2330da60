//! The parts of a superblock field by field, in md's order.

use super::{MdArrayInfo, MdDeviceInfo, MdPlace, MdReshape, MdState, unsupported};
use pinstripe_base::error::Result;
use pinstripe_base::wire::{Reader, Writer};

impl MdArrayInfo {
    /// Bytes 16 to 128.
    pub(super) fn read(features: u32, reader: &mut Reader<'_>) -> Result<Self> {
        Ok(MdArrayInfo {
            features,
            set_uuid: reader.array()?,
            set_name: reader.array()?,
            created: reader.u64()?,
            level: reader.u32()? as i32,
            layout: reader.u32()?,
            size_sectors: reader.u64()?,
            chunk_sectors: reader.u32()?,
            members: reader.u32()?,
            log: reader.array()?,
            reshape: MdReshape {
                new_level: reader.u32()? as i32,
                position_sectors: reader.u64()?,
                delta_members: reader.u32()? as i32,
                new_layout: reader.u32()?,
                new_chunk_sectors: reader.u32()?,
                new_offset_sectors: reader.u32()? as i32,
            },
        })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        writer.raw(&self.set_uuid).raw(&self.set_name).u64(self.created);
        writer.u32(self.level as u32).u32(self.layout).u64(self.size_sectors);
        writer.u32(self.chunk_sectors).u32(self.members).raw(&self.log);
        let reshape = &self.reshape;
        writer.u32(reshape.new_level as u32).u64(reshape.position_sectors);
        writer.u32(reshape.delta_members as u32).u32(reshape.new_layout);
        writer.u32(reshape.new_chunk_sectors).u32(reshape.new_offset_sectors as u32);
    }
}

impl MdDeviceInfo {
    /// Bytes 128 to 192.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let (data_offset_sectors, data_sectors) = (reader.u64()?, reader.u64()?);
        let place = MdPlace::of_version_1(reader.u64()?);
        Ok(MdDeviceInfo {
            data_offset_sectors,
            data_sectors,
            place,
            recovery_sectors: reader.u64()?,
            number: reader.u32()?,
            corrected_reads: reader.u32()?,
            uuid: reader.array()?,
            flags: reader.u8()?,
            bad_blocks_shift: reader.u8()?,
            bad_blocks_sectors: reader.u16()?,
            bad_blocks_offset_sectors: reader.u32()? as i32,
        })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        writer.u64(self.data_offset_sectors).u64(self.data_sectors);
        writer.u64(self.place.sector).u64(self.recovery_sectors);
        writer.u32(self.number).u32(self.corrected_reads).raw(&self.uuid);
        writer.u8(self.flags).u8(self.bad_blocks_shift);
        writer.u16(self.bad_blocks_sectors).u32(self.bad_blocks_offset_sectors as u32);
    }
}

impl MdState {
    /// Bytes 192 to 256, except the checksum and the number of roles, which were checked before.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let (updated, events, resync_sectors) = (reader.u64()?, reader.u64()?, reader.u64()?);
        reader.take(8)?;
        if reader.take(32)?.iter().any(|&byte| byte != 0) {
            return Err(unsupported("the padding of the md superblock is not zero"));
        }
        Ok(MdState { updated, events, resync_sectors })
    }
}
