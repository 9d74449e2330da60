//! Generates the methods of [`Device`](super::Device) that a wrapper passes on to the device behind
//! it.

/// Generates the named methods of [`Device`](crate::device::Device) as calls of the same method of
/// a field: `forward_device!(inner: len set_len sync)` within an `impl Device`. Each method is
/// named, so that a wrapper cannot miss a method that is added later.
#[macro_export]
macro_rules! forward_device {
    ($inner:tt: $($call:ident)+) => { $($crate::forward_device!(@ $inner $call);)+ };
    (@ $inner:tt read_at) => {
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> ::pinstripe_base::error::Result<()> {
            self.$inner.read_at(offset, buf)
        }
    };
    (@ $inner:tt write_at) => {
        fn write_at(&self, offset: u64, bytes: &[u8]) -> ::pinstripe_base::error::Result<()> {
            self.$inner.write_at(offset, bytes)
        }
    };
    (@ $inner:tt write_long_at) => {
        fn write_long_at(&self, offset: u64, parts: &[&[u8]]) -> ::pinstripe_base::error::Result<()> {
            self.$inner.write_long_at(offset, parts)
        }
    };
    // For a device with a `write_at` of its own, which must see every part.
    (@ $inner:tt long_by_parts) => {
        fn write_long_at(&self, offset: u64, parts: &[&[u8]]) -> ::pinstripe_base::error::Result<()> {
            $crate::device::write_parts(self, offset, parts)
        }
    };
    (@ $inner:tt len) => {
        fn len(&self) -> ::pinstripe_base::error::Result<u64> {
            self.$inner.len()
        }
    };
    (@ $inner:tt set_len) => {
        fn set_len(&self, bytes: u64) -> ::pinstripe_base::error::Result<()> {
            self.$inner.set_len(bytes)
        }
    };
    (@ $inner:tt sync) => {
        fn sync(&self) -> ::pinstripe_base::error::Result<()> {
            self.$inner.sync()
        }
    };
    (@ $inner:tt discard) => {
        fn discard(&self, range: ::std::ops::Range<u64>) -> ::pinstripe_base::error::Result<()> {
            self.$inner.discard(range)
        }
    };
    (@ $inner:tt caps) => {
        fn caps(&self) -> $crate::device::Caps {
            self.$inner.caps()
        }
    };
    (@ $inner:tt place) => {
        fn place(&self) -> &::std::path::Path {
            self.$inner.place()
        }
    };
}
