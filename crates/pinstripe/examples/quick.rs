//! throwaway driver
use pinstripe::monitor::*;
use pinstripe::*;
use std::path::PathBuf;
struct P;
impl Observer for P {
    fn problem(&self, p: &Problem) {
        eprintln!("{:?} {}: {}", p.severity, p.place.display(), p.error);
    }
    fn note(&self, t: &str) {
        eprintln!("note {t}");
    }
}
fn main() {
    if let Err(e) = run() {
        eprintln!("ERROR {e} | {:?}", e.advice_text());
        std::process::exit(1);
    }
}
fn run() -> error::Result<()> {
    let a: Vec<String> = std::env::args().collect();
    let m = Monitor::new(Box::new(P));
    let lim = |n| {
        pipeline::limits::Limits::new(
            std::thread::available_parallelism().unwrap().get(),
            n,
            256 << 20,
        )
    };
    match a[1].as_str() {
        "init" => {
            ops::init::run(&ops::init::Options {
                members: a[4..].iter().map(PathBuf::from).collect(),
                parity: a[2].parse().unwrap(),
                strip_bytes: 256 << 10,
                chunking: std::env::var("CH").unwrap_or("1M".into()).parse()?,
                codec: a[3].parse()?,
                same_disk: true,
                now_seconds: 0,
            })?;
        }
        "backup" => {
            let t = std::time::Instant::now();
            let s = store::Store::open(a[2].as_ref(), &Default::default())?;
            let sn = ops::backup::run(
                &s,
                ops::backup::Options {
                    paths: a[3..].iter().map(PathBuf::from).collect(),
                    exclude: Default::default(),
                    one_file_system: false,
                    host: b"h".to_vec(),
                    estimate: false,
                    limits: lim(s.seats.len()),
                },
                &m,
            )?;
            println!("{} {:?} {:.3}s", sn.id, sn.counts, t.elapsed().as_secs_f64());
        }
        "restore" => {
            let s = store::Store::open(a[2].as_ref(), &Default::default())?;
            ops::restore::run(
                &s,
                &ops::restore::Options {
                    snapshot: "latest",
                    path: a.get(4).map_or("", |s| s).as_bytes(),
                    to: a[3].as_ref(),
                    overwrite: false,
                    verify: std::env::var("VERIFY").is_ok(),
                    limits: lim(s.seats.len()),
                },
                &m,
            )?;
        }
        "check" => {
            let s = store::Store::open(a[2].as_ref(), &Default::default())?;
            println!(
                "{:?}",
                ops::check::run(
                    &s,
                    &ops::check::Options { read_data: a.len() > 3, limits: lim(4) },
                    &m
                )?
            );
        }
        "repair" => {
            let mut s = store::Store::open(a[2].as_ref(), &Default::default())?;
            let r = a.get(3).map(|n| (n.parse().unwrap(), PathBuf::from(&a[4])));
            println!(
                "{:?}",
                ops::repair::run(&mut s, &ops::repair::Options { replace: r, limits: lim(4) }, &m)?
            );
        }
        _ => {}
    }
    for (c, n) in Counter::ALL {
        if m.get(*c) > 0 {
            eprint!("{n}={} ", m.get(*c));
        }
    }
    eprintln!();
    Ok(())
}
