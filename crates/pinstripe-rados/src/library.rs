//! The functions of librados that are used, found by their names in the system's library.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::foreign_functions;
use pinstripe_io::library::LoadedLibrary;

/// The library's name since Ceph 0.x; under this name, the meaning of its functions does not
/// change.
const NAME: &CStr = c"librados.so.2";

/// A `rados_t`, `rados_ioctx_t`, `rados_write_op_t` or `rados_list_ctx_t`: each is a pointer that
/// only the library dereferences.
pub(crate) type Handle = *mut c_void;

type Op = unsafe extern "C" fn(Handle) -> c_int;
type Release = unsafe extern "C" fn(Handle);
type SetText = unsafe extern "C" fn(Handle, *const c_char, *const c_char) -> c_int;
type PutAt = unsafe extern "C" fn(Handle, *const c_char, *const c_char, usize, u64) -> c_int;
type GetAt = unsafe extern "C" fn(Handle, *const c_char, *mut c_char, usize, u64) -> c_int;

type ListPage = unsafe extern "C" fn(
    Handle,
    Handle,
    Handle,
    usize,
    *const c_char,
    usize,
    *mut ListedObject,
    *mut Handle,
) -> c_int;

/// `rados_object_list_item`: three texts without a final NUL, which the library owns.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ListedObject {
    pub(crate) name_bytes: usize,
    pub(crate) name: *mut c_char,
    pub(crate) namespace_bytes: usize,
    pub(crate) namespace: *mut c_char,
    pub(crate) locator_bytes: usize,
    pub(crate) locator: *mut c_char,
}

foreign_functions! {
    /// The functions, as `rados/librados.h` declares them.
    pub(crate) struct Library {
        create: unsafe extern "C" fn(*mut Handle, *const c_char, *const c_char, u64) -> c_int = c"rados_create2";
        conf_read_file: unsafe extern "C" fn(Handle, *const c_char) -> c_int = c"rados_conf_read_file";
        conf_set: SetText = c"rados_conf_set";
        connect: Op = c"rados_connect";
        shutdown: Release = c"rados_shutdown";
        ioctx_create: unsafe extern "C" fn(Handle, *const c_char, *mut Handle) -> c_int = c"rados_ioctx_create";
        ioctx_destroy: Release = c"rados_ioctx_destroy";
        set_namespace: unsafe extern "C" fn(Handle, *const c_char) = c"rados_ioctx_set_namespace";
        read: GetAt = c"rados_read";
        write: PutAt = c"rados_write";
        stat: unsafe extern "C" fn(Handle, *const c_char, *mut u64, *mut libc::time_t) -> c_int = c"rados_stat";
        cluster_fsid: unsafe extern "C" fn(Handle, *mut c_char, usize) -> c_int = c"rados_cluster_fsid";
        list_open: unsafe extern "C" fn(Handle, *mut Handle) -> c_int = c"rados_nobjects_list_open";
        list_next: unsafe extern "C" fn(Handle, *mut *const c_char, *mut *const c_char, *mut *const c_char) -> c_int = c"rados_nobjects_list_next";
        list_close: Release = c"rados_nobjects_list_close";
        object_list_begin: unsafe extern "C" fn(Handle) -> Handle = c"rados_object_list_begin";
        object_list_end: unsafe extern "C" fn(Handle) -> Handle = c"rados_object_list_end";
        object_list_cursor_cmp: unsafe extern "C" fn(Handle, Handle, Handle) -> c_int = c"rados_object_list_cursor_cmp";
        object_list_cursor_free: unsafe extern "C" fn(Handle, Handle) = c"rados_object_list_cursor_free";
        object_list_slice: unsafe extern "C" fn(Handle, Handle, Handle, usize, usize, *mut Handle, *mut Handle) = c"rados_object_list_slice";
        object_list: ListPage = c"rados_object_list";
        object_list_free: unsafe extern "C" fn(usize, *mut ListedObject) = c"rados_object_list_free";
        create_write_op: unsafe extern "C" fn() -> Handle = c"rados_create_write_op";
        release_write_op: Release = c"rados_release_write_op";
        write_op_create: unsafe extern "C" fn(Handle, c_int, *const c_char) = c"rados_write_op_create";
        write_op_remove: Release = c"rados_write_op_remove";
        write_op_write_full: unsafe extern "C" fn(Handle, *const c_char, usize) = c"rados_write_op_write_full";
        write_op_operate: unsafe extern "C" fn(Handle, Handle, *const c_char, *mut libc::time_t, c_int) -> c_int = c"rados_write_op_operate";
    }
}

impl Library {
    /// Returns the system's library, which is loaded at the first call.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] if the library is missing, or lacks a function.
    pub(crate) fn get() -> Result<&'static Library> {
        static LIBRARY: OnceLock<Result<Library>> = OnceLock::new();
        LIBRARY.get_or_init(|| Self::open(NAME)).as_ref().map_err(Error::duplicate)
    }

    pub(crate) fn open(name: &CStr) -> Result<Self> {
        let loaded = LoadedLibrary::open(&[name]).map_err(|failure| {
            let what = format!("cannot load Ceph's client library ({failure})");
            Error::new(Kind::Unsupported, what)
                .advice("install the package librados2 on each machine that uses Ceph")
        })?;
        Self::find(&loaded).map_err(|failure| {
            let what = format!("this Ceph client library cannot be used: {failure}");
            Error::new(Kind::Unsupported, what).advice("install librados2 of Ceph 12 or newer")
        })
    }
}
