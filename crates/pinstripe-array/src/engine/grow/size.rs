//! Using more of each member, after devices got larger or were replaced by larger ones. Nothing
//! moves: the added space follows all existing data, and was never written.
//!
//! Invariant: a superblock names the new size only when the tables of every member cover it.

use crate::engine::create::fits;
use crate::engine::flusher::Flusher;
use crate::engine::logged::LoggedArray;
use crate::executor::TaskKind;
use crate::geometry::{ArrayGeometry, Shape};
use crate::member::ArrayMember;
use pinstripe_base::error::{Error, Kind, Result};

impl Flusher {
    /// Makes the array use as many bytes of each member as the smallest member has.
    ///
    /// # Errors
    /// Fails with [`Kind::Refused`] when members are absent, or when a member or a spare has no
    /// more room (the error names it); with [`Kind::Busy`] while other work is running; with
    /// [`Kind::Unsupported`] for far copies, which would have to move; with the errors of the
    /// devices.
    pub fn grow_size(&mut self) -> Result<()> {
        self.long.check_whole(&self.logged, "grow")?;
        let geometry = larger(&self.logged)?;
        grow_to(&mut self.logged, geometry)
    }
}

/// The geometry that uses as many bytes of each member as the smallest one has.
fn larger(logged: &LoggedArray) -> Result<ArrayGeometry> {
    let now = logged.array.geometry();
    let members = logged.array.members();
    let rooms = members.iter().flatten().map(|member| Ok((member.room()?, member)));
    let rooms = rooms.collect::<Result<Vec<_>>>()?;
    let smallest = rooms.into_iter().min_by_key(|(room, _)| *room);
    let (room, member) =
        smallest.ok_or_else(|| Error::new(Kind::Refused, "the array has no member"))?;
    let chunk = u64::from(now.chunk_bytes());
    let room = room / chunk * chunk;
    if room <= now.member_bytes() {
        return Err(no_room(member, now.member_bytes() + chunk, room));
    }
    let (level, layout) = (now.level(), now.layout());
    let larger = ArrayGeometry::new(level, now.members(), chunk, layout, room)?;
    if !now.lies_as_in(&larger) {
        let what =
            "the size of this array cannot change, because its far copies would have to be moved";
        return Err(Error::new(Kind::Unsupported, what)
            .advice("create a new array, and copy the data to the new array"));
    }
    for spare in logged.array.members.spares() {
        let mut superblock = logged.array.superblock();
        superblock.data_bytes = room;
        if fits(spare.device(), &superblock)?.is_none() {
            return Err(no_room(&spare, room, spare.room()?));
        }
    }
    Ok(larger)
}

fn no_room(member: &ArrayMember, needed: u64, room: u64) -> Error {
    Error::new(Kind::Refused, "this member has no more space for data")
        .at(member.path())
        .expected(format!("space for {needed} bytes of data"), room)
        .advice(
            "enlarge the member's device, or replace it by a larger device; a device that grew far \
             beyond its original size must be replaced, because its table of checksums has a fixed \
             size",
        )
}

fn grow_to(logged: &mut LoggedArray, geometry: ArrayGeometry) -> Result<()> {
    let data_bytes = geometry.member_bytes();
    logged.checkpoint()?;
    logged.each_member(TaskKind::Tables, &|_, member| {
        member.extend(data_bytes);
        member.write_tables()?;
        member.sync()
    })?;
    logged.array.update_superblocks(|superblock| superblock.data_bytes = data_bytes)?;
    logged.array.reshape(Shape::from_geometry(geometry));
    Ok(())
}
