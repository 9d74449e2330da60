//! One output of a split, opened: its two pages, and the place of its log.

use std::path::Path;

use crate::format::{End, FRAME_BYTES, Frame, FrameKind, Head, Manifest, PAGE_BYTES, Tag};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SplitId;
use pinstripe_io::device::SharedDevice;

/// An output. A page that cannot be read is an error of that page alone: the others may do.
pub struct SplitOutput {
    /// The file or device with the pages and the log.
    pub device: SharedDevice,
    /// The one with the source's own bytes, if the log is in a separate file.
    pub plain: Option<SharedDevice>,
    /// The split that it belongs to, and its number there.
    pub head: Result<Head>,
    /// The page that makes it complete; `None` if it never was complete.
    pub end: Result<Option<End>>,
    /// The bytes.
    pub bytes: u64,
}

impl SplitOutput {
    /// Reads the pages.
    ///
    /// # Errors
    /// The errors of the device; [`Kind::Unsupported`] for an output of a newer version.
    pub fn open(device: SharedDevice, plain: Option<SharedDevice>) -> Result<Self> {
        let bytes = device.len()?;
        let page = |number: usize| {
            let mut page = vec![0; PAGE_BYTES];
            let at = (number * PAGE_BYTES) as u64;
            if bytes < at + PAGE_BYTES as u64 {
                return Err(Error::corrupt(
                    "the output ends before its log begins",
                    device.place(),
                )
                .expected(format!("more than {}", 2 * PAGE_BYTES), bytes));
            }
            device.read_at(at, &mut page)?;
            Ok(page)
        };
        let at_place = |error: Error| error.at(device.place());
        let head = page(0).and_then(|bytes| Head::decode(&bytes)).map_err(at_place);
        let end = page(1).and_then(|bytes| End::decode(&bytes)).map_err(at_place);
        if let Err(error) = &head
            && error.kind() == Kind::Unsupported
        {
            return Err(error.duplicate());
        }
        Ok(SplitOutput { device: device.clone(), plain, head, end, bytes })
    }

    /// The path, for messages.
    pub fn place(&self) -> &Path {
        self.device.place()
    }

    /// The number among the outputs of a split, by whichever page is intact and of that split.
    pub fn number(&self, split: SplitId) -> Option<usize> {
        let head = self.head.as_ref().ok().filter(|head| head.split == split);
        let of_head = head.map(|head| head.output);
        let end = || self.end.as_ref().ok().copied().flatten().filter(|end| end.split == split);
        let of_end = || end().map(|end| end.output);
        of_head.or_else(of_end).map(usize::from)
    }

    /// The manifest, if this output is complete.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn manifest(&self, tag: Tag) -> Result<Option<Manifest>> {
        let end = match &self.end {
            Ok(Some(end)) => end,
            Ok(None) => return Ok(None),
            Err(error) => return Err(error.duplicate()),
        };
        let is_inside = end.manifest_at.checked_add(end.manifest_bytes) <= Some(self.bytes);
        if !is_inside || end.manifest_bytes < FRAME_BYTES as u64 {
            return Err(Error::corrupt("the output is shorter than before", self.place())
                .expected(end.manifest_at.saturating_add(end.manifest_bytes), self.bytes));
        }
        let mut bytes = vec![0; end.manifest_bytes as usize];
        self.device.read_at(end.manifest_at, &mut bytes)?;
        let (head, stored) = bytes.split_first_chunk().expect("its length was checked");
        let parse = || {
            let frame = Frame::decode(head, tag)?;
            frame.verify(stored)?;
            if frame.kind != FrameKind::Manifest {
                return Err(Error::new(Kind::Corrupt, "the output has no manifest"));
            }
            Manifest::decode(stored)
        };
        parse().map(Some).map_err(|error| error.at(self.place()))
    }
}

/// Opens outputs that are not files or disks of this machine.
pub trait RemoteOutputs: Send + Sync {
    /// The output at a place with a scheme; it is empty where nothing is there.
    ///
    /// # Errors
    /// [`Kind::Usage`] for a place in an unknown form; [`Kind::Refused`] when the object there is
    /// not an output; the errors of the requests.
    fn output(&self, place: &Path) -> Result<SharedDevice>;
}

/// The error for a remote output where nothing opens one.
pub(crate) fn no_remote(place: &Path) -> Error {
    Error::new(Kind::Unsupported, "this build of pinstripe can use only files and disks as outputs")
        .at(place)
        .advice("use a pinstripe that was built with the feature 's3'")
}

/// Returns the path of the log of a plain output, in the same directory.
pub fn beside_path(output: &Path) -> std::path::PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".pinstripe");
    name.into()
}
