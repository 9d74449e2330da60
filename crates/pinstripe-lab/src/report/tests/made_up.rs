//! Invented results: the same numbers wherever they are made.

use std::collections::BTreeMap;

use pinstripe_base::random::Noise;

use crate::fingerprint::{DiskDescription, Fingerprint, Place};
use crate::guard::Disturbance;
use crate::histogram::Histogram;
use crate::machine::Machine;
use crate::result::{
    Entry, FORMAT, Measured, Metric, Note, Parameter, Results, Run, Sample, VERSION, Variant,
    entries,
};

/// The runs to be made up for a variant.
pub struct Wish<'a> {
    pub name: &'a str,
    pub group: &'a str,
    /// The policy that it is said to differ in.
    pub policy: &'a str,
    /// `read` or `write`.
    pub kind: &'a str,
    /// About what its runs measured, in MB/s.
    pub level: f64,
    pub note: Option<Note>,
    /// Whether it stood still for a while.
    pub stalls: bool,
}

/// A disk of two policies: one group with a winner, one without a difference, one variant alone; a
/// run was disturbed.
pub fn results() -> Results {
    let wish =
        |group, policy, kind, level, note, stalls| (group, policy, kind, level, note, stalls);
    let wishes = [
        wish("1 MiB writes", "buffered", "write", 412.0, None, true),
        wish("1 MiB writes", "direct", "write", 540.0, None, false),
        wish("1 MiB writes", "dsync", "write", 96.0, None, false),
        wish("random reads", "buffered", "read", 61.0, None, false),
        wish("random reads", "direct", "read", 61.5, None, false),
        wish("kept", "buffered", "write", 1900.0, Some(Note::AcceptedNotDurable), true),
    ];
    let names: Vec<String> = wishes.iter().map(|it| format!("{} {}", it.0, it.1)).collect();
    let wishes = wishes.into_iter().zip(&names).map(|(it, name)| Wish {
        name,
        group: it.0,
        policy: it.1,
        kind: it.2,
        level: it.3,
        note: it.4,
        stalls: it.5,
    });
    let mut results = of(&wishes.collect::<Vec<_>>(), 7, 16, 150);
    let what = "the hypervisor took 9 % of the CPU time (steal)".to_owned();
    let disturbed = &mut results.variants[1].runs[3];
    disturbed.measured.value = 310.0;
    disturbed.disturbances = vec![Disturbance { kind: "steal".to_owned(), what }];
    results.judge();
    results
}

/// Groups whose variants differ in how many requests are in flight: eight servers, which a second
/// group of four has as well, and so on.
pub fn depths(groups: usize) -> Results {
    let depths = [1.0, 4.0, 8.0, 32.0_f64];
    let names: Vec<(String, String)> = (0..groups)
        .flat_map(|group| depths.map(|depth| (group, depth)))
        .map(|(group, depth)| {
            let group = format!("read {} KiB at random offsets", 4 << group);
            (format!("{group}: depth {depth}"), group)
        })
        .collect();
    let wishes = names.iter().zip(depths.iter().cycle()).map(|((name, group), depth)| {
        let level = depth.min(8.0) * 50.0;
        Wish { name, group, policy: "direct", kind: "read", level, note: None, stalls: false }
    });
    let mut results = of(&wishes.collect::<Vec<_>>(), 6, 16, 0);
    results.case = "quick".to_owned();
    for (variant, depth) in results.variants.iter_mut().zip(depths.iter().cycle()) {
        variant.parameters = vec![Parameter::new("depth", depth)];
        for run in &mut variant.runs {
            let mut times = Histogram::default();
            times.record_many((100_000.0 * (depth / 8.0).max(1.0)) as u64, 99);
            times.record_many((400_000.0 * (depth / 8.0).max(1.0)) as u64, 2);
            run.measured.latency = BTreeMap::from([("read".to_owned(), times)]);
        }
    }
    results
}

/// The measurements of the fourteen days before: from the ninth on with another kernel, and faster.
pub fn before(results: &Results) -> Vec<Entry> {
    let day = |day: i64| {
        let mut earlier = results.clone();
        earlier.started_seconds -= (14 - day) * 86_400;
        let is_old = day < 8;
        if is_old {
            earlier.fingerprint.machine.kernel = "6.1.0".to_owned();
        }
        let share = if is_old { 0.8 } else { 1.0 } * (1.0 + 0.003 * ((day * 7) % 5) as f64);
        let runs = earlier.variants.iter_mut().flat_map(|it| &mut it.runs);
        runs.for_each(|run| run.measured.value *= share);
        entries(&earlier)
    };
    (0..14).flat_map(day).collect()
}

