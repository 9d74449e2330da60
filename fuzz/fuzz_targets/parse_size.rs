//! Sizes as people write them: any text gives a size or an error, and what is written for people
//! as whole bytes reads back as the same number.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe_base::units::parse_size;

fuzz_target!(|text: &str| {
    if let Ok(bytes) = parse_size(text) {
        assert!(bytes <= i64::MAX as u64);
        assert_eq!(parse_size(&bytes.to_string()).ok(), Some(bytes));
    }
});
