//! Outputs of a split in buckets: whole, resumed, with one lost, and what is refused.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pinstripe_base::error::{Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_io::device::{Device, Engine, Policy, conformance};
use pinstripe_split::{
    CodecChoice, JoinOptions, JoinTarget, LayoutChoice, RemoteOutputs, SplitOptions, SplitOutcome,
    join, open_outputs, open_source, require_complete, split, verify_outputs,
};
use pinstripe_testing::Fate;

use crate::support::Site;

/// Incompressible bytes.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..bytes.div_ceil(8)).flat_map(|_| word()).take(bytes).collect()
}

struct Split {
    site: Site,
    dir: tempfile::TempDir,
    content: Vec<u8>,
    places: Vec<PathBuf>,
}

impl Split {
    fn new(test: &str, outputs: usize, bytes: usize) -> Option<Self> {
        let site = Site::new(test)?;
        let dir = tempfile::tempdir().unwrap();
        let content = noise(bytes);
        fs::write(dir.path().join("source"), &content).unwrap();
        let places = (0..outputs).map(|_| site.fresh_place()).collect();
        Some(Split { site, dir, content, places })
    }

    fn options(&self) -> SplitOptions {
        SplitOptions {
            outputs: self.places.clone(),
            spread: None,
            parity: 0,
            block_bytes: 64 << 10,
            strip_bytes: 256 << 10,
            codec: CodecChoice::Auto,
            policy: Policy::Direct,
            engine: Engine::Auto,
            depth: 4,
            workers: 2,
            memory_bytes: 256 << 20,
            force: false,
            resume: false,
            now_seconds: 0,
            faults: None,
            remote: Some(Arc::clone(&self.site.buckets) as Arc<dyn RemoteOutputs>),
        }
    }

    fn split(&self, options: &SplitOptions) -> Result<SplitOutcome> {
        let source = self.dir.path().join("source").into_os_string();
        let stdin = std::io::stdin();
        let open = || open_source(&source, std::os::fd::AsFd::as_fd(&stdin));
        split(&open, options, &Monitor::default())
    }

    fn joined(&self, places: &[PathBuf]) -> Vec<u8> {
        let remote: &dyn RemoteOutputs = &*self.site.buckets;
        let none = pinstripe_io::fault::Plan::default();
        let reader = open_outputs(places, Some(remote), &none, &Monitor::default()).unwrap();
        let options = JoinOptions { range: None, best_effort: false, workers: 2 };
        let mut joined = Vec::new();
        let mut write = |bytes: &[u8]| {
            joined.extend_from_slice(bytes);
            Ok(())
        };
        join(&reader, &options, JoinTarget::Stream(&mut write), &Monitor::default()).unwrap();
        joined
    }
}

fn count(log: &[String], method: &str) -> usize {
    log.iter().filter(|line| line.starts_with(method) && !line.contains("list-type=")).count()
}

#[test]
fn a_source_is_split_over_a_bucket_and_joined_again_with_few_requests() {
    let Some(split) = Split::new("a_source_is_split_over_a_bucket", 1, 41 << 20) else { return };
    split.site.proxy.take_log();
    split.split(&split.options()).unwrap();
    let log = split.site.proxy.take_log();
    // Six segments of 8 MiB, of which the last one is sent again with the manifest; the two pages,
    // at the beginning and at the end.
    let puts = count(&log, "PUT ");
    println!("split of 41 MiB: {puts} puts, {} requests", log.len());
    assert!((8..=12).contains(&puts), "{puts}:\n{}", log.join("\n"));
    assert!(log.len() <= puts + 4, "{}", log.join("\n"));
    assert!(split.joined(&split.places) == split.content);
    let log = split.site.proxy.take_log();
    println!("join of 41 MiB: {} requests", log.len());
    assert!(log.len() <= 41 + 12, "{}:\n{}", log.len(), log.join("\n"));
    // What is there is not written over.
    let error = split.split(&split.options()).unwrap_err();
    assert_eq!(error.kind(), Kind::Exists, "{error}");
    let again = SplitOptions { force: true, ..split.options() };
    split.split(&again).unwrap();
    assert!(split.joined(&split.places) == split.content);
}

#[test]
fn with_parity_one_of_several_buckets_may_be_lost() {
    let Some(split) = Split::new("one_of_several_buckets_may_be_lost", 3, 9 << 20) else { return };
    split.split(&SplitOptions { parity: 1, ..split.options() }).unwrap();
    for lost in 0..3 {
        let left: Vec<_> =
            (0..3).filter(|at| *at != lost).map(|at| split.places[at].clone()).collect();
        assert!(split.joined(&left) == split.content, "without output {lost}");
    }
    let remote: &dyn RemoteOutputs = &*split.site.buckets;
    let none = pinstripe_io::fault::Plan::default();
    let reader = open_outputs(&split.places, Some(remote), &none, &Monitor::default()).unwrap();
    let verified = verify_outputs(&reader, 2, &Monitor::default()).unwrap();
    assert_eq!((verified.repairable, verified.lost_parts), (0, 0));
    drop(reader);
    // A segment is gone: parity gives it back, and verify names it.
    let bucket = split.places[1].to_str().unwrap().rsplit('/').next().unwrap().to_owned();
    fs::remove_file(split.site.server.file(&format!("{bucket}/log-{:016x}", 0))).unwrap();
    assert!(split.joined(&split.places) == split.content);
    let reader = open_outputs(&split.places, Some(remote), &none, &Monitor::default()).unwrap();
    let verified = verify_outputs(&reader, 2, &Monitor::default()).unwrap();
    assert!(verified.repairable > 0 && verified.lost_parts == 0, "{verified:?}");
}

