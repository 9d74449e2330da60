//! Wrappers of members: what one leaves as it is.

/// Implements these calls of [`Member`](crate::Member) by the same calls of a field, which is
/// a member: `forward_member!(inner: len, list, sync);`. A call that is not named has the default of the
/// trait, which asks the wrapper itself. `*` stands for what the wrapper dereferences to.
#[macro_export]
macro_rules! forward_member {
    ($inner:tt: $($call:ident),+ $(,)?) => {
        $( $crate::forward_member!(@ $inner $call); )+
    };
    (= $wrapper:ident *) => {
        (**$wrapper)
    };
    (= $wrapper:ident $inner:tt) => {
        $wrapper.$inner
    };
    (@ $inner:tt create) => {
        fn create(
            &self,
            name: $crate::ExtentName,
            replace: $crate::Replace,
        ) -> pinstripe_base::error::Result<Box<dyn $crate::ExtentWriter>> {
            $crate::forward_member!(= self $inner).create(name, replace)
        }
    };
    (@ $inner:tt put) => {
        fn put(
            &self,
            name: $crate::ExtentName,
            bytes: &[u8],
        ) -> pinstripe_base::error::Result<()> {
            $crate::forward_member!(= self $inner).put(name, bytes)
        }
    };
    (@ $inner:tt put_ahead) => {
        fn put_ahead(&self, name: $crate::ExtentName, bytes: &[u8]) {
            $crate::forward_member!(= self $inner).put_ahead(name, bytes);
        }
    };
    (@ $inner:tt read_at) => {
        fn read_at(
            &self,
            name: $crate::ExtentName,
            offset: u64,
            buf: &mut [u8],
        ) -> pinstripe_base::error::Result<()> {
            $crate::forward_member!(= self $inner).read_at(name, offset, buf)
        }
    };
    (@ $inner:tt read_at_hand) => {
        fn read_at_hand(
            &self,
            name: $crate::ExtentName,
            offset: u64,
            buf: &mut [u8],
        ) -> bool {
            $crate::forward_member!(= self $inner).read_at_hand(name, offset, buf)
        }
    };
    (@ $inner:tt read_span) => {
        fn read_span(
            &self,
            name: $crate::ExtentName,
            offset: u64,
            bytes: usize,
        ) -> pinstripe_base::error::Result<Vec<u8>> {
            $crate::forward_member!(= self $inner).read_span(name, offset, bytes)
        }
    };
    (@ $inner:tt len) => {
        fn len(&self, name: $crate::ExtentName) -> pinstripe_base::error::Result<u64> {
            $crate::forward_member!(= self $inner).len(name)
        }
    };
    (@ $inner:tt read_whole) => {
        fn read_whole(
            &self,
            names: &[$crate::ExtentName],
            most_bytes: u64,
        ) -> Vec<pinstripe_base::error::Result<Vec<u8>>> {
            $crate::forward_member!(= self $inner).read_whole(names, most_bytes)
        }
    };
    (@ $inner:tt list) => {
        fn list(
            &self,
            room: $crate::Room,
        ) -> pinstripe_base::error::Result<Vec<([u8; 16], u64)>> {
            $crate::forward_member!(= self $inner).list(room)
        }
    };
    (@ $inner:tt names) => {
        fn names(
            &self,
            room: $crate::Room,
        ) -> pinstripe_base::error::Result<Vec<[u8; 16]>> {
            $crate::forward_member!(= self $inner).names(room)
        }
    };
    (@ $inner:tt foresee) => {
        fn foresee(&self, wanted: &[$crate::Glance]) {
            $crate::forward_member!(= self $inner).foresee(wanted);
        }
    };
    (@ $inner:tt open_ahead) => {
        fn open_ahead(&self, names: &[$crate::ExtentName]) {
            $crate::forward_member!(= self $inner).open_ahead(names);
        }
    };
    (@ $inner:tt delete) => {
        fn delete(
            &self,
            name: $crate::ExtentName,
        ) -> pinstripe_base::error::Result<()> {
            $crate::forward_member!(= self $inner).delete(name)
        }
    };
    (@ $inner:tt keep_longer) => {
        fn keep_longer(
            &self,
            names: &[$crate::ExtentName],
        ) -> pinstripe_base::error::Result<$crate::KeptLonger> {
            $crate::forward_member!(= self $inner).keep_longer(names)
        }
    };
    (@ $inner:tt sync) => {
        fn sync(&self) -> pinstripe_base::error::Result<()> {
            $crate::forward_member!(= self $inner).sync()
        }
    };
    (@ $inner:tt sweep) => {
        fn sweep(&self) -> pinstripe_base::error::Result<u64> {
            $crate::forward_member!(= self $inner).sweep()
        }
    };
    (@ $inner:tt caps) => {
        fn caps(&self) -> $crate::Caps {
            $crate::forward_member!(= self $inner).caps()
        }
    };
    (@ $inner:tt latency) => {
        fn latency(&self) -> Option<std::time::Duration> {
            $crate::forward_member!(= self $inner).latency()
        }
    };
    (@ $inner:tt place) => {
        fn place(&self) -> &std::path::Path {
            $crate::forward_member!(= self $inner).place()
        }
    };
}
