//! How fast long content comes out of a bucket, against a bare loop of GETs of the same bytes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pinstripe_lab::Table;

use super::stand::{HostTool, ProxiedServer, noise_tree, set_delay};
use super::{Settings, sign};
use crate::Result;
use crate::targets::{Target, figure_row, figures};
use crate::trees;

/// The share of a bare loop's rate that is to be reached without any delay.
const SHARE: f64 = 0.7;
/// Requests in flight, and the bytes of each.
const IN_FLIGHT: usize = 16;
const RANGE_BYTES: u64 = 4 << 20;

pub fn measure(settings: &Settings) -> Result<Table> {
    let endpoint = ProxiedServer::start(&settings.bench.work, "endpoint-rate")?;
    let host = HostTool::new(settings, "rate")?;
    let source = noise_tree(&settings.bench.work, 1, settings.bytes)?;
    let place = endpoint.place("rate");
    host.make(std::slice::from_ref(&place), 0)?;
    let mut backup = host.command(&place, "backup");
    backup.arg(&source);
    host.run(backup, "rate-backup", &endpoint.proxy)?;
    let note = format!(
        "{} of incompressible files of 1 MiB in one bucket. The loop reads the objects of packs in ranges \
         of 4 MiB, {IN_FLIGHT} at a time, through the same proxy, without checking or writing anything; \
         pinstripe checks, decrypts and restores them.",
        pinstripe_base::units::format_size(settings.bytes),
    );
    let mut table = figures("Reading from a bucket, MB/s", note);
    for &delay in &settings.delays {
        set_delay(&[&endpoint], delay);
        let at = format!("{} ms", delay.as_millis());
        let (mut loops, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..settings.bench.rounds {
            loops.push(bare_loop(&endpoint)?);
            let mut dump = host.command(&place, "restore");
            let to = settings.bench.work.join("rate-out");
            trees::remove(&to)?;
            dump.args(["latest", "--to"]).arg(&to);
            let (cost, _) = host.run(dump, "rate-restore", &endpoint.proxy)?;
            ours.push(settings.bytes as f64 / 1e6 / cost.wall_s);
            trees::compare(&source, &to.join(source.strip_prefix("/").unwrap_or(&source)))?;
            trees::remove(&to)?;
        }
        figure_row(&mut table, &format!("{at}: bare loop of GETs"), &loops, 0, Target::None);
        figure_row(&mut table, &format!("{at}: restore"), &ours, 0, Target::None);
        let shares: Vec<f64> = ours.iter().zip(&loops).map(|(ours, all)| ours / all).collect();
        let target = if delay.is_zero() { Target::AtLeast(SHARE) } else { Target::None };
        figure_row(&mut table, &format!("{at}: restore / bare loop of GETs"), &shares, 2, target);
    }
    Ok(table)
}

/// The rate of reading all packs, MB/s.
fn bare_loop(endpoint: &ProxiedServer) -> Result<f64> {
    let packs = endpoint.server.file("rate/packs");
    let mut ranges = Vec::new();
    trees::visit(&packs, &mut |path, metadata| {
        if metadata.is_file() {
            let key = path.strip_prefix(endpoint.server.file("")).unwrap_or(path);
            let (key, bytes) = (key.display().to_string(), metadata.len());
            let starts = (0..bytes).step_by(RANGE_BYTES as usize);
            ranges.extend(starts.map(|at| (key.clone(), at..bytes.min(at + RANGE_BYTES))));
        }
        Ok(())
    })?;
    let bytes: u64 = ranges.iter().map(|(_, range)| range.end - range.start).sum();
    let (next, began) = (AtomicUsize::new(0), Instant::now());
    let read = || -> Result<()> {
        while let Some((key, range)) = ranges.get(next.fetch_add(1, Ordering::Relaxed)) {
            let found = get(endpoint, key, range.start, range.end).map_err(|e| e.to_string())?;
            if found != range.end - range.start {
                return Err(format!("{key}: {found} bytes of {range:?}"));
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..IN_FLIGHT).map(|_| scope.spawn(read)).collect();
        readers.into_iter().try_for_each(|it| it.join().map_err(|_| "a reader died".to_owned())?)
    })?;
    Ok(bytes as f64 / 1e6 / began.elapsed().max(Duration::from_micros(1)).as_secs_f64())
}

/// Reads a range by a presigned GET, and counts its bytes.
fn get(endpoint: &ProxiedServer, key: &str, start: u64, end: u64) -> std::io::Result<u64> {
    let host = format!("127.0.0.1:{}", endpoint.proxy.port());
    let path = sign::presigned(&host, key, &sign::now());
    let mut stream = TcpStream::connect(&host)?;
    stream.set_nodelay(true)?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nRange: bytes={start}-{}\r\nConnection: close\r\n\r\n",
        end - 1
    )?;
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && head.len() < 64 << 10 {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    if !head.starts_with(b"HTTP/1.1 206") {
        let line = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
        return Err(std::io::Error::other(format!("{key}: {line}")));
    }
    let (mut buffer, mut found) = (vec![0; 1 << 18], 0);
    while found < end - start {
        match stream.read(&mut buffer)? {
            0 => break,
            many => found += many as u64,
        }
    }
    Ok(found)
}
