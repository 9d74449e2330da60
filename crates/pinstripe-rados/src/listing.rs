//! Lists all names of a namespace. A pool keeps its objects in placement groups. Each group must be
//! queried, even one without objects of the namespace; therefore slices of the pool are listed in
//! parallel.

use std::ffi::{c_char, c_int};
use std::ptr::{null, null_mut};

use pinstripe_base::error::Result;

use crate::cluster::{Pool, check};
use crate::library::{Handle, ListedObject};
use crate::many::{AT_ONCE, side_by_side};

/// The number of slices of a pool: as many as are listed in parallel.
const SLICES: usize = AT_ONCE;
/// The number of names in one answer.
const PAGE: usize = 1000;

/// A position in the order of a pool's objects, which is the order of the hashes of their names.
struct HashCursor<'p> {
    pool: &'p Pool,
    handle: Handle,
}

impl<'p> HashCursor<'p> {
    fn begin(pool: &'p Pool) -> Self {
        // SAFETY: the context is valid, and the call makes a cursor.
        let handle = unsafe { (pool.library().object_list_begin)(pool.handle()) };
        HashCursor { pool, handle }
    }

    fn end(pool: &'p Pool) -> Self {
        // SAFETY: as above.
        let handle = unsafe { (pool.library().object_list_end)(pool.handle()) };
        HashCursor { pool, handle }
    }

    fn is_before(&self, other: &HashCursor<'_>) -> bool {
        let (library, context) = (self.pool.library(), self.pool.handle());
        // SAFETY: the context and both cursors are valid.
        unsafe { (library.object_list_cursor_cmp)(context, self.handle, other.handle) < 0 }
    }

    /// Lets a call set the next position. Versions of the library differ in whether the call
    /// changes the cursor or returns another one.
    fn moved_by<T>(&mut self, call: impl FnOnce(*mut Handle) -> T) -> T {
        let before = self.handle;
        let returned = call(&raw mut self.handle);
        if self.handle != before {
            drop(HashCursor { pool: self.pool, handle: before });
        }
        returned
    }
}

impl Drop for HashCursor<'_> {
    fn drop(&mut self) {
        // SAFETY: the cursor is valid until here, and its pool still open.
        unsafe {
            (self.pool.library().object_list_cursor_free)(self.pool.handle(), self.handle);
        }
    }
}

/// The names of all objects of the pool's namespace, in no particular order. An object that is
/// created or removed during the call may be included or not. Names that are not UTF-8 are skipped.
///
/// # Errors
/// Returns errors as the cluster reports them.
pub(crate) fn names(pool: &Pool) -> Result<Vec<String>> {
    let slices: Vec<usize> = (0..SLICES).collect();
    let mut names = Vec::new();
    for slice in side_by_side(&slices, |slice| names_of(pool, *slice)) {
        names.extend(slice?);
    }
    Ok(names)
}

fn names_of(pool: &Pool, slice: usize) -> Result<Vec<String>> {
    let library = pool.library();
    let (begin, end) = (HashCursor::begin(pool), HashCursor::end(pool));
    let (mut next, mut finish) = (HashCursor::begin(pool), HashCursor::end(pool));
    next.moved_by(|next| {
        finish.moved_by(|finish| {
            let (context, from, to) = (pool.handle(), begin.handle, end.handle);
            // SAFETY: the context and all cursors are valid; the last two are moved.
            unsafe { (library.object_list_slice)(context, from, to, slice, SLICES, next, finish) };
        });
    });
    let mut names = Vec::new();
    let nothing = ListedObject {
        name_bytes: 0,
        name: null_mut(),
        namespace_bytes: 0,
        namespace: null_mut(),
        locator_bytes: 0,
        locator: null_mut(),
    };
    let mut page = vec![nothing; PAGE];
    while next.is_before(&finish) {
        let (from, to, results) = (next.handle, finish.handle, page.as_mut_ptr());
        let filter: *const c_char = null();
        let listed: c_int = next.moved_by(|next| {
            let context = pool.handle();
            // SAFETY: the context and the cursors are valid, and there is room for this many
            // results.
            unsafe { (library.object_list)(context, from, to, PAGE, filter, 0, results, next) }
        });
        check(listed, "cannot list", pool.shown())?;
        let listed = listed as usize;
        for object in page.iter().take(listed) {
            let (start, bytes) = (object.name.cast::<u8>(), object.name_bytes);
            // SAFETY: the call filled this many results, each with a name of this length.
            let name = unsafe { std::slice::from_raw_parts(start, bytes) };
            names.extend(std::str::from_utf8(name).ok().map(str::to_owned));
        }
        // SAFETY: the call filled this many results, which are not used again.
        unsafe { (library.object_list_free)(listed, page.as_mut_ptr()) };
    }
    Ok(names)
}
