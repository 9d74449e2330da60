//! Loads C libraries when they are first needed (dlopen(3)), so that the binary is built and runs
//! without them.
//!
//! [`foreign_functions!`](crate::foreign_functions) declares a table of functions; either all of
//! them are found in a [`LoadedLibrary`], or the table cannot be used. A loaded library is never
//! unloaded: its threads and its static data may outlive every handle that it returned.
//!
//! This module does not know what a library is for, or which package has it.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::ptr::NonNull;

/// A library of the system that was loaded.
#[derive(Debug)]
pub struct LoadedLibrary {
    handle: NonNull<c_void>,
}

// SAFETY: a handle of dlopen(3), which any thread may give to dlsym(3), and which is never closed.
unsafe impl Send for LoadedLibrary {}
// SAFETY: as above.
unsafe impl Sync for LoadedLibrary {}

impl LoadedLibrary {
    /// Loads the first library of this list that the system has; names of older releases come last.
    ///
    /// # Errors
    /// Fails with the system's error for the last name.
    pub fn open(names: &[&CStr]) -> Result<Self, LoadFailure> {
        let mut failure = LoadFailure("this is not a valid name of a library".to_owned());
        for name in names {
            // SAFETY: the name ends with a NUL. The library's constructors run, as they would if this
            // program were linked with it.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            match NonNull::new(handle) {
                Some(handle) => return Ok(LoadedLibrary { handle }),
                None => failure = LoadFailure(last_error()),
            }
        }
        Err(failure)
    }

    /// The address of a function or a variable.
    pub fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is one of dlopen(3) that is never closed, the name ends with a NUL.
        NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) })
    }
}

/// The reason why a library cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadFailure(String);

impl LoadFailure {
    /// The failure of a library that lacks a function.
    pub fn without(symbol: &CStr) -> Self {
        LoadFailure(format!(
            "the library does not contain the function {}",
            symbol.to_string_lossy()
        ))
    }
}

impl fmt::Display for LoadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why dlopen(3) failed.
fn last_error() -> String {
    // SAFETY: dlerror gives a text that is valid until this thread's next call of it, or null.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "unknown reason".to_owned();
    }
    // SAFETY: it is not null, and the text ends with a NUL.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Declares a table of functions of a C library by their types and symbols, with a function `find`,
/// which finds all of them in a [`LoadedLibrary`](crate::library::LoadedLibrary) or fails with the
/// first missing one. The types must be those in the library's header, because nothing checks them.
#[macro_export]
macro_rules! foreign_functions {
    ($(#[$about:meta])* $vis:vis struct $library:ident {
        $($field:ident: $kind:ty = $symbol:literal;)*
    }) => {
        $(#[$about])*
        $vis struct $library {
            $($vis $field: $kind,)*
        }

        impl $library {
            fn find(
                library: &$crate::library::LoadedLibrary,
            ) -> ::std::result::Result<Self, $crate::library::LoadFailure> {
                Ok($library {
                    $($field: {
                        let symbol: &::std::ffi::CStr = $symbol;
                        let found = library
                            .symbol(symbol)
                            .ok_or_else(|| $crate::library::LoadFailure::without(symbol))?;
                        // SAFETY: the header of every release under this name of the library declares
                        // a function of this name and type.
                        unsafe { ::std::mem::transmute::<*mut ::std::ffi::c_void, $kind>(found.as_ptr()) }
                    },)*
                })
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    foreign_functions! {
        /// Of the C library itself.
        struct Numbers {
            absolute: unsafe extern "C" fn(i32) -> i32 = c"abs";
            parse: unsafe extern "C" fn(*const std::ffi::c_char) -> i32 = c"atoi";
        }
    }

    foreign_functions! {
        #[allow(dead_code, reason = "it is never found")]
        struct Missing {
            absolute: unsafe extern "C" fn(i32) -> i32 = c"abs";
            nothing: unsafe extern "C" fn() = c"no_such_function_anywhere";
        }
    }

    #[test]
    fn functions_are_found_in_the_first_library_that_is_there() {
        let names = [c"libnowhere.so.9", c"libc.so.6"];
        let found = Numbers::find(&LoadedLibrary::open(&names).unwrap()).unwrap();
        // SAFETY: both are the functions of the C library that their types say.
        unsafe {
            assert_eq!((found.absolute)(-7), 7);
            assert_eq!((found.parse)(c"42".as_ptr()), 42);
        }
    }

    #[test]
    fn a_library_or_a_function_that_is_not_there_is_named() {
        let failure = LoadedLibrary::open(&[c"libnowhere.so.9"]).unwrap_err().to_string();
        assert!(failure.contains("libnowhere.so.9"), "{failure}");
        let library = LoadedLibrary::open(&[c"libc.so.6"]).unwrap();
        let failure = Missing::find(&library).err().unwrap().to_string();
        assert!(failure.contains("no_such_function_anywhere"), "{failure}");
    }
}
