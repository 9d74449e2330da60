//! Serves one device by NBD until standard input ends, then prints what clients did.
//!
//! `nbd_serve ADDRESS DEVICE [workers=N] [read-only]`, as in
//! `nbd_serve unix:/run/socket memory:1G workers=4`. DEVICE is `memory:SIZE`, which holds a pattern,
//! `null:SIZE`, or a file or disk.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pinstripe::device::{
    Access, Device, FileDevice, MemoryDevice, NullDevice, PatternDevice, Policy, Sparse,
};
use pinstripe::error::{Error, Kind, Result};
use pinstripe::monitor::Monitor;
use pinstripe::pipeline::nbd::{Export, Server, Settings};
use pinstripe::units::parse_size;

fn device(text: &str) -> Result<Arc<dyn Sparse>> {
    if let Some(size) = text.strip_prefix("null:") {
        return Ok(Arc::new(NullDevice::new("null", parse_size(size)?)));
    }
    let Some(size) = text.strip_prefix("memory:") else {
        return Ok(Arc::new(FileDevice::open(text, Access::Write, Policy::Buffered)?));
    };
    let size = parse_size(size)?;
    let device = MemoryDevice::with_limit("memory", size);
    device.set_len(size)?;
    let mut piece = vec![0; 1 << 20];
    for at in (0..size).step_by(piece.len()) {
        let bytes = (size - at).min(piece.len() as u64) as usize;
        PatternDevice::fill(1, at, &mut piece[..bytes]);
        device.write_at(at, &piece[..bytes])?;
    }
    Ok(Arc::new(device))
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, served, options @ ..] = &args[..] else {
        return Err(Error::new(Kind::Usage, "nbd_serve ADDRESS DEVICE [workers=N]"));
    };
    let mut export = Export::sparse("", device(served)?);
    let mut settings = Settings::default();
    for option in options {
        match (option.as_str(), option.strip_prefix("workers=")) {
            ("read-only", _) => export = export.read_only(),
            (_, Some(workers)) => settings.workers = parse_size(workers)? as usize,
            _ => return Err(Error::new(Kind::Usage, format!("what is '{option}'?"))),
        }
    }
    let server = Server::bind(&[address.parse()?])?;
    println!("{}", server.addresses()[0]);
    let (exports, stop) = ([export], AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (stop, exports) = (&stop, &exports);
        scope.spawn(move || {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            stop.store(true, Ordering::Relaxed);
        });
        server.serve(exports, &settings, &Monitor::default(), stop)
    })?;
    println!("{:?}", exports[0].traffic());
    Ok(())
}
