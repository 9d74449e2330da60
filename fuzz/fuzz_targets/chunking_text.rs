//! Chunking as people write it: any text gives a chunking that can be worked with or an error,
//! and reads back as written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe_stripe::Chunking;

fuzz_target!(|text: &str| {
    if let Ok(chunking) = text.parse::<Chunking>() {
        assert!(chunking.validate().is_ok());
        assert_eq!(chunking.to_string().parse::<Chunking>().ok(), Some(chunking));
    }
});
