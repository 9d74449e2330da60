//! Codecs as people write them: any text gives a codec or an error, and reads back as written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe_stripe::Codec;

fuzz_target!(|text: &str| {
    if let Ok(codec) = text.parse::<Codec>() {
        assert_eq!(codec.to_string().parse::<Codec>().ok(), Some(codec));
    }
});
