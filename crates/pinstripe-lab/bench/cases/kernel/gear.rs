//! The gear scan: the plain version, the version in use, and for comparison the `fastcdc` crate,
//! which finds cuts at once and skips a quarter of the bytes.

use fastcdc::v2020::FastCDC;
use pinstripe_kernel::gear::{Gear, Masks};

use super::Bench;

pub fn measure(bench: &mut Bench) {
    let gear = Gear::new(0x5eed);
    let masks = Masks::for_average(64 << 10).expect("there are masks for 64 KiB");
    let mut out = Vec::new();
    for (name, len) in [("64K", 64 << 10), ("4M", 4 << 20)] {
        let data = pinstripe_testing::noise(1, len);
        bench.measure(&format!("gear/{name}/plain"), len, || {
            out.clear();
            gear.scan_plain(masks, &[], &data, 0, &mut out);
        });
        bench.measure(&format!("gear/{name}/lanes"), len, || {
            out.clear();
            gear.scan(masks, &[], &data, 0, &mut out);
        });
        bench.measure(&format!("gear/{name}/fastcdc"), len, || {
            std::hint::black_box(FastCDC::new(&data, 16 << 10, 64 << 10, 256 << 10).count());
        });
    }
}
