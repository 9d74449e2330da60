//! Outputs by codecs, on random bytes and on a dump, against what is to be replaced.

use pinstripe_lab::{Align, Cell, Table};
use pinstripe_split::Fake;
use pinstripe_stats::Summary;

use super::{Run, Settings, in_turns, post};
use crate::Result;
use crate::targets::Target;

const OUTPUTS: [usize; 4] = [1, 2, 4, 8];
const CODECS: [&str; 5] = ["raw", "lzo", "snappy", "lz4", "zstd:1"];
/// The number of outputs at which both are compared.
const COMPARED: usize = 4;
/// The least speed relative to the replaced program, and the least share of raw's rate on random
/// bytes.
const TIMES: f64 = 3.0;
const SHARE: f64 = 0.9;

/// The program that splits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Ours,
    Post,
}

type Way = (Who, &'static str, usize);

pub fn measure(settings: &Settings) -> Result<Table> {
    let tool = settings.bench.pinstripe()?;
    let note = format!(
        "split with what it does when it is told nothing but the codec; '-' is one thread per output \
         with a contiguous range each, 4 KiB blocks, a 4 KiB stream. 'dump': 40 % zero pages, the \
         others half random bytes and half words. {} Ratio: of the median rates, to that of '-' or to raw.",
        settings.circumstances(),
    );
    let columns = [
        ("data", Align::Left),
        ("codec", Align::Left),
        ("outputs", Align::Right),
        ("split: MB/s", Align::Right),
        ("CPU s per GB", Align::Right),
        ("-: MB/s", Align::Right),
        ("CPU s per GB", Align::Right),
        ("ratio", Align::Right),
        ("target", Align::Left),
        ("verdict", Align::Left),
    ];
    let mut table = Table::new("Outputs and codecs", note, &columns);
    let ways = ways();
    let dump = format!("fake:{},zero=40%,entropy=0.5", settings.bytes);
    for (data, source) in [("random", settings.random()), ("dump", dump)] {
        let fake = source.parse().and_then(Fake::new).map_err(|error| error.to_string())?;
        let found = in_turns(settings.bench.rounds, &ways, |(who, codec, outputs)| match who {
            Who::Ours => settings.split(&tool, &source, *outputs, &["--codec", codec]),
            Who::Post => post::split(&fake, &settings.fresh(*outputs)?, codec),
        })?;
        let median = |way: Way| {
            let at = ways.iter().position(|it| *it == way)?;
            let of = |value: fn(&Run) -> f64| {
                let samples: Vec<f64> = found[at].iter().map(value).collect();
                Summary::from_samples(&samples).map_or(f64::NAN, |summary| summary.median)
            };
            Some([of(Run::rate), of(Run::cpu)])
        };
        for codec in CODECS {
            for outputs in OUTPUTS {
                add_row(&mut table, data, codec, outputs, &median);
            }
        }
    }
    Ok(table)
}

/// All that takes turns.
fn ways() -> Vec<Way> {
    let all = |who: Who, codecs: &[&'static str]| {
        let of = |codec: &&'static str| OUTPUTS.map(|outputs| (who, *codec, outputs));
        codecs.iter().flat_map(of).collect::<Vec<Way>>()
    };
    [all(Who::Ours, &CODECS), all(Who::Post, &post::CODECS)].concat()
}

fn add_row(
    table: &mut Table,
    data: &str,
    codec: &'static str,
    outputs: usize,
    median: &dyn Fn(Way) -> Option<[f64; 2]>,
) {
    let none = [f64::NAN; 2];
    let ours = median((Who::Ours, codec, outputs)).unwrap_or(none);
    let post = median((Who::Post, codec, outputs)).unwrap_or(none);
    let raw = median((Who::Ours, "raw", outputs)).unwrap_or(none);
    let is_judged_by_raw = data == "random" && ["snappy", "lz4"].contains(&codec);
    let (ratio, target, against) = match () {
        () if outputs == COMPARED && !post[0].is_nan() => {
            (ours[0] / post[0], Target::AtLeast(TIMES), "-")
        }
        () if is_judged_by_raw => (ours[0] / raw[0], Target::AtLeast(SHARE), "raw"),
        () if !post[0].is_nan() => (ours[0] / post[0], Target::None, ""),
        () => (f64::NAN, Target::None, ""),
    };
    let cell = |value: f64, decimals| match value.is_nan() {
        true => "".into(),
        false => Cell::Number(value, decimals),
    };
    table.row([
        data.into(),
        codec.into(),
        (outputs as u64).into(),
        cell(ours[0], 0),
        cell(ours[1], 2),
        cell(post[0], 0),
        cell(post[1], 2),
        cell(ratio, 2),
        format!("{} {against}", target.show()).trim().to_owned().into(),
        target.verdict(f64::NAN, ratio).into(),
    ]);
}
