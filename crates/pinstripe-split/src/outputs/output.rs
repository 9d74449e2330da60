//! One opened output of a split: its two pages, and the place of its log.

use std::path::Path;

use crate::format::{End, FRAME_BYTES, Frame, FrameKind, Head, Manifest, PAGE_BYTES, Tag};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SplitId;
use pinstripe_io::device::SharedDevice;

/// An output. An unreadable page is an error of that page alone: the other pages may suffice.
pub struct SplitOutput {
    /// The file or device with the two pages and the log.
    pub device: SharedDevice,
    /// The file or device with the source's own bytes, if the log is in a separate file.
    pub plain: Option<SharedDevice>,
    /// The head page: the split that the output belongs to, and the output's number in it.
    pub head: Result<Head>,
    /// The end page, which says that the output is complete; `None` if the output was never
    /// completed.
    pub end: Result<Option<End>>,
    /// The bytes.
    pub bytes: u64,
}

impl SplitOutput {
    /// Reads the pages.
    ///
    /// # Errors
    /// Fails with the errors of the device, or with [`Kind::Unsupported`] for an output of a newer
    /// version.
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
                .expected(format!("more than {} bytes", 2 * PAGE_BYTES), bytes));
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

    /// The output's path, for messages.
    pub fn place(&self) -> &Path {
        self.device.place()
    }

    /// Returns the output's number in a split, from whichever of its pages is intact and belongs to
    /// that split.
    pub fn number(&self, split: SplitId) -> Option<usize> {
        let head = self.head.as_ref().ok().filter(|head| head.split == split);
        let of_head = head.map(|head| head.output);
        let end = || self.end.as_ref().ok().copied().flatten().filter(|end| end.split == split);
        let of_end = || end().map(|end| end.output);
        of_head.or_else(of_end).map(usize::from)
    }

    /// Reads the manifest, if this output is complete.
    ///
    /// # Errors
    /// Fails with the reason why the manifest cannot be read.
    pub fn manifest(&self, tag: Tag) -> Result<Option<Manifest>> {
        let end = match &self.end {
            Ok(Some(end)) => end,
            Ok(None) => return Ok(None),
            Err(error) => return Err(error.duplicate()),
        };
        let is_inside = end.manifest_at.checked_add(end.manifest_bytes) <= Some(self.bytes);
        if !is_inside || end.manifest_bytes < FRAME_BYTES as u64 {
            return Err(Error::corrupt(
                "the output is shorter than when it was written",
                self.place(),
            )
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
    /// Opens the output at a place with a scheme; the output is empty if nothing exists there.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for a place in an unknown form, with [`Kind::Refused`] when the
    /// object there is not an output, or with the errors of the requests.
    fn output(&self, place: &Path) -> Result<SharedDevice>;
}

/// The error for a remote output when the caller cannot open remote outputs.
pub(crate) fn no_remote(place: &Path) -> Error {
    Error::new(Kind::Unsupported, "this build of pinstripe can use only files and disks as outputs")
        .at(place)
        .advice("use a build of pinstripe with the feature 's3'")
}

/// Returns the path of the log of a plain output, in the same directory.
pub fn beside_path(output: &Path) -> std::path::PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".pinstripe");
    name.into()
}
