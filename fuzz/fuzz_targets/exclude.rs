//! Exclude patterns: any bytes give a pattern or an error and can be matched against any path; a
//! pattern that takes every byte of a path literally matches it. The same patterns as searches take
//! them: what a name rules out is no match.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe::{Exclude, Glob};
use pinstripe_io::beneath::check_relative;

fuzz_target!(|input: (&[u8], bool, &[u8])| {
    let (pattern, is_directory, path) = input;
    let absolute = [b"/", path].concat();
    if let Ok(exclude) = Exclude::new([pattern]) {
        let file_too = exclude.leaves_out(&absolute, false);
        assert!(!file_too || exclude.leaves_out(&absolute, true));
    }
    if let Ok(glob) = Glob::new(pattern) {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        let is_match = glob.matches(path, is_directory);
        assert!(!is_match || glob.admits_name(name));
        if glob.is_about_names() && glob.matches(path, true) {
            assert!(glob.matches(name, true));
        }
    }
    if check_relative(path).is_ok() {
        let escape = |&byte: &u8| if byte == b'/' { vec![byte] } else { vec![b'\\', byte] };
        let literal: Vec<u8> = absolute.iter().flat_map(escape).collect();
        let exclude = Exclude::new([&literal]).expect("a literal path is a pattern");
        assert!(exclude.leaves_out(&absolute, is_directory));
    }
});
