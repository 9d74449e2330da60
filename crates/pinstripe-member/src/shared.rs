//! A shared handle of a member implements the member trait itself, so a wrapper may hold a handle
//! or a member.

use std::path::Path;
use std::sync::Arc;

use pinstripe_base::error::Result;

use crate::{BatchedMember, Caps, ExtentKind, ExtentName, ExtentWriter, Member, Replace};

impl<M: Member + ?Sized> Member for Arc<M> {
    fn create(&self, name: ExtentName, replace: Replace) -> Result<Box<dyn ExtentWriter>> {
        (**self).create(name, replace)
    }

    fn put(&self, name: ExtentName, bytes: &[u8]) -> Result<()> {
        (**self).put(name, bytes)
    }

    fn read_at(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> Result<()> {
        (**self).read_at(name, offset, buf)
    }

    fn read_at_hand(&self, name: ExtentName, offset: u64, buf: &mut [u8]) -> bool {
        (**self).read_at_hand(name, offset, buf)
    }

    fn len(&self, name: ExtentName) -> Result<u64> {
        (**self).len(name)
    }

    fn list(&self, kind: ExtentKind) -> Result<Vec<([u8; 16], u64)>> {
        (**self).list(kind)
    }

    fn delete(&self, name: ExtentName) -> Result<()> {
        (**self).delete(name)
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

    fn place(&self) -> &Path {
        (**self).place()
    }

    fn batched(&self) -> Option<&dyn BatchedMember> {
        (**self).batched()
    }
}
