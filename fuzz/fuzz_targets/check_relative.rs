//! The guard of every restored path: what it lets through has plain names only.
#![no_main]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use libfuzzer_sys::fuzz_target;
use pinstripe_io::beneath::check_relative;

fuzz_target!(|path: &[u8]| {
    if check_relative(path).is_ok() {
        let parts: Vec<_> = Path::new(OsStr::from_bytes(path)).components().collect();
        assert!(!parts.is_empty() && !path.contains(&0));
        assert!(parts.iter().all(|part| matches!(part, Component::Normal(_))));
        assert_eq!(parts.len(), path.split(|&byte| byte == b'/').count());
    }
});