/// Results as wished, of so many runs each, with samples and requests of each run.
pub fn of(wishes: &[Wish], runs: u64, samples: usize, requests: u64) -> Results {
    let mut noise = Noise(3);
    let mut variants: Vec<Variant> = wishes.iter().map(variant).collect();
    for round in 0..runs {
        for (at, wish) in wishes.iter().enumerate() {
            let order = round * wishes.len() as u64 + at as u64;
            variants[at].runs.push(run(wish, order, samples, requests, &mut noise));
        }
    }
    let mut results = Results {
        format: FORMAT.to_owned(),
        version: VERSION,
        program: "pinstripe 0.1.0".to_owned(),
        case: "fileio".to_owned(),
        command: words("/opt/pinstripe lab run fileio --dir /srv/data --block-size 1M --workers 4"),
        parameters: vec![Parameter::new("block-size", "1M"), Parameter::new("workers", 4)],
        seed: 7,
        started_seconds: 1_700_000_000,
        elapsed_s: 148.0,
        is_complete: true,
        fingerprint: fingerprint(),
        hosts: Vec::new(),
        variants,
        verdicts: Vec::new(),
        notes: Vec::new(),
    };
    results.judge();
    results
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

fn variant(wish: &Wish) -> Variant {
    Variant {
        name: wish.name.to_owned(),
        group: wish.group.to_owned(),
        about: format!("{} through {}", wish.group, wish.policy),
        parameters: vec![
            Parameter::new("policy", wish.policy),
            Parameter::new("place", "/srv/data"),
        ],
        metric: Metric::throughput(),
        runs: Vec::new(),
    }
}

fn run(wish: &Wish, order: u64, samples: usize, requests: u64, noise: &mut Noise) -> Run {
    let mut share = |range: u64| noise.below(range) as f64 / range as f64;
    let value = wish.level * (0.96 + 0.08 * share(1000));
    let bytes = (value * 3e6) as u64;
    let (read, written) = if wish.kind == "read" { (bytes, 0) } else { (0, bytes) };
    let samples = (0..samples).map(|at| sample(wish, at, share(1000))).collect();
    let mut service = Histogram::default();
    let mut response = Histogram::default();
    for _ in 0..requests {
        let draw = share(1 << 20);
        // A long tail: the share p of requests takes longer than its minus one and a halfth power.
        let nanos = 120_000.0 / (1.0 - draw).powf(if wish.stalls { 0.9 } else { 0.5 });
        service.record_many(nanos as u64, 1);
        response.record_many((nanos * 1.8) as u64, 1);
    }
    let latency = [(wish.kind.to_owned(), service), ("response".to_owned(), response)];
    Run {
        order,
        round: None,
        at_s: order as f64 * 3.4,
        seconds: 3.0,
        measured: Measured {
            value,
            operations: requests,
            read_bytes: read,
            written_bytes: written,
            latency: BTreeMap::from(latency),
            figures: BTreeMap::from([("sync_s".to_owned(), 0.25)]),
        },
        cpu_s: 0.2 + 0.05 * share(100),
        device_read_bytes: Some(read),
        device_written_bytes: Some(written + written / 9),
        samples,
        notes: wish.note.into_iter().collect(),
        disturbances: Vec::new(),
        parts: Vec::new(),
    }
}

fn sample(wish: &Wish, at: usize, share: f64) -> Sample {
    let is_still = wish.stalls && (6..10).contains(&(at % 16));
    let is_write = wish.kind == "write";
    let dirty = if is_write { 4e8 * (at % 12) as f64 / 12.0 } else { 1e6 };
    Sample {
        at_s: (at + 1) as f64 * 0.2,
        mb_per_s: if is_still { wish.level * 0.01 } else { wish.level * (0.9 + 0.4 * share) },
        dirty_bytes: Some(dirty as u64),
        writeback_bytes: Some(if is_still { 260_000_000 } else { 20_000_000 }),
        cpu_pressure: Some(0.02),
        io_pressure: Some(if is_still { 0.93 } else { 0.1 + 0.2 * share }),
        memory_pressure: None,
    }
}

fn fingerprint() -> Fingerprint {
    let pairs = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let disk = DiskDescription {
        name: "nvme0n1".to_owned(),
        model: Some("Example <NVMe> & Co".to_owned()),
        firmware: Some("F1".to_owned()),
        identity: Some("#0badcafe".to_owned()),
        bytes: Some(1_000_204_886_016),
        is_rotational: Some(false),
        settings: pairs(&[
            ("scheduler", "none"),
            ("nr_requests", "1023"),
            ("write_cache", "write back"),
        ]),
    };
    Fingerprint {
        host: Some("00c0ffee00c0ffee".to_owned()),
        machine: Machine {
            processor: "Example Processor 9000".to_owned(),
            cores: 8,
            memory_bytes: 32 << 30,
            kernel: "6.12.0".to_owned(),
        },
        governor: Some("performance".to_owned()),
        page_cache: pairs(&[("dirty_background_ratio", "10"), ("dirty_ratio", "20")]),
        places: vec![Place {
            path: "/srv/data".to_owned(),
            file_system: Some("ext4".to_owned()),
            mount_options: Some("rw,relatime".to_owned()),
            space: Some((900 << 30, 600 << 30)),
            disk: Some(disk),
        }],
    }
}
