//! How fast made-up bytes are made: `cargo run --release --example fake_speed`.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a program of its own")]

use std::time::Instant;

use pinstripe_base::error::Result;
use pinstripe_split::Fake;

/// Made at a time, as `split` does.
const UNIT_BYTES: u64 = 4 << 20;
const UNITS: u64 = 2048;

fn main() -> Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    println!("{UNITS} units of 4 MiB; MB/s with 1 thread, with {threads}");
    for told in ["", ",block=64K", ",zero=40%", ",entropy=0.5", ",entropy=0", ",block=512"] {
        let fake = Fake::new(format!("fake:1T{told}").parse()?)?;
        let rate = |threads: u64| {
            let began = Instant::now();
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    let fake = &fake;
                    scope.spawn(move || {
                        let mut unit = vec![0; UNIT_BYTES as usize];
                        for number in (thread..UNITS).step_by(threads as usize) {
                            fake.fill(number * UNIT_BYTES, &mut unit);
                        }
                    });
                }
            });
            (UNITS * UNIT_BYTES) as f64 / began.elapsed().as_secs_f64() / 1e6
        };
        println!("{:24} {:8.0} {:8.0}", fake.spec(), rate(1), rate(threads));
    }
    Ok(())
}
