//! Fault plans as people write them: any text gives a plan or an error, and reads back as written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe_io::fault::Plan;

fuzz_target!(|text: &str| {
    if let Ok(plan) = text.parse::<Plan>() {
        assert_eq!(plan.to_string().parse::<Plan>().ok(), Some(plan));
    }
});
