//! A shared handle of a member is a member itself: so a wrapper may hold either.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::member::{Caps, ExtentName, ExtentWriter, Glance, KeptLonger, Member, Replace, Room};
use pinstripe_base::error::Result;

impl<M: Member + ?Sized> Member for Arc<M> {
    fn create(&self, name: ExtentName, replace: Replace) -> Result<Box<dyn ExtentWriter>> {
        (**self).create(name, replace)
    }

    fn put(&self, name: ExtentName, bytes: &[u8]) -> Result<()> {
        (**self).put(name, bytes)
    }

    fn put_ahead(&self, name: ExtentName, bytes: &[u8]) {
        (**self).put_ahead(name, bytes);
    }

    fn read_at(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> Result<()> {
        (**self).read_at(name, offset, buf)
    }

    fn read_at_hand(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> bool {
        (**self).read_at_hand(name, offset, buf)
    }

    fn read_span(&self, name: ExtentName, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        (**self).read_span(name, offset, bytes)
    }

    fn len(&self, name: ExtentName) -> Result<u64> {
        (**self).len(name)
    }

    fn read_whole(&self, names: &[ExtentName], most_bytes: u64) -> Vec<Result<Vec<u8>>> {
        (**self).read_whole(names, most_bytes)
    }

    fn list(&self, room: Room) -> Result<Vec<([u8; 16], u64)>> {
        (**self).list(room)
    }

    fn names(&self, room: Room) -> Result<Vec<[u8; 16]>> {
        (**self).names(room)
    }

    fn foresee(&self, wanted: &[Glance]) {
        (**self).foresee(wanted);
    }

    fn open_ahead(&self, names: &[ExtentName]) {
        (**self).open_ahead(names);
    }

    fn delete(&self, name: ExtentName) -> Result<()> {
        (**self).delete(name)
    }

    fn keep_longer(&self, names: &[ExtentName]) -> Result<KeptLonger> {
        (**self).keep_longer(names)
    }

    fn sync(&self) -> Result<()> {
        (**self).sync()
    }

    fn sweep(&self) -> Result<u64> {
        (**self).sweep()
    }

    fn caps(&self) -> Caps {
        (**self).caps()
    }

    fn latency(&self) -> Option<Duration> {
        (**self).latency()
    }

    fn place(&self) -> &Path {
        (**self).place()
    }
}