#[test]
#[ignore = "with --all: it takes 7 s"]
fn a_split_that_was_cut_off_is_resumed_where_it_was() {
    let Some(split) = Split::new("a_split_that_was_cut_off_is_resumed", 2, 61 << 20) else {
        return;
    };
    let puts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&puts);
    // The endpoint takes some segments and then nothing more.
    split.site.proxy.rule(move |asked| {
        let is_put = asked.method == "PUT" && asked.target.contains("/log-");
        match is_put && counted.fetch_add(1, Ordering::SeqCst) >= 4 {
            true => Fate::Answer(403, "<Error><Code>AccessDenied</Code></Error>".to_owned()),
            false => Fate::Pass,
        }
    });
    let error = split.split(&split.options()).unwrap_err();
    assert!(error.to_string().contains("AccessDenied"), "{error}");
    let remote: &dyn RemoteOutputs = &*split.site.buckets;
    let none = pinstripe_io::fault::Plan::default();
    let reader = open_outputs(&split.places, Some(remote), &none, &Monitor::default()).unwrap();
    let refused = require_complete(&reader, false).unwrap_err();
    assert_eq!(refused.kind(), Kind::Refused, "{refused}");
    drop(reader);
    split.site.proxy.rule(|_| Fate::Pass);
    split.site.proxy.take_log();
    let again = SplitOptions { resume: true, ..split.options() };
    let outcome = split.split(&again).unwrap();
    assert!(outcome.resumed_bytes >= 8 << 20, "{}", outcome.resumed_bytes);
    assert!(split.joined(&split.places) == split.content);
    let complete = split.split(&again).unwrap_err();
    assert_eq!(complete.kind(), Kind::Exists, "{complete}");
}

#[test]
fn a_prefix_with_something_else_and_plain_ranges_are_refused() {
    let Some(split) = Split::new("a_prefix_with_something_else", 1, 1 << 20) else { return };
    let plain = SplitOptions {
        spread: Some(LayoutChoice::Ranges),
        codec: CodecChoice::Fixed(pinstripe_stripe::Codec::Raw),
        ..split.options()
    };
    assert_eq!(split.split(&plain).unwrap_err().kind(), Kind::Usage);
    let twice = SplitOptions {
        outputs: vec![split.places[0].clone(), split.places[0].clone()],
        ..split.options()
    };
    assert_eq!(split.split(&twice).unwrap_err().kind(), Kind::Usage);
    let prefix = split.places[0].to_str().unwrap().rsplit('/').next().unwrap().to_owned();
    let file = split.site.server.file(&format!("{prefix}/photo.jpg"));
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, b"not ours").unwrap();
    for options in [split.options(), SplitOptions { force: true, ..split.options() }] {
        let error = split.split(&options).unwrap_err();
        assert_eq!(error.kind(), Kind::Refused, "{error}");
        assert!(error.to_string().contains("photo.jpg"), "{error}");
    }
    assert_eq!(fs::read(&file).unwrap(), b"not ours");
}

/// Neither knows of the other when it begins; what one of them has written stays as it is.
#[test]
fn of_two_programs_that_write_to_one_output_one_is_told() {
    let Some(site) = Site::new("of_two_programs_that_write_to_one_output") else { return };
    let place = site.fresh_place();
    let [first, second] = [(); 2].map(|()| site.buckets.output(&place).unwrap());
    first.write_at(0, b"the first").unwrap();
    first.sync().unwrap();
    second.write_at(0, b"the other").unwrap();
    let told = second.sync().unwrap_err();
    assert_eq!(told.kind(), Kind::Busy, "{told}");
    // Its own object is written over, also by one that finds it there.
    first.write_at(4, b"same").unwrap();
    first.sync().unwrap();
    let again = site.buckets.output(&place).unwrap();
    let mut read = [0; 9];
    again.read_at(0, &mut read).unwrap();
    assert_eq!(&read, b"the samet");
    again.write_at(0, b"new").unwrap();
    again.sync().unwrap();
    // An endpoint that knows no such condition is written to as before.
    let puts = AtomicUsize::new(0);
    site.proxy.rule(move |asked| {
        match asked.method == "PUT" && puts.fetch_add(1, Ordering::SeqCst) == 0 {
            true => Fate::Answer(501, "<Error><Code>NotImplemented</Code></Error>".to_owned()),
            false => Fate::Pass,
        }
    });
    let plain = site.buckets.output(&site.fresh_place()).unwrap();
    plain.write_at(0, b"content").unwrap();
    plain.sync().unwrap();
}

#[test]
fn an_output_keeps_the_rules_of_devices() {
    let Some(site) = Site::new("an_output_keeps_the_rules_of_devices") else { return };
    conformance::run(&|| -> Box<dyn Device> {
        Box::new(site.buckets.output(&site.fresh_place()).unwrap())
    });
    // What was synced is what another process finds.
    let place = site.fresh_place();
    let device = site.buckets.output(&place).unwrap();
    let long = noise((17 << 20) + 12_345);
    device.write_at(0, &long[..5000]).unwrap();
    for (at, piece) in
        long[5000..].chunks(1 << 20).enumerate().collect::<Vec<_>>().into_iter().rev()
    {
        device.write_at(5000 + ((at as u64) << 20), piece).unwrap();
    }
    device.sync().unwrap();
    device.set_len(9_000_000).unwrap();
    device.sync().unwrap();
    let again = crate::support::buckets(pinstripe_testing::KEY_SECRET).output(&place).unwrap();
    assert_eq!(again.len().unwrap(), 9_000_000);
    let mut read = vec![0; 9_000_000];
    again.read_at(0, &mut read).unwrap();
    assert!(read == long[..9_000_000]);
    assert_eq!(again.read_at(8_999_999, &mut [0; 2]).unwrap_err().kind(), Kind::Corrupt);
}
